//! Whether a segment is acceptable: the checks of RFC 9293, section 3.10.7.4, with those of RFC
//! 5961 and RFC 7323, all made before anything changes.
//!
//! Anybody can send a segment with the addresses and ports of a connection. Only the peer knows the
//! sequence numbers of both directions. So sequence number, timestamp and acknowledgment are
//! checked together, and a segment that fails one check changes nothing: not the timestamp that
//! later ones are compared with, not the link address that replies go to, not the window.

use super::{Connection, ConnectionFlags, Shared, State};
use crate::wire::tcp::{Flags, Header};

/// How long a timestamp shows what is old (RFC 7323, section 5.5), in microseconds.
const TIMESTAMP_AGE_MAX: u64 = 24 * 24 * 3600 * 1_000_000;

/// What to do with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is processed.
    Accept,
    /// Our window is closed. The payload is dropped; the acknowledgment and the window count. It is
    /// answered.
    AcceptAcknowledgment,
    /// It is dropped.
    Drop(Flaw),
    /// It is dropped, and answered with an acknowledgment at a limited rate.
    Answer(Flaw),
    /// All that it carries is old: our acknowledgment was probably lost, so it is always answered.
    Duplicate {
        /// Its acknowledgment number is valid, so the peer sent it.
        is_peers: bool,
    },
    /// It is answered with a challenge ACK: the sender must prove that it is the peer (RFC 5961).
    Challenge(Option<Flaw>),
    /// It ends the connection.
    Reset,
    /// The peer sends a new SYN before the handshake is done: the connection is given up, and the
    /// peer repeats the SYN.
    Reopen,
    /// It acknowledges another handshake than this one: the sender gets a reset.
    Refuse,
}

/// What is wrong with a segment that is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// It is outside the window, or old by its timestamp.
    Window,
    /// It acknowledges what was never sent, or its acknowledgment is too old.
    Acknowledgment,
    /// It has no ACK flag.
    Field,
}

impl Connection {
    /// What to do with a segment with `text_len` bytes of payload, in the states from SYN-RECEIVED
    /// on.
    pub(super) fn check(&self, shared: &Shared, header: &Header, text_len: u32) -> Verdict {
        let flags = header.flags;
        if !flags.has(Flags::RST)
            && self.flags.has(ConnectionFlags::TIMESTAMPS)
            && let Some(verdict) = self.check_timestamp(shared, header)
        {
            return verdict;
        }
        if !self.is_within_window(header, text_len) {
            return self.check_outside_window(header, text_len);
        }
        if flags.has(Flags::RST) {
            return self.check_reset(header);
        }
        if flags.has(Flags::SYN) {
            let is_opening =
                self.state == State::SynReceived && self.flags.has(ConnectionFlags::PASSIVE);
            return match is_opening {
                true => Verdict::Reopen,
                // RFC 5961, section 4.
                false => Verdict::Challenge(None),
            };
        }
        if !flags.has(Flags::ACK) {
            return Verdict::Drop(Flaw::Field);
        }
        self.check_acknowledgment(header)
    }

    /// RFC 7323, sections 3.2 and 5.3. `None` if nothing is wrong.
    fn check_timestamp(&self, shared: &Shared, header: &Header) -> Option<Verdict> {
        let Some(timestamps) = header.options.timestamps else {
            return Some(Verdict::Drop(Flaw::Window));
        };
        let step = timestamps.value.wrapping_sub(self.receive.ts_recent);
        let age = shared.now.micros_since(self.receive.ts_recent_at);
        let is_old = step.cast_signed() < 0 && age < TIMESTAMP_AGE_MAX;
        is_old.then_some(Verdict::Answer(Flaw::Window))
    }

    /// RFC 9293, section 3.10.7.4, first step. An empty segment right at the end of the window is
    /// acceptable too: its acknowledgment counts.
    fn is_within_window(&self, header: &Header, text_len: u32) -> bool {
        let (nxt, edge) = (self.receive.nxt, self.receive.edge);
        match sequence_len(header, text_len) {
            0 => nxt <= header.seq && header.seq <= edge,
            len => header.seq + len > nxt && header.seq < edge,
        }
    }

    fn check_outside_window(&self, header: &Header, text_len: u32) -> Verdict {
        let flags = header.flags;
        if flags.has(Flags::RST) {
            return Verdict::Drop(Flaw::Window);
        }
        if flags.has(Flags::SYN) {
            // Whatever its sequence number (RFC 5961, section 4.2).
            return Verdict::Challenge(Some(Flaw::Window));
        }
        let (nxt, edge) = (self.receive.nxt, self.receive.edge);
        let is_peers =
            flags.has(Flags::ACK) && self.check_acknowledgment(header) == Verdict::Accept;
        // With a window of zero no payload is acceptable, but acknowledgment and window still count
        // (RFC 9293, section 3.10.7.4, first step).
        if is_peers && header.seq == nxt && nxt == edge && self.is_open() {
            return Verdict::AcceptAcknowledgment;
        }
        let len = sequence_len(header, text_len);
        match len > 0 && header.seq + len <= nxt {
            true => Verdict::Duplicate { is_peers },
            false => Verdict::Answer(Flaw::Window),
        }
    }

    /// RFC 5961, section 3: only a reset with exactly the expected sequence number counts.
    fn check_reset(&self, header: &Header) -> Verdict {
        if header.seq == self.receive.nxt {
            Verdict::Reset
        } else if header.seq == self.receive.edge {
            Verdict::Drop(Flaw::Window)
        } else {
            Verdict::Challenge(None)
        }
    }

    /// RFC 9293, section 3.10.7.4, fifth step, and RFC 5961, section 5.
    fn check_acknowledgment(&self, header: &Header) -> Verdict {
        let (ack, send) = (header.ack, &self.send);
        if self.state == State::SynReceived {
            return match ack > send.una && ack <= send.nxt {
                true => Verdict::Accept,
                false => Verdict::Refuse,
            };
        }
        if ack > send.nxt {
            Verdict::Answer(Flaw::Acknowledgment)
        } else if ack < send.una - send.window_max {
            Verdict::Challenge(Some(Flaw::Acknowledgment))
        } else {
            Verdict::Accept
        }
    }
}

/// Sequence numbers that a segment takes: its payload's, and one each for SYN and FIN.
fn sequence_len(header: &Header, text_len: u32) -> u32 {
    text_len + u32::from(header.flags.has(Flags::SYN)) + u32::from(header.flags.has(Flags::FIN))
}
