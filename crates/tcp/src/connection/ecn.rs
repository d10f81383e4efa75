//! Explicit congestion notification (RFC 3168): queues that mark packets instead of dropping them.
//!
//! ```text
//! data, ECT(0) ──▶ queue that grows ──▶ data, CE      the receiver notes it
//! window shrinks ◀─────────────────────── ACK, ECE    with each acknowledgment, until
//! data, CWR ────────────────────────────▶             the sender confirms that its window shrank
//! ```
//! Only data that is sent for the first time can be marked: neither acknowledgments nor
//! retransmissions (sections 6.1.4 and 6.1.5). Segments that carry ECE or CWR leave the fast path.

use super::segment::Parts;
use super::{Connection, ConnectionFlags, Shared};
use crate::wire::tcp::{Flags, Header};

impl Connection {
    /// The ECN flags of a SYN (RFC 3168, section 6.1.1). A retransmitted SYN does not ask for ECN,
    /// since the first may have been dropped because of it (section 6.1.1.1).
    pub(super) fn ecn_of_syn(&self, shared: &Shared) -> Flags {
        match shared.config.ecn && self.rtt.backoffs() == 0 {
            true => Flags::ECE.and(Flags::CWR),
            false => Flags::default(),
        }
    }

    /// The ECN flags of a SYN-ACK.
    pub(super) fn ecn_of_answer(&self) -> Flags {
        match self.flags.has(ConnectionFlags::ECN) {
            true => Flags::ECE,
            false => Flags::default(),
        }
    }

    /// The ECN flags of a segment that is not a SYN: ECE if a mark has arrived (section 6.1.3),
    /// and, with new data, CWR if the window was reduced (section 6.1.2).
    pub(super) fn ecn_of(&self, parts: &Parts) -> Flags {
        let mut flags = Flags::default();
        if self.flags.has(ConnectionFlags::ECN_ECHO) && !parts.flags.has(Flags::RST) {
            flags = flags.and(Flags::ECE);
        }
        if self.flags.has(ConnectionFlags::CWR_DUE) && parts.ect > 0 {
            flags = flags.and(Flags::CWR);
        }
        flags
    }

    /// Notes whether a segment from the peer was marked on its way, and whether the peer confirms
    /// by CWR that it has reduced its window.
    pub(super) fn note_marks(&mut self, shared: &mut Shared, header: &Header, is_marked: bool) {
        if !self.flags.has(ConnectionFlags::ECN) {
            return;
        }
        if header.flags.has(Flags::CWR) {
            self.flags.clear(ConnectionFlags::ECN_ECHO);
        }
        if is_marked {
            shared.counters.ecn_marks_received += 1;
            self.flags.set(ConnectionFlags::ECN_ECHO);
            self.flags.set(ConnectionFlags::ACK_NOW);
        }
    }

    /// Reacts to ECE: the window shrinks as for a loss, once for the data in flight (section
    /// 6.1.2). True if the acknowledgment carries ECE: the window must not grow by it.
    pub(super) fn heed_marks(&mut self, shared: &mut Shared, header: &Header) -> bool {
        let tells = header.flags.has(Flags::ECE) && !header.flags.has(Flags::SYN);
        if !self.flags.has(ConnectionFlags::ECN) || !tells {
            return false;
        }
        let (una, nxt) = (self.send.una, self.send.nxt);
        let in_flight = nxt.since(una);
        let mss = u32::from(self.mss());
        if self.congestion.marked((una, nxt), in_flight, mss) {
            shared.counters.ecn_reductions += 1;
            self.flags.set(ConnectionFlags::CWR_DUE);
        }
        true
    }

    /// The window was reduced for a loss: the peer gets CWR, as for a mark.
    pub(super) fn tell_reduction(&mut self) {
        if self.flags.has(ConnectionFlags::ECN) {
            self.flags.set(ConnectionFlags::CWR_DUE);
        }
    }
}
