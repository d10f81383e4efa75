//! The server as a whole: what its workers share, how it starts and how it stops.

mod listening;
#[cfg(feature = "simulated")]
pub mod simulated;
pub mod userspace;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use coua_store::{Start, Store, StoreError};
use coua_transport::userspace::StackDriverCounters;
use coua_transport::{ListenError, Waker};

use crate::clock::Clock;
use crate::connections::Registry;
use crate::counters::{Counters, Totals};
use crate::flags::Settings;
use crate::log;
use crate::stats::{Crawler, Prefixes};
use crate::worker::{MEMORY_PER_WORKER, Worker, WorkerBuffers};
pub use listening::{ListeningSocket, Sockets, WorkerSockets};
use listening::{remedy, write_port_file};

/// The version of coua.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version with the commit that it was built from, where the build knew that.
pub const BUILD: &str = match option_env!("COUA_BUILD") {
    Some(build) => build,
    None => VERSION,
};

/// The memcached whose behaviour this is.
pub const MEMCACHED_VERSION: &str = "1.6.45";

/// What `version` answers: clients read the number in front.
pub const PROTOCOL_VERSION: &str = concat!("1.6.45 coua-", env!("CARGO_PKG_VERSION"));

/// memcached's highest level of verbosity.
const VERBOSITY_MAX: u32 = 64;

/// What all workers share.
pub struct Shared {
    /// What the command line said.
    pub settings: Settings,
    /// The items.
    pub store: Arc<Store>,
    /// The time.
    pub clock: Clock,
    /// The connections.
    pub registry: Registry,
    /// Counts by key prefix.
    pub prefixes: Prefixes,
    /// What clients have told the crawler.
    pub crawler: Crawler,
    /// Listening sockets, as `stats conns` shows them.
    pub listening: Vec<ListeningSocket>,
    addresses: Vec<SocketAddr>,
    udp_addresses: Vec<SocketAddr>,
    /// By what numbers the kernel lists the sockets of UDP.
    pub udp_inodes: Vec<u64>,
    counters: Box<[Counters]>,
    /// What each worker's stack in user space has counted, as of late.
    net: Box<[Mutex<Option<StackDriverCounters>>]>,
    baseline: Mutex<Baseline>,
    wakers: Box<[Waker]>,
    /// Connections that are on their way to each worker.
    handed: Box<[Mutex<Vec<OwnedFd>>]>,
    stopping: AtomicBool,
    verbosity: AtomicU8,
}

/// Counts at the last `stats reset`.
#[derive(Clone, Copy, Default)]
struct Baseline {
    workers: Totals,
    store: coua_store::Totals,
}

impl Shared {
    /// What the workers of a server share that listens nowhere yet.
    fn new(settings: Settings, store: Arc<Store>, clock: Clock, wakers: Box<[Waker]>) -> Shared {
        let workers = settings.workers;
        Shared {
            store,
            clock,
            registry: Registry::new(workers, settings.connections_max),
            prefixes: Prefixes::new(settings.prefix_delimiter, settings.counts_prefixes),
            crawler: Crawler::new(&settings),
            listening: Vec::new(),
            addresses: Vec::new(),
            udp_addresses: Vec::new(),
            udp_inodes: Vec::new(),
            counters: (0..workers).map(|_| Counters::default()).collect(),
            net: (0..workers).map(|_| Mutex::default()).collect(),
            baseline: Mutex::default(),
            wakers,
            handed: (0..workers).map(|_| Mutex::default()).collect(),
            stopping: AtomicBool::new(false),
            verbosity: AtomicU8::new(settings.verbosity),
            settings,
        }
    }

    /// What has been counted since the start or the last `stats reset`.
    pub fn counts(&self) -> Totals {
        self.totals().since(&self.baseline().workers)
    }

    /// Values that rise and fall; `stats reset` leaves them alone.
    pub fn gauges(&self) -> Totals {
        self.totals()
    }

