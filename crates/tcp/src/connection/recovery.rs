//! Recovery: what a loss that was found means for the window, until it is repaired, and the undoing of
//! a timeout that was too early (RFC 9937, RFC 3522, RFC 4015).

use super::{Connection, ConnectionFlags, Phase, Shared};
use crate::buffers::Marks;
use crate::wire::tcp::Header;

impl Connection {
    /// Sees to what was found lost, beyond so many bytes that were known to be: the window shrinks
    /// (RFC 5681), unless it is nothing but a longer packet that was tried (RFC 4821, section 7.6.2).
    pub(super) fn take_losses(&mut self, shared: &mut Shared, lost_before: u32, delivered: u32) {
        let is_probe_alone = self.settle_mtu_probe(shared);
        if is_probe_alone && lost_before == 0 {
            self.flags.set(ConnectionFlags::MUST_SEND);
        } else if self.recovery.lost > lost_before {
            self.enter_recovery(shared, delivered);
        }
    }

    /// During a recovery so many bytes have arrived: the window goes down in proportion to that (RFC
    /// 9937). Without SACK nobody knows what has arrived, and it went down at once.
    pub(super) fn reduce_window(&mut self, delivered: u32, is_safe: bool) {
        if self.flags.has(ConnectionFlags::SACK) {
            let (pipe, mss) = (self.recovery.pipe, u32::from(self.mss()));
            self.congestion.delivered(delivered, pipe, mss, is_safe);
        }
    }

    /// After a timeout, the first acknowledgment of something new tells by its timestamp whether it
    /// answers what was sent before the timeout (Eifel: RFC 3522). Then nothing was lost: what was not
    /// sent again stays on its way, and the window is restored (RFC 4015). True where that is so.
    pub(super) fn undo_if_spurious(
        &mut self,
        shared: &mut Shared,
        header: &Header,
        acknowledged: u32,
    ) -> bool {
        if self.recovery.phase != Phase::Loss {
            return false;
        }
        let has_clock = self.flags.has(ConnectionFlags::TIMESTAMPS);
        let timestamps = header.options.timestamps.filter(|_| has_clock);
        if !self
            .congestion
            .is_spurious(timestamps.map(|timestamps| timestamps.echo))
        {
            return false;
        }
        shared.counters.timeouts_undone += 1;
        self.recovery.phase = Phase::Open;
        let mut id = self.send.head;
        while !id.is_none() && self.recovery.lost > 0 {
            let buffer = &mut shared.buffers[id];
            id = buffer.next;
            self.recovery
                .change(buffer, |buffer| buffer.marks.clear(Marks::LOST));
        }
        let (pipe, mss) = (self.recovery.pipe, u32::from(self.mss()));
        self.congestion.undo_timeout(acknowledged, pipe, mss);
        true
    }

    /// A loss was found, by an acknowledgment that tells of so many bytes that have arrived.
    pub(super) fn enter_recovery(&mut self, shared: &mut Shared, delivered: u32) {
        if self.recovery.phase != Phase::Open {
            return;
        }
        shared.counters.recoveries += 1;
        self.recovery.phase = Phase::Recovery;
        self.recovery.until = self.send.nxt;
        self.tell_reduction();
        let in_flight = self.send.nxt.since(self.send.una);
        let mss = u32::from(self.mss());
        if self.flags.has(ConnectionFlags::SACK) {
            let flight = in_flight.saturating_sub(self.recovery.sacked) + delivered;
            self.congestion.begin_reduction(in_flight, flight, mss);
        } else {
            self.congestion.lost(in_flight, mss);
        }
        self.flags.set(ConnectionFlags::MUST_SEND);
    }

    /// All that was on its way when it began has been acknowledged.
    pub(super) fn leave_recovery(&mut self) {
        let recovery = &mut self.recovery;
        self.congestion.end_reduction();
        recovery.phase = Phase::Open;
        recovery.duplicates = 0;
        recovery.reorder_persists = recovery.reorder_persists.saturating_sub(1);
        if recovery.reorder_persists == 0 {
            recovery.reorder_quarters = 1;
        }
    }
}
