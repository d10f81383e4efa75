//! The fast path for in-order segments (header prediction): a segment arrives that is the next in
//! order and acknowledges all that was sent, and it is answered with one segment.
//!
//! That is nearly all that a cache's connections do. Receiving and sending both check for this case
//! before they change anything, and leave all other cases to the steps of RFC 9293, which give the
//! same result (Jacobson, 1990; RFC 1323, appendix A).
//!
//! # What [`ConnectionFlags::PREDICTED`] means
//! The connection does this and nothing else, so only its hot lines are accessed. While the flag is
//! set, at most one segment is in flight, which was sent once, at `send.last_at`. `recovery.pipe`,
//! `recovery.fack` and `recovery.stuck_since` follow from that and are not kept up to date.
//! [`Connection::leave_fast_path`] recomputes them and clears the flag; all code that can end this
//! state, or reads these fields, calls it first. RACK's state (RFC 8985) is left as it was: RACK
//! compares segments that were in flight together, and there were none.

use coua_cpu::copy_short;

use super::segment::{NoSlot, Parts};
use super::template::Checks;
use super::{Connection, ConnectionFlags, Phase, Shared, State, Waiting};
use crate::buffers::{BufferId, Buffers, Marks};
use crate::nic::Nic;
use crate::seq::SeqNumber;
use crate::time::Instant;
use crate::wire::checksum::Sum;
use crate::wire::predicted::PredictedHeader;
use crate::wire::tcp::Flags;

/// Flags that make a segment due for other reasons than new data or an acknowledgment.
const DUE_OTHERWISE: ConnectionFlags = ConnectionFlags::MUST_SEND.and(ConnectionFlags::PROBE);

/// Flags that make a segment due.
const DUE: ConnectionFlags = DUE_OTHERWISE
    .and(ConnectionFlags::ACK_NOW)
    .and(ConnectionFlags::ACK_LATER)
    .and(ConnectionFlags::RESET_DUE);

/// Flags that exclude the fast path.
const NOT_PREDICTED: ConnectionFlags = ConnectionFlags::ORPHAN
    .and(ConnectionFlags::ENDED)
    .and(ConnectionFlags::CWR_DUE)
    .and(ConnectionFlags::ECN_ECHO);

impl Connection {
    /// Whether nothing but in-order exchanges is going on.
    #[inline]
    fn is_predicted(&mut self, shared: &Shared) -> bool {
        debug_assert!(!self.flags.has(ConnectionFlags::PREDICTED) || self.is_quiet(shared));
        self.flags.has(ConnectionFlags::PREDICTED) || self.begin_prediction(shared)
    }

    /// Sets the flag if the connection qualifies. That can only happen while nothing is in flight.
    #[inline(never)]
    fn begin_prediction(&mut self, shared: &Shared) -> bool {
        let is_predicted = self.send.nxt == self.send.una && self.is_quiet(shared);
        if is_predicted {
            self.flags.set(ConnectionFlags::PREDICTED);
        }
        is_predicted
    }

    /// Whether it is established, nothing is missing, and neither side has sent a FIN.
    fn is_quiet(&self, shared: &Shared) -> bool {
        let (recovery, out_of_order) = (&self.recovery, &self.out_of_order);
        self.state == State::Established
            && self.has_template(shared)
            && !self.flags.has(NOT_PREDICTED)
            && self.path.mac.is_some()
            && out_of_order.end.is_none()
            && recovery.phase == Phase::Open
            && recovery.probe.is_none()
            && (recovery.sacked, recovery.lost, recovery.duplicates) == (0, 0, 0)
            && self.timers.probes == 0
    }

    /// Called before anything else than an in-order exchange begins, or before the fields that the
    /// fast path does not update are read.
    #[inline]
    pub(super) fn leave_fast_path(&mut self) {
        if self.flags.has(ConnectionFlags::PREDICTED) {
            self.flags.clear(ConnectionFlags::PREDICTED);
            let (send, recovery) = (&self.send, &mut self.recovery);
            recovery.pipe = send.nxt.since(send.una);
            recovery.fack = send.una;
            recovery.stuck_since = match recovery.pipe {
                0 => Instant::NEVER,
                _ => send.last_at,
            };
        }
    }

