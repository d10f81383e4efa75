//! The stack: all connections of one worker, and the frames of its queue.
//!
//! # Contract
//! A turn has three parts, in this order:
//!
//! 1. [`Stack::begin`] tells the time, sees to what is due, takes the frames that have come and
//!    puts each where it belongs.
//! 2. The user takes what is there ([`Stack::next_accepted`], [`Stack::next_ready`],
//!    [`Stack::next_datagram`]), reads ([`Stack::receive`]), writes ([`Stack::send`]) and closes.
//!    Bytes are read out of the very frames in which they came.
//! 3. [`Stack::end`] keeps what was not read, sends all that is due and gives the frames back.
//!
//! [`Stack::deadline`] then says when the next turn is needed at the latest, if nothing comes.
//!
//! News of a connection is told once: [`Stack::next_ready`] names a connection when it has become
//! readable, writable or closed, not for as long as it is so.
//!
//! # Invariants
//! - A connection that is not `Closed` is in the table; one with something due is listed.
//! - Between turns no connection refers to a frame.
//! - The wheel fires for each connection at its deadline or before.

mod control;
mod fast_path;
mod frames;
mod link;
mod opening;
mod outgoing;
mod places;
mod pressure;
mod strays;
mod user;
mod waiting;

use std::collections::VecDeque;

use coua_cpu::prefetch;

use crate::buffers::Buffers;
use crate::config::Config;
use crate::connection::{Connection, ConnectionFlags, Shared, Skeletons, State};
use crate::counters::Counters;
use crate::limits::Limits;
use crate::listener::Listener;
use crate::neighbours::Neighbours;
use crate::nic::{Features, Mac, Nic};
use crate::secrets::Secrets;
use crate::table::Table;
use crate::time::Instant;
use crate::wheel::Wheel;
use crate::wire::{Address, icmp};

pub use crate::connection::{Failure, State as ConnectionState};
pub use crate::neighbours::Overrides;
pub use crate::wire::four_tuple::FourTuple;
pub use opening::ConnectError;
pub use strays::Stray;
pub use user::{Datagram, Description, Readiness, Received};

use outgoing::{Control, Echo, Reply};
use pressure::Pressure;
use strays::Strays;

/// Names a connection. It is never that of another one that later takes the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    index: u32,
    generation: u32,
}

