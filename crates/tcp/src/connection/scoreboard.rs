//! The scoreboard: what the peer has acknowledged by SACK (RFC 2018, RFC 6675).
//!
//! A peer may report any blocks with each acknowledgment, so the queue must not be searched for
//! each block. The blocks are sorted and the queue is walked once. The block that was reported
//! last, which has usually grown since, is not walked again.

use super::acknowledge::Confirmed;
use super::{Connection, Shared};
use crate::buffers::{BufferId, Marks};
use crate::seq::SeqNumber;
use crate::wire::tcp::{Header, SACK_BLOCKS_MAX, SackBlock};

impl Connection {
    /// Marks what the peer has acknowledged by SACK. True if it reports a DSACK.
    pub(super) fn confirm_blocks(
        &mut self,
        shared: &mut Shared,
        header: &Header,
        confirmed: &mut Confirmed,
    ) -> bool {
        let blocks = header.options.sack.blocks();
        let (una, nxt) = (self.send.una, self.send.nxt);
        // RFC 2883, section 4: a DSACK is the first block, and lies below this segment's own
        // acknowledgment number (which may be an old one, if segments were reordered) or within the
        // second block.
        let is_within =
            |inner: SackBlock, outer: SackBlock| outer.0 <= inner.0 && inner.1 <= outer.1;
        let has_dsack = match *blocks {
            [first, ..] if first.1 <= header.ack => true,
            [first, second, ..] => is_within(first, second),
            _ => false,
        };
        let fresh = if has_dsack { &blocks[1..] } else { blocks };
        let mut sorted = [(una, una); SACK_BLOCKS_MAX];
        let mut count = 0;
        for &(from, to) in fresh {
            if from < to && from >= una && to <= nxt {
                sorted[count] = (from, to);
                count += 1;
            }
        }
        let newest = sorted[0];
        let sorted = &mut sorted[..count];
        // All lie within one window, so they can be sorted by their distance from `una`.
        sorted.sort_unstable_by_key(|block| block.0.since(una));
        let mut id = self.send.head;
        let known = self.known_block();
        for &block in &*sorted {
            if let Some((from, last)) = known
                && block.0 >= from
                && !id.is_none()
                && shared.buffers[last].seq >= block.0.max(shared.buffers[id].seq)
            {
                // Everything up to there is marked.
                id = last;
            }
            id = self.confirm_block(shared, block, block == newest, id, confirmed);
        }
        if has_dsack {
            self.note_dsack();
        }
        has_dsack
    }

    /// Where the block that was reported last begins, and its last buffer.
    pub(super) fn known_block(&self) -> Option<(SeqNumber, BufferId)> {
        let recovery = &self.recovery;
        let is_there = !recovery.sacked_last.is_none();
        is_there.then_some((recovery.sacked_from, recovery.sacked_last))
    }

    /// Marks what lies in a block. The walk starts at the buffer `id`, before which nothing of the
    /// block is unmarked. Returns the first buffer after the block.
    fn confirm_block(
        &mut self,
        shared: &mut Shared,
        (from, to): SackBlock,
        is_newest: bool,
        mut id: BufferId,
        confirmed: &mut Confirmed,
    ) -> BufferId {
        let mut last = BufferId::NONE;
        while !id.is_none() {
            shared.counters.queue_steps += 1;
            let buffer = shared.buffers[id];
            if buffer.end() > to || !buffer.marks.has(Marks::SENT) {
                break;
            }
            if buffer.seq >= from {
                last = id;
                if !buffer.marks.has(Marks::SACKED) {
                    confirmed.note(&buffer);
                    self.recovery.change(&mut shared.buffers[id], |buffer| {
                        buffer.marks.set(Marks::SACKED);
                        buffer.marks.clear(Marks::LOST);
                    });
                    self.recovery.fack = self.recovery.fack.max(buffer.end());
                }
            }
            id = buffer.next;
        }
        if is_newest && !last.is_none() {
            (self.recovery.sacked_from, self.recovery.sacked_last) = (from, last);
        }
        id
    }
}
