//! Clients of a server at the other end of a link: many connections on one thread, on TCP as small
//! as it can be made.
//!
//! A connection sends a batch of requests and the next one when all its replies are there. Segments
//! are made by filling in numbers; what must come back is known, and compared byte by byte. All that
//! a link and a server may do is coped with: segments are acknowledged cumulatively and received in
//! order, what is lost is sent again after a time, what comes twice is acknowledged again, replies
//! come in any number of segments, and windows are honoured. Of congestion control there is the slow
//! start, again after a timeout: a link between two processes loses next to nothing.
//!
//! # Why this is not the load on coua's own stack
//! `coua-bench run --net memif:…` ([`crate::load`]) speaks TCP as the server does, with the server's
//! own stack: it is as dear as what it measures, and would be the busier side. A server's highest
//! rate shows only to clients that are cheaper than it. One request of these takes 2,136
//! instructions, of the other load 6,421 (64 connections with GETs of 8 bytes at a coua on memif, not
//! optimised: the difference of two runs of `valgrind --tool=cachegrind` by that of their requests). In
//! the tables of docs/performance.md the server is used up and the load half idle. What has to be
//! right rather than fast, as resending by a measured time, is the other's.
//!
//! # Order of calls
//! [`Clients::turn`] as often as can be, with a time that does not go back, until
//! [`Clients::are_open`]; then [`Clients::begin`] a stretch of load and further turns. A turn
//! receives what one burst brings, answers it, sends what the pace wants and looks after a few
//! connections' timers.

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
    /// Requests of a batch, which is what a connection sends at once; 255 at most.
    pub(crate) depth: usize,
    /// Requests under way at most, over all connections.
    pub(crate) outstanding: usize,
    /// What is asked.
    pub(crate) requests: Requests,
    /// The keys' form.
    pub(crate) keys: KeyFormat,
    /// The keys' values.
    pub(crate) values: Arc<Values>,
    /// Who answers.
    pub(crate) answers: Answers,
    /// Seed of everything that is drawn.
    pub(crate) seed: u64,
}

/// What a stretch of load came to, beside what any load does.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    /// Replies and latencies.
    pub(crate) measured: Measured,
    /// Segments that were sent again, or acknowledged again because they came twice.
    pub(crate) retransmitted: u64,
    /// Times round that found nothing to do, and the time that they took.
    pub(crate) idle_turns: u64,
    /// As above.
    pub(crate) idle: Duration,
    /// Times round that found something to do.
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
    /// What each connection has asked, `depth` places each.
    asks: Vec<Ask>,
    depth: usize,
    batches_max: usize,
    /// Connections without a batch.
    idle: Vec<u32>,
    batches: usize,
    pace: Pace,
    dice: Xoshiro256PlusPlus,
    /// Whether the server's MAC address is known; when it was last asked for.
    knows_server: bool,
    asked_at: u64,
    /// Connections that were opened or are being opened, and those that are open.
    begun: usize,
    open: usize,
    /// Bits by which the server's windows are shifted, the same in all connections.
    shift: u8,
    /// Bytes of payload that a segment takes.
    segment_len: u32,
    /// Connections with something to send beyond what is new, by the end of the turn.
    to_send: Vec<u32>,
    /// With whether it is a must, or no matter once something else was sent.
    to_acknowledge: Vec<(u32, bool)>,
    /// Connections that the server remembers from a client that has died, and what it expects.
    stale: Vec<(u32, SeqNumber)>,
    /// Who asked for a MAC address.
    question: Option<arp::Packet>,
    /// The bytes of a batch that is one segment, or of a longer one's segment.
    batch: Vec<u8>,
    /// A batch may be longer than a segment.
    is_long: bool,
    /// The next connection whose timers are looked at, and since when.
    swept: usize,
    swept_at: u64,
    now: u64,
    is_started: bool,
    last_was_idle: bool,
    stretch: Stretch,
    /// Latencies of this turn that are not in it yet.
    run: Run,
    /// Batches that are about to begin, and when they were due.
    picked: Vec<(u32, u64)>,
}

/// After how long something that is not acknowledged is sent again, in nanoseconds; doubled at each
/// time.
const TIMEOUT: u64 = 200_000_000;

/// Timeouts in a row until the server counts as dead: 50 s.
const TIMEOUTS_MAX: u8 = 8;

/// How long an acknowledgment waits for a request to ride on.
const ACK_DELAY: u64 = 40_000_000;

/// How long it takes to look at all timers once.
const SWEEP: u64 = 20_000_000;

/// Connections that are opened at once.
const OPENING_MAX: usize = 256;

/// Segments that a sender may send before the first acknowledgment (RFC 6928).
const FIRST_WINDOW: u32 = 10;

impl Clients {
    /// Clients of which none is connected.
    ///
    /// # Errors
    /// Where the settings are out of bounds.
    pub(crate) fn new(settings: Settings, nic: &impl Nic) -> anyhow::Result<Clients> {
        let Settings {
            connections, depth, ..
        } = settings;
        ensure!(
            (1..=1 << 20).contains(&connections),
            "there may be 1 to {} connections",
            1 << 20
        );
        ensure!((1..=255).contains(&depth), "the depth may be 1 to 255");
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
            "a batch of {longest} bytes is too long, {} is the most",
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

    /// Whether anything is under way.
    pub(crate) fn is_waiting(&self) -> bool {
        self.batches > 0
    }

    /// Begins a stretch of load, and gives what the last one came to. What is under way counts for
    /// the new one. The times are nanoseconds, as in a turn.
    pub(crate) fn begin(&mut self, pace: Pace) -> Stretch {
        self.pace = pace;
        std::mem::replace(&mut self.stretch, Stretch::new())
    }

    /// The server's MAC address is known now.
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

    /// Ends all connections without a word to wait for. What finds no room in the card's queue waits
    /// for the next call; true where there was room for all.
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
