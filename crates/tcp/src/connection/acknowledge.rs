//! Processes an acknowledgment: what arrived, how long that took, and what was lost.
//!
//! Losses are detected by time, as in RACK (RFC 8985): a segment is lost if a segment sent
//! sufficiently later, by more than reordering explains, has arrived. That detects lost
//! retransmissions too. Without SACK, three duplicate acknowledgments mean a loss, and each partial
//! acknowledgment another one (RFC 6582).

use super::{Connection, ConnectionFlags, Phase, Shared, Waiting};
use crate::buffers::{Buffer, BufferId, Marks};
use crate::seq::SeqNumber;
use crate::time::Instant;
use crate::wire::tcp::Header;

/// Duplicate acknowledgments that mean a loss (RFC 5681).
const DUPLICATES_MAX: u8 = 3;

/// Recoveries for which a widened reordering window is kept (RFC 8985, section 6.2).
const REORDER_PERSISTS: u8 = 16;

/// The most recently sent segment that an acknowledgment confirms.
#[derive(Clone, Copy)]
struct Newest {
    sent_at: Instant,
    end: SeqNumber,
}

/// What one acknowledgment confirms.
pub(super) struct Confirmed {
    /// The highest sequence number that was confirmed before it.
    fack: SeqNumber,
    /// It cannot answer a retransmission that was sent later than this.
    answers_until: Instant,
    /// Bytes that it confirms for the first time.
    bytes: u32,
    /// The segment of these that was sent last.
    newest: Option<Newest>,
    /// Some of these bytes were sent more than once.
    has_retransmitted: bool,
    /// Some of these bytes were sent once and arrived after bytes beyond them (RFC 8985, section
    /// 6.2, step 3).
    is_overtaken: bool,
}

impl Confirmed {
    pub(super) fn note(&mut self, buffer: &Buffer) {
        self.bytes += buffer.seq_len();
        let (sent_at, end) = (buffer.sent_at, buffer.end());
        if !buffer.marks.has(Marks::RETRANSMITTED) {
            self.is_overtaken |= end < self.fack;
        } else {
            self.has_retransmitted = true;
            if sent_at > self.answers_until {
                return;
            }
        }
        let is_newer = self
            .newest
            .is_none_or(|newest| is_later((sent_at, end), (newest.sent_at, newest.end)));
        if is_newer {
            self.newest = Some(Newest { sent_at, end });
        }
    }
}

/// Whether one was sent after the other; segments of the same turn compare by sequence number (RFC
/// 8985, section 5.2).
fn is_later(one: (Instant, SeqNumber), other: (Instant, SeqNumber)) -> bool {
    one.0 > other.0 || one.0 == other.0 && one.1 > other.1
}

impl Connection {
    /// Processes the acknowledgment of a segment, which does not exceed `send.nxt`. True if the
    /// peer now has everything up to `send.end`, a SYN or FIN included.
    pub(super) fn acknowledge(&mut self, shared: &mut Shared, header: &Header, len: u32) -> bool {
        let ack = header.ack;
        let has_blocks = !header.options.sack.blocks().is_empty();
        let tells_of_marks = self.heed_marks(shared, header);
        if !has_blocks
            && !tells_of_marks
            && self.acknowledge_one(shared, header.seq, ack, header.window)
        {
            return true;
        }
        let (una, window) = (self.send.una, self.send.window);
        self.update_window(header.seq, ack, header.window);
        let advances = ack > una;
        let mut confirmed = Confirmed {
            fack: self.recovery.fack,
            answers_until: self.answers_until(shared.now, header, advances),
            bytes: 0,
            newest: None,
            has_retransmitted: false,
            is_overtaken: false,
        };
        if advances {
            self.confirm_up_to(shared, ack, &mut confirmed);
        }
        let in_flight = self.send.nxt.since(self.send.una);
        let mut has_dsack = false;
        if self.flags.has(ConnectionFlags::SACK) && has_blocks {
            has_dsack = self.confirm_blocks(shared, header, &mut confirmed);
        }
        self.recovery.reorders |= confirmed.is_overtaken;
        if advances || confirmed.bytes > 0 {
            self.measure(shared, header, &confirmed, advances);
        }
        if advances {
            self.recovery.stuck_since = Instant::NEVER;
            self.recovery.duplicates = 0;
        } else if in_flight == 0 {
            let is_duplicate = len == 0 && self.send.window == window;
            self.settle_probe(shared, is_duplicate, has_dsack);
            return self.send.una == self.send.end;
        }
        if self.send.window == 0 && in_flight > 0 {
            // A peer that answers while its window is closed is alive (RFC 9293, section 3.8.6.1).
            self.recovery.stuck_since = shared.now;
        }
        let is_duplicate = !advances && len == 0 && self.send.window == window;
        let acknowledged = ack.since(una);
        let is_undone = advances && self.undo_if_spurious(shared, header, acknowledged);
        let after_timeout = self.recovery.phase == Phase::Loss;
        let was_recovering = self.recovery.phase == Phase::Recovery;
        let lost_before = self.recovery.lost;
        self.find_losses(shared, is_duplicate, advances, (has_dsack, confirmed.bytes));
        if self.recovery.phase == Phase::Recovery {
            let is_safe = advances && self.recovery.lost <= lost_before;
            self.reduce_window(confirmed.bytes, is_safe);
        }
        let may_grow = !was_recovering
            && !is_undone
            && !tells_of_marks
            && self.recovery.phase != Phase::Recovery;
        if confirmed.bytes > 0 && may_grow {
            let flight_before = in_flight + ack.since(una);
            // The window grows only if it was the limit (RFC 7661).
            if flight_before + u32::from(self.mss()) >= self.congestion.window()
                || !self.send.unsent.is_none()
            {
                let mss = u32::from(self.mss());
                let rtt = self.rtt.smoothed;
                // After a timeout, an acknowledgment may cover bytes that had arrived before it
                // (RFC 3465, section 2.3).
                let bytes = match after_timeout {
                    true => confirmed.bytes.min(mss),
                    false => confirmed.bytes,
                };
                self.congestion.acknowledged(bytes, mss, shared.now, rtt);
            }
        }
        if (advances || confirmed.bytes > 0) && self.timers.waiting != Waiting::Reordered {
            self.set_send_timer(shared);
        }
        self.send.una == self.send.end
    }

