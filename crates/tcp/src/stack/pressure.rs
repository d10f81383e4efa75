//! What goes where there is not enough for all: one policy for memory and for the table of
//! connections.
//!
//! A peer decides how long a connection holds what it has been given, so whoever holds must not be
//! able to keep others out. What can be had again, or that nobody uses, goes first:
//!
//! ```text
//! memory is short                          the table is full
//! 1  what lies beyond gaps that stay       1  the oldest in TIME-WAIT, for a SYN
//!    open (RFC 2018, 8)
//! 2  connections that drain too slowly,    2  the oldest that is closed and not over, for a peer
//!    those that hold most for their rate      that has proven its address
//!    first                                 3  nobody: the peer is told
//! ```
//! TIME-WAIT protects a new connection of the same four-tuple from what is left of the old one. An
//! early end leaves that to timestamps (RFC 7323, section 5) and to numbers that grow with time (RFC
//! 6528), as RFC 6191 does. That a peer may send its FIN once more and get a reset harms nobody: all
//! that was sent has arrived.
//!
//! # Invariants
//! - `time_waits` and `orphans` name all connections that may be ended for others. They may name some
//!   that are gone or have gone on since, and are at most twice as long as there may be connections.

use std::collections::VecDeque;

use super::link::LinkAddress;
use super::outgoing::Reply;
use super::{ConnectionId, Failure, Stack};
use crate::connection::{Connection, ConnectionFlags, State};
use crate::seq::SeqNumber;
use crate::wire::tcp::{Flags, Header};

/// Connections that a turn looks at while memory is short.
const LOOKS: usize = 128;

/// For how long a connection may hold what it has been given while memory is short, in
/// microseconds.
const PATIENCE_US: u64 = 5_000_000;

/// The same for what lies beyond gaps: it comes again where it goes.
const GAP_PATIENCE_US: u64 = 1_000_000;

/// What of memory for sending is to be free again before nobody is ended any more: this part.
const RELIEF_PART: usize = 16;

/// What the stack remembers to decide who goes.
pub(super) struct Pressure {
    /// Connections in TIME-WAIT without a user, the oldest first.
    time_waits: VecDeque<ConnectionId>,
    /// Other connections without a user, the first that was closed first.
    orphans: VecDeque<ConnectionId>,
    /// Where looking at connections goes on.
    hand: usize,
    /// Memory for sending has run out, and there is not enough again yet.
    is_short: bool,
    /// Of each connection, how it stood when it was looked at first.
    marks: Vec<Mark>,
}

/// How a connection stood.
#[derive(Clone, Copy, Default)]
struct Mark {
    /// Of which use of its place; none where it has not been looked at.
    generation: Option<u32>,
    /// The oldest that was not acknowledged,
    una: SeqNumber,
    /// behind the last,
    end: SeqNumber,
    /// and when, in milliseconds of the stack's clock.
    at_ms: u32,
    /// Behind all that lay beyond gaps,
    gap_edge: SeqNumber,
    /// and when.
    gap_at_ms: u32,
}

/// A connection that has not drained in time what it held.
#[derive(Clone, Copy)]
struct Slow {
    index: u32,
    /// Microseconds that it would take to drain what it holds.
    drain_us: u64,
}

impl Pressure {
    /// For so many connections at most.
    pub(super) fn new(capacity: usize) -> Pressure {
        Pressure {
            time_waits: VecDeque::with_capacity(capacity),
            orphans: VecDeque::with_capacity(capacity),
            hand: 0,
            is_short: false,
            marks: Vec::with_capacity(capacity),
        }
    }
}

impl Stack {
    /// A connection has no user, and its peer is still to hear or to say something; or it has come
    /// to TIME-WAIT since.
    pub(super) fn note_orphan(&mut self, index: u32) {
        let id = self.id_of(index);
        let is_over = self.connections[index as usize].state == State::TimeWait;
        let list = match is_over {
            true => &mut self.pressure.time_waits,
            false => &mut self.pressure.orphans,
        };
        let connections = &self.connections;
        let is_there = |id: &ConnectionId| is_orphan(connections, *id, is_over);
        while list.front().is_some_and(|id| !is_there(id)) {
            list.pop_front();
        }
        if list.len() >= 2 * self.shared.config.connections_max {
            list.retain(is_there);
        }
        list.push_back(id);
    }

    /// Makes room for a connection whose peer may be anybody. False where there is none.
    pub(super) fn make_room(&mut self) -> bool {
        self.has_room() || self.end_time_wait()
    }

    /// Makes room for a connection whose peer has shown that it gets what is sent to it. False where
    /// all are in use.
    pub(super) fn make_room_for_proven(&mut self) -> bool {
        self.make_room() || self.end_orphan()
    }

    fn end_time_wait(&mut self) -> bool {
        while let Some(id) = self.pressure.time_waits.pop_front() {
            if is_orphan(&self.connections, id, true) {
                self.shared.counters.evicted += 1;
                self.remove(id.index);
                return true;
            }
        }
        false
    }

    fn end_orphan(&mut self) -> bool {
        while let Some(id) = self.pressure.orphans.pop_front() {
            if is_orphan(&self.connections, id, false) {
                self.shared.counters.evicted += 1;
                self.reset_at_once(id.index);
                self.remove(id.index);
                return true;
            }
        }
        false
    }

