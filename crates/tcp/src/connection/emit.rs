//! Writes what is due into frames.

use super::segment::{NoSlot, Parts};
use super::{Connection, ConnectionFlags, Phase, Shared, State, Waiting};
use crate::buffers::{BufferId, Marks};
use crate::nic::Nic;
use crate::seq::SeqNumber;
use crate::time::Instant;
use crate::wire::tcp::Flags;

impl Connection {
    /// Sends what is due, as far as windows and the card allow. The MAC address of the next hop
    /// must be known.
    pub(crate) fn emit(&mut self, shared: &mut Shared, nic: &mut impl Nic) -> Result<(), NoSlot> {
        if self.try_emit_fast(shared, nic)? {
            return Ok(());
        }
        if self.state == State::Closed {
            return self.emit_reset(shared, nic);
        }
        if self.has_nothing_due() {
            return Ok(());
        }
        self.leave_fast_path();
        self.rest_if_idle(shared);
        let mut next = self.send.head;
        while self.recovery.lost > 0 && self.may_send_more() {
            let Some(id) = first_lost(shared, next) else {
                break;
            };
            next = id;
            if !self.send_from(shared, nic, id, u32::from(self.mss()))? {
                return Ok(());
            }
            shared.counters.segments_retransmitted += 1;
        }
        if self.path.mtu < shared.features.mtu {
            self.try_longer_packet(shared, nic)?;
        }
        while let Some(id) = self.next_unsent(shared) {
            if !self.send_from(shared, nic, id, self.longest(shared))? {
                return Ok(());
            }
        }
        self.flags.clear(ConnectionFlags::MUST_SEND);
        if self.flags.has(ConnectionFlags::PROBE) {
            self.send_segment(shared, nic, self.bare(self.send.una - 1))?;
            self.flags.clear(ConnectionFlags::PROBE);
        }
        if self.flags.has(ConnectionFlags::ACK_NOW) {
            self.send_segment(shared, nic, self.bare(self.acceptable()))?;
        } else if self.flags.has(ConnectionFlags::ACK_LATER) && self.timers.ack_at == Instant::NEVER
        {
            self.timers.ack_at = shared.now + shared.config.ack_delay;
        }
        if self.timers.waiting == Waiting::None {
            // While anything is in flight there is a timer, even if one has fired and nothing could
            // be sent.
            if self.send.nxt != self.send.una {
                self.set_send_timer(shared);
            } else if !self.send.unsent.is_none() {
                // Nothing is in flight whose acknowledgment could open the window.
                self.wait_for_window(shared);
            }
        }
        Ok(())
    }

    /// Sends a reset, if one is due.
    fn emit_reset(&mut self, shared: &mut Shared, nic: &mut impl Nic) -> Result<(), NoSlot> {
        if self.flags.has(ConnectionFlags::RESET_DUE) {
            let parts = Parts {
                flags: Flags::RST.and(Flags::ACK),
                ..self.bare(self.send.nxt)
            };
            self.send_segment(shared, nic, parts)?;
            shared.counters.resets_sent += 1;
            self.flags.clear(ConnectionFlags::RESET_DUE);
        }
        Ok(())
    }

    fn rest_if_idle(&mut self, shared: &Shared) {
        if self.recovery.pipe == 0 && !self.send.unsent.is_none() && self.recovery.lost == 0 {
            let idle = shared.now.micros_since(self.send.last_at);
            if idle > self.rtt.timeout(shared.rto_min_us) {
                self.congestion.rested(u32::from(self.mss()));
            }
        }
    }

    fn may_send_more(&self) -> bool {
        self.flags.has(ConnectionFlags::MUST_SEND)
            || self.on_its_way() + u32::from(self.mss()) <= self.congestion.window()
    }

    /// Bytes in flight. Without SACK, each duplicate acknowledgment stands for a segment that has
    /// arrived (RFC 3042; RFC 5681, section 3.2, steps 1, 4 and 5).
    fn on_its_way(&self) -> u32 {
        let left = match self.flags.has(ConnectionFlags::SACK) || self.recovery.phase == Phase::Loss
        {
            true => 0,
            false => u32::from(self.recovery.duplicates) * u32::from(self.mss()),
        };
        self.recovery.pipe.saturating_sub(left)
    }

    /// The next unsent buffer, if it may be sent now: the peer's window and the congestion window
    /// have room for it, and it is worth a segment (RFC 9293, section 3.8.6.2.1, without Nagle's
    /// algorithm).
    fn next_unsent(&mut self, shared: &mut Shared) -> Option<BufferId> {
        let id = self.send.unsent;
        if id.is_none() || self.state == State::SynReceived && shared.buffers[id].len() > 0 {
            return None;
        }
        let buffer = shared.buffers[id];
        if !self.may_send_more() && self.recovery.pipe > 0 {
            let fits = self.on_its_way() + buffer.seq_len() <= self.congestion.window();
            if !fits {
                return None;
            }
        }
        if buffer.marks.has(Marks::SYN) {
            return Some(id);
        }
        let limit = self.send.una + self.send.window;
        let room = limit.since(buffer.seq);
        if buffer.len() == 0 || buffer.len() <= room {
            // A FIN alone needs no window.
            return Some(id);
        }
        // Part of it is sent if that is at least a full segment or half the largest window that the
        // peer has offered, or if the timer has found the window too small for long enough.
        let is_overdue = self.flags.has(ConnectionFlags::MUST_SEND) && self.recovery.pipe == 0;
        let is_much = room >= self.send.window_max / 2 || room >= u32::from(self.mss());
        let is_worth = room > 0 && (is_much || is_overdue);
        if !is_worth {
            return None;
        }
        self.send.cut(&mut shared.buffers, id, room).then_some(id)
    }