    /// Updates the send window from a segment that is not older than that of the last update, and
    /// whose acknowledgment is not below `send.una` (RFC 9293, section 3.10.7.4). A segment that
    /// advances `send.una` counts even if later ones have overtaken it. The window counts from the
    /// acknowledgment, so this is called before `send.una` advances.
    #[inline]
    pub(super) fn update_window(&mut self, seq: SeqNumber, ack: SeqNumber, window: u16) {
        let send = &mut self.send;
        let is_newer = ack > send.una || send.wl1 < seq || send.wl1 == seq && send.wl2 <= ack;
        if is_newer && ack >= send.una {
            let window = u32::from(window) << send.shift;
            if window > 0 && send.window == 0 && self.timers.waiting == Waiting::Window {
                self.timers.waiting = Waiting::None;
                self.timers.send_at = Instant::NEVER;
                self.rtt.forget_backoff();
            }
            send.window = window;
            send.window_max = send.window_max.max(window);
            (send.wl1, send.wl2) = (seq, ack);
        }
    }

    /// Frees all buffers up to `ack`.
    fn confirm_up_to(&mut self, shared: &mut Shared, ack: SeqNumber, confirmed: &mut Confirmed) {
        let buffers = &mut shared.buffers;
        while !self.send.head.is_none() {
            let id = self.send.head;
            let buffer = buffers[id];
            if buffer.end() > ack {
                break;
            }
            if !buffer.marks.has(Marks::SACKED) {
                confirmed.note(&buffer);
            }
            self.recovery.forget(&buffer);
            if self.send.unsent == id {
                self.send.unsent = buffer.next;
            }
            if self.recovery.sacked_last == id {
                self.recovery.sacked_last = BufferId::NONE;
            }
            self.send.head = buffers.free(id);
            self.send.pieces -= 1;
        }
        let head = self.send.head;
        if head.is_none() {
            self.send.tail = BufferId::NONE;
        } else if buffers[head].seq < ack {
            // It acknowledges part of a buffer.
            let count = ack.since(buffers[head].seq);
            let part = count - u32::from(buffers[head].marks.has(Marks::SYN));
            self.recovery.change(&mut buffers[head], |buffer| {
                buffer.marks.clear(Marks::SYN);
                buffer.trim_front(part);
            });
            confirmed.bytes += count;
        }
        self.send.una = ack;
        self.recovery.fack = self.recovery.fack.max(ack);
    }

    /// A DSACK says that something arrived twice, so reordering is stronger than assumed: widens
    /// the reordering window, once a round trip (RFC 8985, section 6.2).
    pub(super) fn note_dsack(&mut self) {
        let recovery = &mut self.recovery;
        if !recovery.has_dsack || self.send.una >= recovery.dsack_round {
            (recovery.has_dsack, recovery.dsack_round) = (true, self.send.nxt);
            recovery.reorder_quarters = recovery.reorder_quarters.saturating_add(1);
            recovery.reorder_persists = REORDER_PERSISTS;
        }
    }

