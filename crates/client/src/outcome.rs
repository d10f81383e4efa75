//! Answers as results of operations.

use crate::error::Error;
use crate::wire::reply::{ItemReply, Reply, Status, number};

/// An item that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// What was stored.
    pub bytes: Vec<u8>,
    /// The client flags that were stored with it.
    pub client_flags: u32,
    /// The CAS, where it was asked for.
    pub cas: Option<u64>,
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Vec<u8> {
        value.bytes
    }
}

/// What became of a conditional store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// The value is stored.
    Stored,
    /// The item was there and should not be, or the other way round.
    NotStored,
    /// The item has changed: another CAS.
    Exists,
    /// There is no item to compare with.
    Missing,
}

/// The lines of `stats`: name and value.
pub type Statistics = Vec<(String, String)>;

/// A result of each server, with its address, in the order of the settings.
pub type EachServer<T> = Vec<(String, Result<T, Error>)>;

/// What an operation results in.
pub trait Outcome: sealed::FromReply {}

impl<T: sealed::FromReply> Outcome for T {}

pub(crate) mod sealed {
    use super::Reply;

    /// A result that an answer can be read as.
    pub trait FromReply: Sized {
        /// `None` when the answer cannot be one to such an operation.
        fn from_reply(reply: Reply) -> Option<Self>;
    }
}

use sealed::FromReply;

fn item(reply: Reply) -> Option<ItemReply> {
    match reply {
        Reply::Item(item) => Some(item),
        _ => None,
    }
}

/// `get`: a miss is `None`.
impl FromReply for Option<Value> {
    fn from_reply(reply: Reply) -> Option<Self> {
        let item = item(reply)?;
        match (item.status, item.value) {
            (Status::Done, Some(bytes)) => Some(Some(Value {
                bytes,
                client_flags: item.flags.client_flags,
                cas: item.flags.cas,
            })),
            (Status::Missing, None) => Some(None),
            _ => None,
        }
    }
}

/// `cas` and other stores.
impl FromReply for StoreOutcome {
    fn from_reply(reply: Reply) -> Option<Self> {
        Some(match item(reply)?.status {
            Status::Done => StoreOutcome::Stored,
            Status::NotStored => StoreOutcome::NotStored,
            Status::Exists => StoreOutcome::Exists,
            Status::Missing => StoreOutcome::Missing,
        })
    }
}

/// `add`, `delete`, `touch`: whether it was done.
impl FromReply for bool {
    fn from_reply(reply: Reply) -> Option<Self> {
        match item(reply)?.status {
            Status::Done => Some(true),
            Status::NotStored | Status::Missing => Some(false),
            Status::Exists => None,
        }
    }
}

/// `set`, `flush_all`: there is no other outcome.
impl FromReply for () {
    fn from_reply(reply: Reply) -> Option<Self> {
        (item(reply)?.status == Status::Done).then_some(())
    }
}

/// `incr`, `decr`: the new number, or `None` without an item.
impl FromReply for Option<u64> {
    fn from_reply(reply: Reply) -> Option<Self> {
        let item = item(reply)?;
        match (item.status, item.value) {
            (Status::Done, Some(digits)) => Some(Some(number(digits.trim_ascii_end())?)),
            (Status::Missing, None) => Some(None),
            _ => None,
        }
    }
}

/// Meta commands.
impl FromReply for ItemReply {
    fn from_reply(reply: Reply) -> Option<Self> {
        item(reply)
    }
}

/// `stats`.
impl FromReply for Statistics {
    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::Stats(lines) => Some(lines),
            _ => None,
        }
    }
}

/// `version`.
impl FromReply for String {
    fn from_reply(reply: Reply) -> Option<Self> {
        match reply {
            Reply::Version(version) => Some(version),
            _ => None,
        }
    }
}
