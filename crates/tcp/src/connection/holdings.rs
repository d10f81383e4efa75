//! What a connection holds of what all of them share: memory, in bytes and in buffers.
//!
//! It is counted when memory is short and somebody wants to know, not with each segment: the lists
//! themselves are what is true, and each of them is bounded in number.

use super::{Connection, Shared};
use crate::buffers::{BufferId, Buffers};

/// Memory that is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    /// Buffers of what was given to be sent and is not acknowledged.
    pub(crate) sent: usize,
    /// Buffers of what was received in order and is not read.
    pub(crate) unread: usize,
    /// Buffers of what was received beyond gaps.
    pub(crate) beyond_gaps: usize,
    /// Bytes of memory of all of them.
    pub(crate) bytes: usize,
}

impl Connection {
    /// What it holds.
    pub(crate) fn holdings(&self, shared: &Shared) -> Holdings {
        let mut holdings = Holdings::default();
        let bytes = &mut holdings.bytes;
        let mut count = |first| {
            let (buffers, len) = count_list(&shared.buffers, first);
            *bytes += len;
            buffers
        };
        holdings.sent = count(self.send.head);
        holdings.unread = count(self.receive.stash);
        holdings.beyond_gaps = count(self.out_of_order.head());
        holdings
    }
}

/// Buffers of a list, and bytes of memory that they take.
fn count_list(buffers: &Buffers, mut id: BufferId) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    while !id.is_none() {
        count += 1;
        bytes += Buffers::size_of(id);
        id = buffers[id].next;
    }
    (count, bytes)
}
