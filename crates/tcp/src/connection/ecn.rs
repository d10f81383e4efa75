//! Explicit congestion notification (RFC 3168): queues that mark packets instead of dropping them.
//!
//! ```text
//! data, ECT(0) ──▶ queue that grows ──▶ data, CE      the receiver notes it
//! window shrinks ◀─────────────────────── ACK, ECE    with each acknowledgment, until
//! data, CWR ────────────────────────────▶             the sender says that it has heeded it
//! ```
//! Only data that is sent for the first time can be marked: neither acknowledgments nor
//! retransmissions (sections 6.1.4 and 6.1.5). Segments with anything to tell leave the fast path.

use super::segment::Parts;
use super::{Connection, ConnectionFlags, Shared};
use crate::wire::tcp::{Flags, Header};

impl Connection {
    /// What the SYN that is sent now asks for (RFC 3168, section 6.1.1): where it comes for the
    /// second time the first may have been lost for that, and it asks no more (section 6.1.1.1).
    pub(super) fn ecn_of_syn(&self, shared: &Shared) -> Flags {
        match shared.config.ecn && self.rtt.backoffs() == 0 {
            true => Flags::ECE.and(Flags::CWR),
            false => Flags::default(),
        }
    }

    /// The answer to a SYN that asks for it.
    pub(super) fn ecn_of_answer(&self) -> Flags {
        match self.flags.has(ConnectionFlags::ECN) {
            true => Flags::ECE,
            false => Flags::default(),
        }
    }

    /// What a segment, no SYN, tells: that a mark has come (section 6.1.3), and, with new data, that the
    /// window was reduced (section 6.1.2).
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

    /// Notes what a segment of the peer's says of its way here, and whether the peer has heeded what
    /// it was told.
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

    /// Heeds what the peer says of marks: once for what is on its way the window shrinks as by a
    /// loss (section 6.1.2). True where the acknowledgment tells of marks: no window grows by it.
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

    /// The window was reduced for a loss: the peer is told so, as for a mark.
    pub(super) fn tell_reduction(&mut self) {
        if self.flags.has(ConnectionFlags::ECN) {
            self.flags.set(ConnectionFlags::CWR_DUE);
        }
    }
}
