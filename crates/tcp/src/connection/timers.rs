//! The timers of a connection.

use std::time::Duration;

use super::{Connection, ConnectionFlags, Failure, Phase, Shared, State, Waiting};
use crate::buffers::Marks;
use crate::time::Instant;

/// Timeouts of a SYN until an active open is given up, which takes at least three minutes (RFC
/// 9293, section 3.8.3); and of the SYN-ACK in a passive open.
const OPENING_BACKOFFS_MAX: u8 = 9;
const ANSWER_BACKOFFS_MAX: u8 = 5;

/// Unanswered keep-alive probes until the peer is considered dead, and the microseconds between
/// them (RFC 1122, section 4.2.3.6; the common values).
const PROBES_MAX: u8 = 9;
const PROBE_INTERVAL: u64 = 75_000_000;

/// Zero-window probes that a connection without a user sends (the same as in Linux).
const ORPHAN_PROBES_MAX: u8 = 8;

impl Connection {
    /// When the next timer expires.
    #[inline]
    pub(crate) fn deadline(&self) -> Instant {
        self.timers
            .send_at
            .min(self.timers.ack_at)
            .min(self.timers.state_at)
    }

    /// Handles all timers that have expired.
    pub(crate) fn expire(&mut self, shared: &mut Shared) {
        self.leave_fast_path();
        let now = shared.now;
        if self.timers.ack_at <= now {
            self.timers.ack_at = Instant::NEVER;
            self.flags.set(ConnectionFlags::ACK_NOW);
        }
        if self.timers.send_at <= now {
            self.timers.send_at = Instant::NEVER;
            match std::mem::replace(&mut self.timers.waiting, Waiting::None) {
                Waiting::None => {}
                Waiting::Acknowledgment => self.retransmission_timeout(shared),
                Waiting::Tail => self.probe_tail(shared),
                Waiting::Reordered => {
                    self.detect_by_time(shared);
                    self.take_losses(shared, 0, 0);
                    if self.recovery.phase == Phase::Recovery {
                        self.reduce_window(0, false);
                    }
                    if self.timers.waiting == Waiting::None {
                        self.set_send_timer(shared);
                    }
                }
                Waiting::Window => self.probe_window(shared),
            }
        }
        if self.timers.state_at <= now {
            self.timers.state_at = Instant::NEVER;
            self.state_timeout(shared);
        }
    }

    /// Sets the timer for sending after something was sent or acknowledged: for a tail loss probe
    /// if one is due first (RFC 8985, section 7.2), else for retransmission (RFC 6298, section 5).
    #[inline]
    pub(super) fn set_send_timer(&mut self, shared: &Shared) {
        if self.send.nxt == self.send.una {
            self.timers.waiting = Waiting::None;
            self.timers.send_at = Instant::NEVER;
            self.recovery.stuck_since = Instant::NEVER;
            return;
        }
        self.recovery.stuck_since = self.recovery.stuck_since.min(shared.now);
        let recovery = &self.recovery;
        let is_well = self.is_open()
            && recovery.phase == Phase::Open
            && recovery.sacked == 0
            && recovery.probe.is_none();
        self.wait_for_acknowledgment(shared, is_well, recovery.pipe <= u32::from(self.mss()));
    }

    /// Sets the timer for sending while something is in flight. `is_well` says that no loss is
    /// known, `is_single` that at most one segment is in flight.
    #[inline]
    pub(super) fn wait_for_acknowledgment(
        &mut self,
        shared: &Shared,
        is_well: bool,
        is_single: bool,
    ) {
        let rto = self.rtt.timeout(shared.rto_min_us);
        let may_probe_tail = is_well
            && self.flags.has(ConnectionFlags::SACK)
            && self.rtt.smoothed > 0
            && self.rtt.backoffs() == 0;
        let (waiting, wait) = match may_probe_tail {
            true => {
                // The acknowledgment of a single segment may be delayed.
                let slack = if is_single { shared.rto_min_us } else { 2000 };
                let wait = 2 * u64::from(self.rtt.smoothed) + slack;
                (Waiting::Tail, wait.min(rto))
            }
            false => (Waiting::Acknowledgment, rto),
        };
        self.timers.waiting = waiting;
        self.timers.send_at = shared.now.after(wait);
    }

    /// RFC 6298, section 5, and RFC 8985, section 6.3.
    fn retransmission_timeout(&mut self, shared: &mut Shared) {
        shared.counters.timeouts += 1;
        if self.gives_up(shared) {
            return;
        }
        let is_first = self.recovery.phase != Phase::Loss;
        if self.recovery.phase == Phase::Open {
            self.congestion.keep_for_undo(self.clock(shared.now));
        }
        self.recovery.phase = Phase::Loss;
        self.recovery.until = self.send.nxt;
        self.recovery.probe = None;
        self.recovery.duplicates = 0;
        if self.mtu_search.is_probing() {
            self.lose_mtu_probe(shared);
        }
        // The peer may have discarded what it had acknowledged by SACK (RFC 2018, section 8).
        self.mark_all_lost(shared);
        self.rtt.back_off();
        // A path that silently drops long packets may carry shorter ones (RFC 4821).
        let backoffs = self.rtt.backoffs();
        if backoffs.is_multiple_of(2) && self.is_open() {
            self.suspect_mtu(shared);
        }
        let in_flight = self.send.nxt.since(self.send.una);
        self.congestion
            .timed_out(in_flight, u32::from(self.mss()), is_first);
        self.tell_reduction();
        self.flags.set(ConnectionFlags::MUST_SEND);
    }