impl ConnectionId {
    /// As one number.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// From [`ConnectionId::to_bits`].
    #[expect(clippy::cast_possible_truncation, reason = "halves are taken")]
    pub const fn from_bits(bits: u64) -> ConnectionId {
        ConnectionId {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

/// What one worker's stack learns and the others must know too, since the card brings it to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A neighbour has told its MAC address.
    Neighbour(Address, Mac, Overrides),
    /// A router or host has told of a packet that did not arrive.
    Unreachable(icmp::Reason, icmp::Quoted),
}

/// Notices that wait to be taken at most; further ones are dropped, as a network may.
const NOTICES_MAX: usize = 256;

/// Timers that have fired and are looked at together.
const EXPIRED_TOGETHER: usize = 16;

/// All connections of a worker.
pub struct Stack {
    shared: Shared,
    connections: Vec<Connection>,
    free: Vec<u32>,
    table: Table,
    wheel: Wheel,
    neighbours: Neighbours,
    listener: Listener,
    /// Ports at which connections are taken.
    listens_at: Vec<u16>,
    /// Ports at which datagrams are taken.
    datagrams_at: Vec<u16>,
    accepted: VecDeque<ConnectionId>,
    half_open: usize,
    /// The next port to try for a connection of ours.
    port_counter: u64,
    /// Cookies that were sent may come back until then.
    cookies_until: Instant,
    /// Connections with something to send.
    to_emit: Vec<u32>,
    /// Those that wait for a neighbour's MAC address.
    waiting_for_mac: Vec<u32>,
    ask_again_at: Instant,
    /// Those that could not take what the user gave, since memory was short, the first before the
    /// others.
    waiting_for_memory: VecDeque<u32>,
    pressure: Pressure,
    /// Those with news for the user.
    ready: VecDeque<u32>,
    /// Those with bytes in frames of this burst.
    fresh: Vec<u32>,
    datagrams: VecDeque<Datagram>,
    replies: Vec<Reply>,
    controls: Vec<Control>,
    echoes: Vec<Echo>,
    scratch: Box<[u8]>,
    notices: VecDeque<Notice>,
    strays: Strays,
}

impl Stack {
    /// A stack on a card. It takes all memory that it needs for its tables; that for bytes that
    /// wait grows up to what the settings allow.
    pub fn new(config: Config, features: Features, now: Instant) -> Stack {
        let secrets = Secrets::new(&config.secret);
        let capacity = config.connections_max;
        Stack {
            connections: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            table: Table::new(capacity, secrets.table_key()),
            wheel: Wheel::new(now, capacity),
            neighbours: Neighbours::new(),
            listener: Listener::new(&config.addresses, config.multicast_reports, now),
            listens_at: Vec::new(),
            datagrams_at: Vec::new(),
            accepted: VecDeque::with_capacity(capacity),
            half_open: 0,
            port_counter: 0,
            cookies_until: Instant::default(),
            to_emit: Vec::with_capacity(capacity),
            waiting_for_mac: Vec::new(),
            ask_again_at: now,
            waiting_for_memory: VecDeque::with_capacity(capacity),
            pressure: Pressure::new(capacity),
            ready: VecDeque::with_capacity(capacity),
            fresh: Vec::with_capacity(crate::nic::BURST_LEN),
            datagrams: VecDeque::with_capacity(crate::nic::BURST_LEN),
            replies: Vec::with_capacity(outgoing::REPLIES_MAX),
            controls: Vec::with_capacity(outgoing::REPLIES_MAX),
            echoes: Vec::with_capacity(outgoing::ECHOES_MAX),
            scratch: vec![0; outgoing::ECHO_LEN_MAX].into_boxed_slice(),
            notices: VecDeque::with_capacity(NOTICES_MAX),
            strays: Strays::new(),
            shared: Shared {
                now,
                features,
                skeletons: Skeletons::new(features.mac, config.vlan),
                buffers: Buffers::new(config.memory_max),
                counters: Counters::default(),
                secrets,
                fresh: Vec::with_capacity(crate::nic::BURST_LEN),
                limits: Limits::new(),
                predecessor: None,
                receive_share: 0,
                rto_min_us: u64::try_from(config.rto_min.as_micros()).unwrap_or(u64::MAX),
                config,
            },
        }
    }

    /// The memory of its largest tables, which are gone through at random: whoever can may ask the
    /// system for huge pages there, before there are connections.
    pub fn tables(&self) -> [*const [u8]; 3] {
        let connections = std::ptr::slice_from_raw_parts(
            self.connections.as_ptr().cast::<u8>(),
            self.connections.capacity() * size_of::<Connection>(),
        );
        [connections, self.table.memory(), self.wheel.memory()]
    }

    /// Takes connections at a port from now on.
    pub fn listen(&mut self, port: u16) {
        if !self.listens_at.contains(&port) {
            self.listens_at.push(port);
        }
    }

    /// Takes no more connections at a port.
    pub fn stop_listening(&mut self, port: u16) {
        self.listens_at.retain(|listens| *listens != port);
    }

    /// Takes datagrams at a port from now on.
    pub fn listen_for_datagrams(&mut self, port: u16) {
        if !self.datagrams_at.contains(&port) {
            self.datagrams_at.push(port);
        }
    }

    /// The first part of a turn: see the contract.
    pub fn begin(&mut self, now: Instant, nic: &mut impl Nic) {
        self.shared.now = self.shared.now.max(now);
        self.shared.share_room();
        self.expire();
        self.relieve();
        self.wake_waiting();
        let count = nic.receive();
        self.take_burst(nic, count);
    }

    /// The last part of a turn: see the contract.
    pub fn end(&mut self, nic: &mut impl Nic) {
        self.keep_all_fresh(nic);
        self.shared.buffers.end_reserve();
        self.datagrams.clear();
        self.report_groups();
        self.emit_replies(nic);
        nic.release();
        self.emit_connections(nic);
        // Connections have found out whom they must ask for.
        self.emit_questions(nic);
        nic.flush();
    }

    /// Copies what nobody has read out of the frames.
    fn keep_all_fresh(&mut self, nic: &impl Nic) {
        while let Some(index) = self.fresh.pop() {
            self.connections[index as usize].keep_fresh(&mut self.shared, nic);
        }
        self.shared.fresh.clear();
    }

    /// When the next turn is needed at the latest; `None` where only frames bring one about.
    pub fn deadline(&self) -> Option<Instant> {
        if !self.to_emit.is_empty() || !self.ready.is_empty() || !self.accepted.is_empty() {
            return Some(self.shared.now);
        }
        let asks = (!self.waiting_for_mac.is_empty()).then_some(self.ask_again_at);
        let retries = (!self.waiting_for_memory.is_empty()).then(|| self.shared.now.after(1000));
        let reports = Some(self.listener.report_at).filter(|at| *at != Instant::NEVER);
        [self.wheel.deadline(), asks, retries, reports]
            .into_iter()
            .flatten()
            .min()
    }

    /// What has been counted.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Buffers in use, for what waits to be acknowledged or read.
    pub fn buffers_in_use(&self) -> usize {
        self.shared.buffers.in_use()
    }

    /// Bytes of memory of these buffers.
    pub fn memory_in_use(&self) -> usize {
        self.shared.buffers.memory_in_use()
    }

    /// Something that other workers' stacks must know too.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Takes in what another worker's stack has learnt.
    pub fn take_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Neighbour(address, mac, overrides) => {
                self.note_neighbour(address, mac, overrides);
            }
            Notice::Unreachable(reason, quoted) => {
                self.take_unreachable(reason, &quoted);
            }
        }
    }

