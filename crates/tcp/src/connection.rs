//! One TCP connection: RFC 9293's transmission control block and the events that change it.
//!
//! ```text
//! arrives      a segment has arrived (RFC 9293, section 3.10.7)
//!   ├─ checks        whether it is acceptable, before anything changes (RFC 5961, 7323)
//!   ├─ acknowledge   what it acknowledges, and what that says of losses (RFC 2018, 6298, 8985)
//!   │   └─ scoreboard    what has arrived beyond gaps
//!   └─ receive       what it carries, in order or not
//! timers       a timer has expired
//! emit         writes what is due into frames
//! ```
//! Segments and timers send nothing by themselves. They change the state, and once a turn `emit`
//! sends what the state requires. So acknowledgments are piggybacked on replies, replies share
//! segments, and what the card's queue has no room for simply stays due.
//!
//! # Invariants
//! - `send.una ≤ send.nxt ≤ send.end`, modulo 2^32. The list of buffers from `send.head` covers
//!   `una..end` without gaps; those before `send.unsent` have been sent.
//! - `recovery.pipe` is the sum of the lengths of the buffers in flight (RFC 6675).
//! - `receive.nxt ≤ receive.edge`: the right edge of the window never moves back.
//! - Everything before `receive.nxt` is in a buffer, is in a frame of this burst, or was read.

mod acknowledge;
mod arrives;
mod block;
mod checks;
mod ecn;
mod emit;
mod fast_path;
mod holdings;
mod opening;
mod out_of_order;
mod path_mtu;
mod receive;
mod recovery;
mod scoreboard;
mod segment;
mod shared;
mod template;
mod timers;

use coua_cpu::prefetch_lines;

use crate::buffers::{BufferId, Marks};
use crate::congestion::Congestion;
use crate::nic::Mac;
use crate::rtt::Rtt;
use crate::table::Hash;
use crate::time::Instant;
use crate::wire::four_tuple::FourTuple;

pub(crate) use arrives::{Arrived, Payload};
pub(crate) use arrives::{answer_to, offer};
pub(crate) use block::{ConnectionFlags, Path};
use block::{Fresh, NO_FRESH, Phase, Receiving, Recovery, Sending, Timers, Waiting};
use holdings::{SENT_MAX, WINDOW_LEAST};
pub(crate) use opening::{Offer, first_window, own_shift};
use out_of_order::OutOfOrder;
use path_mtu::MtuSearch;
pub(crate) use segment::seal;
pub(crate) use shared::Shared;
pub(crate) use template::Skeletons;
use template::Template;

/// The states of RFC 9293, section 3.3.2. LISTEN is a state of the stack, not of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// We have sent a SYN, and the peer has not answered.
    SynSent,
    /// The peer has sent a SYN, and has not acknowledged ours.
    SynReceived,
    /// Both sides may send.
    Established,
    /// We have sent a FIN, which the peer has not acknowledged.
    FinWait1,
    /// We have sent a FIN, and the peer has acknowledged it.
    FinWait2,
    /// The peer has sent a FIN.
    CloseWait,
    /// Both have sent a FIN, and the peer has not acknowledged ours.
    Closing,
    /// The same, but the peer's FIN came first.
    LastAck,
    /// It is over; segments may still be in flight, so the four-tuple is not reused yet.
    TimeWait,
    /// It is over.
    Closed,
}

/// Why a connection ended, if not by an orderly close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer has reset or refused it.
    Reset,
    /// The peer does not answer.
    TimedOut,
    /// It was aborted on this side.
    Aborted,
    /// The stack has ended it, because its peer received too slowly while memory was short.
    Shed,
    /// The answer to its SYN arrived on another worker's queue. From another local port it may
    /// arrive on this worker's.
    Misdirected,
}

/// One connection. Its fields are laid out in this order from the start of a cache line: the fast
/// path needs only the first four lines.
#[repr(C, align(64))]
pub(crate) struct Connection {
    pub(crate) tuple: FourTuple,
    /// The user's name for it.
    pub(crate) tag: u64,
    pub(crate) path: Path,
    pub(crate) flags: ConnectionFlags,
    pub(crate) send: Sending,
    /// Distinguishes one connection in a place from the next.
    pub(crate) generation: u32,
    /// The offset of its timestamps from our clock.
    ts_offset: u32,
    pub(crate) receive: Receiving,
    /// Precomputed sums for the headers of its data segments; `NONE` until they are needed.
    template: Template,
    pub(crate) state: State,
    pub(crate) failure: Option<Failure>,
    pub(crate) timers: Timers,
    pub(crate) rtt: Rtt,
    /// The window is its first field.
    pub(crate) congestion: Congestion,
    pub(crate) recovery: Recovery,
    pub(crate) out_of_order: OutOfOrder,
    mtu_search: MtuSearch,
    pub(crate) hash: Hash,
}

