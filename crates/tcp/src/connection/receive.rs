//! The payload of segments: bytes in order, bytes beyond a gap, bytes that came before.

use coua_cpu::copy_short;

use super::{Connection, ConnectionFlags, Fresh, NO_FRESH, OutOfOrder, Receiving, Shared};
use crate::buffers::{BufferId, Buffers};
use crate::nic::Nic;
use crate::seq::SeqNumber;
use crate::wire::tcp::Sack;

/// Where the payload of a segment lies.
#[derive(Clone, Copy)]
pub(crate) struct Payload<'f> {
    /// The bytes.
    pub(crate) bytes: &'f [u8],
    /// The frame's number in its burst.
    pub(crate) frame: u16,
    /// Where in the frame they begin.
    pub(crate) start: u16,
    /// A queue on the way has marked the packet (RFC 3168).
    pub(crate) is_marked: bool,
}

impl Connection {
    /// Takes payload that begins at `seq` and overlaps with the window. True if it was new and in
    /// order, and none of it was beyond the window.
    pub(super) fn take_payload(
        &mut self,
        shared: &mut Shared,
        nic: &impl Nic,
        seq: SeqNumber,
        payload: Payload<'_>,
    ) -> bool {
        let receive = &mut self.receive;
        let end = seq + u32::try_from(payload.bytes.len()).expect("a frame's");
        if end <= receive.nxt {
            // All of it came before: the acknowledgment was lost, or it was retransmitted
            // needlessly.
            self.out_of_order.twice = Some((seq, end));
            self.flags.set(ConnectionFlags::ACK_NOW);
            return false;
        }
        let skipped = receive.nxt.since(seq);
        if skipped > 0 {
            self.out_of_order.twice = Some((seq, receive.nxt));
        }
        let past = end.since(receive.edge);
        let bytes = &payload.bytes[skipped as usize..payload.bytes.len() - past as usize];
        if bytes.is_empty() {
            // The window is zero; an acknowledgment tells the peer.
            self.flags.set(ConnectionFlags::ACK_NOW);
            return false;
        }
        let pieces = bytes.len() / Buffers::PIECE_LEN + 1;
        if seq <= self.receive.nxt && !shared.buffers.has_pieces(pieces) {
            // What closes the gap is worth more than what lies beyond it.
            self.prune(shared);
        }
        if !shared.buffers.has_pieces(pieces) {
            // It has not been acknowledged, so it will come again.
            shared.counters.dropped_memory += bytes.len() as u64;
            self.flags.set(ConnectionFlags::ACK_NOW);
            return false;
        }
        if seq > self.receive.nxt {
            let lost = self.out_of_order.insert(&mut shared.buffers, seq, bytes);
            shared.counters.dropped_memory += lost as u64;
            self.flags.set(ConnectionFlags::ACK_NOW);
            return false;
        }
        let len = u32::try_from(bytes.len()).expect("a frame's");
        if self.out_of_order.is_empty() {
            let skipped = u16::try_from(skipped).expect("within a frame");
            let len = u16::try_from(bytes.len()).expect("a frame's");
            self.take_next(shared, payload.frame, payload.start + skipped, len);
        } else {
            // What follows beyond the gap is in buffers, so all before it goes there too.
            self.keep_fresh(shared, nic);
            let receive = &mut self.receive;
            receive.stash_bytes(&mut shared.buffers, bytes);
            receive.nxt += len;
            receive.unread += len;
            receive.join(&mut self.out_of_order, &mut shared.buffers);
            self.receive.unacknowledged += len;
            self.flags.set(ConnectionFlags::ACK_NOW);
        }
        past == 0
    }

