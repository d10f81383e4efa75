//! The lines that never vary, other than errors.

/// A fixed line of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The value was stored.
    Stored,
    /// The value was not stored, since an item was there, or since none was.
    NotStored,
    /// The CAS differs.
    Exists,
    /// No item has the key.
    NotFound,
    /// The item was deleted.
    Deleted,
    /// The expiry was set.
    Touched,
    /// Done.
    Ok,
    /// The end of the values or the statistics.
    End,
    /// The statistics were reset.
    Reset,
    /// The answer to `mn`.
    MetaNoop,
    /// An `ms` has stored its value; the answer repeats no flags.
    MetaDone,
    /// `me` has found no item.
    MetaMiss,
}

impl Line {
    /// The line with its line end.
    #[must_use]
    pub const fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::Stored => b"STORED\r\n",
            Self::NotStored => b"NOT_STORED\r\n",
            Self::Exists => b"EXISTS\r\n",
            Self::NotFound => b"NOT_FOUND\r\n",
            Self::Deleted => b"DELETED\r\n",
            Self::Touched => b"TOUCHED\r\n",
            Self::Ok => b"OK\r\n",
            Self::End => b"END\r\n",
            Self::Reset => b"RESET\r\n",
            Self::MetaNoop => b"MN\r\n",
            Self::MetaDone => b"HD\r\n",
            Self::MetaMiss => b"EN\r\n",
        }
    }
}