/// Bytes of a TCP header and an IPv4 or IPv6 header.
pub(crate) const fn headers_len(is_v4: bool) -> u16 {
    if is_v4 { 40 } else { 60 }
}

/// The MSS of a peer that sends no MSS option (RFC 9293, section 3.7.1).
pub(crate) const fn default_mss(is_v4: bool) -> u16 {
    if is_v4 { 536 } else { 1220 }
}

/// The smallest MSS that a peer may ask for. Every host takes packets of 576 bytes (RFC 791; RFC
/// 1122, section 3.3.2), and a peer that asks for shorter segments makes us spend a buffer and a
/// frame on a few bytes each. For IPv6 it is the same, although every path carries 1280 bytes there
/// (RFC 8200, section 5): behind a translator the peer may be an IPv4 host that really needs what
/// it asks for.
pub(crate) const MSS_MIN: u16 = 536;

impl Connection {
    /// The tag while the user has set none.
    pub(crate) const NO_TAG: u64 = u64::MAX;

    /// Bytes of payload of a full segment.
    #[inline]
    pub(crate) fn mss(&self) -> u16 {
        self.send.mss
    }

    /// Recomputes the MSS after a change: the smaller of what the peer takes and what the path
    /// carries, minus the timestamps option (RFC 6691).
    fn settle_mss(&mut self) {
        self.send.mss = self.mss_within(self.path.mtu);
    }

    /// The payload of a full segment in packets of `mtu` bytes.
    fn mss_within(&self, mtu: u16) -> u16 {
        let path = mtu - headers_len(self.tuple.remote.is_v4());
        let options = match self.flags.has(ConnectionFlags::TIMESTAMPS) {
            true => 12,
            false => 0,
        };
        self.send.peer_mss.min(path) - options
    }

    /// Cache lines that the fast path needs.
    const HOT_LINES: usize = 4;