    /// Takes bytes that are the next in order and leaves them in their frame. There must be memory
    /// for them.
    #[inline]
    pub(super) fn take_next(&mut self, shared: &mut Shared, frame: u16, start: u16, len: u16) {
        shared
            .buffers
            .reserve(usize::from(len) / Buffers::PIECE_LEN + 1);
        let receive = &mut self.receive;
        receive.add_fresh(&mut shared.fresh, frame, start, len);
        let len = u32::from(len);
        receive.nxt += len;
        receive.unread += len;
        receive.unacknowledged += len;
        let is_much = receive.unacknowledged >= 2 * u32::from(self.mss());
        self.flags.set(match is_much {
            true => ConnectionFlags::ACK_NOW,
            false => ConnectionFlags::ACK_LATER,
        });
    }

    /// The SACK option of the next acknowledgment, of `max` blocks at most.
    pub(super) fn sack(&mut self, buffers: &Buffers, max: usize) -> Sack {
        if !self.flags.has(ConnectionFlags::SACK) || self.out_of_order.is_nothing() || max == 0 {
            return Sack::NONE;
        }
        self.out_of_order.sack(buffers, self.receive.nxt, max)
    }

    /// Whether anything is held beyond gaps.
    pub(crate) fn has_gaps(&self) -> bool {
        !self.out_of_order.is_empty()
    }

    /// Discards what is held beyond gaps, as memory is short; the peer sends it again. Returns how
    /// many buffers that frees.
    pub(crate) fn prune(&mut self, shared: &mut Shared) -> u16 {
        let pieces = self.out_of_order.prune(&mut shared.buffers);
        shared.counters.pruned += u64::from(pieces);
        pieces
    }

    /// Copies out received bytes, and returns how many.
    pub(crate) fn read(&mut self, shared: &mut Shared, nic: &impl Nic, space: &mut [u8]) -> usize {
        let receive = &mut self.receive;
        if receive.stash.is_none()
            && let Some(fresh) = shared.fresh.get(usize::from(receive.fresh))
            && u32::from(fresh.len) == receive.unread
            && let Some(space) = space.get_mut(..usize::from(fresh.len))
        {
            // The common case: all of a request lies in one frame.
            let frame = nic.frame(usize::from(fresh.frame)).bytes;
            copy_short(space, &frame[usize::from(fresh.start)..][..space.len()]);
            receive.fresh = NO_FRESH;
            receive.unread = 0;
            return space.len();
        }
        let mut len = 0;
        while !receive.stash.is_none() && len < space.len() {
            let bytes = shared.buffers.bytes(receive.stash);
            let count = bytes.len().min(space.len() - len);
            space[len..len + count].copy_from_slice(&bytes[..count]);
            len += count;
            if count == bytes.len() {
                receive.stash = shared.buffers.free(receive.stash);
            } else {
                let count = u32::try_from(count).expect("a buffer's");
                shared.buffers[receive.stash].trim_front(count);
            }
        }
        while receive.stash.is_none() && receive.fresh != NO_FRESH && len < space.len() {
            let fresh = &mut shared.fresh[usize::from(receive.fresh)];
            let bytes = &nic.frame(usize::from(fresh.frame)).bytes[usize::from(fresh.start)..]
                [..usize::from(fresh.len)];
            let count = bytes.len().min(space.len() - len);
            space[len..len + count].copy_from_slice(&bytes[..count]);
            len += count;
            let count = u16::try_from(count).expect("a frame's");
            fresh.start += count;
            fresh.len -= count;
            if fresh.len == 0 {
                receive.fresh = fresh.next;
            }
        }
        receive.unread -= u32::try_from(len).expect("below the window");
        len
    }

    /// Whether to send a window update, for a peer that may be waiting for one (RFC 9293, section
    /// 3.8.6.2.2).
    #[inline]
    pub(crate) fn has_opened(&self, shared: &Shared) -> bool {
        let offered = self.receive.edge.since(self.receive.nxt);
        if offered >= shared.config.receive_len_max / 2 {
            return false;
        }
        let limit = self.receive_limit(shared).min(65_535 << self.receive.shift);
        let free = limit.saturating_sub(self.receive.unread);
        offered < limit / 2 && free >= offered + (limit / 2).min(2 * u32::from(self.mss()))
    }

