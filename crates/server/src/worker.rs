//! A worker: one thread, its sockets, and the turns in which it serves them.
//!
//! A turn waits for the sockets, accepts new connections, receives from ready connections, parses
//! what came into a batch of requests, executes the batch and sends the replies. Work that a turn
//! does not finish either leads to another turn at once (input beyond one connection's share) or
//! waits for the poller (replies that the client does not read).
//!
//! Bytes become input only in `receive` and `uploads`, and replies become bytes only in [`Output`]
//! and [`ReplyQueue`](crate::reply_queue::ReplyQueue). TLS stands between these and the socket: it
//! belongs to the [`Stream`](coua_transport::Stream).
//!
//! # Invariants
//! - Between turns a session is in one of three places: listed as ready, active (its input lies in
//!   the input buffer, not all of it executed), or waiting for the poller.
//! - Nothing is received and nothing executed for a session whose replies wait to be sent.
//! - No reference to an item outlives a batch; a value whose reply outlives the batch is pinned.

mod accept;
mod batch;
mod datagrams;
mod drain;
mod finish;
mod flash;
mod held;
mod input;
mod look_ahead;
mod rdma;
mod receive;
mod run;
#[cfg(feature = "simulated")]
mod simulated;
mod slow;
mod uploads;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use coua_store::FlashRead;
use coua_transport::tls::ClientCertificate;
use coua_transport::userspace::StackSetup;
use coua_transport::{DatagramSocket, Datagrams, Events, Listener, Poller, Readiness, Token};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::buffers::Pool;
use crate::clock::Now;
use crate::closing::CloseCause;
use crate::connections::ConnectionInfo;
use crate::fetches::Fetches;
use crate::hot_keys::{self, Chooser};
use crate::latency::Executed;
use crate::output::{OUTPUT_LEN, Output};
use crate::rdma::WorkerRdma;
use crate::session::{Listed, Session, SessionId, Sessions, StreamingSet};
use crate::shared::Shared;
use crate::watch::{LogStreams, lines};
use batch::Batch;
use datagrams::DatagramSockets;
use drain::{DRAIN_SLEEP, Drain};
pub use flash::WorkerFlash;
use input::Input;

/// Bytes outside the store's memory that each worker takes: buffers and lists of fixed size.
pub const MEMORY_PER_WORKER: usize =
    Input::MEMORY + OUTPUT_LEN + Batch::MEMORY + 2 * hot_keys::MEMORY;

/// From this number on, sessions do not all fit into a core's own cache.
const SESSIONS_MIN: usize = 256;

/// The longest sleep, short enough for the work that is done once a second.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// How long to sleep while requests wait for memory that other workers must free.
const SLEEP_FOR_MEMORY: Duration = Duration::from_millis(1);

/// How long accepting pauses when there are no descriptors, or too many connections.
const ACCEPT_PAUSE_MS: u64 = 10;

/// How long a client may take for the handshake of TLS.
const HANDSHAKE_S_MAX: u64 = 10;

/// How often the counters of the user-space stack are published.
const NET_COUNTERS_MS: u64 = 100;

/// Tokens of listeners have this bit and the listener's number; no token of a session has it.
const LISTENER_MARK: u64 = 1 << 63;

/// The waker's token.
const WAKER_TOKEN: Token = Token(u64::MAX);

/// The token of what is waited for of flash and of RDMA. The poller has the one in between for itself.
const DEVICE_TOKEN: Token = Token(u64::MAX - 2);

/// The number of the user-space stack's listener.
const USERSPACE_LISTENER: usize = u32::MAX as usize;

