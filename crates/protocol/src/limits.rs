//! The limits on the size of a request.

/// The longest key, in bytes. A base64 key counts as it is sent.
pub const KEY_LEN_MAX: usize = 250;

/// The longest value that the wire can announce, in bytes: memcached holds
/// length and line end together in a signed 32-bit number.
pub const VALUE_LEN_MAX: u32 = i32::MAX as u32 - 2;

/// The limits that a server sets for requests; the same for all its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest item in bytes, as [`Limits::item_len`] counts it (`-I`).
    pub item_size_max: u32,
    /// Whether items have a CAS (`-C` turns it off), which counts eight bytes.
    pub cas: bool,
    /// A store request (line and body) of up to this many bytes is waited for
    /// until it is whole; the body of a longer one is handed on as it arrives.
    /// The caller's buffer must be able to hold this many bytes.
    pub gather_max: u32,
    /// How long a line may be before it is whole, in bytes. A `get` or `gets`
    /// that is longer is answered key by key as it arrives. The caller's buffer
    /// must be able to hold this many bytes; below [`Limits::LINE_MAX_FLOOR`] it
    /// counts as that.
    pub line_max: u32,
    /// The commands of SASL are known (`-S`).
    pub sasl: bool,
}

impl Limits {
    /// How many bytes without a line end memcached takes of any command but
    /// `get` and `gets` before it closes the connection.
    pub const LINE_MAX_FLOOR: u32 = 2048;

    /// What memcached 1.6.45 counts an item as, in bytes: a 48-byte header, the
    /// CAS, the key and a NUL, client flags unless they are 0, the value and its
    /// line end.
    ///
    /// An item fits if that is not above `-I`: with a 1 MiB limit and a one-byte
    /// key the largest value is 1048516 bytes, or 1048512 with client flags.
    #[inline]
    #[must_use]
    pub fn item_len(&self, key_len: usize, client_flags: u32, value_len: u32) -> u64 {
        const HEADER_LEN: u64 = 48;
        const CAS_LEN: u64 = 8;
        let cas = if self.cas { CAS_LEN } else { 0 };
        let flags = if client_flags == 0 { 0 } else { 4 };
        HEADER_LEN + cas + key_len as u64 + 1 + flags + u64::from(value_len) + 2
    }

    /// Whether such an item is within `item_size_max`; if not, the answer is
    /// `SERVER_ERROR object too large for cache`.
    #[inline]
    #[must_use]
    pub fn item_fits(&self, key_len: usize, client_flags: u32, value_len: u32) -> bool {
        self.item_len(key_len, client_flags, value_len) <= u64::from(self.item_size_max)
    }
}

impl Default for Limits {
    /// 1 MiB items, and requests up to 16 KiB gathered.
    fn default() -> Self {
        Limits {
            item_size_max: 1 << 20,
            cas: true,
            gather_max: 16 << 10,
            line_max: 16 << 10,
            sasl: false,
        }
    }
}