    /// What the store had counted at the last `stats reset`.
    pub fn baseline_of_store(&self) -> coua_store::Totals {
        self.baseline().store
    }

    /// Counts from 0 again.
    pub fn reset_counters(&self) {
        let baseline = Baseline {
            workers: self.totals(),
            store: self.store.stats().totals,
        };
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = baseline;
    }

    /// What the workers' stacks in user space have counted, of each that has one and has told of it.
    pub fn net_counters(&self) -> impl Iterator<Item = (usize, StackDriverCounters)> {
        self.net.iter().enumerate().filter_map(|(worker, net)| {
            let told = *net.lock().unwrap_or_else(PoisonError::into_inner);
            Some((worker, told?))
        })
    }

    /// Tells what a worker's stack has counted.
    pub fn tell_net_counters(&self, worker: usize, counters: StackDriverCounters) {
        let mut told = self.net[worker]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *told = Some(counters);
    }

    /// The counters of one worker.
    pub fn counters(&self, worker: usize) -> &Counters {
        &self.counters[worker]
    }

    /// The waker of one worker.
    pub fn waker(&self, worker: usize) -> &Waker {
        &self.wakers[worker]
    }

    /// Gives a worker a connection that another one has accepted.
    pub fn hand_over(&self, worker: usize, connection: OwnedFd) {
        let mut handed = self.handed[worker]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        handed.push(connection);
        drop(handed);
        self.wakers[worker].wake();
    }