/// One thread of the server.
pub struct Worker {
    index: usize,
    shared: Arc<Shared>,
    store: coua_store::Worker,
    poller: Poller,
    listeners: Vec<Listener>,
    /// By listener, what TLS asks of its clients.
    tls: Vec<Option<ClientCertificate>>,
    datagrams: DatagramSockets,
    /// Listeners that have connections to accept, by number.
    waiting_listeners: Vec<usize>,
    /// Another thread has woken this worker, perhaps to hand over a connection.
    is_woken: bool,
    /// When accepting was paused (milliseconds since the server's start).
    accept_paused_ms: Option<u64>,
    sessions: Sessions,
    /// Sessions that may have something to do.
    ready: VecDeque<SessionId>,
    /// How many of them are listed only because they wait for memory.
    waiting_for_memory: usize,
    /// How many pieces of active input wait for reads of flash.
    inputs_for_flash: usize,
    /// What is read from flash.
    fetches: Fetches,
    /// Reads of flash that have ended in this turn.
    flash_reads: Vec<FlashRead>,
    has_flash: bool,
    rdma: Option<Box<WorkerRdma>>,
    /// When what there is to know of RDMA was last published, in units of `NET_COUNTERS_MS`.
    rdma_told: u64,
    input: Input,
    batch: Batch,
    /// The requests that are counted for `stats hotkeys`.
    chooser: Chooser,
    /// Requests that each session may have in this turn's batch.
    share: usize,
    output: Output,
    pool: Pool,
    #[expect(clippy::vec_box, reason = "the boxes go back and forth unopened")]
    spare_streaming_sets: Vec<Box<StreamingSet>>,
    /// Sessions whose values are received straight into the store.
    uploads: Vec<SessionId>,
    /// The server stops, and this is left of it here.
    drain: Option<Drain>,
    /// Sessions that are held since a login has failed, and until when (milliseconds since the server's
    /// start); the first ends first.
    held: VecDeque<(u64, SessionId)>,
    /// The store has cleaning to do.
    has_chores: bool,
    /// The last second in which idle connections were looked for.
    idle_checked: u64,
    /// When the counters of the user-space stack were last published, in units of
    /// `NET_COUNTERS_MS`.
    net_told: u64,
}

/// The sockets of one worker.
#[derive(Default)]
pub struct WorkerSockets {
    /// Where it accepts connections.
    pub listeners: Vec<Listener>,
    /// By listener, what TLS asks of its clients; `None` for no TLS.
    pub tls: Vec<Option<ClientCertificate>>,
    /// Where it receives datagrams.
    pub datagrams: Vec<DatagramSocket>,
    /// A queue of a card, and the settings of the stack on it.
    pub setup: Option<StackSetup>,
}

/// The memory of fixed size that a worker uses. It is allocated before the threads start, while a
/// lack of memory can still be reported.
pub struct WorkerBuffers {
    input: Input,
    batch: Batch,
    output: Output,
    flash: Option<WorkerFlash>,
    fetches: Fetches,
}

impl WorkerBuffers {
    /// Allocates it.
    pub fn new(flash: Option<WorkerFlash>) -> WorkerBuffers {
        WorkerBuffers {
            fetches: Fetches::new(flash.as_ref().map_or(0, |flash| flash.reads)),
            flash,
            input: Input::new(),
            batch: Batch::new(),
            output: Output::new(),
        }
    }
}

impl Default for WorkerBuffers {
    fn default() -> WorkerBuffers {
        WorkerBuffers::new(None)
    }
}

impl Worker {
    /// Worker number `index` of the server. Call it on the thread that is going to run the worker.
    ///
    /// # Errors
    /// If the process or the system has no descriptor left.
    pub fn new(
        index: usize,
        shared: Arc<Shared>,
        mut sockets: WorkerSockets,
        buffers: WorkerBuffers,
    ) -> io::Result<Worker> {
        let mut poller = Poller::new()?;
        if let Some(setup) = sockets.setup.take() {
            poller.host(setup, listener_token(USERSPACE_LISTENER))?;
        }
        Worker::with_poller(poller, index, shared, sockets, buffers)
    }

