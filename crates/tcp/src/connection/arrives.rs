//! Processes a segment that arrives for a connection: RFC 9293, section 3.10.7, step by step.

use super::block::ANSWER_EVERY_MS;
use super::checks::{Flaw, Verdict};
use super::{Connection, ConnectionFlags, Failure, Offer, Shared, State, default_mss};
use crate::limits::Answer;
use crate::nic::Nic;
use crate::seq::SeqNumber;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header};

pub(crate) use super::receive::Payload;

/// What the stack has to do after a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// Nothing beyond what the connection's flags say.
    Settled,
    /// The handshake is done.
    Opened,
    /// There is no such connection (any more); the sender gets a reset.
    Refused,
    /// It is a SYN that may open a new connection with the same four-tuple, which replaces this one
    /// in TIME-WAIT (RFC 6191).
    Superseded,
}

impl Connection {
    /// Processes a segment.
    pub(crate) fn arrives(
        &mut self,
        shared: &mut Shared,
        nic: &impl Nic,
        header: &Header,
        payload: Payload<'_>,
    ) -> Arrived {
        self.leave_fast_path();
        self.receive.is_vouched = false;
        if self.state == State::SynSent {
            return self.arrives_in_syn_sent(shared, nic, header, payload);
        }
        if self.state == State::TimeWait && self.may_be_superseded(header) {
            return Arrived::Superseded;
        }
        // A simultaneous open: this is the answer to our SYN (RFC 9293, figure 7).
        let answers_both = self.state == State::SynReceived
            && !self.flags.has(ConnectionFlags::PASSIVE)
            && header.flags.has(Flags::SYN)
            && header.flags.has(Flags::ACK)
            && header.seq + 1 == self.receive.nxt
            && header.ack == self.send.nxt;
        if answers_both {
            self.establish(shared, header);
            self.acknowledge(shared, header, 1);
            self.flags.set(ConnectionFlags::ACK_NOW);
            return Arrived::Opened;
        }
        let len = u32::try_from(payload.bytes.len()).expect("a frame's");
        let verdict = self.check(shared, header, len);
        self.count(shared, verdict);
        match verdict {
            Verdict::Accept => return self.take(shared, nic, header, payload),
            Verdict::AcceptAcknowledgment => {
                self.acknowledge(shared, header, 1);
                self.flags.set(ConnectionFlags::ACK_NOW);
            }
            Verdict::Drop(_) => {}
            Verdict::Answer(_) => self.answer(shared),
            Verdict::Duplicate { is_peers } => self.take_duplicate(shared, header, len, is_peers),
            Verdict::Challenge(_) => self.challenge(shared),
            Verdict::Reset => self.take_reset(shared),
            Verdict::Reopen => self.fail(shared, Failure::Reset),
            Verdict::Refuse => return Arrived::Refused,
        }
        Arrived::Settled
    }

    /// Counts a segment that fails a check.
    fn count(&self, shared: &mut Shared, verdict: Verdict) {
        let counters = &mut shared.counters;
        let flaw = match verdict {
            Verdict::Drop(flaw) | Verdict::Answer(flaw) | Verdict::Challenge(Some(flaw)) => flaw,
            Verdict::Duplicate { .. } | Verdict::AcceptAcknowledgment => Flaw::Window,
            Verdict::Refuse => Flaw::Acknowledgment,
            Verdict::Accept | Verdict::Challenge(None) | Verdict::Reset | Verdict::Reopen => return,
        };
        match flaw {
            Flaw::Window => counters.dropped_window += 1,
            Flaw::Acknowledgment => counters.dropped_acknowledgment += 1,
            Flaw::Field => counters.dropped_field += 1,
        }
    }

    /// Processes a segment that has passed all checks.
    fn take(
        &mut self,
        shared: &mut Shared,
        nic: &impl Nic,
        header: &Header,
        payload: Payload<'_>,
    ) -> Arrived {
        self.note_timestamp(shared, header);
        self.receive.last_at = shared.now;
        self.receive.is_vouched = true;
        self.timers.probes = 0;
        self.note_marks(shared, header, payload.is_marked);
        let mut arrived = Arrived::Settled;
        if self.state == State::SynReceived {
            self.establish(shared, header);
            arrived = Arrived::Opened;
        }
        let len = u32::try_from(payload.bytes.len()).expect("a frame's");
        let has_all = self.acknowledge(shared, header, len);
        if has_all && self.flags.has(ConnectionFlags::ENDED) {
            self.own_end_arrived(shared);
        }
        if matches!(
            self.state,
            State::Established | State::FinWait1 | State::FinWait2
        ) {
            let is_new = header.seq + len > self.receive.nxt;
            if is_new && len > 0 && self.flags.has(ConnectionFlags::ORPHAN) {
                // There is no user to read it (RFC 9293, section 3.6.1).
                self.abort(shared, Failure::Aborted);
            } else {
                self.take_text(shared, nic, header, payload);
            }
        }
        arrived
    }

