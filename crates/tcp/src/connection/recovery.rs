//! Loss recovery: how the window reacts to a loss until it is repaired, and how a spurious timeout
//! is undone (RFC 9937, RFC 3522, RFC 4015).

use super::{Connection, ConnectionFlags, Phase, Shared};
use crate::buffers::Marks;
use crate::wire::tcp::Header;

impl Connection {
    /// Reacts to newly detected losses, beyond the `lost_before` bytes that were known: the window
    /// shrinks (RFC 5681), unless only an MTU probe was lost (RFC 4821, section 7.6.2).
    pub(super) fn take_losses(&mut self, shared: &mut Shared, lost_before: u32, delivered: u32) {
        let is_probe_alone = self.settle_mtu_probe(shared);
        if is_probe_alone && lost_before == 0 {
            self.flags.set(ConnectionFlags::MUST_SEND);
        } else if self.recovery.lost > lost_before {
            self.enter_recovery(shared, delivered);
        }
    }

    /// During recovery, `delivered` bytes have arrived: the window shrinks in proportion (RFC
    /// 9937). Without SACK it is not known what has arrived, and the window shrank at once.
    pub(super) fn reduce_window(&mut self, delivered: u32, is_safe: bool) {
        if self.flags.has(ConnectionFlags::SACK) {
            let (pipe, mss) = (self.recovery.pipe, u32::from(self.mss()));
            self.congestion.delivered(delivered, pipe, mss, is_safe);
        }
    }

    /// After a timeout, the timestamp of the first acknowledgment of new data shows whether it
    /// answers a transmission from before the timeout (Eifel: RFC 3522). If so, nothing was lost:
    /// what was not retransmitted still counts as in flight, and the window is restored (RFC 4015).
    /// True in this case.
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

    /// A loss was detected by an acknowledgment, which reports `delivered` bytes as arrived.
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

    /// All that was in flight when recovery began has been acknowledged.
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