    fn with_poller(
        poller: Poller,
        index: usize,
        shared: Arc<Shared>,
        sockets: WorkerSockets,
        buffers: WorkerBuffers,
    ) -> io::Result<Worker> {
        let WorkerSockets {
            listeners,
            tls,
            datagrams,
            setup: _,
        } = sockets;
        poller.add_source(shared.waker(index), WAKER_TOKEN, false)?;
        for (number, listener) in listeners.iter().enumerate() {
            poller.add_source(listener, listener_token(number), listener.is_shared())?;
        }
        let mut sessions = Sessions::new(shared.settings.connections_max);
        let datagrams = datagrams.into_iter().map(Datagrams::from);
        let datagrams = datagrams.chain(poller.datagrams()).collect();
        let datagrams =
            DatagramSockets::new(datagrams, &shared, &poller, listeners.len(), &mut sessions)?;
        let mut store = shared.store.worker(index);
        let reads = buffers.flash.as_ref().map_or(0, |flash| flash.reads);
        if let Some(flash) = buffers.flash {
            flash.attach(&mut store, &poller)?;
        }
        let rdma = rdma::start(&shared, index, &poller)?;
        // At most a quarter of memory is lent; each worker gets an equal part of it.
        let page_len = shared.store.stats().segment_len.max(1);
        let pages = shared.settings.store_memory() as u64 / 4 / page_len;
        let pages_max = usize::try_from(pages).unwrap_or(usize::MAX) / shared.settings.workers;
        Ok(Worker {
            index,
            store,
            has_flash: reads > 0,
            rdma,
            rdma_told: u64::MAX,
            inputs_for_flash: 0,
            fetches: buffers.fetches,
            flash_reads: Vec::with_capacity(reads),
            poller,
            listeners,
            tls,
            datagrams,
            waiting_listeners: Vec::new(),
            is_woken: false,
            accept_paused_ms: None,
            sessions,
            ready: VecDeque::new(),
            waiting_for_memory: 0,
            input: buffers.input,
            batch: buffers.batch,
            chooser: Chooser::new(index),
            share: 1,
            output: buffers.output,
            pool: Pool::new(Arc::clone(&shared.store), pages_max),
            spare_streaming_sets: Vec::new(),
            uploads: Vec::new(),
            drain: None,
            held: VecDeque::new(),
            has_chores: false,
            idle_checked: 0,
            net_told: u64::MAX,
            shared,
        })
    }

    /// Serves until the server has stopped.
    pub fn run(mut self) {
        self.pin_to_core();
        let mut events = Events::new();
        while !(self.shared.is_stopping() && self.has_drained()) {
            if let Err(error) = self.turn(&mut events) {
                tracing::error!(%error, "worker {} cannot wait for its sockets", self.index);
                self.shared.stop_at_once();
            }
        }
        self.store.park();
    }

    fn pin_to_core(&self) {
        let cores = &self.shared.settings.cores;
        if cores.is_empty() {
            return;
        }
        let core = cores[self.index % cores.len()];
        let mut set = CpuSet::new();
        set.set(core);
        if let Err(error) = sched_setaffinity(None, &set) {
            tracing::warn!(
                "worker {} cannot be pinned to core {core}: {error}",
                self.index
            );
        }
    }

    /// One turn.
    fn turn(&mut self, events: &mut Events) -> io::Result<()> {
        self.poll(events)?;
        let began = self.shared.clock.since_start();
        let now = self.shared.clock.at(began);
        let before = Executed::of(self.counters());
        self.counters().turns.add(1);
        self.poll_flash(began);
        self.accept(now);
        self.close_idle(now);
        self.unpark(now);
        self.release_held(now);
        self.begin_batch();
        self.receive_datagrams_of_stack();
        self.receive(now);
        self.receive_datagrams();
        self.run_batch(now, began);
        self.submit_flash(began);
        if self.shared.is_stopping() {
            self.drain(now);
        }
        self.poller.end_turn();
        self.note_latency(began, before);
        self.tell_net_counters(now);
        self.has_chores = self.store.end(now.time);
        self.submit_flash(began);
        self.counters()
            .buffer_blocks
            .set(self.pool.blocks_taken() as u64);
        if self.has_flash {
            let held = self.fetches.held() as u64;
            self.counters().flash_reads_under_way.set(held);
        }
        Ok(())
    }

