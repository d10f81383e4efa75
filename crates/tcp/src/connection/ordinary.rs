//! The usual exchange, on a path of its own: a segment comes that is the next in order and
//! acknowledges all that was sent, and is answered with one segment.
//!
//! That is nearly all that a cache's connections do. Both halves find out that a case is the usual
//! one before they change anything, and leave all others to the steps of RFC 9293, which would do
//! the same ("header prediction": Jacobson, 1990; RFC 7323, appendix A of its predecessor 1323).

use super::emit::{NoSlot, Parts};
use super::{Connection, Phase, Shared, Signs, State, Waiting};
use crate::buffers::{BufferId, Buffers, Marks};
use crate::nic::Nic;
use crate::seq::SeqNumber;
use crate::time::Instant;
use crate::wire::glance::Glance;
use crate::wire::tcp::Flags;

/// Of these signs, only that of timestamps is there when a segment is taken in in the usual way, and
/// neither of those when one is sent.
const TAKING: Signs = Signs::TIMESTAMPS.and(Signs::ORPHAN);
const DUE_OTHERWISE: Signs = Signs::MUST_SEND.and(Signs::PROBE);
const SENDING: Signs = DUE_OTHERWISE.and(Signs::ENDED);

/// Whatever of signs brings a segment about.
const DUE: Signs = DUE_OTHERWISE
    .and(Signs::ACK_NOW)
    .and(Signs::ACK_LATER)
    .and(Signs::RESET_DUE);

impl Connection {
    /// Takes a segment in that lies in the frame of number `frame`, where it is an ordinary one.
    /// False where it is not; nothing has changed then.
    #[inline]
    pub(crate) fn arrives_ordinary(
        &mut self,
        shared: &mut Shared,
        frame: u16,
        glance: &Glance,
    ) -> bool {
        let len = u32::from(glance.len);
        let receive = &self.receive;
        let is_next = self.state == State::Established
            && glance.seq == receive.nxt
            && len <= receive.edge.since(receive.nxt)
            && receive.beyond.is_none()
            && receive.twice.is_none()
            && receive.end.is_none();
        let is_newer = glance.timestamps.value.wrapping_sub(receive.ts_recent) < 1 << 31;
        // Whoever agreed on timestamps has them in each segment; nobody else does.
        let is_known = self.signs.are(TAKING, Signs::TIMESTAMPS)
            && self.path.mac == Some(glance.mac)
            && self.path.vlan == 0;
        let pieces = usize::from(glance.len) / Buffers::PIECE_LEN + 1;
        if !is_next || !is_newer || !is_known || !shared.buffers.has_pieces(pieces) {
            return false;
        }
        let says_nothing_new = glance.ack == self.send.una;
        if says_nothing_new {
            // Without text it might be a duplicate that tells of a loss.
            if len == 0 {
                return false;
            }
            self.update_window(glance.seq, glance.ack, glance.window);
        } else if !self.acknowledge_one(shared, glance.seq, glance.ack, glance.window) {
            return false;
        }
        let receive = &mut self.receive;
        if glance.seq <= receive.acked {
            (receive.ts_recent, receive.ts_recent_at) = (glance.timestamps.value, shared.now);
        }
        receive.last_at = shared.now;
        self.timers.probes = 0;
        if len > 0 {
            self.take_next(shared, frame, glance.start, glance.len);
        }
        true
    }

    /// Sends what is due where that is one segment: all that waits, for the first time, with nothing
    /// else on its way. False where it is something else; nothing has changed then.
    #[inline]
    pub(super) fn emit_ordinary(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
    ) -> Result<bool, NoSlot> {
        let id = self.send.unsent;
        let is_alone = !id.is_none()
            && id == self.send.head
            && id == self.send.tail
            && self.timers.waiting == Waiting::None
            && matches!(self.state, State::Established | State::CloseWait)
            && self.signs.are(DUE_OTHERWISE, Signs::default())
            && self.recovery.phase == Phase::Open
            && self.is_ordinary(shared);
        if !is_alone {
            return Ok(false);
        }
        let buffer = &shared.buffers[id];
        let len = buffer.len();
        let is_new = buffer.marks == Marks::default() && len > 0;
        // Longer than the shortest timeout, the congestion window may have to begin anew.
        let is_busy = shared.now.micros_since(self.send.last_at) < shared.rto_min_us;
        let fits = len <= u32::from(self.mss()) && len <= self.send.window;
        if !is_new || !is_busy || !fits || len > self.congestion.window() {
            return Ok(false);
        }
        self.send_alone(shared, nic, (id, len), |room, buffers| {
            room.copy_from_slice(buffers.bytes(id));
        })?;
        Ok(true)
    }