    /// Takes the connections that others have accepted for a worker.
    pub fn take_handed(&self, worker: usize) -> Vec<OwnedFd> {
        let mut handed = self.handed[worker]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut handed)
    }

    /// Ends the server: every worker leaves its loop after its turn.
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
        for waker in &self.wakers {
            waker.wake();
        }
    }

    /// Whether the server is to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// How much is logged.
    pub fn verbosity(&self) -> u8 {
        self.verbosity.load(Relaxed)
    }

    /// Logs more or less from now on.
    pub fn set_verbosity(&self, level: u32) {
        let level = u8::try_from(level.min(VERBOSITY_MAX)).unwrap_or(u8::MAX);
        self.verbosity.store(level, Relaxed);
        log::set_verbosity(level);
    }

    /// Whether new connections are accepted at this moment.
    pub fn is_accepting(&self) -> bool {
        self.settings.refuses_at_once || !self.registry.is_full()
    }

    /// Bytes outside of `-m` that each worker takes, without the card and the stack's tables.
    pub fn memory_per_worker(&self) -> usize {
        MEMORY_PER_WORKER
    }

    /// The first TCP port, or 0.
    pub fn tcp_port(&self) -> u16 {
        self.addresses.first().map_or(0, SocketAddr::port)
    }

    /// The UDP port; 0 for none.
    pub fn udp_port(&self) -> u16 {
        self.udp_addresses.first().map_or(0, SocketAddr::port)
    }

    /// The TCP addresses, with the ports that the kernel chose where it was to choose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for counters in &self.counters {
            totals.add(counters);
        }
        totals
    }

    fn baseline(&self) -> Baseline {
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The memory.
    #[error("-m: {0}; give another size, or fewer threads (-t)")]
    Store(#[from] StoreError),
    /// The network.
    #[error("{0}: {hint}", hint = remedy(.0))]
    Listen(#[from] ListenError),
    /// The card of a stack of the server's own.
    #[error("--net {name}: {why}")]
    Net {
        /// Driver and interface.
        name: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The file for the frames of that card.
    #[error(
        "--pcap: cannot write {path}: {source}; give a file in a folder that the user (-u) may \
         write to"
    )]
    Trace {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The memory of the workers.
    #[error(
        "-t: cannot take {bytes} bytes of memory for {workers} threads; give fewer, or less -m"
    )]
    WorkerMemory {
        /// How many.
        workers: usize,
        /// How much, beside `-m`.
        bytes: usize,
    },
    /// Something else that the system refuses, and that there is for each worker.
    #[error("-t: cannot {action}: {source}; give fewer threads, or raise the limits (ulimit)")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// A server whose workers are running.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Takes the memory and starts the workers.
    ///
    /// # Errors
    /// [`StartError`]: the store has no memory, or the system refuses threads or descriptors.
    pub fn start(mut settings: Settings, sockets: Sockets) -> Result<Server, StartError> {
        let clock = Clock::start();
        let store = open_store(&mut settings, &clock, None)?;
        reserve_for_workers(settings.workers)?;
        let wakers = (0..settings.workers)
            .map(|_| Waker::new())
            .collect::<io::Result<_>>();
        let wakers = wakers.map_err(|source| StartError::System {
            action: "make wakers",
            source,
        })?;
        let mut shared = Shared::new(settings, store, clock, wakers);
        shared.listening = sockets.listening;
        shared.addresses = sockets.addresses;
        shared.udp_addresses = sockets.udp_addresses;
        shared.udp_inodes = sockets.udp_inodes;
        let mut server = Server {
            shared: Arc::new(shared),
            threads: Vec::new(),
        };
        let worker_buffers: Vec<WorkerBuffers> = sockets
            .by_worker
            .iter()
            .map(|_| WorkerBuffers::new())
            .collect();
        let mut starts = Vec::new();
        for (index, (sockets, buffers)) in sockets
            .by_worker
            .into_iter()
            .zip(worker_buffers)
            .enumerate()
        {
            match server.start_worker(index, sockets, buffers) {
                Ok(start) => starts.push(start),
                Err(error) => {
                    server.shared.stop();
                    drop(starts);
                    server.wait();
                    return Err(error);
                }
            }
        }
        // Nobody is served before all are there.
        drop(starts);
        if server.shared.settings.unix_socket.is_none() {
            write_port_file(&server.shared.addresses, &server.shared.udp_addresses);
        }
        announce(&server.shared);
        Ok(server)
    }

    /// Makes a worker, which begins to serve when what is given back is dropped.
    fn start_worker(
        &mut self,
        index: usize,
        sockets: WorkerSockets,
        buffers: WorkerBuffers,
    ) -> Result<Sender<()>, StartError> {
        let failed = |action| move |source| StartError::System { action, source };
        let shared = Arc::clone(&self.shared);
        let (tells, hears) = channel();
        let (start, started) = channel();
        // A worker stays on the thread that makes it.
        let run = move || match Worker::new(index, shared, sockets, buffers) {
            Ok(worker) => {
                // Who waits for it is there.
                let _ = tells.send(Ok(()));
                // Nothing is ever sent: the other end goes.
                let _ = started.recv();
                worker.run();
            }
            Err(error) => {
                let _ = tells.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new()
            .name(format!("coua-{index}"))
            .spawn(run)
            .map_err(failed("start a thread"))?;
        self.threads.push(thread);
        let made = hears.recv().unwrap_or(Err(io::ErrorKind::Other.into()));
        made.map_err(failed("make a worker"))?;
        Ok(start)
    }

    /// What the workers share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Stops the workers and waits until they have left.
    pub fn stop(self) {
        self.shared.stop();
        self.wait();
    }

    /// Waits until somebody has stopped the server.
    pub fn wait(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a worker has panicked");
            }
        }
        if let Some(socket) = &self.shared.settings.unix_socket {
            // Gone already is as good.
            let _ = std::fs::remove_file(&socket.path);
        }
    }
}