    /// Counts how long the turn's requests took, if there were any.
    #[inline]
    fn note_latency(&self, began: Duration, before: Executed) {
        let after = Executed::of(self.counters());
        if after != before {
            let took = self.shared.clock.since_start() - began;
            self.shared.latency(self.index).note(before, after, took);
        }
    }

    /// Publishes the counters of the user-space stack ten times a second, and logs it if its trace
    /// has ended.
    fn tell_net_counters(&mut self, now: Now) {
        let moment = now.since_start_ms / NET_COUNTERS_MS;
        if self.net_told != moment
            && let Some(counters) = self.poller.counters()
        {
            self.net_told = moment;
            self.shared.tell_net_counters(self.index, counters);
            if let Some(error) = self.poller.take_trace_error() {
                let index = self.index;
                tracing::warn!("--pcap: worker {index} writes no more frames: {error}");
            }
        }
    }

    /// How long the worker may sleep unless a socket becomes ready.
    fn timeout(&self) -> Duration {
        let has_input = self.input.active.len() > self.inputs_for_flash;
        if has_input || self.has_chores || self.ready.len() > self.waiting_for_memory {
            Duration::ZERO
        } else if self.waiting_for_memory > 0 || self.input.parked().is_some() {
            SLEEP_FOR_MEMORY
        } else if self.drain.is_some() {
            DRAIN_SLEEP
        } else if self.accept_paused_ms.is_some() {
            Duration::from_millis(ACCEPT_PAUSE_MS)
        } else {
            SLEEP_MAX
        }
    }

    fn poll(&mut self, events: &mut Events) -> io::Result<()> {
        let mut timeout = self.arm_flash(self.timeout());
        if self.rdma.is_some() {
            timeout = self.poll_rdma(timeout);
        }
        let ready = self.poller.wait(events, timeout, || self.store.park())?;
        if self.sessions.places() >= SESSIONS_MIN {
            // The sessions are in none of the caches: prefetching lets memory fetch them all at
            // once.
            for event in ready.clone() {
                self.sessions.prefetch(session_id(event.token));
            }
        }
        for event in ready {
            if event.token == DEVICE_TOKEN {
                // They are polled in each turn.
            } else if event.token == WAKER_TOKEN {
                self.shared.waker(self.index).drain();
                self.is_woken = true;
            } else if event.token.0 & LISTENER_MARK != 0 {
                let number = usize::try_from(event.token.0 & !LISTENER_MARK).unwrap_or(usize::MAX);
                match number.checked_sub(self.listeners.len()) {
                    _ if number == USERSPACE_LISTENER => self.waiting_listeners.push(number),
                    None => self.waiting_listeners.push(number),
                    Some(number) => self.datagrams.note_readable(number),
                }
            } else {
                note_event(&mut self.sessions, &mut self.ready, event);
            }
        }
        Ok(())
    }