    /// Sends a short reply at once, where nothing else is on its way or waits. False where it is
    /// something else; nothing has changed then.
    #[inline]
    pub(crate) fn reply_ordinary(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
        bytes: &[u8],
    ) -> bool {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let is_alone = self.send.head.is_none()
            && self.timers.waiting == Waiting::None
            && self.state == State::Established
            && self.signs.are(SENDING, Signs::default())
            && self.recovery.phase == Phase::Open
            && self.path.mac.is_some()
            && self.is_ordinary(shared);
        let is_busy = shared.now.micros_since(self.send.last_at) < shared.rto_min_us;
        let most = u32::from(self.mss()).min(self.send.window);
        let fits = (1..=most.min(self.congestion.window())).contains(&len);
        if !is_alone || !is_busy || !fits {
            return false;
        }
        let Some(id) = shared.buffers.store_tiny(self.send.end, bytes) else {
            return false;
        };
        let sent = self.send_alone(shared, nic, (id, len), |room, _| {
            room.copy_from_slice(bytes)
        });
        if sent.is_err() {
            shared.buffers.free(id);
            return false;
        }
        (self.send.head, self.send.tail) = (id, id);
        self.send.end += len;
        true
    }

    /// Sends one buffer, of so many bytes, for the first time; nothing else is on its way or waits.
    #[inline]
    fn send_alone(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
        (id, len): (BufferId, u32),
        write_payload: impl FnOnce(&mut [u8], &Buffers),
    ) -> Result<(), NoSlot> {
        let parts = Parts {
            flags: Flags::ACK.and(Flags::PSH),
            seq: self.send.nxt,
            first: id,
            len,
        };
        self.send_ordinary(shared, nic, &parts, write_payload)?;
        let buffer = &mut shared.buffers[id];
        (buffer.marks, buffer.sent_at) = (Marks::SENT, shared.now);
        self.send.nxt += len;
        self.send.unsent = BufferId::NONE;
        self.send.last_at = shared.now;
        self.recovery.pipe = len;
        self.set_send_timer(shared);
        Ok(())
    }

    /// Whether there is nothing to be sent, not even an acknowledgment, and no timer to be set.
    #[inline]
    pub(super) fn has_nothing_due(&self) -> bool {
        let is_timed = self.timers.waiting != Waiting::None || self.send.nxt == self.send.una;
        self.send.unsent.is_none()
            && self.recovery.lost == 0
            && is_timed
            && self.signs.are(DUE, Signs::default())
    }

    /// The oldest was sent once, nothing else was sent, and it has arrived whole.
    #[inline]
    pub(super) fn acknowledge_one(
        &mut self,
        shared: &mut Shared,
        seq: SeqNumber,
        ack: SeqNumber,
        window: u16,
    ) -> bool {
        let (send, recovery) = (&mut self.send, &mut self.recovery);
        let id = send.head;
        let is_calm = recovery.phase == Phase::Open && recovery.probe.is_none();
        if ack != send.nxt || id.is_none() || id != send.tail || !send.unsent.is_none() || !is_calm
        {
            return false;
        }
        let buffer = shared.buffers[id];
        if buffer.marks != Marks::SENT || buffer.end() != ack {
            return false;
        }
        shared.buffers.free(id);
        (send.head, send.tail) = (BufferId::NONE, BufferId::NONE);
        send.una = ack;
        recovery.fack = ack;
        recovery.pipe = 0;
        recovery.duplicates = 0;
        let rtt = shared.now.micros_since(buffer.sent_at);
        recovery.rack_rtt = u32::try_from(rtt).unwrap_or(u32::MAX);
        (recovery.rack_sent_at, recovery.rack_end) = (buffer.sent_at, ack);
        self.rtt.measured(rtt);
        self.timers.waiting = Waiting::None;
        self.timers.send_at = Instant::NEVER;
        self.timers.stuck_since = Instant::NEVER;
        self.update_window(seq, ack, window);
        let (mss, len) = (u32::from(self.mss()), buffer.seq_len());
        if len + mss >= self.congestion.window() {
            let smoothed = self.rtt.smoothed;
            self.congestion.acknowledged(len, mss, shared.now, smoothed);
        }
        true
    }
}