    /// The latest time at which a retransmission can have been sent that this acknowledgment
    /// answers. For a later one, it answers the first transmission (RFC 8985, section 6.2, step 2).
    fn answers_until(&self, now: Instant, header: &Header, advances: bool) -> Instant {
        let trip = u64::from(self.rtt.least);
        let by_time = Instant::from_micros(now.micros().saturating_sub(trip));
        // The timestamps of segments beyond a gap are not echoed (RFC 7323, section 4.3).
        let echoed = header.options.timestamps;
        let Some(echoed) =
            echoed.filter(|_| self.flags.has(ConnectionFlags::TIMESTAMPS) && advances)
        else {
            return by_time;
        };
        let age_ms = u64::from(self.clock(now).wrapping_sub(echoed.echo));
        let millis = now.millis().saturating_sub(age_ms);
        by_time.min(Instant::from_micros(millis * 1000 + 999))
    }

    /// Measures the round-trip time (RFC 6298, section 3; RFC 7323, section 4) and updates RACK.
    fn measure(&mut self, shared: &Shared, header: &Header, confirmed: &Confirmed, advances: bool) {
        let now = shared.now;
        // Retransmitted segments give no sample: it is not known which transmission is acknowledged
        // (Karn's algorithm).
        let sample = confirmed
            .newest
            .filter(|_| !confirmed.has_retransmitted)
            .map(|newest| now.micros_since(newest.sent_at));
        let echoed = header
            .options
            .timestamps
            .filter(|_| self.flags.has(ConnectionFlags::TIMESTAMPS) && advances);
        // The timestamp shows which transmission is acknowledged, but only with a resolution of
        // milliseconds.
        let millis = echoed.map(|echoed| self.clock(now).wrapping_sub(echoed.echo));
        let echoed = millis
            .filter(|millis| *millis < 60_000)
            .map(|millis| (u64::from(millis) + 1) * 1000);
        // If a segment arrives before others that were sent earlier, either these are lost, or it
        // has overtaken them and does not tell how long they take.
        let is_ahead = confirmed
            .newest
            .is_some_and(|newest| newest.end > self.send.una);
        match sample.into_iter().chain(echoed).min() {
            Some(sample) if !is_ahead => self.rtt.measured(sample),
            Some(sample) if !self.recovery.reorders => self.rtt.measured_ahead(sample),
            Some(_) => self.rtt.forget_backoff(),
            None => {}
        }
        let Some(newest) = confirmed.newest else {
            return;
        };
        let rtt = now.micros_since(newest.sent_at);
        let recovery = &mut self.recovery;
        recovery.rack_rtt = u32::try_from(rtt).unwrap_or(u32::MAX);
        let rack = (recovery.rack_sent_at, recovery.rack_end);
        if is_later((newest.sent_at, newest.end), rack) {
            (recovery.rack_sent_at, recovery.rack_end) = (newest.sent_at, newest.end);
        }
    }

    /// The clock of its timestamps, in milliseconds.
    #[inline]
    pub(super) fn clock(&self, now: Instant) -> u32 {
        now.wrapping_millis().wrapping_add(self.ts_offset)
    }

    fn find_losses(
        &mut self,
        shared: &mut Shared,
        is_duplicate: bool,
        advances: bool,
        (has_dsack, delivered): (bool, u32),
    ) {
        if self.recovery.phase != Phase::Open && self.send.una >= self.recovery.until {
            self.leave_recovery();
        }
        self.settle_probe(shared, is_duplicate, has_dsack);
        let lost_before = self.recovery.lost;
        if self.flags.has(ConnectionFlags::SACK) {
            if self.recovery.sacked > 0 || self.recovery.phase != Phase::Open {
                self.detect_by_time(shared);
            }
        } else if is_duplicate && self.send.nxt > self.send.una {
            self.recovery.duplicates = self.recovery.duplicates.saturating_add(1);
            if self.recovery.duplicates == DUPLICATES_MAX
                && self.recovery.phase == Phase::Open
                // Something has been acknowledged since the last recovery ended. This tests for
                // inequality, as after more than 2 GiB sequence numbers compare the other way
                // round.
                && self.send.una != self.recovery.until
            {
                self.mark_first_lost(shared);
            }
        } else if advances && self.recovery.phase == Phase::Recovery {
            // A partial acknowledgment (RFC 6582, section 3.2). The retransmission is sent whatever
            // the congestion window says.
            self.mark_first_lost(shared);
            self.flags.set(ConnectionFlags::MUST_SEND);
        }
        self.take_losses(shared, lost_before, delivered);
    }

