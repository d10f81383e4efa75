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
//! While less than a quarter of memory for sending is free, connections are watched, so that it is known
//! who is slow when it is short. The last eighth is for connections that hold nothing: memory is short as
//! soon as others get none. Then a connection is ended if it has been watched for long enough, and would take
//! longer to drain what it holds than a bound allows:
//!
//! | | watched for | until so much is free |
//! |---|---|---|
//! | nobody who holds nothing waits for long | 5 s | an eighth and a sixteenth |
//! | somebody does: haste | four of its round trips, from 0.5 s to 2 s | a quarter |
//!
//! The bound is 40 s at first. While memory stays short and nobody is slower, it goes down to 5 s.
//!
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
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header};

/// Connections that a turn looks at while memory is short or may soon be.
const LOOKS: usize = 128;

/// Microseconds in which no connection is looked at twice: looking at all of them in each turn would
/// take as long as serving them.
const ROUND_US: u64 = 50_000;

/// The bound at first, in microseconds: who would take longer to drain what it holds is ended while
/// memory is short.
const DRAIN_US_FIRST: u64 = 40_000_000;

/// The bound at last, in microseconds.
const DRAIN_US_LEAST: u64 = 5_000_000;

/// For how long a connection is watched before it may be ended, in microseconds.
const PATIENCE_US: u64 = 5_000_000;

/// The least and the most of it in haste, in microseconds. In half a second a lost segment is found and
/// sent again. The most is for peers that pretend to be far away.
const HASTE_US_MIN: u64 = 500_000;
const HASTE_US_MAX: u64 = 2_000_000;

/// For how long a connection that holds nothing may wait for memory until there is haste, in
/// microseconds.
const WAIT_US_MAX: u64 = 100_000;

/// For how long bytes beyond gaps may lie while memory is short, in microseconds: they come again.
const GAP_PATIENCE_US: u64 = 1_000_000;

/// Without haste, connections are ended until this part is free beside the last eighth.
const RELIEF_PART: usize = 16;

/// What the stack remembers to decide who goes.
pub(super) struct Pressure {
    /// Connections in TIME-WAIT without a user, the oldest first.
    time_waits: VecDeque<ConnectionId>,
    /// Other connections without a user, the first that was closed first.
    orphans: VecDeque<ConnectionId>,
    /// The place that was looked at last.
    hand: usize,
    /// When the hand last passed the first place.
    round_at: Instant,
    /// Memory for sending is short, and there is not enough again yet.
    is_short: bool,
    /// Meanwhile somebody who holds nothing has waited for too long.
    is_hasty: bool,
    /// The bound, in microseconds.
    drain_us_max: u64,
    /// When the bound was last changed, or somebody was last ended.
    settled_at: Instant,
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
    /// Behind all that it had been given when it first got no memory although it held nothing,
    refused_at: Option<SeqNumber>,
    /// and when.
    refused_at_ms: u32,
}