    /// Tells the peer of a connection that is about to be forgotten.
    fn reset_at_once(&mut self, index: u32) {
        let connection = &self.connections[index as usize];
        let Some(mac) = connection.path.mac else {
            return;
        };
        let (tuple, vlan) = (connection.tuple, connection.path.vlan);
        let header = Header {
            source: tuple.local_port,
            destination: tuple.remote_port,
            seq: connection.send.nxt,
            ack: connection.receive.nxt,
            flags: Flags::RST.and(Flags::ACK),
            ..Header::default()
        };
        self.shared.counters.resets_sent += 1;
        self.reply(Reply {
            link: LinkAddress { mac, vlan },
            local: tuple.local,
            remote: tuple.remote,
            header,
        });
    }

    /// Where memory for sending has run out, looks at some connections and takes back what may go,
    /// until there is enough again.
    pub(super) fn relieve(&mut self) {
        let room = self.shared.buffers.room_to_send();
        let enough = self.shared.buffers.room_to_send_max() / RELIEF_PART;
        let pressure = &mut self.pressure;
        pressure.is_short = room == 0 || pressure.is_short && room < enough;
        if !pressure.is_short {
            return;
        }
        let places = self.connections.len();
        self.pressure.marks.resize(places, Mark::default());
        let (mut slow, mut count) = ([None; LOOKS], 0);
        for _ in 0..LOOKS.min(places) {
            let hand = (self.pressure.hand + 1) % places;
            self.pressure.hand = hand;
            self.renew_mark(hand);
            self.judge_gaps(hand);
            slow[count] = self.judge(hand);
            count += usize::from(slow[count].is_some());
        }
        let slow = &mut slow[..count];
        slow.sort_unstable_by_key(|slow| slow.map(|Slow { drain_us, .. }| drain_us));
        for Slow { index, .. } in slow.iter().rev().flatten() {
            if self.shared.buffers.room_to_send() >= enough {
                return;
            }
            self.shed(*index);
        }
    }

    /// Begins a mark anew where it is of another connection that had the place.
    fn renew_mark(&mut self, place: usize) {
        let connection = &self.connections[place];
        let mark = &mut self.pressure.marks[place];
        if connection.state == State::Closed {
            // Who comes to the place next has the same generation as nobody.
            *mark = Mark::default();
        } else if mark.generation != Some(connection.generation) {
            *mark = Mark {
                generation: Some(connection.generation),
                end: connection.send.una,
                gap_edge: connection.receive.nxt,
                ..Mark::default()
            };
        }
    }

    /// Throws away what a connection holds beyond gaps, where these have not been closed in time.
    fn judge_gaps(&mut self, place: usize) {
        let now_ms = self.shared.now.wrapping_millis();
        let connection = &mut self.connections[place];
        let mark = &mut self.pressure.marks[place];
        let nxt = connection.receive.nxt;
        if !connection.has_gaps() {
            mark.gap_edge = nxt;
        } else if nxt >= mark.gap_edge || mark.gap_edge > connection.receive.edge {
            // Closed, or so long ago that the numbers have gone round.
            (mark.gap_edge, mark.gap_at_ms) = (connection.receive.edge, now_ms);
        } else if passed_us(now_ms, mark.gap_at_ms) >= GAP_PATIENCE_US {
            connection.prune(&mut self.shared);
        }
    }

    /// Whether a connection has not drained in time what it held when it was looked at first.
    fn judge(&mut self, place: usize) -> Option<Slow> {
        let now_ms = self.shared.now.wrapping_millis();
        let connection = &self.connections[place];
        let mark = &mut self.pressure.marks[place];
        let (una, end) = (connection.send.una, connection.send.end);
        if una == end || !connection.is_open() {
            mark.end = una;
            return None;
        }
        if una >= mark.end || mark.end > end {
            // Drained, or so long ago that the numbers have gone round.
            (mark.una, mark.end, mark.at_ms) = (una, end, now_ms);
            return None;
        }
        let passed_us = passed_us(now_ms, mark.at_ms);
        if passed_us < PATIENCE_US {
            return None;
        }
        let held = connection.holdings(&self.shared).bytes as u64;
        let drained = u64::from(una.since(mark.una));
        Some(Slow {
            index: u32::try_from(place).expect("a place"),
            drain_us: held.saturating_mul(passed_us) / (drained + 1),
        })
    }

    /// Ends a connection that holds memory others need.
    fn shed(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        connection.abort(&mut self.shared, Failure::Aborted);
        self.shared.counters.shed += 1;
        self.list_to_emit(index);
        self.after_change(index);
    }
}

/// Whether a name is that of a connection without a user, in TIME-WAIT or before it.
fn is_orphan(connections: &[Connection], id: ConnectionId, is_over: bool) -> bool {
    connections
        .get(id.index as usize)
        .is_some_and(|connection| {
            let is_orphan = connection.flags.has(ConnectionFlags::ORPHAN)
                && !connection.flags.has(ConnectionFlags::VACANT);
            connection.generation == id.generation
                && is_orphan
                && (connection.state == State::TimeWait) == is_over
        })
}

/// Microseconds between two times on the clock that goes round.
fn passed_us(now_ms: u32, then_ms: u32) -> u64 {
    u64::from(now_ms.wrapping_sub(then_ms)) * 1000
}
