//! The places of connections. Each connection has a place, and an id that no later connection has.
//! The table maps a four-tuple to the place.
//!
//! # Invariants
//! - A vacant place is in `free`, and no entry of the table refers to it.
//! - A place's generation grows with each use.

use super::{ConnectionId, Stack};
use crate::connection::{Connection, ConnectionFlags, State};
use crate::table::Hash;
use crate::wire::four_tuple::FourTuple;

impl Stack {
    /// The number of connections, including half-open ones and those in TIME-WAIT.
    pub fn connections(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// The place of a connection that still exists and has a user.
    pub(super) fn index_of(&self, id: ConnectionId) -> Option<usize> {
        let index = id.index as usize;
        let connection = self.connections.get(index)?;
        let is_it = connection.generation == id.generation
            && !connection.flags.has(ConnectionFlags::ORPHAN);
        is_it.then_some(index)
    }

    pub(super) fn id_of(&self, index: u32) -> ConnectionId {
        ConnectionId {
            index,
            generation: self.connections[index as usize].generation,
        }
    }

    /// The connection of a four-tuple that hashes to `hash`.
    #[inline(always)]
    pub(super) fn find(&self, tuple: &FourTuple, hash: Hash) -> Option<u32> {
        let is_it = |index: u32| self.connections[index as usize].tuple == *tuple;
        self.table.find(hash, is_it)
    }

    /// Puts a new connection into a free place.
    pub(super) fn insert(&mut self, mut connection: Connection) -> u32 {
        let hash = connection.hash;
        let index = match self.free.pop() {
            Some(index) => {
                let place = &mut self.connections[index as usize];
                connection.generation = place.generation;
                if place.flags.has(ConnectionFlags::WAITS_FOR_MEMORY) {
                    connection.flags.set(ConnectionFlags::WAITS_FOR_MEMORY);
                }
                *place = connection;
                index
            }
            None => {
                self.connections.push(connection);
                u32::try_from(self.connections.len() - 1).expect("below the limit")
            }
        };
        self.table.insert(hash, index);
        index
    }

    /// Removes a connection from the table: no segment finds it any more.
    pub(super) fn unlink(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        if !connection.flags.has(ConnectionFlags::UNLINKED) {
            connection.flags.set(ConnectionFlags::UNLINKED);
            self.table.remove(connection.hash, index);
        }
    }

    /// Removes a connection and frees its place.
    pub(super) fn remove(&mut self, index: u32) {
        self.unlink(index);
        self.wheel.cancel(index);
        let connection = &mut self.connections[index as usize];
        self.half_open -= usize::from(connection.flags.has(ConnectionFlags::HALF_OPEN));
        connection.release(&mut self.shared);
        connection.generation = connection.generation.wrapping_add(1);
        connection.state = State::Closed;
        // If the place is listed as waiting for memory, it stays listed.
        let waits = connection.flags.has(ConnectionFlags::WAITS_FOR_MEMORY);
        connection.flags = ConnectionFlags::default();
        if waits {
            connection.flags.set(ConnectionFlags::WAITS_FOR_MEMORY);
        }
        connection.flags.set(ConnectionFlags::ORPHAN);
        connection.flags.set(ConnectionFlags::VACANT);
        self.free.push(index);
    }

    /// Whether there is a place for another connection.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.connections.len() < self.shared.config.connections_max
    }
}