    fn notify(&mut self, notice: Notice) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push_back(notice);
        }
    }

    fn expire(&mut self) {
        self.wheel.turn_to(self.shared.now);
        let mut due = [0; EXPIRED_TOGETHER];
        loop {
            let mut count = 0;
            while count < due.len()
                && let Some(index) = self.wheel.pop_due()
            {
                due[count] = index;
                count += 1;
            }
            // With many connections their timers lie in none of the caches: memory fetches them together.
            for &index in &due[..count] {
                prefetch(&self.connections[index as usize].timers);
            }
            for &index in &due[..count] {
                self.expire_one(index);
            }
            if count < due.len() {
                return;
            }
        }
    }

    /// A connection's timer has fired: often one of what has been acknowledged since.
    fn expire_one(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        connection.timers.set_to = Instant::NEVER;
        if connection.deadline() <= self.shared.now {
            connection.expire(&mut self.shared);
            self.list_to_emit(index);
            self.after_change(index);
        } else {
            self.set_timer(index);
        }
    }

    /// Sets the wheel for a connection, where it is not set early enough.
    #[inline]
    fn set_timer(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        let deadline = connection.deadline();
        if deadline < connection.timers.set_to {
            connection.timers.set_to = deadline;
            self.wheel.set(index, deadline);
        }
    }

    #[inline]
    fn list_to_emit(&mut self, index: u32) {
        let flags = &mut self.connections[index as usize].flags;
        if !flags.has(ConnectionFlags::LISTED_TO_EMIT) && !flags.has(ConnectionFlags::VACANT) {
            flags.set(ConnectionFlags::LISTED_TO_EMIT);
            self.to_emit.push(index);
        }
    }

    #[inline]
    fn list_ready(&mut self, index: u32) {
        let flags = &mut self.connections[index as usize].flags;
        if !flags.has(ConnectionFlags::LISTED_READY) && !flags.has(ConnectionFlags::ORPHAN) {
            flags.set(ConnectionFlags::LISTED_READY);
            self.ready.push_back(index);
        }
    }

    /// Sees to what a change of state means for the stack.
    fn after_change(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        if connection.flags.has(ConnectionFlags::HALF_OPEN)
            && connection.state != State::SynReceived
        {
            connection.flags.clear(ConnectionFlags::HALF_OPEN);
            self.half_open -= 1;
        }
        if connection.state == State::Closed {
            // No segment finds it any more, also where the user has not closed it yet.
            self.unlink(index);
            self.list_ready(index);
        }
    }
}