    /// Processes a segment in the frame of number `frame`, if it is a predicted one. False if it is
    /// not; nothing has changed then.
    #[inline]
    pub(crate) fn try_arrive_fast(
        &mut self,
        shared: &mut Shared,
        frame: u16,
        predicted: &PredictedHeader,
    ) -> bool {
        let len = u32::from(predicted.len);
        let receive = &self.receive;
        let is_next = predicted.seq == receive.nxt && len <= receive.edge.since(receive.nxt);
        let is_newer = predicted.timestamps.value.wrapping_sub(receive.ts_recent) < 1 << 31;
        // A predicted frame has no VLAN tag.
        let is_known = self.path.mac == Some(predicted.mac) && shared.skeletons.vlan() == 0;
        let pieces = usize::from(predicted.len) / Buffers::PIECE_LEN + 1;
        let has_room = shared.buffers.has_pieces(pieces);
        if !is_next || !is_newer || !is_known || !has_room || !self.is_predicted(shared) {
            return false;
        }
        let says_nothing_new = predicted.ack == self.send.una;
        if says_nothing_new {
            // Without payload it might be a duplicate acknowledgment, which indicates a loss.
            if len == 0 {
                return false;
            }
            self.update_window(predicted.seq, predicted.ack, predicted.window);
        } else if !self.try_acknowledge_fast(shared, predicted) {
            return false;
        }
        let receive = &mut self.receive;
        if predicted.seq <= receive.acked {
            (receive.ts_recent, receive.ts_recent_at) = (predicted.timestamps.value, shared.now);
        }
        receive.last_at = shared.now;
        if len > 0 {
            self.take_next(shared, frame, predicted.start, predicted.len);
        }
        true
    }

    /// Sends what is due if it is one segment with all that waits, sent for the first time, with
    /// nothing else in flight. False if not; nothing has changed then.
    #[inline]
    pub(super) fn try_emit_fast(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
    ) -> Result<bool, NoSlot> {
        let id = self.send.unsent;
        let is_alone = !id.is_none()
            && id == self.send.head
            && id == self.send.tail
            && self.timers.waiting == Waiting::None
            && self.flags.are(DUE_OTHERWISE, ConnectionFlags::default());
        if !is_alone || !self.is_predicted(shared) {
            return Ok(false);
        }
        let buffer = &shared.buffers[id];
        let len = buffer.len();
        let is_new = buffer.marks == Marks::default() && len > 0;
        // After a pause longer than the shortest timeout, the congestion window may have to be
        // reset.
        let is_busy = shared.now.micros_since(self.send.last_at) < shared.rto_min_us;
        let fits = len <= u32::from(self.mss()) && len <= self.send.window;
        if !is_new || !is_busy || !fits || len > self.congestion.window() {
            return Ok(false);
        }
        self.send_alone(shared, nic, (id, len), |room, buffers, checks| {
            let bytes = buffers.bytes(id);
            room.copy_from_slice(bytes);
            checks.sum_of(bytes)
        })?;
        let buffer = &mut shared.buffers[id];
        (buffer.marks, buffer.sent_at) = (Marks::SENT, shared.now);
        Ok(true)
    }

    /// Sends a short reply at once, if nothing else is in flight or waits. False if not; nothing
    /// has changed then.
    #[inline]
    pub(crate) fn try_reply_fast(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
        bytes: &[u8],
    ) -> bool {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let is_alone = self.send.head.is_none()
            && self.timers.waiting == Waiting::None
            && self.flags.are(DUE_OTHERWISE, ConnectionFlags::default());
        let is_busy = shared.now.micros_since(self.send.last_at) < shared.rto_min_us;
        let most = u32::from(self.mss()).min(self.send.window);
        let fits = (1..=most.min(self.congestion.window())).contains(&len);
        if !is_alone || !is_busy || !fits || !self.is_predicted(shared) {
            return false;
        }
        let Some((id, buffer)) = shared.buffers.store_tiny(self.send.end, bytes) else {
            return false;
        };
        (buffer.marks, buffer.sent_at) = (Marks::SENT, shared.now);
        let sent = self.send_alone(shared, nic, (id, len), |room, _, checks| {
            copy_short(room, bytes);
            checks.sum_of(bytes)
        });
        if sent.is_err() {
            shared.buffers.free(id);
            return false;
        }
        (self.send.head, self.send.tail, self.send.pieces) = (id, id, 1);
        self.send.end += len;
        true
    }

