//! The error lines.

/// An error line of memcached 1.6.45, or of what only coua has.
///
/// The parser yields those that follow from the request alone; the server yields the others. They
/// are listed here together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorLine {
    /// An unknown command.
    Unknown,
    /// Too few arguments, a key that is too long, or an invalid number.
    BadFormat,
    /// The value is not followed by a line end.
    BadDataChunk,
    /// An expiry that is not a 32-bit number.
    BadExptime,
    /// An `incr` or `decr` amount that is not a 64-bit number.
    BadDelta,
    /// `incr` or `decr` of a value that is not a number.
    NotNumeric,
    /// More than twenty tokens in a meta request.
    TooManyFlags,
    /// A meta flag that is repeated, or one outside ASCII.
    DuplicateFlag,
    /// A meta flag that does not exist.
    UnknownFlag,
    /// A meta flag of `ma` that is unknown, repeated, or has a bad argument.
    BadArithmeticFlag,
    /// A meta flag whose number does not parse.
    BadToken,
    /// The `J` flag's number does not parse.
    BadInitial,
    /// The `D` flag's number does not parse.
    BadDeltaFlag,
    /// A base64 key that does not decode.
    BadBase64Key,
    /// `M` of `ms` names no mode.
    BadStoreMode,
    /// `M` of `ma` names no mode.
    BadArithmeticMode,
    /// `O` and its argument are over 32 bytes.
    OpaqueTooLong,
    /// `G` has no names where there must be some, names where there must be none, or bad ones.
    BadTags,
    /// The item is over the size limit.
    TooLarge,
    /// No memory for the item.
    OutOfMemoryStoring,
    /// No memory for the rest of a value.
    OutOfMemoryReading,
    /// No memory for the result of `incr`, `decr`, `ma`, or a tombstone of `md`.
    OutOfMemory,
    /// No memory for the item that `ma` creates.
    OutOfMemoryVivifying,
    /// No memory for the reply.
    OutOfMemoryReply,
    /// No memory for statistics.
    OutOfMemoryStats,
    /// `shutdown` without `-A`.
    ShutdownDisabled,
    /// `shutdown` with an argument that is not a mode.
    BadShutdownMode,
    /// `flush_all` with `-F`.
    FlushDisabled,
    /// `watch` with `-W`.
    WatchDisabled,
    /// A request of somebody who has not logged in.
    Unauthenticated,
    /// What is to be a user and a password is too long.
    LoginTooLong,
    /// It is not followed by a line end.
    BadLoginEnd,
    /// It has no space.
    BadLogin,
    /// No user has that name and that password.
    LoginFailed,
    /// The user may not do that.
    NotPermitted,
}

impl ErrorLine {
    /// The line with its line end.
    #[must_use]
    pub const fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::Unknown => b"ERROR\r\n",
            Self::BadFormat => b"CLIENT_ERROR bad command line format\r\n",
            Self::BadDataChunk => b"CLIENT_ERROR bad data chunk\r\n",
            Self::BadExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            Self::BadDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            Self::NotNumeric => b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            Self::TooManyFlags => b"CLIENT_ERROR options flags are too long\r\n",
            Self::DuplicateFlag => b"CLIENT_ERROR duplicate flag\r\n",
            Self::UnknownFlag => b"CLIENT_ERROR invalid flag\r\n",
            Self::BadArithmeticFlag => b"CLIENT_ERROR invalid or duplicate flag\r\n",
            Self::BadToken => b"CLIENT_ERROR bad token in command line format\r\n",
            Self::BadInitial => b"CLIENT_ERROR invalid numeric initial value\r\n",
            Self::BadDeltaFlag => b"CLIENT_ERROR invalid numeric delta value\r\n",
            Self::BadBase64Key => b"CLIENT_ERROR error decoding key\r\n",
            Self::BadStoreMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
            Self::BadArithmeticMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
            Self::OpaqueTooLong => b"CLIENT_ERROR opaque token too long\r\n",
            Self::BadTags => b"CLIENT_ERROR bad tags\r\n",
            Self::TooLarge => b"SERVER_ERROR object too large for cache\r\n",
            Self::OutOfMemoryStoring => b"SERVER_ERROR out of memory storing object\r\n",
            Self::OutOfMemoryReading => b"SERVER_ERROR Out of memory during read\r\n",
            Self::OutOfMemory => b"SERVER_ERROR out of memory\r\n",
            Self::OutOfMemoryVivifying => b"SERVER_ERROR Out of memory allocating new item\r\n",
            Self::OutOfMemoryReply => b"SERVER_ERROR out of memory writing get response\r\n",
            Self::OutOfMemoryStats => b"SERVER_ERROR out of memory writing stats\r\n",
            Self::ShutdownDisabled => b"SERVER_ERROR: shutdown not enabled\r\n",
            Self::BadShutdownMode => b"CLIENT_ERROR invalid shutdown mode\r\n",
            Self::FlushDisabled => b"CLIENT_ERROR flush_all not allowed\r\n",
            Self::WatchDisabled => b"CLIENT_ERROR watch commands not allowed\r\n",
            Self::Unauthenticated => b"CLIENT_ERROR unauthenticated\r\n",
            Self::LoginTooLong => b"CLIENT_ERROR auth token too long\r\n",
            Self::BadLoginEnd => b"CLIENT_ERROR bad command line termination\r\n",
            Self::BadLogin => b"CLIENT_ERROR bad authentication token format\r\n",
            Self::LoginFailed => b"CLIENT_ERROR authentication failure\r\n",
            Self::NotPermitted => b"CLIENT_ERROR permission denied\r\n",
        }
    }
}