    /// Sends a frame with the buffer `first` and those after it that fit into `longest` bytes.
    /// False if there is no memory to cut a buffer that is too long.
    pub(super) fn send_from(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
        first: BufferId,
        longest: u32,
    ) -> Result<bool, NoSlot> {
        let mss = u32::from(self.mss());
        let limit = self.send.una + self.send.window;
        let buffers = &mut shared.buffers;
        // The path MTU may have become smaller.
        if buffers[first].len() > mss && !self.send.cut(buffers, first, mss) {
            // The timer brings about another attempt.
            self.wait_for_window(shared);
            return Ok(false);
        }
        let front = buffers[first];
        let is_new = !front.marks.has(Marks::SENT);
        let asks = self.ecn_of_syn(shared);
        let buffers = &mut shared.buffers;
        let (mut len, mut flags, mut last) = (0, Flags::ACK, first);
        let mut id = first;
        while !id.is_none() {
            let buffer = &buffers[id];
            // The card must cut where buffers end, so the payload before each further buffer is a
            // multiple of the MSS.
            let most = if len % mss == 0 { longest } else { mss };
            let fits = len + buffer.len() <= most
                && buffer.marks.has(Marks::SENT) != is_new
                && (is_new || buffer.marks.has(Marks::LOST))
                && (!is_new || buffer.seq + buffer.len() <= limit)
                && !buffer.marks.has(Marks::SYN);
            if id != first && !fits {
                break;
            }
            len += buffer.len();
            last = id;
            if buffer.marks.has(Marks::FIN) {
                flags = flags.and(Flags::FIN);
            }
            if buffer.marks.has(Marks::SYN) {
                flags = match self.state {
                    State::SynSent => Flags::SYN.and(asks),
                    _ => Flags::SYN.and(Flags::ACK).and(self.ecn_of_answer()),
                };
                break;
            }
            id = buffer.next;
        }
        if len > 0 && buffers[last].next.is_none() {
            flags = flags.and(Flags::PSH);
        }
        let parts = Parts {
            flags,
            seq: front.seq,
            first,
            len,
            ect: match is_new && len > 0 {
                true => self.flags.ect(),
                false => 0,
            },
        };
        self.send_segment(shared, nic, parts)?;
        self.note_sent(shared, first, last);
        Ok(true)
    }

    /// The most bytes of new data in one frame: one segment, or as many as the card cuts itself and
    /// the congestion window allows.
    fn longest(&self, shared: &Shared) -> u32 {
        let mss = u32::from(self.mss());
        let most = shared.features.segmentation_len_max;
        // If the card cut the frame, only its first segment would carry CWR.
        let is_alone = self.flags.has(ConnectionFlags::CWR_DUE);
        if most < 2 * mss || shared.config.trusts_link || is_alone || !self.has_template(shared) {
            return mss;
        }
        let room = self.congestion.window().saturating_sub(self.on_its_way());
        (most.min(room) / mss).max(1) * mss
    }

    /// Marks buffers as sent.
    fn note_sent(&mut self, shared: &mut Shared, first: BufferId, last: BufferId) {
        let mut id = first;
        loop {
            let buffer = &mut shared.buffers[id];
            self.recovery.change(buffer, |buffer| {
                match buffer.marks.has(Marks::SENT) {
                    true => buffer.marks.set(Marks::RETRANSMITTED),
                    false => buffer.marks.set(Marks::SENT),
                }
                buffer.marks.clear(Marks::LOST);
                buffer.sent_at = shared.now;
            });
            if self.recovery.phase == Phase::Recovery {
                self.congestion.sent(buffer.seq_len());
            }
            let (end, next) = (buffer.end(), buffer.next);
            self.send.nxt = self.send.nxt.max(end);
            if self.send.unsent == id {
                self.send.unsent = next;
            }
            if id == last {
                break;
            }
            id = next;
        }
        self.send.last_at = shared.now;
        self.flags.clear(ConnectionFlags::MUST_SEND);
        // A retransmission timer that runs for earlier data keeps running (RFC 6298, section 5),
        // unless a tail loss probe is due earlier.
        let had = (self.timers.waiting, self.timers.send_at);
        if had.0 != Waiting::Reordered {
            self.set_send_timer(shared);
            if had.0 == Waiting::Acknowledgment && self.timers.send_at > had.1 {
                (self.timers.waiting, self.timers.send_at) = had;
            }
        }
    }

    /// The sequence number for an empty segment that the peer finds acceptable: `send.nxt`. If the
    /// peer has shrunk a window that it had offered, by more than what scaling may cut off or a FIN
    /// takes, it is the right edge of the window. Otherwise two sides that have both sent too much
    /// would reject all of each other's segments.
    fn acceptable(&self) -> SeqNumber {
        let (nxt, edge) = (self.send.nxt, self.send.una + self.send.window);
        match self.is_open() && nxt.since(edge) > 1 << self.send.shift {
            true => edge,
            false => nxt,
        }
    }

    /// A segment without payload.
    fn bare(&self, seq: SeqNumber) -> Parts {
        Parts {
            flags: Flags::ACK,
            seq,
            first: BufferId::NONE,
            len: 0,
            ect: 0,
        }
    }
}

/// The first buffer from `id` on that is to be retransmitted.
fn first_lost(shared: &mut Shared, mut id: BufferId) -> Option<BufferId> {
    while !id.is_none() {
        shared.counters.queue_steps += 1;
        if shared.buffers[id].marks.has(Marks::LOST) {
            return Some(id);
        }
        id = shared.buffers[id].next;
    }
    None
}
