//! What a connection holds of the shared memory, in bytes and in buffers.
//!
//! | what | in bytes | in buffers |
//! |---|---|---|
//! | given to be sent, not acknowledged | `Config::send_len_max`, an eighth of what is left; two of the peer's longest windows where little is left | [`SENT_MAX`], and what is cut of them |
//! | received in order, not read | the window: `Config::receive_len_max`, an eighth of what is left | neighbours of few bytes share one |
//! | received beyond gaps | the window | [`BEYOND_GAPS_MAX`] |
//!
//! Bytes of memory are counted from the lists when memory is short, not with each segment.
//! `stack/pressure.rs` says what happens then.

use super::{Connection, Shared};
use crate::buffers::{BufferId, Buffers};

/// The most buffers that may wait to be acknowledged, all of which may be searched when
/// acknowledgments report gaps. That many segments of the smallest MSS fill the largest window.
pub(super) const SENT_MAX: u16 = 512;

/// The smallest window that is assumed, even if the peer has offered less: otherwise a buffer would
/// hold next to nothing.
pub(super) const WINDOW_LEAST: u32 = 64;

/// The most buffers that are kept beyond gaps; an honest sender does not need more.
pub(super) const BEYOND_GAPS_MAX: u16 = 512;

/// Memory that is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    /// Buffers of data that was given to be sent and is not acknowledged.
    pub(crate) sent: usize,
    /// Buffers of data that was received in order and is not read.
    pub(crate) unread: usize,
    /// Buffers of data that was received beyond gaps.
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

    /// Whether the buffer counts that are kept agree with the lists.
    pub(super) fn counts_are_right(&self, shared: &Shared) -> bool {
        let holdings = self.holdings(shared);
        holdings.sent == usize::from(self.send.pieces)
            && holdings.beyond_gaps == usize::from(self.out_of_order.pieces())
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