    /// Once a second, closes connections that have been idle for too long.
    fn close_idle(&mut self, now: Now) {
        let settings = &self.shared.settings;
        let timeout = self.shared.live.idle_timeout_s();
        let second = now.since_start_ms / 1000;
        if timeout == 0 && settings.tls.is_none() || self.idle_checked == second {
            return;
        }
        self.idle_checked = second;
        let is_idle = |session: &Session| {
            let last = session.connection.last_request().0;
            let idle_s = u64::from(now.unix.0.saturating_sub(last));
            timeout > 0 && idle_s > timeout && !session.watches()
                || session.stream.is_handshaking() && idle_s > HANDSHAKE_S_MAX
        };
        let idle: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.message.is_none() && is_idle(session))
            .map(|(id, _)| id)
            .collect();
        for id in idle {
            self.close_for(id, CloseCause::Idle);
        }
    }

    /// Closes a connection for a cause that is not the client's.
    fn close_for(&mut self, id: SessionId, cause: CloseCause) {
        if let Some(session) = self.sessions.get(id) {
            session.close_cause = Some(cause);
        }
        self.close(id);
    }

    /// Closes a connection and releases all that it holds.
    fn close(&mut self, id: SessionId) {
        if let Some(mut session) = self.sessions.remove(id) {
            if self.rdma.is_some() && self.close_rdma(id, &mut session) {
                return;
            }
            let since_start_ms = self.shared.clock.now().since_start_ms;
            let cause = session.why_closed();
            cause.note(&session.connection, self.counters(), since_start_ms);
            let ConnectionInfo {
                descriptor, peer, ..
            } = &*session.connection;
            let mut told = cause;
            if session.stream.is_handshaking() {
                told = CloseCause::Protocol;
                (self.shared.watchers).tell(LogStreams::CONNECTIONS, |line| {
                    lines::handshake_failed(line, *descriptor);
                });
            }
            (self.shared.watchers).tell(LogStreams::CONNECTIONS, |line| {
                lines::closed(line, peer, told, *descriptor);
            });
            session.release(&mut self.pool);
            self.fetches.abandon(&mut session.fetches);
            self.waiting_for_memory -= usize::from(session.listed == Listed::ForMemory);
            self.shared.registry.remove(self.index, id.slot as usize);
        }
    }

    /// Closes the connection, other than `spared`, that holds buffers and has been stalled longest.
    /// False if there is none.
    fn shed(&mut self, spared: SessionId) -> bool {
        let longest = self
            .sessions
            .iter()
            .filter(|(id, session)| *id != spared && session.holds_buffers())
            .min_by_key(|(_, session)| session.stalled_since_ms)
            .map(|(id, _)| id);
        let Some(id) = longest else {
            return false;
        };
        self.close_for_memory(id);
        true
    }

    /// Closes a connection because others need its memory, or there is none for it.
    fn close_for_memory(&mut self, id: SessionId) {
        self.counters().connections_shed.add(1);
        self.close_for(id, CloseCause::Memory);
    }

    /// Puts a session into the list of those that may have something to do.
    fn list(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get(id) {
            list_session(session, id, &mut self.ready);
        }
    }

    /// Lists a session whose request waits for memory.
    fn list_for_memory(&mut self, id: SessionId, now: Now) {
        if let Some(session) = self.sessions.get(id) {
            session.wait_for_memory(now.since_start_ms);
            if session.listed == Listed::Nowhere {
                session.listed = Listed::ForMemory;
                self.waiting_for_memory += 1;
                self.ready.push_back(id);
            }
        }
    }

    fn counters(&self) -> &crate::counters::Counters {
        self.shared.counters(self.index)
    }
}

fn note_event(sessions: &mut Sessions, ready: &mut VecDeque<SessionId>, event: Readiness) {
    let id = session_id(event.token);
    let Some(session) = sessions.get(id) else {
        return;
    };
    session.readable |= event.readable;
    session.ended |= event.end_of_stream;
    let has_something_to_do = if session.is_blocked() {
        event.writable || session.watches() && session.ended
    } else {
        event.readable
    };
    if has_something_to_do {
        list_session(session, id, ready);
    }
}

fn list_session(session: &mut Session, id: SessionId, ready: &mut VecDeque<SessionId>) {
    if session.listed == Listed::Nowhere {
        session.listed = Listed::Ready;
        ready.push_back(id);
    }
}

fn listener_token(number: usize) -> Token {
    Token(LISTENER_MARK | number as u64)
}

fn session_token(id: SessionId) -> Token {
    Token(u64::from(id.generation) << 32 | u64::from(id.slot))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the halves are taken apart"
)]
fn session_id(token: Token) -> SessionId {
    SessionId {
        slot: token.0 as u32,
        generation: (token.0 >> 32) as u32,
    }
}