    /// Answers a segment that came before.
    fn take_duplicate(&mut self, shared: &Shared, header: &Header, len: u32, is_peers: bool) {
        self.flags.set(ConnectionFlags::ACK_NOW);
        if !is_peers {
            return;
        }
        let end = header.seq + len + u32::from(header.flags.has(Flags::FIN));
        self.out_of_order.twice = Some((header.seq, end));
        let is_end = header.flags.has(Flags::FIN) && end == self.receive.nxt;
        if self.state == State::TimeWait && is_end {
            self.begin_time_wait(shared);
        }
    }

    /// RFC 9293, section 3.10.7.3.
    fn arrives_in_syn_sent(
        &mut self,
        shared: &mut Shared,
        nic: &impl Nic,
        header: &Header,
        payload: Payload<'_>,
    ) -> Arrived {
        let has_ack = header.flags.has(Flags::ACK);
        let is_ours = header.ack > self.send.una && header.ack <= self.send.nxt;
        if has_ack && !is_ours {
            shared.counters.dropped_acknowledgment += 1;
            return match header.flags.has(Flags::RST) {
                true => Arrived::Settled,
                false => Arrived::Refused,
            };
        }
        if header.flags.has(Flags::RST) {
            if has_ack {
                shared.counters.reset_by_peer += 1;
                self.fail(shared, Failure::Reset);
            }
            return Arrived::Settled;
        }
        if !header.flags.has(Flags::SYN) {
            return Arrived::Settled;
        }
        self.agree(shared, header.seq, offer(header, self.tuple.remote.is_v4()));
        // The window that our SYN offered.
        self.receive.edge = self.receive.nxt + u32::from(super::first_window(&shared.config));
        self.receive.last_at = shared.now;
        self.receive.is_vouched = true;
        self.flags.set(ConnectionFlags::ACK_NOW);
        if !has_ack {
            // A simultaneous open: our SYN is sent again, with an acknowledgment.
            self.state = State::SynReceived;
            self.send.window = u32::from(header.window);
            self.mark_all_lost(shared);
            self.flags.set(ConnectionFlags::MUST_SEND);
            return Arrived::Settled;
        }
        self.establish(shared, header);
        // The window in a SYN is never scaled.
        self.send.window = u32::from(header.window);
        self.send.window_max = self.send.window;
        self.acknowledge(shared, header, 1);
        self.send.window = u32::from(header.window);
        self.send.window_max = self.send.window;
        if !payload.bytes.is_empty() || header.flags.has(Flags::FIN) {
            let header = Header {
                seq: header.seq + 1,
                ..*header
            };
            self.take_text(shared, nic, &header, payload);
        }
        Arrived::Opened
    }

    /// The handshake is done.
    fn establish(&mut self, shared: &mut Shared, header: &Header) {
        self.rtt.opens();
        self.state = match self.flags.has(ConnectionFlags::ENDED) {
            true => State::FinWait1,
            false => State::Established,
        };
        if self.flags.has(ConnectionFlags::PASSIVE) {
            self.flags.clear(ConnectionFlags::ORPHAN);
        }
        (self.send.wl1, self.send.wl2) = (header.seq, header.ack);
        self.send.window = u32::from(header.window) << self.send.shift;
        self.send.window_max = self.send.window;
        self.timers.state_at = match shared.config.keep_alive {
            Some(time) => shared.now + time,
            None => Instant::NEVER,
        };
    }

    /// RFC 9293, section 3.10.7.4, second step.
    fn take_reset(&mut self, shared: &mut Shared) {
        match self.state {
            // An old duplicate must not end TIME-WAIT, which exists to catch old duplicates (RFC
            // 1337).
            State::TimeWait => {}
            // Both sides have sent a FIN, and the peer has deleted the connection.
            State::Closing | State::LastAck => {
                self.state = State::Closed;
                self.forget_unsent(shared);
            }
            _ => {
                shared.counters.reset_by_peer += 1;
                self.fail(shared, Failure::Reset);
            }
        }
    }

    /// Answers an unacceptable segment, but at a limited rate: two sides that find each other's
    /// answers unacceptable would go on for ever.
    fn answer(&mut self, shared: &Shared) {
        if self.may_answer(shared) {
            self.flags.set(ConnectionFlags::ACK_NOW);
        }
    }

    /// Sends a challenge ACK at a limited rate, as the segment may be an attacker's guess at the
    /// connection's sequence numbers (RFC 5961, section 7).
    fn challenge(&mut self, shared: &mut Shared) {
        if self.may_answer(shared) && shared.may_answer(Answer::Challenge, self.tuple.remote) {
            shared.counters.challenges_sent += 1;
            self.flags.set(ConnectionFlags::ACK_NOW);
        }
    }

