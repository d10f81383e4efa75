//! Requests and answers, independent of the dialect.

use std::fmt;
use std::rc::Rc;

use crate::window::Window;

/// A client's key, by number.
pub(crate) type KeyNumber = usize;

/// The dialect in which a request is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Classic,
    Meta,
    Binary,
}

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas(u64),
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Only the classic form takes several keys.
    Get {
        keys: Vec<KeyNumber>,
        cas: bool,
        touch: Option<i32>,
    },
    Store {
        key: KeyNumber,
        mode: Mode,
        value: Rc<[u8]>,
        flags: u32,
        exptime: i32,
    },
    Delete {
        key: KeyNumber,
    },
    /// `incr` and `decr`. `initial` is the number and expiry for a key that has no item.
    Count {
        key: KeyNumber,
        delta: u64,
        decrement: bool,
        initial: Option<(u64, i32)>,
    },
    Touch {
        key: KeyNumber,
        exptime: i32,
    },
    Flush {
        delay: i32,
    },
    /// A request whose answer never varies.
    Fixed {
        send: Vec<u8>,
        answer: Vec<u8>,
    },
    /// Statistics: lines up to `END`.
    Lines {
        send: &'static [u8],
    },
    /// The server closes.
    Quit,
}

/// A request that a client has begun to send.
#[derive(Clone, Debug)]
pub(crate) struct SentRequest {
    pub(crate) request: Request,
    pub(crate) form: Form,
    pub(crate) quiet: bool,
    pub(crate) opaque: u32,
    /// The second and the round in which it was made.
    pub(crate) at: u32,
    pub(crate) round: u64,
    /// Where it ends in the stream of bytes that the client sends on the connection.
    pub(crate) end: u64,
}

impl SentRequest {
    /// When it was executed, if that happened by second `to` and `round`.
    pub(crate) fn window(&self, to: u32, round: u64) -> Window {
        Window {
            from: self.at,
            to,
            asked: self.round,
            answered: round,
        }
    }
}

/// An item that was found.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// `None` where the answer does not tell.
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Rc<[u8]>>,
    pub(crate) flags: Option<u32>,
    pub(crate) cas: Option<u64>,
    /// Seconds left, negative for ever.
    pub(crate) ttl: Option<i64>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A quiet request was executed and had nothing to say.
    Silence,
    /// The items found, in the order of the keys.
    Values(Vec<Found>),
    Stored(Option<u64>),
    NotStored,
    Exists,
    NotFound,
    /// Deleted, touched, flushed.
    Done,
    Number(u64, Option<u64>),
    NotNumeric,
    TooLarge,
    NoMemory,
    /// The only possible answer.
    Fixed,
}

impl Request {
    /// The key of a request that has one.
    pub(crate) fn key(&self) -> Option<KeyNumber> {
        match self {
            Request::Store { key, .. }
            | Request::Delete { key }
            | Request::Count { key, .. }
            | Request::Touch { key, .. } => Some(*key),
            _ => None,
        }
    }

    /// Whether the quiet form of the request leaves `answer` out, which must be a right answer to
    /// it. `None` where both are allowed.
    pub(crate) fn is_silent(&self, form: Form, answer: &Answer) -> Option<bool> {
        match (form, self, answer) {
            (Form::Classic, ..) => Some(true),
            (_, Request::Get { .. }, Answer::Values(found)) => Some(found.is_empty()),
            (_, Request::Get { .. }, _) => Some(false),
            (Form::Meta, Request::Delete { .. } | Request::Count { .. }, Answer::NotFound) => None,
            (_, _, Answer::Stored(_) | Answer::Done | Answer::Number(..)) => Some(true),
            _ => Some(false),
        }
    }

    /// A word for traces.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Request::Get { touch: None, .. } => "get",
            Request::Get { .. } => "gat",
            Request::Store { mode, .. } => match mode {
                Mode::Set => "set",
                Mode::Add => "add",
                Mode::Replace => "replace",
                Mode::Append => "append",
                Mode::Prepend => "prepend",
                Mode::Cas(_) => "cas",
            },
            Request::Delete { .. } => "delete",
            Request::Count { .. } => "count",
            Request::Touch { .. } => "touch",
            Request::Flush { .. } => "flush",
            Request::Fixed { .. } => "fixed",
            Request::Lines { .. } => "stats",
            Request::Quit => "quit",
        }
    }
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.as_deref().unwrap_or(b"-");
        let value = self.value.as_deref().unwrap_or_default();
        write!(
            f,
            "{}: {} bytes {}, flags {:?}, CAS {:?}, ttl {:?}",
            key[..key.len().min(24)].escape_ascii(),
            value.len(),
            value[..value.len().min(24)].escape_ascii(),
            self.flags,
            self.cas,
            self.ttl
        )
    }
}
