//! Why something cannot be sent, or is no answer, and what is known of a request then.

use crate::key::KeyError;

/// Why a request cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The key is not one.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The value is longer than the client is set to send.
    #[error("the value has {len} bytes, and {max} are the most that this client sends")]
    TooLarge {
        /// Bytes of the value.
        len: usize,
        /// The limit, [`crate::wire::Limits::value_len_max`].
        max: usize,
    },
    /// The server speaks classic text only, which cannot express this.
    #[error("{0} needs the meta protocol, which this server does not have")]
    NeedsMeta(&'static str),
    /// A flag that the client sets itself, or that is no letter.
    #[error("the meta flag `{}` is no letter, or one that the client sets itself", .0.escape_ascii())]
    Flag(u8),
    /// The argument of a meta flag has a blank or a control character, or is too long.
    #[error("the argument of the meta flag `{}` cannot be sent", .0.escape_ascii())]
    FlagArgument(u8),
    /// A word of `stats` has a control character, or is too long.
    #[error("what `stats` is asked for cannot be sent")]
    StatsArgument,
    /// As many requests are in flight as the conversation allows.
    #[error("too many requests are in flight")]
    Full,
}

/// Why an answer cannot be one; the conversation is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The bytes are no answer in memcached's language.
    #[error("what came is not memcached's language")]
    Malformed,
    /// It is an answer, but not to what was asked.
    #[error("an answer came that does not fit the request")]
    Misplaced,
    /// An answer came when nothing was asked.
    #[error("an answer came to no request")]
    Unsolicited,
    /// The value is longer than [`crate::wire::Limits::value_len_max`].
    #[error("a value of {len} bytes came, and {max} are the most that this client takes")]
    TooLarge {
        /// Its length in bytes.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The server refused a request that carries a value. It may take the value for further commands, so
    /// nothing behind it can be trusted.
    #[error("the server refused a request with a value")]
    BodyRefused,
}

/// What may have become of a request that has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Its last byte was not handed to the connection.
    NotSent,
    /// It was sent, and it only reads.
    Reads,
    /// It was sent, and it may have been executed.
    Unknown,
}