    /// Sends one buffer of `len` bytes for the first time; nothing else is in flight or waits. The
    /// caller marks the buffer as sent.
    #[inline]
    fn send_alone(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
        (id, len): (BufferId, u32),
        write_payload: impl FnOnce(&mut [u8], &Buffers, Checks) -> Sum,
    ) -> Result<(), NoSlot> {
        let parts = Parts {
            flags: Flags::ACK.and(Flags::PSH),
            seq: self.send.nxt,
            first: id,
            len,
            ect: self.flags.ect(),
        };
        self.send_by_template(shared, nic, &parts, write_payload)?;
        self.send.nxt += len;
        self.send.unsent = BufferId::NONE;
        self.send.last_at = shared.now;
        self.wait_for_acknowledgment(shared, true, true);
        Ok(())
    }

    /// Whether there is nothing to be sent, not even an acknowledgment, and no timer to be set.
    #[inline]
    pub(crate) fn has_nothing_due(&self) -> bool {
        let is_timed = self.timers.waiting != Waiting::None || self.send.nxt == self.send.una;
        self.send.unsent.is_none()
            && is_timed
            && (self.flags.has(ConnectionFlags::PREDICTED) || self.recovery.lost == 0)
            && self.flags.are(DUE, ConnectionFlags::default())
    }

    /// Processes the acknowledgment of the one segment in flight. False if it is anything else.
    #[inline]
    fn try_acknowledge_fast(&mut self, shared: &mut Shared, predicted: &PredictedHeader) -> bool {
        let send = &self.send;
        let (id, ack) = (send.head, predicted.ack);
        if ack != send.nxt || id != send.tail || !send.unsent.is_none() {
            return false;
        }
        let sent_at = send.last_at;
        debug_assert_eq!(shared.buffers[id].marks, Marks::SENT);
        debug_assert_eq!(
            (shared.buffers[id].sent_at, shared.buffers[id].end()),
            (sent_at, ack)
        );
        self.has_arrived(shared, (predicted.seq, ack, predicted.window), sent_at);
        true
    }

    /// Notes that all that was in flight has arrived: one buffer, sent once, at `sent_at`. The
    /// numbers are those of the acknowledging segment.
    #[inline]
    fn has_arrived(
        &mut self,
        shared: &mut Shared,
        (seq, ack, window): (SeqNumber, SeqNumber, u16),
        sent_at: Instant,
    ) {
        self.update_window(seq, ack, window);
        let send = &mut self.send;
        let len = ack.since(send.una);
        shared.buffers.free(send.head);
        (send.head, send.tail, send.pieces) = (BufferId::NONE, BufferId::NONE, 0);
        send.una = ack;
        self.rtt.measured(shared.now.micros_since(sent_at));
        self.timers.waiting = Waiting::None;
        self.timers.send_at = Instant::NEVER;
        let mss = u32::from(self.mss());
        if len + mss >= self.congestion.window() {
            let smoothed = self.rtt.smoothed;
            self.congestion.acknowledged(len, mss, shared.now, smoothed);
        }
    }

    /// Processes an acknowledgment of all that is in flight, if that is one buffer that was sent
    /// once. False if not; nothing has changed then.
    pub(super) fn acknowledge_one(
        &mut self,
        shared: &mut Shared,
        seq: SeqNumber,
        ack: SeqNumber,
        window: u16,
    ) -> bool {
        let (send, recovery) = (&self.send, &self.recovery);
        let id = send.head;
        let is_predicted = recovery.phase == Phase::Open
            && recovery.probe.is_none()
            && !self.mtu_search.is_probing();
        if ack != send.nxt
            || id.is_none()
            || id != send.tail
            || !send.unsent.is_none()
            || !is_predicted
        {
            return false;
        }
        let buffer = shared.buffers[id];
        if buffer.marks != Marks::SENT || buffer.end() != ack {
            return false;
        }
        let recovery = &mut self.recovery;
        recovery.fack = ack;
        recovery.pipe = 0;
        recovery.duplicates = 0;
        let rtt = shared.now.micros_since(buffer.sent_at);
        recovery.rack_rtt = u32::try_from(rtt).unwrap_or(u32::MAX);
        (recovery.rack_sent_at, recovery.rack_end) = (buffer.sent_at, ack);
        recovery.stuck_since = Instant::NEVER;
        self.has_arrived(shared, (seq, ack, window), buffer.sent_at);
        true
    }
}