    /// Whether the last such answer was long enough ago. If so, this one is noted.
    fn may_answer(&mut self, shared: &Shared) -> bool {
        let now_ms = shared.now.wrapping_millis();
        let may = now_ms.wrapping_sub(self.timers.answered_ms) >= ANSWER_EVERY_MS;
        if may {
            self.timers.answered_ms = now_ms;
        }
        may
    }

    /// RFC 7323, section 4.3.
    fn note_timestamp(&mut self, shared: &Shared, header: &Header) {
        if let Some(timestamps) = header.options.timestamps
            && self.flags.has(ConnectionFlags::TIMESTAMPS)
            && header.seq <= self.receive.acked
        {
            self.receive.ts_recent = timestamps.value;
            self.receive.ts_recent_at = shared.now;
        }
    }

    /// The peer has our FIN.
    fn own_end_arrived(&mut self, shared: &Shared) {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.flags.has(ConnectionFlags::ORPHAN) {
                    // No user waits for the peer's FIN, so the peer gets only as long as TIME-WAIT
                    // lasts.
                    self.timers.state_at = shared.now + shared.config.time_wait;
                }
            }
            State::Closing => self.begin_time_wait(shared),
            State::LastAck => {
                self.state = State::Closed;
                self.timers.send_at = Instant::NEVER;
            }
            _ => {}
        }
    }

    pub(super) fn begin_time_wait(&mut self, shared: &Shared) {
        self.state = State::TimeWait;
        self.timers.send_at = Instant::NEVER;
        self.timers.state_at = shared.now + shared.config.time_wait;
    }

    /// The seventh and eighth steps: the payload and the FIN.
    fn take_text(
        &mut self,
        shared: &mut Shared,
        nic: &impl Nic,
        header: &Header,
        payload: Payload<'_>,
    ) {
        let len = u32::try_from(payload.bytes.len()).expect("a frame's");
        if len > 0 && !self.flags.has(ConnectionFlags::PEER_ENDED) {
            self.take_payload(shared, nic, header.seq, payload);
        }
        if header.flags.has(Flags::FIN) {
            self.flags.set(ConnectionFlags::ACK_NOW);
            let end = header.seq + len;
            if end >= self.receive.nxt && end <= self.receive.edge {
                // The FIN counts when everything before it has arrived.
                self.out_of_order.end = Some(end);
            }
        }
        if self.out_of_order.end != Some(self.receive.nxt)
            || self.flags.has(ConnectionFlags::PEER_ENDED)
        {
            return;
        }
        self.receive.nxt += 1;
        self.receive.edge = self.receive.edge.max(self.receive.nxt);
        self.flags.set(ConnectionFlags::PEER_ENDED);
        self.flags.set(ConnectionFlags::ACK_NOW);
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.begin_time_wait(shared),
            _ => {}
        }
    }

    /// Whether a SYN may begin a new connection in this one's place (RFC 6191; RFC 9293, section
    /// 3.10.7.4): its timestamp or its sequence number must be later.
    fn may_be_superseded(&self, header: &Header) -> bool {
        let flags = header.flags;
        if !flags.has(Flags::SYN) || flags.has(Flags::ACK) || flags.has(Flags::RST) {
            return false;
        }
        match header.options.timestamps {
            Some(timestamps) if self.flags.has(ConnectionFlags::TIMESTAMPS) => {
                let later = timestamps
                    .value
                    .wrapping_sub(self.receive.ts_recent)
                    .cast_signed();
                later > 0 || later == 0 && header.seq > self.receive.nxt
            }
            _ => header.seq > self.receive.nxt,
        }
    }
}

/// What a SYN offers.
pub(crate) fn offer(header: &Header, is_v4: bool) -> Offer {
    Offer {
        mss: header.options.mss.unwrap_or(default_mss(is_v4)),
        window_scale: header.options.window_scale,
        sack: header.options.sack_permitted,
        timestamp: header.options.timestamps.map(|timestamps| timestamps.value),
        // A SYN asks for ECN with ECE and CWR; a SYN-ACK agrees with ECE only (RFC 3168, section
        // 6.1.1).
        ecn: header.flags.has(Flags::ECE)
            && header.flags.has(Flags::CWR) != header.flags.has(Flags::ACK),
    }
}

/// The sequence number of a reset that answers a segment without a connection (RFC 9293, section
/// 3.10.7.1), and what it acknowledges.
pub(crate) fn answer_to(header: &Header, len: usize) -> (SeqNumber, Option<SeqNumber>) {
    if header.flags.has(Flags::ACK) {
        return (header.ack, None);
    }
    let len = u32::try_from(len).unwrap_or(0)
        + u32::from(header.flags.has(Flags::SYN))
        + u32::from(header.flags.has(Flags::FIN));
    (SeqNumber(0), Some(header.seq + len))
}
