//! The stack: all connections of one worker, and the frames of its queue.
//!
//! # Contract
//! A turn has three parts, in this order:
//!
//! 1. [`Stack::begin`] sets the time, runs the timers that are due, receives a burst of frames and
//!    delivers each one.
//! 2. The user takes what has arrived ([`Stack::next_accepted`], [`Stack::next_ready`],
//!    [`Stack::next_datagram`]), reads ([`Stack::receive`]), writes ([`Stack::send`]) and closes.
//!    Bytes are read directly from the frames in which they arrived.
//! 3. [`Stack::end`] copies what was not read, sends everything that is due and gives the frames
//!    back.
//!
//! [`Stack::deadline`] then says when the next turn is needed at the latest, if no frame arrives.
//!
//! Readiness is reported once: [`Stack::next_ready`] names a connection when it becomes readable,
//! writable or closed, not for as long as it stays so.
//!
//! # Invariants
//! - A connection that is not `Closed` is in the table. One with something due is in `to_emit` or
//!   in `waiting_for_mac`.
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

/// Names a connection. A later connection in the same place has another id.
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

/// What one worker's stack learns and the others must know too, because the card delivers the
/// packet to one queue only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A neighbour has announced its MAC address.
    Neighbour(Address, Mac, Overrides),
    /// A router or host has reported a packet that did not arrive.
    Unreachable(icmp::Reason, icmp::Quoted),
}

/// The most notices that may wait to be taken; further ones are dropped, as a network may drop
/// packets.
const NOTICES_MAX: usize = 256;

/// Timers that have fired and are handled together.
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
    /// Openings by peers are not answered.
    ignores_openings: bool,
    /// Ports on which connections are accepted.
    listens_at: Vec<u16>,
    /// Ports on which datagrams are received.
    datagrams_at: Vec<u16>,
    accepted: VecDeque<ConnectionId>,
    half_open: usize,
    /// Counts the local ports tried for outgoing connections (RFC 6056).
    port_counter: u64,
    /// Until when a SYN cookie that was sent may come back.
    cookies_until: Instant,
    /// Connections with something to send.
    to_emit: Vec<u32>,
    /// Connections that wait for a neighbour's MAC address.
    waiting_for_mac: Vec<u32>,
    ask_again_at: Instant,
    /// Connections that could not take all the user gave because memory was short, in the order in
    /// which they began to wait.
    waiting_for_memory: VecDeque<u32>,
    pressure: Pressure,
    /// Connections whose readiness has changed since the user was told.
    ready: VecDeque<u32>,
    /// Connections with unread bytes in frames of this burst.
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
    /// Makes a stack on a card. It allocates its tables at once; memory for buffered bytes grows up
    /// to `config.memory_max`.
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
            ignores_openings: false,
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

    /// The memory of its largest tables. They are accessed at random, so the caller may ask the
    /// system for huge pages there before the first connection.
    pub fn tables(&self) -> [*const [u8]; 3] {
        let connections = std::ptr::slice_from_raw_parts(
            self.connections.as_ptr().cast::<u8>(),
            self.connections.capacity() * size_of::<Connection>(),
        );
        [connections, self.table.memory(), self.wheel.memory()]
    }

    /// Accepts connections on a port from now on.
    pub fn listen(&mut self, port: u16) {
        if !self.listens_at.contains(&port) {
            self.listens_at.push(port);
        }
    }

    /// Accepts no more connections on a port.
    pub fn stop_listening(&mut self, port: u16) {
        self.listens_at.retain(|listens| *listens != port);
    }

    /// Answers no peer that opens a connection any more, neither with a connection nor with a reset:
    /// its system tries again, and may then reach whoever has the address next.
    pub fn ignore_openings(&mut self) {
        self.ignores_openings = true;
    }

    /// Receives datagrams on a port from now on.
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
        // Sending has shown which MAC addresses are missing.
        self.emit_questions(nic);
        nic.flush();
    }

    /// Copies unread bytes from the frames into buffers.
    fn keep_all_fresh(&mut self, nic: &impl Nic) {
        while let Some(index) = self.fresh.pop() {
            self.connections[index as usize].keep_fresh(&mut self.shared, nic);
        }
        self.shared.fresh.clear();
    }

    /// When the next turn is needed at the latest; `None` if only an arriving frame makes one
    /// necessary.
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

    /// Buffers in use, for bytes that wait to be acknowledged or read.
    pub fn buffers_in_use(&self) -> usize {
        self.shared.buffers.in_use()
    }

    /// Bytes of memory that these buffers take.
    pub fn memory_in_use(&self) -> usize {
        self.shared.buffers.memory_in_use()
    }

    /// The next thing that the other workers' stacks must know too.
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
            // With many connections their timers are not in the processor's caches: prefetching
            // makes the cache misses overlap.
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

    /// Handles a connection's timer that has fired. Often it was set for data that has been
    /// acknowledged since, and is only set again.
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

    /// Sets the wheel for a connection, unless it is already set early enough.
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

    /// Does what a connection's change of state requires of the stack.
    fn after_change(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        if connection.flags.has(ConnectionFlags::HALF_OPEN)
            && connection.state != State::SynReceived
        {
            connection.flags.clear(ConnectionFlags::HALF_OPEN);
            self.half_open -= 1;
        }
        if connection.state == State::Closed {
            // No segment finds it any more, even if the user has not closed it yet.
            self.unlink(index);
            self.list_ready(index);
        }
    }
}
