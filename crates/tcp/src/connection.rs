//! One TCP connection: RFC 9293's transmission control block and what happens to it.
//!
//! ```text
//! arrives      a segment has come (RFC 9293, section 3.10.7)
//!   ├─ checks        whether it counts, before anything changes (RFC 5961, 7323)
//!   ├─ acknowledge   what it acknowledges, and what that says of losses (RFC 2018, 6298, 8985)
//!   │   └─ scoreboard    what has arrived beyond gaps
//!   └─ receive       what it carries, in order or not
//! timers       time has passed
//! emit         whatever is due is written into frames
//! ```
//! Neither a segment nor a timer sends anything: they change the state, and `emit`, once a turn,
//! sends what the state asks for. So an acknowledgment rides on a reply, replies share segments,
//! and what finds no room in the card's queue is simply still due.
//!
//! # Invariants
//! - `send.una ≤ send.nxt ≤ send.end`, on the circle; the list of buffers from `send.head` covers
//!   `una..end` without gaps, those before `send.unsent` have been sent.
//! - `recovery.pipe` is the sum over buffers in flight (RFC 6675).
//! - `receive.nxt ≤ receive.edge`: a right edge once offered is never withdrawn.
//! - Everything before `receive.nxt` lies in a buffer, in a frame of this burst, or was read.

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

/// The states of RFC 9293, section 3.3.2. LISTEN is not a connection's but the stack's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has been asked for, and the peer has not answered.
    SynSent,
    /// The peer has asked for it, and has not acknowledged our answer.
    SynReceived,
    /// Both sides may send.
    Established,
    /// We have sent everything, which the peer has not acknowledged.
    FinWait1,
    /// We have sent everything, and the peer has it.
    FinWait2,
    /// The peer has sent everything.
    CloseWait,
    /// Both have sent everything, and the peer has not acknowledged that.
    Closing,
    /// As that, and the peer was first.
    LastAck,
    /// It is over; what may still be on its way is waited for.
    TimeWait,
    /// It is over.
    Closed,
}

/// Why a connection ended other than by both sides' wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer has reset it, or has refused it.
    Reset,
    /// The peer does not answer.
    TimedOut,
    /// It was given up here.
    Aborted,
    /// The answer to its opening came to another worker's queue: from another port it may come
    /// to this one's.
    Misdirected,
}

/// One connection. Its fields stand in this order, and it begins with a line of the cache: all that
/// the usual exchange needs is in the first four.
#[repr(C, align(64))]
pub(crate) struct Connection {
    pub(crate) tuple: FourTuple,
    /// The user's name for it.
    pub(crate) tag: u64,
    pub(crate) path: Path,
    pub(crate) flags: ConnectionFlags,
    pub(crate) send: Sending,
    /// Tells one use of the same place from the next.
    pub(crate) generation: u32,
    /// What is added to our clock in its timestamps.
    ts_offset: u32,
    pub(crate) receive: Receiving,
    /// What is kept of the headers of its data segments; none where it is to be made.
    template: Template,
    pub(crate) state: State,
    pub(crate) failure: Option<Failure>,
    pub(crate) timers: Timers,
    pub(crate) rtt: Rtt,
    /// Of which the window comes first.
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

/// Bytes of payload that a peer takes that does not say (RFC 9293, section 3.7.1).
pub(crate) const fn default_mss(is_v4: bool) -> u16 {
    if is_v4 { 536 } else { 1220 }
}

/// The shortest MSS that a peer may ask for. Every host takes packets of 576 bytes (RFC 791; RFC 1122,
/// section 3.3.2), and whoever asks for shorter segments has us spend a buffer and a frame on a few
/// bytes each. For IPv6 it is no longer: every path passes 1280 bytes there (RFC 8200, section 5), but
/// behind a translator the peer may be a host of IPv4 that means what it asks for.
pub(crate) const MSS_MIN: u16 = 536;

impl Connection {
    /// Tag while the user has set none.
    pub(crate) const NO_TAG: u64 = u64::MAX;

    /// Bytes of payload of a full segment.
    #[inline]
    pub(crate) fn mss(&self) -> u16 {
        self.send.mss
    }

    /// Computes them anew, as something has changed on which they depend: what the peer takes and the
    /// path lets pass, less the timestamps (RFC 6691).
    fn settle_mss(&mut self) {
        self.send.mss = self.mss_within(self.path.mtu);
    }

    /// The payload of a full segment in packets of so many bytes.
    fn mss_within(&self, mtu: u16) -> u16 {
        let path = mtu - headers_len(self.tuple.remote.is_v4());
        let options = match self.flags.has(ConnectionFlags::TIMESTAMPS) {
            true => 12,
            false => 0,
        };
        self.send.peer_mss.min(path) - options
    }

    /// Lines of the cache that the usual exchange needs.
    const HOT_LINES: usize = 4;

    /// Has memory fetch those lines.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_lines(std::ptr::from_ref(self).cast(), Self::HOT_LINES);
    }

    /// Notes where the peer is: whoever sends what counts is there.
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

    /// Whether there is something to read, or will never be.
    pub(crate) fn is_readable(&self) -> bool {
        self.receive.unread > 0
            || self.flags.has(ConnectionFlags::PEER_ENDED)
            || self.state == State::Closed
    }

    /// Bytes that the user may give to be sent.
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

    /// Bytes that it may hold to be sent, where it holds `queued` already.
    #[inline]
    fn send_share(&self, shared: &Shared, queued: u32) -> u32 {
        let room = shared.buffers.room_to_send();
        if queued > 0 && room < shared.buffers.room_for_first() {
            return 0;
        }
        // Of what is left, so that the first do not take all.
        let share = u32::try_from(room / 8).unwrap_or(u32::MAX);
        let mut share = share.max(2 * u32::from(self.mss()));
        if room < shared.buffers.tight_room() {
            // What the peer does not take could not be sent anyway.
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
            // The usual reply: a short one, with nothing on its way.
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

    /// Appends a SYN or FIN. False where there is no memory.
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

    /// The user has sent everything. False where there is no memory to note that.
    pub(crate) fn end(&mut self, shared: &mut Shared) -> bool {
        if self.flags.has(ConnectionFlags::ENDED) {
            return true;
        }
        let next = match self.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            // The FIN goes when the handshake is done.
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

    /// Ends it at once; the peer is told where it knows of it.
    pub(crate) fn abort(&mut self, shared: &mut Shared, failure: Failure) {
        let is_known = !matches!(self.state, State::SynSent | State::Closed | State::TimeWait);
        if is_known && failure != Failure::Reset {
            self.flags.set(ConnectionFlags::RESET_DUE);
        }
        self.fail(shared, failure);
    }

    /// It is over without anything to be sent.
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

    /// Gives all memory back.
    pub(crate) fn release(&mut self, shared: &mut Shared) {
        self.forget_unsent(shared);
        self.forget_unread(shared);
    }

    /// Nobody will read what was received.
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
