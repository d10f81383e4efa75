//! Clients of a server at the other end of a link: many connections on one thread, with a TCP that
//! is as cheap as it can be.
//!
//! A connection sends a batch of requests, and the next batch when all replies have arrived.
//! Segments are made by filling numbers into a template. Every reply is known in advance and
//! compared byte by byte. The TCP is complete enough for a link and any server: it acknowledges
//! cumulatively, accepts segments in order, retransmits after a timeout, acknowledges duplicates,
//! observes windows, and accepts replies in any number of segments. Its only congestion control is
//! slow start: a link between two processes loses next to nothing.
//!
//! # Why this is not the load on coua's own stack
//! `coua-bench run --net memif:…` ([`crate::load`]) speaks TCP as the server does, with the server's
//! own stack: a request costs it as much as the server, so it would be the busier side. Only clients
//! that are cheaper than a server can show its highest rate. A request takes 2,136 instructions of
//! these clients and 6,421 of the other load (64 connections with GETs of 8 bytes at a coua on memif, not
//! optimised: the difference of two runs of `valgrind --tool=cachegrind` by that of their requests). In
//! the tables of docs/performance.md the server is saturated and the load half idle. What takes a
//! real TCP, such as a path that loses segments, is measured by the other load.
//!
//! # Order of calls
//! Call [`Clients::turn`] as often as possible, with a time that does not go back, until
//! [`Clients::are_open`]. Then call [`Clients::begin`] for each stretch of load, and go on with
//! turns. A turn receives one burst, answers it, sends what is due, and checks the timers of a few
//! connections.

mod connection;
mod datagrams;
mod dialogue;
mod opening;
mod pace;
mod requests;
#[cfg(test)]
mod tests;
mod turn;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use coua_tcp::nic::{Mac, Nic};
use coua_tcp::seq::SeqNumber;
use coua_tcp::wire::tcp::Flags;
use coua_tcp::wire::{Address, arp};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

pub(crate) use datagrams::Datagrams;
pub(crate) use dialogue::{Answers, KEYS_MAX};
pub(crate) use pace::Pace;
pub(crate) use requests::Requests;

use crate::load::{Measured, Run};
use crate::workload::{KeyFormat, Values};
use connection::{Connection, Stage};
use dialogue::{Ask, Dialogue};
use wire::{Numbers, Wire};

/// What clients there are and what they ask for.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The server's address and port.
    pub(crate) server: (Address, u16),
    /// Connections, 2^20 at most.
    pub(crate) connections: usize,
    /// Requests of a batch, which a connection sends at once; 255 at most.
    pub(crate) depth: usize,
    /// Most requests in flight at a time, over all connections.
    pub(crate) outstanding: usize,
    /// What is asked.
    pub(crate) requests: Requests,
    /// The keys' form.
    pub(crate) keys: KeyFormat,
    /// The keys' values.
    pub(crate) values: Arc<Values>,
    /// The service that answers.
    pub(crate) answers: Answers,
    /// Seed of all random choices.
    pub(crate) seed: u64,
}

/// The outcome of a stretch of load.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    /// Replies and latencies.
    pub(crate) measured: Measured,
    /// Segments that were retransmitted, or acknowledged again because they arrived twice.
    pub(crate) retransmitted: u64,
    /// Turns that found nothing to do.
    pub(crate) idle_turns: u64,
    /// The time that those took.
    pub(crate) idle: Duration,
    /// Turns that found something to do.
    pub(crate) busy_turns: u64,
}

impl Stretch {
    fn new() -> Stretch {
        Stretch {
            measured: Measured::new(),
            retransmitted: 0,
            idle_turns: 0,
            idle: Duration::ZERO,
            busy_turns: 0,
        }
    }
}

/// All clients.
pub(crate) struct Clients {
    wire: Wire,
    dialogue: Dialogue,
    connections: Vec<Connection>,
    /// What each connection has asked; `depth` places each.
    asks: Vec<Ask>,
    depth: usize,
    batches_max: usize,
    /// Connections without a batch.
    idle: Vec<u32>,
    batches: usize,
    pace: Pace,
    dice: Xoshiro256PlusPlus,
    /// Whether the server's MAC address is known, and when it was last asked for.
    knows_server: bool,
    asked_at: u64,
    /// Connections that have been opened or are being opened, and those that are open.
    begun: usize,
    open: usize,
    /// The server's window scale, the same in all connections.
    shift: u8,
    /// Most bytes of payload in a segment.
    segment_len: u32,
    /// Connections that have something to send besides new batches at the end of the turn.
    to_send: Vec<u32>,
    /// Connections that owe an acknowledgment, and whether it must be sent even if something else
    /// is.
    to_acknowledge: Vec<(u32, bool)>,
    /// Connections that the server remembers from a dead client, and the sequence number that it
    /// expects.
    stale: Vec<(u32, SeqNumber)>,
    /// Who asked for a MAC address.
    question: Option<arp::Packet>,
    /// The bytes of a batch that fits into one segment, or of one segment of a longer batch.
    batch: Vec<u8>,
    /// Whether a batch may be longer than a segment.
    is_long: bool,
    /// The next connection whose timers are checked, and when the checks were last done.
    swept: usize,
    swept_at: u64,
    now: u64,
    is_started: bool,
    last_was_idle: bool,
    stretch: Stretch,
    /// Latencies of this turn that have not been added yet.
    run: Run,
    /// Batches that are about to begin, and when they were due.
    picked: Vec<(u32, u64)>,
}

