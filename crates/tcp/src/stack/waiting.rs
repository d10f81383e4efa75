//! Connections that wait for what the stack does not have: a neighbour's MAC address, or memory.
//!
//! # Invariants
//! - `waiting_for_memory` names a place once at most: `WAITS_FOR_MEMORY` says that it is there. The flag
//!   stays with the place when the connection goes, and whoever comes next is woken for nothing.

use super::Stack;
use crate::buffers::Buffers;
use crate::connection::ConnectionFlags;

impl Stack {
    /// Goes on with those that wait for what may be there now.
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

    /// How many of those that wait for memory are told: as many as find some. If more were told, the last
    /// of them would find none and lose their turn.
    fn wakes(&self) -> usize {
        let room = self.shared.buffers.room_to_send();
        let segments = room.div_ceil(4 * Buffers::PIECE_LEN);
        let whole = room / self.shared.config.send_len_max.max(1) as usize;
        segments.min(whole.max(8))
    }

    /// Takes those off the beginning of the list whose connections have no user any more.
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

    /// Has connections look again for the MAC addresses that they wait for.
    pub(super) fn retry_mac(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting_for_mac);
        for index in waiting.drain(..) {
            self.list_to_emit(index);
        }
        self.waiting_for_mac = waiting;
    }

    /// Lists a connection among those that wait for memory, once.
    pub(super) fn wait_for_memory(&mut self, index: u32) {
        let flags = &mut self.connections[index as usize].flags;
        if !flags.has(ConnectionFlags::WAITS_FOR_MEMORY) {
            flags.set(ConnectionFlags::WAITS_FOR_MEMORY);
            self.waiting_for_memory.push_back(index);
        }
    }
}
