//! The bounds of a conversation.

/// The bounds of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest value that is sent or accepted, in bytes; the lines of one answer to `stats` together
    /// have this bound too.
    pub value_len_max: usize,
    /// How many requests may wait for their answers.
    pub in_flight_max: usize,
    /// Whether keys with blanks and control characters are sent in base64. They are refused otherwise.
    pub binary_keys: bool,
}

impl Default for Limits {
    /// 64 MiB, 64 Ki requests, no binary keys.
    fn default() -> Self {
        Limits {
            value_len_max: 64 << 20,
            in_flight_max: 64 << 10,
            binary_keys: false,
        }
    }
}
