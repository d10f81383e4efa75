//! One client's connection.

/// The memory that a client lends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Its key.
    pub key: u64,
    /// Where it begins, as the client counts.
    pub address: u64,
    /// Bytes.
    pub len: u64,
}

/// What has happened on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Requests.
    pub requests: u64,
    /// Bytes of replies.
    pub bytes_written: u64,
    /// Bytes of values that were fetched.
    pub bytes_read: u64,
}

pub(super) struct Connection {
    pub(super) memory: RemoteMemory,
    /// Frames of requests that are not answered.
    pub(super) frames: usize,
    /// Its requests, by their indices, in the order in which they came.
    pub(super) requests: Vec<u32>,
    /// Reads under way.
    pub(super) reads: usize,
    /// Writes under way.
    pub(super) writes: usize,
    pub(super) is_closing: bool,
    /// Frames that may still come of values that were refused before all of them had come.
    pub(super) strays: usize,
    /// It may write values where they will lie.
    pub(super) may_write: bool,
    pub(super) counts: ConnectionCounts,
}

impl Connection {
    pub(super) fn new(memory: RemoteMemory, may_write: bool) -> Connection {
        Connection {
            memory,
            frames: 0,
            requests: Vec::new(),
            reads: 0,
            writes: 0,
            is_closing: false,
            strays: 0,
            may_write,
            counts: ConnectionCounts::default(),
        }
    }
}
