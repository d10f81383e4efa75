//! What an acknowledgment says: what arrived, how long that took, and what was lost.
//!
//! Losses are found by time, as RACK has it (RFC 8985): what was sent before something that has
//! arrived, by more than reordering explains, is lost. That finds lost retransmissions too. Where
//! the peer does not understand SACK, three duplicates mean a loss, and each acknowledgment of a
//! part another (RFC 6582).

use super::{Connection, ConnectionFlags, Phase, Shared, Waiting};
use crate::buffers::{Buffer, BufferId, Marks};
use crate::seq::SeqNumber;
use crate::time::Instant;
use crate::wire::tcp::Header;

/// Duplicate acknowledgments that mean a loss (RFC 5681).
const DUPLICATES_MAX: u8 = 3;

/// Recoveries for which a wider window for reordering is kept (RFC 8985, section 6.2).
const REORDER_PERSISTS: u8 = 16;

/// Of all that one acknowledgment confirms, what matters for times.
#[derive(Clone, Copy)]
struct Newest {
    sent_at: Instant,
    end: SeqNumber,
}

/// What one acknowledgment confirms.
pub(super) struct Confirmed {
    /// The highest that was confirmed before it.
    fack: SeqNumber,
    /// What was sent again later than this is not what it answers.
    answers_until: Instant,
    /// Bytes, for the first time.
    bytes: u32,
    /// What of it was sent last.
    newest: Option<Newest>,
    /// Some of it was sent more than once.
    has_retransmitted: bool,
    /// Some of it was sent once, and came after what was sent later (RFC 8985, section 6.2, step 3).
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

/// Whether one was sent after the other, those of one turn in order (RFC 8985, section 5.2).
fn is_later(one: (Instant, SeqNumber), other: (Instant, SeqNumber)) -> bool {
    one.0 > other.0 || one.0 == other.0 && one.1 > other.1
}

impl Connection {
    /// Takes in the acknowledgment of a segment, which is not beyond what was sent. True where the
    /// peer now has our FIN, or our SYN, too: everything up to the end.
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
            // A peer that keeps its window closed and answers is alive (RFC 9293, section 3.8.6.1).
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
            // What the window did not hold back says nothing about it (RFC 7661).
            if flight_before + u32::from(self.mss()) >= self.congestion.window()
                || !self.send.unsent.is_none()
            {
                let mss = u32::from(self.mss());
                let rtt = self.rtt.smoothed;
                // After a timeout an acknowledgment may be of what had arrived before (RFC 3465,
                // section 2.3).
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

    /// RFC 9293, section 3.10.7.4: from a segment that is not older than that of the last update,
    /// and acknowledges nothing less than what is known to have arrived. One that acknowledges more
    /// than was known counts also where others have overtaken it: the window is to be counted from
    /// what it acknowledges, so it is called before that is noted.
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

    /// Frees all up to `ack`.
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
            // Part of a buffer.
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

    /// Something came twice: segments overtake one another further than was thought (RFC 8985,
    /// section 6.2), once a round trip.
    pub(super) fn note_dsack(&mut self) {
        let recovery = &mut self.recovery;
        if !recovery.has_dsack || self.send.una >= recovery.dsack_round {
            (recovery.has_dsack, recovery.dsack_round) = (true, self.send.nxt);
            recovery.reorder_quarters = recovery.reorder_quarters.saturating_add(1);
            recovery.reorder_persists = REORDER_PERSISTS;
        }
    }

    /// Until when a segment was sent again that an acknowledgment may answer: what went later was
    /// answered by its first transmission (RFC 8985, section 6.2, step 2).
    fn answers_until(&self, now: Instant, header: &Header, advances: bool) -> Instant {
        let trip = u64::from(self.rtt.least);
        let by_time = Instant::from_micros(now.micros().saturating_sub(trip));
        // Of what lies beyond a gap no timestamp is echoed (RFC 7323, section 4.3).
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

    /// Measures the round trip (RFC 6298, section 3; RFC 7323, section 4) and what RACK needs.
    fn measure(&mut self, shared: &Shared, header: &Header, confirmed: &Confirmed, advances: bool) {
        let now = shared.now;
        // What arrived long ago is acknowledged when a gap before it is closed: that says nothing of
        // the path, and which of two transmissions is meant nobody knows (Karn's rule).
        let sample = confirmed
            .newest
            .filter(|_| !confirmed.has_retransmitted)
            .map(|newest| now.micros_since(newest.sent_at));
        let echoed = header
            .options
            .timestamps
            .filter(|_| self.flags.has(ConnectionFlags::TIMESTAMPS) && advances);
        // The timestamp tells which transmission it answers, though in milliseconds only.
        let millis = echoed.map(|echoed| self.clock(now).wrapping_sub(echoed.echo));
        let echoed = millis
            .filter(|millis| *millis < 60_000)
            .map(|millis| (u64::from(millis) + 1) * 1000);
        // What arrives before others that were sent earlier either shows that these are lost, or has
        // overtaken them and does not say how long they take.
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

    /// Our clock in its timestamps, in milliseconds.
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
                // Something has been acknowledged since the last recovery ended. It may have been more
                // than 2 GiB, beyond which sequence numbers compare the other way round.
                && self.send.una != self.recovery.until
            {
                self.mark_first_lost(shared);
            }
        } else if advances && self.recovery.phase == Phase::Recovery {
            // A partial acknowledgment (RFC 6582, section 3.2).
            // It goes whatever the window says.
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

    /// A buffer is to be sent again.
    pub(super) fn mark_lost(&mut self, shared: &mut Shared, id: BufferId) {
        self.recovery.change(&mut shared.buffers[id], |buffer| {
            buffer.marks.set(Marks::LOST)
        });
    }

    /// All that was sent is to be sent again, whatever the peer has said that it has.
    pub(super) fn mark_all_lost(&mut self, shared: &mut Shared) {
        self.recovery.sacked_last = BufferId::NONE;
        let mut id = self.send.head;
        while !id.is_none() && shared.buffers[id].marks.has(Marks::SENT) {
            shared.counters.queue_steps += 1;
            self.recovery.change(&mut shared.buffers[id], |buffer| {
                // When it arrived was measured: heard of again, it says nothing of the path.
                if buffer.marks.has(Marks::SACKED) {
                    buffer.marks.clear(Marks::SACKED);
                    buffer.marks.set(Marks::RETRANSMITTED);
                }
                buffer.marks.set(Marks::LOST);
            });
            id = shared.buffers[id].next;
        }
    }

    /// Marks as lost what was sent so long before something that has arrived that it should have
    /// arrived too (RFC 8985, section 6.2, steps 4 and 5), and sets the timer for what is in doubt.
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
                // All up to there has arrived.
                id = last;
                continue;
            }
            let sent = (buffer.sent_at, buffer.end());
            if is_later(sent, rack) && !buffer.marks.has(Marks::RETRANSMITTED) {
                // All behind it was sent later.
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

    /// What has become of a tail loss probe (RFC 8985, section 7.4).
    fn settle_probe(&mut self, shared: &mut Shared, is_duplicate: bool, has_dsack: bool) {
        let Some((end, was_sent_before)) = self.recovery.probe else {
            return;
        };
        if self.send.una < end {
            return;
        }
        if !was_sent_before || has_dsack {
            // It was the original, or both it and the original arrived.
            self.recovery.probe = None;
        } else if self.send.una > end {
            // The probe has mended a loss that nobody had noticed.
            self.recovery.probe = None;
            self.enter_recovery(shared, 0);
            self.leave_recovery();
        } else if is_duplicate {
            // The original had arrived, and the probe is answered by itself.
            self.recovery.probe = None;
        }
    }
}