    /// Prefetches those lines.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_lines(std::ptr::from_ref(self).cast(), Self::HOT_LINES);
    }

    /// Notes the link address of the peer, from which an acceptable segment came.
    #[inline]
    pub(crate) fn note_path(&mut self, mac: Mac, vlan: u16) {
        if self.path.mac != Some(mac) || self.path.vlan != vlan {
            self.leave_fast_path();
            (self.path.mac, self.path.vlan) = (Some(mac), vlan);
        }
    }

    /// Whether the handshake is done and the user may send and receive.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(
            self.state,
            State::SynSent | State::SynReceived | State::Closed
        )
    }

    /// Whether there is something to read, or the stream has ended.
    pub(crate) fn is_readable(&self) -> bool {
        self.receive.unread > 0
            || self.flags.has(ConnectionFlags::PEER_ENDED)
            || self.state == State::Closed
    }

    /// Bytes that the connection takes from the user now.
    #[inline]
    pub(crate) fn send_room(&self, shared: &Shared) -> u32 {
        let queued = self.send.end.since(self.send.una);
        match self.state {
            State::Established | State::CloseWait
                if !self.flags.has(ConnectionFlags::ENDED) && self.send.pieces < SENT_MAX =>
            {
                self.send_share(shared, queued).saturating_sub(queued)
            }
            _ => 0,
        }
    }

    /// Bytes that it may hold to be sent, if it holds `queued` already.
    #[inline]
    fn send_share(&self, shared: &Shared, queued: u32) -> u32 {
        let room = shared.buffers.room_to_send();
        if queued > 0 && room < shared.buffers.room_for_first() {
            return 0;
        }
        // A share of what is left, so that the first connections do not take everything.
        let share = u32::try_from(room / 8).unwrap_or(u32::MAX);
        let mut share = share.max(2 * u32::from(self.mss()));
        if room < shared.buffers.tight_room() {
            // More than the peer's window could not be sent anyway.
            share = share.min(self.send.window_max.max(WINDOW_LEAST).saturating_mul(2));
        }
        shared.config.send_len_max.min(share)
    }

    /// Takes bytes to be sent, as many as there is room for.
    pub(crate) fn enqueue(&mut self, shared: &mut Shared, bytes: &[u8]) -> usize {
        let room = self.send_room(shared) as usize;
        let mut rest = &bytes[..bytes.len().min(room)];
        let given = rest.len();
        let mss = usize::from(self.mss());
        let buffers = &mut shared.buffers;
        let send = &mut self.send;
        if send.head.is_none()
            && given <= mss
            && given > 0
            && let Some((id, _)) = buffers.store_tiny(send.end, rest)
        {
            // The common case: a short reply, with nothing in flight.
            (send.head, send.tail, send.unsent, send.pieces) = (id, id, id, 1);
            send.end += u32::try_from(given).expect("below the room");
            return given;
        }
        if !send.unsent.is_none() && !rest.is_empty() {
            let count = buffers.append(send.tail, rest, mss);
            rest = &rest[count..];
            send.end += u32::try_from(count).expect("below the room");
        }
        while !rest.is_empty() && send.pieces < SENT_MAX {
            let Some(id) = buffers.store(send.end, rest, mss) else {
                break;
            };
            let len = buffers[id].len();
            rest = &rest[len as usize..];
            send.end += len;
            send.push(buffers, id);
        }
        given - rest.len()
    }

    /// Appends a SYN or FIN. False if there is no memory.
    fn enqueue_mark(&mut self, shared: &mut Shared, mark: Marks) -> bool {
        let send = &mut self.send;
        let Some(id) = shared.buffers.store_received(send.end, &[]) else {
            return false;
        };
        shared.buffers[id].marks.set(mark);
        send.end += 1;
        send.push(&mut shared.buffers, id);
        true
    }

    /// The user sends no more: appends a FIN. False if there is no memory for it.
    pub(crate) fn end(&mut self, shared: &mut Shared) -> bool {
        if self.flags.has(ConnectionFlags::ENDED) {
            return true;
        }
        let next = match self.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            // The FIN is sent when the handshake is done.
            State::SynReceived => State::SynReceived,
            _ => return true,
        };
        self.leave_fast_path();
        if !self.enqueue_mark(shared, Marks::FIN) {
            return false;
        }
        self.flags.set(ConnectionFlags::ENDED);
        self.state = next;
        true
    }

    /// Ends the connection at once. The peer gets a reset if it knows of the connection.
    pub(crate) fn abort(&mut self, shared: &mut Shared, failure: Failure) {
        let is_known = !matches!(self.state, State::SynSent | State::Closed | State::TimeWait);
        if is_known && failure != Failure::Reset {
            self.flags.set(ConnectionFlags::RESET_DUE);
        }
        self.fail(shared, failure);
    }

    /// Closes the connection; nothing more of it is sent.
    fn fail(&mut self, shared: &mut Shared, failure: Failure) {
        self.leave_fast_path();
        self.state = State::Closed;
        self.failure = Some(failure);
        self.forget_unsent(shared);
    }

    fn forget_unsent(&mut self, shared: &mut Shared) {
        debug_assert!(self.counts_are_right(shared));
        shared.buffers.free_all(self.send.head);
        let send = &mut self.send;
        (send.head, send.tail, send.unsent) = (BufferId::NONE, BufferId::NONE, BufferId::NONE);
        send.pieces = 0;
        self.recovery.sacked_last = BufferId::NONE;
        (self.recovery.pipe, self.recovery.sacked, self.recovery.lost) = (0, 0, 0);
        self.out_of_order.prune(&mut shared.buffers);
        self.timers.send_at = Instant::NEVER;
        self.timers.waiting = Waiting::None;
    }

    /// Frees all its memory.
    pub(crate) fn release(&mut self, shared: &mut Shared) {
        self.forget_unsent(shared);
        self.forget_unread(shared);
    }

    /// Frees what was received and will not be read.
    pub(crate) fn forget_unread(&mut self, shared: &mut Shared) {
        shared.buffers.free_all(self.receive.stash);
        (self.receive.stash, self.receive.stash_tail) = (BufferId::NONE, BufferId::NONE);
        (self.receive.fresh, self.receive.fresh_tail) = (NO_FRESH, NO_FRESH);
        self.receive.unread = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn the_hot_lines_come_first() {
        let window_at = offset_of!(Connection, congestion) + Congestion::WINDOW_AT;
        assert!(window_at + 4 <= 64 * Connection::HOT_LINES);
        assert!(offset_of!(Connection, recovery) >= 64 * Connection::HOT_LINES);
        assert_eq!(size_of::<Connection>(), 448);
    }
}