    /// Bytes that may be received and not read, as memory allows.
    #[inline]
    fn receive_limit(&self, shared: &Shared) -> u32 {
        let least = 2 * u32::from(self.mss());
        shared
            .config
            .receive_len_max
            .min(shared.receive_share.max(least))
    }

    /// The window to put into a segment, scaled. The right edge moves accordingly.
    #[inline]
    pub(super) fn offer_window(&mut self, shared: &Shared) -> u16 {
        let limit = self.receive_limit(shared);
        let mss = u32::from(self.mss());
        let receive = &mut self.receive;
        let offered = receive.edge.since(receive.nxt);
        let free = limit.saturating_sub(receive.unread);
        // Small steps would make the peer send small segments.
        let window = match free >= offered + mss.min(limit / 2) {
            true => free,
            false => offered,
        };
        // The edge must not go back, so what the shift would cut off is added.
        let shift = receive.shift;
        let rounded = window.div_ceil(1 << shift).min(u32::from(u16::MAX));
        let edge = receive.nxt + (rounded << shift);
        receive.edge = receive.edge.max(edge);
        u16::try_from(rounded).unwrap_or(u16::MAX)
    }

    /// Copies unread bytes from frames into buffers, before the frames are given back.
    pub(crate) fn keep_fresh(&mut self, shared: &mut Shared, nic: &impl Nic) {
        let receive = &mut self.receive;
        while receive.fresh != NO_FRESH {
            let Fresh {
                frame,
                start,
                len,
                next,
            } = shared.fresh[usize::from(receive.fresh)];
            let bytes =
                &nic.frame(usize::from(frame)).bytes[usize::from(start)..][..usize::from(len)];
            receive.stash_bytes(&mut shared.buffers, bytes);
            receive.fresh = next;
        }
        receive.fresh_tail = NO_FRESH;
    }

    /// Whether anything lies in frames.
    pub(crate) fn has_fresh(&self) -> bool {
        self.receive.fresh != NO_FRESH
    }
}

impl Receiving {
    #[inline]
    fn add_fresh(&mut self, all: &mut Vec<Fresh>, frame: u16, start: u16, len: u16) {
        let number = u16::try_from(all.len()).expect("as many as frames");
        all.push(Fresh {
            frame,
            start,
            len,
            next: NO_FRESH,
        });
        if self.fresh == NO_FRESH {
            self.fresh = number;
        } else {
            all[usize::from(self.fresh_tail)].next = number;
        }
        self.fresh_tail = number;
    }

    /// Appends bytes to those received in order. There is memory for them: that was checked before
    /// they were taken.
    fn stash_bytes(&mut self, buffers: &mut Buffers, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if !self.stash.is_none() {
                let count = buffers.append(self.stash_tail, bytes, usize::MAX);
                bytes = &bytes[count..];
                if bytes.is_empty() {
                    break;
                }
            }
            let id = buffers.store_reserved(SeqNumber(0), bytes);
            bytes = &bytes[buffers[id].len() as usize..];
            self.append(buffers, id);
        }
    }

    fn append(&mut self, buffers: &mut Buffers, id: BufferId) {
        buffers[id].next = BufferId::NONE;
        if self.stash.is_none() {
            self.stash = id;
        } else {
            buffers[self.stash_tail].next = id;
        }
        self.stash_tail = id;
    }

    /// Appends the bytes beyond a gap that is now closed.
    fn join(&mut self, out_of_order: &mut OutOfOrder, buffers: &mut Buffers) {
        while let Some(id) = out_of_order.take_next(buffers, self.nxt) {
            let len = buffers[id].len();
            self.nxt += len;
            self.unread += len;
            // Small pieces share a buffer, so that unread bytes take no more memory than they need.
            match !self.stash.is_none() && buffers.merge(self.stash_tail, id) {
                true => _ = buffers.free(id),
                false => self.append(buffers, id),
            }
        }
    }
}