    fn mark_first_lost(&mut self, shared: &mut Shared) {
        let head = self.send.head;
        if !head.is_none() && shared.buffers[head].is_in_flight() {
            self.mark_lost(shared, head);
        }
    }

    /// Marks a buffer to be retransmitted.
    pub(super) fn mark_lost(&mut self, shared: &mut Shared, id: BufferId) {
        self.recovery.change(&mut shared.buffers[id], |buffer| {
            buffer.marks.set(Marks::LOST)
        });
    }

    /// Marks all that was sent to be retransmitted, even what the peer has acknowledged by SACK.
    pub(super) fn mark_all_lost(&mut self, shared: &mut Shared) {
        self.recovery.sacked_last = BufferId::NONE;
        let mut id = self.send.head;
        while !id.is_none() && shared.buffers[id].marks.has(Marks::SENT) {
            shared.counters.queue_steps += 1;
            self.recovery.change(&mut shared.buffers[id], |buffer| {
                // Its round trip was measured at the SACK; a second acknowledgment must not give
                // another sample.
                if buffer.marks.has(Marks::SACKED) {
                    buffer.marks.clear(Marks::SACKED);
                    buffer.marks.set(Marks::RETRANSMITTED);
                }
                buffer.marks.set(Marks::LOST);
            });
            id = shared.buffers[id].next;
        }
    }

    /// Marks segments as lost that were sent so long before one that has arrived that they should
    /// have arrived too (RFC 8985, section 6.2, steps 4 and 5), and sets the timer for those that
    /// may only be reordered.
    pub(super) fn detect_by_time(&mut self, shared: &mut Shared) {
        let recovery = &self.recovery;
        let patience = u64::from(recovery.rack_rtt) + self.reorder_window();
        let rack = (recovery.rack_sent_at, recovery.rack_end);
        let mut in_doubt = 0;
        let known = self.known_block();
        let mut id = self.send.head;
        while !id.is_none() {
            shared.counters.queue_steps += 1;
            let buffer = shared.buffers[id];
            if !buffer.marks.has(Marks::SENT) {
                break;
            }
            if let Some((from, last)) = known
                && buffer.seq >= from
                && buffer.seq < shared.buffers[last].seq
            {
                // Everything up to there has been acknowledged by SACK.
                id = last;
                continue;
            }
            let sent = (buffer.sent_at, buffer.end());
            if is_later(sent, rack) && !buffer.marks.has(Marks::RETRANSMITTED) {
                // Everything after it was sent later.
                break;
            }
            if buffer.is_in_flight() && is_later(rack, sent) {
                let due = buffer.sent_at.after(patience);
                if due <= shared.now {
                    self.mark_lost(shared, id);
                } else {
                    in_doubt = due.micros_since(shared.now).max(in_doubt);
                }
            }
            id = buffer.next;
        }
        if in_doubt > 0 {
            self.timers.waiting = Waiting::Reordered;
            self.timers.send_at = shared.now.after(in_doubt);
        } else if self.timers.waiting == Waiting::Reordered {
            self.set_send_timer(shared);
        }
    }

    /// How much later a segment may arrive than one sent after it, in microseconds (RFC 8985,
    /// section 6.2, step 4).
    fn reorder_window(&self) -> u64 {
        let recovery = &self.recovery;
        let mss = u32::from(self.mss());
        if !recovery.reorders
            && (recovery.phase != Phase::Open
                || recovery.sacked_segments >= DUPLICATES_MAX
                || recovery.sacked >= u32::from(DUPLICATES_MAX) * mss)
        {
            return 0;
        }
        let least = match self.rtt.least {
            u32::MAX => self.rtt.smoothed,
            least => least,
        };
        let window = u64::from(least) * u64::from(recovery.reorder_quarters) / 4;
        window.min(u64::from(self.rtt.smoothed))
    }

    /// Evaluates the acknowledgment of a tail loss probe (RFC 8985, section 7.4).
    fn settle_probe(&mut self, shared: &mut Shared, is_duplicate: bool, has_dsack: bool) {
        let Some((end, was_sent_before)) = self.recovery.probe else {
            return;
        };
        if self.send.una < end {
            return;
        }
        if !was_sent_before || has_dsack {
            // The probe was new data, or the probe and the original both arrived.
            self.recovery.probe = None;
        } else if self.send.una > end {
            // The probe has repaired a loss that was not detected.
            self.recovery.probe = None;
            self.enter_recovery(shared, 0);
            self.leave_recovery();
        } else if is_duplicate {
            // The original had arrived, and the probe caused a duplicate acknowledgment.
            self.recovery.probe = None;
        }
    }
}
