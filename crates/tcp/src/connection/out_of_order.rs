//! What a connection holds beyond gaps until the missing bytes arrive.
//!
//! A list of buffers in order of their sequence numbers, without overlaps. A receiver need not keep
//! any of it: RFC 2018, section 8, lets it discard what it has acknowledged only by SACK, and the
//! peer sends it again. So it is discarded first when memory is short.
//!
//! # Invariants
//! - `pieces` is the length of the list, [`BEYOND_GAPS_MAX`] at most.

use super::holdings::BEYOND_GAPS_MAX;
use crate::buffers::{BufferId, Buffers};
use crate::seq::SeqNumber;
use crate::wire::tcp::{SACK_BLOCKS_MAX, Sack, SackBlock};

/// What has arrived out of order, and the position of the FIN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutOfOrder {
    /// The first buffer beyond a gap, in order of sequence numbers.
    head: BufferId,
    /// The number of buffers.
    pieces: u16,
    /// The latest segments that arrived beyond a gap, the newest first: their blocks are reported
    /// in this order (RFC 2018).
    last: [SackBlock; SACK_BLOCKS_MAX],
    /// What arrived twice, for a DSACK (RFC 2883).
    pub(super) twice: Option<SackBlock>,
    /// The sequence number of the peer's FIN, once it has arrived.
    pub(super) end: Option<SeqNumber>,
}

impl OutOfOrder {
    pub(super) const NOTHING: OutOfOrder = OutOfOrder {
        head: BufferId::NONE,
        pieces: 0,
        last: [(SeqNumber(0), SeqNumber(0)); SACK_BLOCKS_MAX],
        twice: None,
        end: None,
    };

    /// Whether nothing is held beyond a gap.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// The number of buffers beyond gaps.
    pub(super) fn pieces(&self) -> u16 {
        self.pieces
    }

    /// The first buffer beyond a gap.
    pub(super) fn head(&self) -> BufferId {
        self.head
    }

    /// Whether the next acknowledgment needs no SACK option.
    #[inline]
    pub(super) fn is_nothing(&self) -> bool {
        self.head.is_none() && self.twice.is_none()
    }

    /// Keeps the bytes beyond a gap that are not there yet, as far as memory and
    /// [`BEYOND_GAPS_MAX`] allow. Returns how many did not fit.
    pub(super) fn insert(&mut self, buffers: &mut Buffers, seq: SeqNumber, bytes: &[u8]) -> usize {
        let end = seq + u32::try_from(bytes.len()).expect("a frame's");
        let (mut before, mut id) = (BufferId::NONE, self.head);
        while !id.is_none() && buffers[id].seq <= seq {
            (before, id) = (id, buffers[id].next);
        }
        let mut at = seq;
        if !before.is_none() {
            at = at.max(buffers[before].end());
        }
        if at > seq {
            // Its front, or all of it, arrived before (RFC 2883, section 4.2.2).
            self.twice = Some((seq, at.min(end)));
        }
        if at >= end {
            return 0;
        }
        // Later buffers that it covers whole are freed; if it overlaps one in part, only the bytes
        // before that one are added.
        while !id.is_none() && buffers[id].end() <= end {
            id = buffers.free(id);
            self.pieces -= 1;
        }
        self.link(buffers, before, id);
        let stop = match id.is_none() {
            true => end,
            false => end.min(buffers[id].seq),
        };
        let mut rest = &bytes[at.since(seq) as usize..stop.since(seq) as usize];
        if !before.is_none() && buffers[before].end() == at {
            // Small pieces that follow one another share a buffer.
            let count = buffers.append(before, rest, usize::MAX);
            rest = &rest[count..];
            at += u32::try_from(count).expect("a buffer's");
        }
        while !rest.is_empty() && self.pieces < BEYOND_GAPS_MAX {
            let Some(new) = buffers.store_beyond_gap(at, rest) else {
                break;
            };
            let len = buffers[new].len();
            rest = &rest[len as usize..];
            at += len;
            self.link(buffers, before, new);
            self.link(buffers, new, id);
            self.pieces += 1;
            before = new;
        }
        if at > seq {
            self.last.rotate_right(1);
            self.last[0] = (seq, at);
        }
        rest.len()
    }

    /// Makes `next` follow `before`, or come first if `before` is none.
    fn link(&mut self, buffers: &mut Buffers, before: BufferId, next: BufferId) {
        match before.is_none() {
            true => self.head = next,
            false => buffers[before].next = next,
        }
    }

    /// Removes and returns the first buffer if it holds the next bytes in order, trimmed of those
    /// that came before.
    pub(super) fn take_next(&mut self, buffers: &mut Buffers, nxt: SeqNumber) -> Option<BufferId> {
        while !self.head.is_none() && buffers[self.head].seq <= nxt {
            let id = self.head;
            let overlap = nxt.since(buffers[id].seq);
            self.pieces -= 1;
            if overlap >= buffers[id].len() {
                self.head = buffers.free(id);
                continue;
            }
            self.head = buffers[id].next;
            buffers[id].trim_front(overlap);
            return Some(id);
        }
        None
    }

    /// Discards all that is held beyond gaps (RFC 2018, section 8). The position of the FIN stays
    /// known, as it takes no memory. Returns how many buffers that frees.
    pub(super) fn prune(&mut self, buffers: &mut Buffers) -> u16 {
        buffers.free_all(self.head);
        self.head = BufferId::NONE;
        std::mem::take(&mut self.pieces)
    }

    /// The SACK option of the next acknowledgment, of at most `max` blocks: first the DSACK (RFC
    /// 2883), then the block of the latest segment, then the others (RFC 2018, section 4).
    pub(super) fn sack(&mut self, buffers: &Buffers, nxt: SeqNumber, max: usize) -> Sack {
        let mut sack = Sack::NONE;
        let max = max.min(SACK_BLOCKS_MAX);
        let twice = self.twice.take();
        if let Some(block) = twice {
            sack.push(block);
        }
        let blocks = Blocks {
            buffers,
            id: self.head,
        };
        // A DSACK beyond the acknowledgment is followed by the block that contains it (RFC 2883,
        // section 4, point 5), then by those of the latest segments, then by any others.
        let twice_beyond = twice.filter(|block| block.0 >= nxt);
        let newest = twice_beyond.into_iter().chain(self.last);
        let around = newest.filter_map(|part| {
            let holds = |block: &SackBlock| block.0 <= part.0 && part.1 <= block.1;
            blocks.clone().find(holds)
        });
        let first = usize::from(twice.is_some());
        for block in around.chain(blocks.clone()) {
            if sack.blocks().len() >= max {
                break;
            }
            if !sack.blocks()[first..].contains(&block) {
                sack.push(block);
            }
        }
        sack
    }
}

/// The SACK blocks of what lies beyond gaps.
#[derive(Clone)]
struct Blocks<'b> {
    buffers: &'b Buffers,
    id: BufferId,
}

impl Iterator for Blocks<'_> {
    type Item = SackBlock;

    fn next(&mut self) -> Option<SackBlock> {
        if self.id.is_none() {
            return None;
        }
        let first = &self.buffers[self.id];
        let (from, mut to) = (first.seq, first.end());
        self.id = first.next;
        while !self.id.is_none() && self.buffers[self.id].seq == to {
            to = self.buffers[self.id].end();
            self.id = self.buffers[self.id].next;
        }
        Some((from, to))
    }
}