    /// Whether nothing was acknowledged for too long. If so, the connection is given up.
    fn gives_up(&mut self, shared: &mut Shared) -> bool {
        let stuck_for = shared.now.micros_since(self.recovery.stuck_since);
        let limit = micros(shared.config.user_timeout);
        let is_opening = matches!(self.state, State::SynSent | State::SynReceived);
        let most = match self.flags.has(ConnectionFlags::PASSIVE) {
            true => ANSWER_BACKOFFS_MAX,
            false => OPENING_BACKOFFS_MAX,
        };
        if stuck_for < limit && !(is_opening && self.rtt.backoffs() >= most) {
            return false;
        }
        shared.counters.timed_out += 1;
        self.abort(shared, Failure::TimedOut);
        true
    }

    /// Sends a tail loss probe: new data, or else the last segment again (RFC 8985, section 7.3).
    fn probe_tail(&mut self, shared: &mut Shared) {
        shared.counters.tail_probes += 1;
        let send = &self.send;
        let has_new =
            !send.unsent.is_none() && shared.buffers[send.unsent].end() <= send.una + send.window;
        if !has_new && self.mtu_search.is_probing() {
            // An MTU probe at the tail is taken for lost, which is no sign of congestion.
            self.lose_mtu_probe(shared);
        } else if !has_new {
            let mut last = send.head;
            while !last.is_none() {
                let next = shared.buffers[last].next;
                if next.is_none() || !shared.buffers[next].marks.has(Marks::SENT) {
                    break;
                }
                last = next;
            }
            if !last.is_none() {
                self.mark_lost(shared, last);
            }
        }
        self.recovery.probe = Some((self.send.nxt, !has_new));
        self.flags.set(ConnectionFlags::MUST_SEND);
    }

    /// The peer's window is closed: it is probed at growing intervals (RFC 9293, section 3.8.6.1)
    /// for as long as the peer answers.
    fn probe_window(&mut self, shared: &mut Shared) {
        let silent_for = shared.now.micros_since(self.receive.last_at);
        let limit = micros(shared.config.user_timeout);
        let is_silent = silent_for >= limit && self.rtt.backoffs() > 2;
        let is_nobodys = self.flags.has(ConnectionFlags::ORPHAN);
        if is_silent || is_nobodys && self.rtt.backoffs() >= ORPHAN_PROBES_MAX {
            shared.counters.timed_out += 1;
            self.abort(shared, Failure::TimedOut);
            return;
        }
        if self.send.window > 0 {
            // The window stays small: what fits is sent (RFC 9293, section 3.8.6.2.1).
            self.flags.set(ConnectionFlags::MUST_SEND);
            return;
        }
        shared.counters.window_probes += 1;
        self.rtt.back_off();
        self.flags.set(ConnectionFlags::PROBE);
        self.wait_for_window(shared);
    }

    pub(super) fn wait_for_window(&mut self, shared: &Shared) {
        self.timers.waiting = Waiting::Window;
        self.timers.send_at = shared.now.after(self.rtt.timeout(shared.rto_min_us));
    }

    /// The user is done: bounds the time for the rest of the connection, whatever the peer answers.
    pub(crate) fn set_orphans_end(&mut self, shared: &Shared) {
        self.timers.state_at = match self.state {
            State::FinWait2 => shared.now + shared.config.time_wait,
            State::FinWait1 | State::Closing | State::LastAck => {
                shared.now + shared.config.user_timeout
            }
            _ => return,
        };
    }

    fn state_timeout(&mut self, shared: &mut Shared) {
        let is_nobodys = self.flags.has(ConnectionFlags::ORPHAN);
        match self.state {
            State::TimeWait => self.state = State::Closed,
            State::FinWait2 if is_nobodys => self.state = State::Closed,
            State::FinWait1 | State::Closing | State::LastAck if is_nobodys => {
                shared.counters.timed_out += 1;
                self.abort(shared, Failure::TimedOut);
            }
            State::SynSent => {
                shared.counters.timed_out += 1;
                self.abort(shared, Failure::TimedOut);
            }
            _ if self.is_open() => self.keep_alive(shared),
            _ => {}
        }
    }

    /// RFC 9293, section 3.8.4.
    fn keep_alive(&mut self, shared: &mut Shared) {
        let Some(interval) = shared.config.keep_alive else {
            return;
        };
        let quiet_since = self.receive.last_at;
        let mut due = quiet_since + interval;
        // Data in flight already acts as a probe (MUST-26).
        if self.send.nxt != self.send.una {
            due = due.max(shared.now + interval);
        }
        if due > shared.now {
            self.timers.state_at = due;
            return;
        }
        if self.timers.probes >= PROBES_MAX {
            shared.counters.timed_out += 1;
            self.abort(shared, Failure::TimedOut);
            return;
        }
        shared.counters.keep_alives += 1;
        self.timers.probes += 1;
        self.timers.state_at = shared.now.after(PROBE_INTERVAL);
        self.flags.set(ConnectionFlags::PROBE);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