/// The retransmission timeout, in nanoseconds; it doubles each time.
const TIMEOUT: u64 = 200_000_000;

/// How many timeouts in a row mean that the server is dead: 50 s.
const TIMEOUTS_MAX: u8 = 8;

/// How long an acknowledgment is delayed, so that a request can carry it.
const ACK_DELAY: u64 = 40_000_000;

/// The time in which the timers of all connections are checked once.
const SWEEP: u64 = 20_000_000;

/// Most connections that are being opened at a time.
const OPENING_MAX: usize = 256;

/// Segments that a sender may send before the first acknowledgment (RFC 6928).
const FIRST_WINDOW: u32 = 10;

impl Clients {
    /// Clients; none of them is connected.
    ///
    /// # Errors
    /// If the settings are out of bounds.
    pub(crate) fn new(settings: Settings, nic: &impl Nic) -> anyhow::Result<Clients> {
        let Settings {
            connections, depth, ..
        } = settings;
        ensure!(
            (1..=1 << 20).contains(&connections),
            "--connections takes 1 to {}",
            1 << 20
        );
        ensure!((1..=255).contains(&depth), "--depth takes 1 to 255");
        let features = nic.features();
        let segment_len = u32::from(features.mtu) - wire::HEADERS_LEN;
        let dialogue = Dialogue::new(
            settings.requests,
            settings.keys,
            settings.values,
            settings.answers,
        );
        let is_long = dialogue.request_len_max() * depth > segment_len as usize;
        let longest = dialogue.request_len_max().max(dialogue.reply_len_max()) * depth;
        ensure!(
            longest <= wire::RECEIVABLE,
            "a batch of {longest} bytes is too long for a window of {}: give less --depth",
            wire::RECEIVABLE
        );
        let mut dice = Xoshiro256PlusPlus::seed_from_u64(settings.seed);
        let (server, port) = settings.server;
        let table = (0..connections)
            .map(|_| {
                let first = SeqNumber(dice.next_u32());
                Connection::new(first, dialogue.beginning(), segment_len * FIRST_WINDOW)
            })
            .collect();
        Ok(Clients {
            wire: Wire::new(features.mac, server, port),
            dialogue,
            connections: table,
            asks: vec![Ask::default(); connections * depth],
            depth,
            batches_max: (settings.outstanding / depth).max(1),
            idle: Vec::with_capacity(connections),
            batches: 0,
            pace: Pace::Rest,
            dice,
            knows_server: false,
            asked_at: 0,
            begun: 0,
            open: 0,
            shift: 0,
            segment_len,
            to_send: Vec::new(),
            to_acknowledge: Vec::new(),
            stale: Vec::new(),
            question: None,
            batch: Vec::with_capacity(segment_len as usize),
            is_long,
            swept: 0,
            swept_at: 0,
            now: 0,
            is_started: false,
            last_was_idle: false,
            stretch: Stretch::new(),
            run: Run::default(),
            picked: Vec::new(),
        })
    }

    /// Whether all connections are open.
    pub(crate) fn are_open(&self) -> bool {
        self.open == self.connections.len()
    }

    /// Whether any request is in flight.
    pub(crate) fn is_waiting(&self) -> bool {
        self.batches > 0
    }

    /// Begins a stretch of load, and returns the outcome of the last one. Requests in flight count
    /// for the new one. Times are nanoseconds, as in a turn.
    pub(crate) fn begin(&mut self, pace: Pace) -> Stretch {
        self.pace = pace;
        std::mem::replace(&mut self.stretch, Stretch::new())
    }

    /// Notes the server's MAC address.
    fn meet(&mut self, mac: Mac) {
        self.wire.set_server_mac(mac);
        self.knows_server = true;
    }

    fn numbers(&self, client: usize) -> Numbers {
        let connection = &self.connections[client];
        Numbers {
            client,
            seq: connection.next,
            ack: connection.theirs,
            timestamps: self.timestamps(connection),
        }
    }

    /// Resets all connections. Resets for which the card has no room are left for the next call;
    /// true if there was room for all.
    pub(crate) fn reset_all(&mut self, nic: &mut impl Nic) -> bool {
        nic.receive();
        while let Some(client) = self.begun.checked_sub(1) {
            let numbers = self.numbers(client);
            let flags = Flags::RST.and(Flags::ACK);
            if self.connections[client].stage == Stage::Open
                && !self.wire.send(nic, &numbers, flags, &[])
            {
                break;
            }
            self.begun = client;
        }
        nic.flush();
        self.begun == 0
    }
}