/// Takes the memory. Where it cannot be locked the cache does without, as memcached does.
fn open_store(
    settings: &mut Settings,
    clock: &Clock,
    seed: Option<u64>,
) -> Result<Arc<Store>, StoreError> {
    let open = |lock_memory| {
        let config = coua_store::Config {
            memory: settings.store_memory(),
            item_size_max: settings.limits.item_size_max as usize,
            workers: settings.workers,
            evict: settings.evict,
            lock_memory,
            file: settings.memory_file.clone(),
            seed,
            ..coua_store::Config::default()
        };
        Store::new(config, clock.now().unix)
    };
    match open(settings.lock_memory) {
        Err(error @ StoreError::System { .. }) if settings.lock_memory => {
            let store = open(false)?;
            settings.lock_memory = false;
            settings.unmet.push(format!(
                "-k has no effect: {error}; raise the limit on locked memory (ulimit -l)"
            ));
            Ok(store)
        }
        // The figures are those of -m.
        Err(StoreError::MemoryTooSmall {
            given,
            workers,
            least,
        }) => Err(StoreError::MemoryTooSmall {
            given: given + settings.stacks_memory(),
            workers,
            least: least + settings.stacks_memory(),
        }),
        opened => opened,
    }
}

/// Memory that a thread takes beside its buffers: its stack, and the allocator's for it.
const MEMORY_PER_THREAD: usize = 3 << 20;

/// Threads beside the workers: for signals, and for the store's first steps.
const OTHER_THREADS: usize = 2;

/// Sees whether there is memory for the threads, who cannot do without once they have begun.
fn reserve_for_workers(workers: usize) -> Result<(), StartError> {
    let bytes = workers * MEMORY_PER_WORKER + (workers + OTHER_THREADS) * MEMORY_PER_THREAD;
    let mut trial: Vec<u8> = Vec::new();
    trial
        .try_reserve_exact(bytes)
        .map_err(|_| StartError::WorkerMemory { workers, bytes })
}

fn announce(shared: &Shared) {
    let store = shared.store.stats();
    let addresses = shared
        .listening
        .iter()
        .map(|socket| socket.address.as_str());
    let mut addresses: Vec<&str> = addresses.collect();
    // Each worker has a socket of its own for an address.
    addresses.dedup();
    tracing::info!(
        "coua {BUILD}: {} MiB of memory ({} pages) for items up to {} KiB, index {} KiB, \
         {} workers with {} KiB each beside it, listening on {}",
        (store.memory + shared.settings.stacks_memory() as u64) >> 20,
        match store.huge_pages {
            coua_store::HugePages::Transparent | coua_store::HugePages::Reserved => "2 MiB",
            coua_store::HugePages::None => "4 KiB",
        },
        shared.settings.limits.item_size_max >> 10,
        (store.memory_index + store.memory_tables) >> 10,
        shared.settings.workers,
        MEMORY_PER_WORKER >> 10,
        addresses.join(" "),
    );
    if let Some(path) = &shared.settings.memory_file {
        announce_file(path, shared);
    }
    for line in &shared.settings.without_effect {
        tracing::info!("{line}");
    }
    for line in &shared.settings.unmet {
        tracing::warn!("{line}");
    }
    if let Some(net) = &shared.settings.net {
        tracing::info!(
            "{} MiB of memory are for what the stacks of --net hold for connections",
            shared.settings.stacks_memory() >> 20
        );
        let who = match net.allow.is_empty() {
            true => "everybody may send to it (--allow limits that)",
            false => "only who --allow names may send to it",
        };
        tracing::warn!("the host's firewall does not see what comes by --net; {who}");
    }
}

/// Says what the store began with.
fn announce_file(path: &Path, shared: &Shared) {
    let path = path.display();
    match shared.store.start() {
        Start::Private => {}
        Start::Cold(why) => tracing::info!("{path}: the cache begins empty: {why}"),
        Start::Warm(warm) => {
            let mended = match warm.was_killed {
                true => format!(" after a process that was killed ({} mends)", warm.mended),
                false => String::new(),
            };
            tracing::info!(
                "{path}: the cache begins with {} items in {} segments{mended}, in {:.3} s",
                warm.items,
                warm.segments,
                warm.took.as_secs_f64(),
            );
        }
    }
}
