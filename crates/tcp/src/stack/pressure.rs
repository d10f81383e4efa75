//! What is given up when there is not enough for all: one policy for memory and for the table of
//! connections.
//!
//! A peer decides how long a connection holds its memory and its place, so holders must not be able
//! to keep others out. What can be had again, or is no longer used, is given up first:
//!
//! ```text
//! memory is short                          the table is full
//! 1  what lies beyond gaps that stay       1  the oldest in TIME-WAIT, for a SYN
//!    open (RFC 2018, 8)
//! 2  connections that drain too slowly,    2  the oldest that is closed and not over, for a peer
//!    those that hold most for their rate      that has proven its address
//!    first                                 3  nobody: the peer is told
//! ```
//! While less than a quarter of the memory for sending is free, connections are watched, so that
//! the slow ones are known when memory is short. The last eighth is reserved for connections that
//! hold nothing; memory is short as soon as only this part is left. Then a connection is ended if
//! it has been watched for long enough and would take longer than a bound to drain what it holds:
//!
//! | | watched for | ended until this much is free |
//! |---|---|---|
//! | no connection that holds nothing waits for long | 5 s | an eighth plus a sixteenth |
//! | one does: haste | four of its round trips, from 0.5 s to 2 s | a quarter |
//!
//! The bound is 40 s at first. While memory stays short and no connection exceeds the bound, it is
//! halved step by step, down to 5 s.
//!
//! TIME-WAIT protects a new connection of the same four-tuple from old segments of the previous
//! one. If TIME-WAIT ends early, timestamps (RFC 7323, section 5) and initial sequence numbers that
//! grow with time (RFC 6528) do that, as in RFC 6191. The peer may retransmit its FIN and get a
//! reset, which does no harm: all data has arrived.
//!
//! # Invariants
//! - `time_waits` and `orphans` name all connections that may be ended for others. They may also
//!   name some that are gone or have changed state since. Each is at most twice as long as the
//!   limit of connections.

use std::collections::VecDeque;

use super::link::LinkAddress;
use super::outgoing::Reply;
use super::{ConnectionId, Failure, Stack};
use crate::connection::{Connection, ConnectionFlags, State};
use crate::seq::SeqNumber;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header};

/// The most connections that a turn examines while memory is short or may soon be.
const LOOKS: usize = 128;

/// The shortest time for one round of all connections, in microseconds: examining all of them in
/// each turn would take as long as serving them.
const ROUND_US: u64 = 50_000;

/// The bound at first, in microseconds: while memory is short, a connection that would take longer
/// to drain what it holds is ended.
const DRAIN_US_FIRST: u64 = 40_000_000;

/// The smallest bound, in microseconds.
const DRAIN_US_LEAST: u64 = 5_000_000;

/// How long a connection is watched before it may be ended, in microseconds.
const PATIENCE_US: u64 = 5_000_000;

/// The shortest and the longest time of watching in haste, in microseconds. In half a second a lost
/// segment is detected and retransmitted. The maximum is for peers that fake a long round-trip
/// time.
const HASTE_US_MIN: u64 = 500_000;
const HASTE_US_MAX: u64 = 2_000_000;

/// How long a connection that holds nothing may wait for memory before there is haste, in
/// microseconds.
const WAIT_US_MAX: u64 = 100_000;

/// How long bytes beyond gaps are kept while memory is short, in microseconds. The peer sends them
/// again.
const GAP_PATIENCE_US: u64 = 1_000_000;

/// Without haste, connections are ended until one part in this many is free in addition to the last
/// eighth.
const RELIEF_PART: usize = 16;

/// What the stack remembers to decide which connection to end.
pub(super) struct Pressure {
    /// Connections in TIME-WAIT that have no user, the oldest first.
    time_waits: VecDeque<ConnectionId>,
    /// Other connections that have no user, in the order in which they were closed.
    orphans: VecDeque<ConnectionId>,
    /// The place that was examined last, as in the clock algorithm.
    hand: usize,
    /// When the hand last passed the first place.
    round_at: Instant,
    /// Memory for sending has been short, and enough is not free again yet.
    is_short: bool,
    /// Meanwhile a connection that holds nothing has waited for too long.
    is_hasty: bool,
    /// The bound, in microseconds.
    drain_us_max: u64,
    /// When the bound was last changed, or a connection was last ended.
    settled_at: Instant,
    /// For each place, the state of its connection when the current observation began.
    marks: Vec<Mark>,
}

