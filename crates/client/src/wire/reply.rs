//! What a server answers.

use coua_protocol::{Flags, KEY_LEN_MAX, base64};

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// What became of an item, or what it is.
    Item(ItemReply),
    /// The lines of `stats`: name and value.
    Stats(Vec<(String, String)>),
    /// The server's version.
    Version(String),
    /// An error line.
    Refused(Refusal),
}

/// An error line of the server's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// `SERVER_ERROR`: the server cannot, for instance because the value is too large for it.
    #[error("SERVER_ERROR {0}")]
    Server(String),
    /// `CLIENT_ERROR`: the server takes the request for wrong, for instance `incr` of a text.
    #[error("CLIENT_ERROR {0}")]
    Client(String),
    /// `ERROR`: the server does not know the command.
    #[error("ERROR {0}")]
    Unknown(String),
}

/// What became of an item, or what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemReply {
    /// The outcome.
    pub status: Status,
    /// The value, where it was asked for and is there. A number of `incr` or `ma` is its digits.
    pub value: Option<Vec<u8>>,
    /// What came with it.
    pub flags: ReplyFlags,
}

/// An outcome, in either dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Done, or found: `HD`, `VA`, `STORED`, `DELETED`, `TOUCHED`, `OK`, `MN`, a value.
    #[default]
    Done,
    /// There is no such item: `EN`, `NF`, `NOT_FOUND`, `END` without a value.
    Missing,
    /// The condition of the request did not hold: `NS`, `NOT_STORED`.
    NotStored,
    /// The item has another CAS: `EX`, `EXISTS`.
    Exists,
}

/// What meta answers beside the value. `None` and `false` where it was not asked for.
///
/// An answer is moved from hand to hand: what few requests ask for is [`ReplyFlags::details`], behind a
/// pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplyFlags {
    /// `f`: the client flags.
    pub client_flags: u32,
    /// `W`: this client is the one to recompute the value.
    pub won: bool,
    /// `X`: the item is stale.
    pub stale: bool,
    /// `Z`: another client was told to recompute it.
    pub already_won: bool,
    /// `c`: the CAS.
    pub cas: Option<u64>,
    pub(crate) details: Option<Box<ReplyDetails>>,
}

/// The flags of an answer that few requests ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplyDetails {
    /// `t`: seconds until the item expires; -1 for never.
    pub ttl_seconds: Option<i64>,
    /// `s`: the length of the value.
    pub size: Option<u64>,
    /// `l`: seconds since the item was last read.
    pub last_access_seconds: Option<u64>,
    /// `h`: whether the item was read before.
    pub hit_before: Option<bool>,
    /// `k`: the key, decoded if it was sent in base64.
    pub key: Option<Vec<u8>>,
    /// `O`: what was sent with `O`.
    pub opaque: Option<Vec<u8>>,
    /// Flags without a field here, each with a space before it.
    pub other: Vec<u8>,
}

impl ReplyDetails {
    const NONE: ReplyDetails = ReplyDetails {
        ttl_seconds: None,
        size: None,
        last_access_seconds: None,
        hit_before: None,
        key: None,
        opaque: None,
        other: Vec::new(),
    };
}

impl ReplyFlags {
    /// The flags that few requests ask for.
    #[must_use]
    pub fn details(&self) -> &ReplyDetails {
        static NONE: ReplyDetails = ReplyDetails::NONE;
        self.details.as_deref().unwrap_or(&NONE)
    }

    /// Reads the flags of a line, or `None` if one of them does not have the form that it must have.
    pub(crate) fn parse(text: &[u8]) -> Option<ReplyFlags> {
        let mut flags = ReplyFlags::default();
        // What most gets ask for.
        if text == b" f0" {
            return Some(flags);
        }
        let mut is_base64 = false;
        for (letter, argument) in Flags::new(text) {
            match letter {
                b'f' => flags.client_flags = number(argument)?,
                b'c' => flags.cas = Some(number(argument)?),
                b'W' => flags.won = true,
                b'X' => flags.stale = true,
                b'Z' => flags.already_won = true,
                b'b' => is_base64 = true,
                _ => flags.detail(letter, argument)?,
            }
        }
        if let (true, Some(details)) = (is_base64, &mut flags.details)
            && let Some(key) = &mut details.key
        {
            let mut decoded = [0; KEY_LEN_MAX];
            let len = base64::decode(key, &mut decoded)?;
            *key = decoded[..len].to_vec();
        }
        Some(flags)
    }

    #[cold]
    fn detail(&mut self, letter: u8, argument: &[u8]) -> Option<()> {
        let details = self
            .details
            .get_or_insert_with(|| Box::new(ReplyDetails::NONE));
        match letter {
            b't' => details.ttl_seconds = Some(number(argument)?),
            b's' => details.size = Some(number(argument)?),
            b'l' => details.last_access_seconds = Some(number(argument)?),
            b'h' => details.hit_before = Some(number::<u8>(argument)? != 0),
            b'k' => details.key = Some(argument.to_vec()),
            b'O' => details.opaque = Some(argument.to_vec()),
            _ => {
                details.other.extend_from_slice(&[b' ', letter]);
                details.other.extend_from_slice(argument);
            }
        }
        Some(())
    }
}

/// A decimal number that fills the whole word.
pub(crate) fn number<N: std::str::FromStr>(word: &[u8]) -> Option<N> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_small() {
        assert!(size_of::<Reply>() <= 72, "{}", size_of::<Reply>());
    }

    #[test]
    fn flags_of_a_line() {
        let text = b" f7 c18446744073709551615 t-1 s3 l4 h1 W X Z kYSBi b Oxy q9 z";
        let flags = ReplyFlags::parse(text).expect("it is well formed");
        let details = ReplyDetails {
            ttl_seconds: Some(-1),
            size: Some(3),
            last_access_seconds: Some(4),
            hit_before: Some(true),
            key: Some(b"a b".to_vec()),
            opaque: Some(b"xy".to_vec()),
            other: b" q9 z".to_vec(),
        };
        let expected = ReplyFlags {
            client_flags: 7,
            cas: Some(u64::MAX),
            won: true,
            stale: true,
            already_won: true,
            details: Some(Box::new(details)),
        };
        assert_eq!(flags, expected);
        for bad in ["f", "f-1", "f4294967296", "cx", "t", "h", "h2x", "k=== b"] {
            assert_eq!(ReplyFlags::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