/// A connection that would not drain in time what it holds.
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
            round_at: Instant::default(),
            is_short: false,
            drain_us_max: DRAIN_US_FIRST,
            settled_at: Instant::default(),
            is_hasty: false,
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

    /// Where memory for sending is short, takes back what may go, until there is enough again.
    /// Connections are watched before that.
    pub(super) fn relieve(&mut self) {
        let room = self.shared.buffers.room_to_send();
        let most = self.shared.buffers.room_to_send_max();
        let least = self.shared.buffers.room_for_first();
        let tight = self.shared.buffers.tight_room();
        let enough = match self.pressure.is_hasty {
            true => tight,
            false => least + most / RELIEF_PART,
        };
        let pressure = &mut self.pressure;
        pressure.is_short = room < least || pressure.is_short && room < enough;
        let is_short = pressure.is_short;
        self.pressure.is_hasty = is_short && (self.pressure.is_hasty || self.somebody_starves());
        self.settle_bound();
        if room >= tight {
            return;
        }
        let (mut slow, mut count) = ([None; LOOKS], 0);
        for _ in 0..LOOKS.min(self.connections.len()) {
            let Some(place) = self.next_place() else {
                break;
            };
            self.renew_mark(place);
            self.judge_gaps(place);
            slow[count] = self.judge(place);
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

    /// Settles the bound: it is halved where nobody was ended for twice as long as connections are
    /// watched.
    fn settle_bound(&mut self) {
        let now = self.shared.now;
        let pressure = &mut self.pressure;
        let patience_us = match pressure.is_hasty {
            true => HASTE_US_MIN,
            false => PATIENCE_US,
        };
        if !pressure.is_short {
            (pressure.drain_us_max, pressure.settled_at) = (DRAIN_US_FIRST, now);
        } else if now.micros_since(pressure.settled_at) > 2 * patience_us {
            let halved = (pressure.drain_us_max / 2).max(DRAIN_US_LEAST);
            (pressure.drain_us_max, pressure.settled_at) = (halved, now);
        }
    }

    /// The place that is looked at next; `None` where all have been looked at a moment ago.
    fn next_place(&mut self) -> Option<usize> {
        let (places, now) = (self.connections.len(), self.shared.now);
        let pressure = &mut self.pressure;
        pressure.marks.resize(places, Mark::default());
        let next = (pressure.hand + 1) % places;
        if next == 0 {
            if now.micros_since(pressure.round_at) < ROUND_US {
                return None;
            }
            pressure.round_at = now;
        }
        pressure.hand = next;
        Some(next)
    }

    /// A connection that holds nothing has got no memory.
    pub(super) fn note_refused(&mut self, index: u32) {
        let now_ms = self.shared.now.wrapping_millis();
        let place = index as usize;
        self.pressure
            .marks
            .resize(self.connections.len(), Mark::default());
        self.renew_mark(place);
        let end = self.connections[place].send.end;
        let mark = &mut self.pressure.marks[place];
        if mark.refused_at != Some(end) {
            (mark.refused_at, mark.refused_at_ms) = (Some(end), now_ms);
        }
    }

    /// Whether somebody who holds nothing has waited for memory for too long.
    fn somebody_starves(&mut self) -> bool {
        self.forget_who_left();
        let now_ms = self.shared.now.wrapping_millis();
        let starves = |&index: &u32| {
            let connection = &self.connections[index as usize];
            let mark = self.pressure.marks.get(index as usize);
            mark.is_some_and(|mark| {
                mark.generation == Some(connection.generation)
                    && mark.refused_at == Some(connection.send.end)
                    && passed_us(now_ms, mark.refused_at_ms) >= WAIT_US_MAX
            })
        };
        self.waiting_for_memory.iter().take(LOOKS).any(starves)
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
        } else if self.pressure.is_short && passed_us(now_ms, mark.gap_at_ms) >= GAP_PATIENCE_US {
            connection.prune(&mut self.shared);
        }
    }

    /// Whether a connection would not drain in time what it holds.
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
        let drained = u64::from(una.since(mark.una));
        let takes_us = |bytes: u64| bytes.saturating_mul(passed_us) / (drained + 1);
        let drain_us = takes_us(u64::from(end.since(una)));
        let patience_us = match self.pressure.is_hasty {
            true => (4 * u64::from(connection.rtt.smoothed)).clamp(HASTE_US_MIN, HASTE_US_MAX),
            false => PATIENCE_US,
        };
        if !self.pressure.is_short
            || passed_us < patience_us
            || drain_us < self.pressure.drain_us_max
        {
            return None;
        }
        Some(Slow {
            index: u32::try_from(place).expect("a place"),
            drain_us: takes_us(connection.holdings(&self.shared).bytes as u64),
        })
    }

    /// Ends a connection that holds memory others need.
    fn shed(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        connection.abort(&mut self.shared, Failure::Aborted);
        self.shared.counters.shed += 1;
        self.pressure.settled_at = self.shared.now;
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
