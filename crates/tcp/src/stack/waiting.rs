//! Connections that wait for a neighbour's MAC address, or for memory.
//!
//! # Invariants
//! - `waiting_for_memory` names a place at most once: `WAITS_FOR_MEMORY` says that it is listed.
//!   The flag stays with the place when the connection is removed, so the next connection in the
//!   place may be woken needlessly.

use super::Stack;
use crate::buffers::Buffers;
use crate::connection::ConnectionFlags;

impl Stack {
    /// Wakes connections for which the address or the memory may be available now.
    pub(super) fn wake_waiting(&mut self) {
        if !self.waiting_for_mac.is_empty() && self.ask_again_at <= self.shared.now {
            self.ask_again_at = self.shared.now.after(1_000_000);
            self.retry_mac();
        }
        for _ in 0..self.wakes().min(self.waiting_for_memory.len()) {
            let index = self.waiting_for_memory.pop_front().expect("as many");
            let flags = &mut self.connections[index as usize].flags;
            flags.clear(ConnectionFlags::WAITS_FOR_MEMORY);
            self.list_ready(index);
        }
    }

    /// How many of the connections that wait for memory are woken: about as many as there is memory
    /// for. If more were woken, the last of them would find none and lose their turn.
    fn wakes(&self) -> usize {
        let room = self.shared.buffers.room_to_send();
        let segments = room.div_ceil(4 * Buffers::PIECE_LEN);
        let whole = room / self.shared.config.send_len_max.max(1) as usize;
        segments.min(whole.max(8))
    }

    /// Removes connections that have no user any more from the front of the list.
    pub(super) fn forget_who_left(&mut self) {
        while let Some(&first) = self.waiting_for_memory.front() {
            let flags = &mut self.connections[first as usize].flags;
            if !flags.has(ConnectionFlags::ORPHAN) {
                return;
            }
            flags.clear(ConnectionFlags::WAITS_FOR_MEMORY);
            self.waiting_for_memory.pop_front();
        }
    }

    /// Lets connections look up again the MAC addresses that they wait for.
    pub(super) fn retry_mac(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting_for_mac);
        for index in waiting.drain(..) {
            self.list_to_emit(index);
        }
        self.waiting_for_mac = waiting;
    }

    /// Lists a connection as waiting for memory, if it is not listed yet.
    pub(super) fn wait_for_memory(&mut self, index: u32) {
        let flags = &mut self.connections[index as usize].flags;
        if !flags.has(ConnectionFlags::WAITS_FOR_MEMORY) {
            flags.set(ConnectionFlags::WAITS_FOR_MEMORY);
            self.waiting_for_memory.push_back(index);
        }
    }
}