/// The state of a connection when it was observed. Its parts belong together in pairs: a sequence
/// number and the time at which it was noted.
#[derive(Clone, Copy, Default)]
struct Mark {
    /// The generation of the connection; `None` if it has not been examined.
    generation: Option<u32>,
    /// Its `send.una` then,
    una: SeqNumber,
    /// its `send.end` then,
    end: SeqNumber,
    /// and when that was, in milliseconds of the stack's clock.
    at_ms: u32,
    /// The end of the window when a gap was seen,
    gap_edge: SeqNumber,
    /// and when.
    gap_at_ms: u32,
    /// Its `send.end` when it first got no memory although it held nothing,
    refused_at: Option<SeqNumber>,
    /// and when.
    refused_at_ms: u32,
}

/// A connection that would not drain what it holds in time.
#[derive(Clone, Copy)]
struct Slow {
    index: u32,
    /// Microseconds it would take to drain all the memory it holds.
    drain_us: u64,
}

impl Pressure {
    /// For at most `capacity` connections.
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
    /// Notes a connection that has lost its user and is not closed yet, or one without a user that
    /// has entered TIME-WAIT.
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

    /// Makes room for a connection whose peer has proven nothing. False if there is none.
    pub(super) fn make_room(&mut self) -> bool {
        self.has_room() || self.end_time_wait()
    }

    /// Makes room for a connection whose peer has proven its address. False if all places are in
    /// use.
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

    /// Sends a reset for a connection that is about to be removed.
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

    /// If memory for sending is short, takes back what may be given up until there is enough again.
    /// Connections are watched even before that.
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

    /// Adjusts the bound: it is halved if no connection was ended for twice the time of watching.
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

    /// The next place to examine; `None` if all have been examined a moment ago.
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

    /// Notes that a connection that holds nothing got no memory.
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

    /// Whether a connection that holds nothing has waited for memory for too long.
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

    /// Starts a new mark if the present one is of an earlier connection in the place.
    fn renew_mark(&mut self, place: usize) {
        let connection = &self.connections[place];
        let mark = &mut self.pressure.marks[place];
        if connection.state == State::Closed {
            // A vacant place has the same generation as the next connection in it.
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

    /// Discards what a connection holds beyond gaps, if these have not been closed in time.
    fn judge_gaps(&mut self, place: usize) {
        let now_ms = self.shared.now.wrapping_millis();
        let connection = &mut self.connections[place];
        let mark = &mut self.pressure.marks[place];
        let nxt = connection.receive.nxt;
        if !connection.has_gaps() {
            mark.gap_edge = nxt;
        } else if nxt >= mark.gap_edge || mark.gap_edge > connection.receive.edge {
            // The gap has closed, or the mark is so old that the sequence numbers have wrapped
            // around.
            (mark.gap_edge, mark.gap_at_ms) = (connection.receive.edge, now_ms);
        } else if self.pressure.is_short && passed_us(now_ms, mark.gap_at_ms) >= GAP_PATIENCE_US {
            connection.prune(&mut self.shared);
        }
    }

    /// The connection, if it would not drain what it holds in time.
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
            // It has drained, or the mark is so old that the sequence numbers have wrapped around.
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

    /// Ends a connection that holds memory which others need.
    fn shed(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        connection.abort(&mut self.shared, Failure::Shed);
        self.shared.counters.shed += 1;
        self.pressure.settled_at = self.shared.now;
        self.list_to_emit(index);
        self.after_change(index);
    }
}

/// Whether an id names a connection without a user, in TIME-WAIT or (if not `is_over`) in another
/// state.
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

/// Microseconds between two times of the millisecond clock, which wraps around.
fn passed_us(now_ms: u32, then_ms: u32) -> u64 {
    u64::from(now_ms.wrapping_sub(then_ms)) * 1000
}
