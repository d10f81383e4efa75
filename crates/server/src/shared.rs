//! What all workers of a server share.
//!
//! # Concurrency
//! Workers read the settings, the store and the clock. They write only their own counters, and the
//! queues of connections handed to other workers. The locks are taken when a connection opens or
//! closes, ten times a second, and when statistics are asked for.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use coua_flash::log::Volume;
use coua_memory_errors::{WatchedMemory, wake_waiters};
use coua_protocol::Parser;
use coua_store::{FlashStats, LimitRefused, Store};
use coua_transport::Waker;
use coua_transport::tls::ClientCertificate;
use coua_transport::userspace::StackDriverCounters;

use crate::clock::Clock;
use crate::cluster::{ClusterConfig, ClusterError};
use crate::connections::Registry;
use crate::counters::{Counters, Totals};
use crate::crawler::Crawler;
use crate::flags::Settings;
use crate::hand_over::Kept;
use crate::hot_keys::HotKeys;
use crate::latency::{Latencies, Latency};
use crate::live::Live;
use crate::log;
use crate::losses::LossCounts;
use crate::prefixes::Prefixes;
use crate::rdma_report::RdmaReport;
use crate::users::{Users, UsersError};
use crate::watch::Watchers;

/// memcached's highest level of verbosity.
const VERBOSITY_MAX: u32 = 64;

/// The last part of `-o drain_timeout` before a successor, one in so many: no connection is accepted
/// any more, so new ones wait as long.
const LAST_PART: u32 = 5;

/// How often slow connections are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// What all workers share.
pub struct Shared {
    /// What flags and file said at the start.
    pub settings: Settings,
    /// What they say now, as far as that can change.
    pub live: Live,
    /// The store of items.
    pub store: Arc<Store>,
    /// The server's clock.
    pub clock: Clock,
    /// Who may log in, where somebody must.
    users: Option<Mutex<Arc<Users>>>,
    /// Which servers the fleet has, where somebody says so.
    cluster: Option<Mutex<Arc<ClusterConfig>>>,
    /// The connections.
    pub registry: Registry,
    /// Counts by key prefix.
    pub prefixes: Prefixes,
    /// The keys that are asked for most.
    pub hot_keys: HotKeys,
    /// The prefixes under which most keys are missed.
    pub missed: HotKeys,
    /// Who watches what happens.
    pub watchers: Arc<Watchers>,
    /// What clients have asked of the crawler.
    pub crawler: Crawler,
    /// What the machine has lost of its memory.
    pub losses: LossCounts,
    /// Where the server listens.
    pub listening: Listening,
    /// Bytes outside `-m` that each worker takes, without the card and the stack's tables.
    pub memory_per_worker: usize,
    /// The devices of flash.
    pub(crate) flash_devices: Vec<FlashDeviceInfo>,
    /// The volume on them, which goes before this does.
    pub(crate) flash_volume: Option<Weak<Volume>>,
    /// The memory that flash is read into and written from, for `poison`.
    pub(crate) flash_memory: Option<Arc<WatchedMemory>>,
    /// Bytes of memory as `cache_memlimit` has set them last.
    memory: AtomicUsize,
    /// Bytes of it that are held back under memory pressure.
    memory_held_back: AtomicUsize,
    /// Held while the store's limit changes.
    limiting: Mutex<()>,
    counters: Box<[Counters]>,
    latencies: Box<[Latency]>,
    /// The histograms at the last `stats reset`.
    latencies_before: Mutex<Latencies>,
    /// The last published counters of each worker's user-space stack.
    net: Box<[Mutex<Option<StackDriverCounters>>]>,
    /// What each worker has published of its RDMA last.
    rdma: Box<[Mutex<Option<RdmaReport>>]>,
    baseline: Mutex<Baseline>,
    wakers: Arc<[Waker]>,
    /// Connections handed to each worker that it has not taken yet.
    handed: Box<[Mutex<Vec<Handed>>]>,
    stopping: AtomicBool,
    /// Until when connections have time to finish (milliseconds since the server's start).
    drain_end_ms: AtomicU64,
    /// Workers that accept no more connections.
    closed_workers: AtomicUsize,
    /// Connections that did not finish in time.
    cut_off: AtomicUsize,
    handing_over: AtomicBool,
    failed: AtomicBool,
    verbosity: AtomicU8,
}

/// A connection that another worker has accepted.
pub struct Handed {
    /// Its socket.
    pub socket: OwnedFd,
    /// What TLS asks of its client; `None` for no TLS.
    pub tls: Option<ClientCertificate>,
}

/// A device of flash.
pub struct FlashDeviceInfo {
    /// Its name.
    pub name: String,
    /// By which driver it is reached, and why not by a better one.
    pub driver: String,
    /// Its bytes.
    pub len: u64,
}

/// Where a server listens.
#[derive(Default)]
pub struct Listening {
    /// Its sockets, as `stats conns` shows them.
    pub sockets: Vec<ListeningSocket>,
    /// The TCP addresses, with the ports that the kernel chose where it was asked to.
    pub addresses: Vec<SocketAddr>,
    /// Where scrapes are answered.
    pub metrics: Option<SocketAddr>,
    /// The kernel's sockets again, for the program that takes this one's place.
    pub kept: Kept,
    /// Where the unix socket lies, if this process or the one before has made it.
    pub unix_path: Option<PathBuf>,
    /// The UDP addresses, likewise.
    pub udp_addresses: Vec<SocketAddr>,
    /// The inodes by which the kernel lists the UDP sockets.
    pub udp_inodes: Vec<u64>,
}

/// A listening socket as `stats conns` shows it.
pub struct ListeningSocket {
    /// Its number; -1 for a listener of a user-space stack.
    pub descriptor: i32,
    /// The protocol and address that it listens on.
    pub address: String,
    /// Whether it receives datagrams.
    pub is_udp: bool,
}

/// The counts at the last `stats reset`.
#[derive(Clone, Copy, Default)]
struct Baseline {
    workers: Totals,
    store: coua_store::Totals,
    flash: FlashStats,
}

impl Shared {
    /// The shared state of a server that does not listen yet. Each worker takes `memory_per_worker`
    /// bytes outside `-m`.
    pub fn new(
        settings: Settings,
        store: Arc<Store>,
        clock: Clock,
        wakers: Arc<[Waker]>,
        watchers: Arc<Watchers>,
        memory_per_worker: usize,
    ) -> Shared {
        let workers = settings.workers;
        Shared {
            store,
            clock,
            registry: Registry::new(workers, settings.connections_max),
            users: settings.users.clone().map(Mutex::new),
            cluster: settings.cluster.clone().map(Mutex::new),
            prefixes: Prefixes::new(settings.prefix_delimiter, settings.counts_prefixes),
            hot_keys: HotKeys::new(workers),
            missed: HotKeys::new(workers),
            watchers,
            crawler: Crawler::new(&settings),
            losses: LossCounts::default(),
            listening: Listening::default(),
            memory_per_worker,
            flash_devices: Vec::new(),
            flash_memory: None,
            flash_volume: None,
            counters: (0..workers).map(|_| Counters::default()).collect(),
            latencies: (0..workers).map(|_| Latency::default()).collect(),
            latencies_before: Mutex::default(),
            net: (0..workers).map(|_| Mutex::default()).collect(),
            rdma: (0..workers).map(|_| Mutex::default()).collect(),
            baseline: Mutex::default(),
            wakers,
            handed: (0..workers).map(|_| Mutex::default()).collect(),
            stopping: AtomicBool::new(false),
            drain_end_ms: AtomicU64::new(u64::MAX),
            closed_workers: AtomicUsize::new(0),
            cut_off: AtomicUsize::new(0),
            handing_over: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            verbosity: AtomicU8::new(settings.verbosity),
            memory: AtomicUsize::new(settings.memory),
            memory_held_back: AtomicUsize::new(0),
            limiting: Mutex::default(),
            live: Live::new(&settings),
            settings,
        }
    }

    /// Bytes of memory for all that is kept: `-m`, or what `cache_memlimit` has set since.
    pub fn memory(&self) -> usize {
        self.memory.load(Relaxed)
    }

    /// Changes how many bytes may be kept. Less is kept as soon as enough has been evicted.
    ///
    /// # Errors
    /// If the server cannot work with so little, or was not started for so much.
    pub fn limit_memory(&self, bytes: usize) -> Result<(), LimitRefused> {
        let _limiting = self.limiting.lock().unwrap_or_else(PoisonError::into_inner);
        let beside = self.settings.memory_beside_store();
        self.store.set_memory_limit(bytes.saturating_sub(beside))?;
        self.memory.store(bytes, Relaxed);
        // What pressure holds back is held back again within a second.
        self.memory_held_back.store(0, Relaxed);
        Ok(())
    }

    /// Bytes of [`Shared::memory`] that are held back under memory pressure.
    pub fn memory_held_back(&self) -> usize {
        self.memory_held_back.load(Relaxed)
    }

    /// Keeps so many bytes less than [`Shared::memory`], or as few as the store can work with. One
    /// log line says so where that changes.
    pub fn hold_memory_back(&self, bytes: usize) {
        let _limiting = self.limiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (goal, before) = (self.memory(), self.memory_held_back());
        if bytes == before {
            return;
        }
        let beside = self.settings.memory_beside_store();
        let limit = match self
            .store
            .set_memory_limit(goal.saturating_sub(bytes + beside))
        {
            Ok(()) => goal.saturating_sub(bytes),
            // What the store needs at least may be between the steps.
            Err(LimitRefused::TooSmall { least })
                if least + beside < goal - before && self.store.set_memory_limit(least).is_ok() =>
            {
                least + beside
            }
            Err(_) => return,
        };
        self.memory_held_back.store(goal - limit, Relaxed);
        let (now, of) = (limit >> 20, goal >> 20);
        match goal - limit > before {
            true => tracing::warn!("memory pressure: {now} of {of} MiB of memory from now on"),
            false => {
                tracing::info!("less memory pressure: {now} of {of} MiB of memory from now on")
            }
        }
        // Whoever sleeps gives nothing back.
        self.wakers.iter().for_each(Waker::wake);
    }

    /// The parser of a new connection.
    pub fn first_parser(&self) -> Parser {
        let dialect = self.settings.dialect;
        match self.users.is_some() {
            true => Parser::locked(dialect),
            false => Parser::of(dialect),
        }
    }

    /// Reads the certificates of TLS again, and logs what came of it: true if it could be done, `None` without
    /// TLS. `why` says what asked for it.
    pub fn refresh_certificates(&self, why: &str) -> Option<bool> {
        let tls = self.settings.tls.as_ref()?;
        let refreshed = tls.tls.refresh();
        match &refreshed {
            Ok(()) => tracing::info!(
                "{why}: certificates read from {}",
                tls.files.chain.display()
            ),
            Err(error) => tracing::error!("{why}: {error}; the certificates of before stay"),
        }
        Some(refreshed.is_ok())
    }

    /// Who may log in; `None` where nobody has to.
    pub fn users(&self) -> Option<Arc<Users>> {
        let users = self.users.as_ref()?;
        Some(Arc::clone(
            &users.lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    /// Reads again who may log in, if somebody must. Who has logged in stays so.
    ///
    /// # Errors
    /// [`UsersError`]: the file cannot be read or is not as it should be. The users of before stay.
    pub fn read_users(&self) -> Result<Option<Arc<Users>>, UsersError> {
        let (Some(users), Some(path)) = (&self.users, &self.settings.auth_file) else {
            return Ok(None);
        };
        let read = Arc::new(Users::read(path)?);
        *users.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&read);
        Ok(Some(read))
    }

    /// Which servers the fleet has; `None` where nobody says so.
    pub fn cluster(&self) -> Option<Arc<ClusterConfig>> {
        let cluster = self.cluster.as_ref()?;
        Some(Arc::clone(
            &cluster.lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    /// Reads again which servers the fleet has, if somebody says so, and gives what was known before and what is now.
    ///
    /// # Errors
    /// [`ClusterError`]: the file cannot be read or is not as it should be. What was known before stays.
    pub fn read_cluster(&self) -> Result<Option<[Arc<ClusterConfig>; 2]>, ClusterError> {
        let (Some(cluster), Some(path)) = (&self.cluster, &self.settings.cluster_file) else {
            return Ok(None);
        };
        let read = Arc::new(ClusterConfig::read(path)?);
        let mut cluster = cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *cluster, Arc::clone(&read));
        Ok(Some([before, read]))
    }

    /// What has been counted since the start or the last `stats reset`.
    pub fn counts(&self) -> Totals {
        self.totals().since(&self.baseline().workers)
    }

    /// The values that rise and fall; `stats reset` leaves them alone.
    pub fn gauges(&self) -> Totals {
        self.totals()
    }

    /// What the store had counted at the last `stats reset`.
    pub fn baseline_of_store(&self) -> coua_store::Totals {
        self.baseline().store
    }

    /// What was counted of flash at the last `stats reset`.
    pub fn baseline_of_flash(&self) -> FlashStats {
        self.baseline().flash
    }

    /// The devices of flash, in words.
    pub fn flash_devices(&self) -> &[FlashDeviceInfo] {
        &self.flash_devices
    }

    /// The volume on flash, while it is there.
    pub fn flash_volume(&self) -> Option<Arc<Volume>> {
        self.flash_volume.as_ref().and_then(Weak::upgrade)
    }

    /// How many of them are gone.
    pub fn flash_devices_gone(&self) -> usize {
        self.flash_volume()
            .map_or(0, |volume| volume.gone_devices().count())
    }

    /// Resets the counts to 0.
    pub fn reset_counters(&self) {
        let baseline = Baseline {
            workers: self.totals(),
            store: self.store.stats().totals,
            flash: self.store.flash_stats().unwrap_or_default(),
        };
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = baseline;
        *self.latencies_before() = self.latencies_from_start();
        self.watchers.reset_counts();
    }

    /// The published counters of the workers' user-space stacks, with the worker's number.
    pub fn net_counters(&self) -> impl Iterator<Item = (usize, StackDriverCounters)> {
        self.net.iter().enumerate().filter_map(|(worker, net)| {
            let told = *net.lock().unwrap_or_else(PoisonError::into_inner);
            Some((worker, told?))
        })
    }

    /// Publishes the counters of a worker's stack.
    pub fn tell_net_counters(&self, worker: usize, counters: StackDriverCounters) {
        let mut told = self.net[worker]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *told = Some(counters);
    }

    /// Publishes what there is to know of a worker's RDMA.
    pub fn tell_rdma(&self, worker: usize, report: RdmaReport) {
        let mut told = self.rdma[worker]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *told = Some(report);
    }

    /// What workers have published of their RDMA.
    pub fn rdma_reports(&self) -> impl Iterator<Item = RdmaReport> {
        self.rdma.iter().filter_map(|told| {
            let told = told.lock().unwrap_or_else(PoisonError::into_inner);
            told.clone()
        })
    }

    /// The counters of one worker.
    pub fn counters(&self, worker: usize) -> &Counters {
        &self.counters[worker]
    }

    /// The waker of one worker.
    pub fn waker(&self, worker: usize) -> &Waker {
        &self.wakers[worker]
    }

    /// Hands a worker a connection that another worker has accepted.
    pub fn hand_over(&self, worker: usize, connection: Handed) {
        let mut handed = self.handed[worker]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        handed.push(connection);
        drop(handed);
        self.wakers[worker].wake();
    }

    /// Takes the connections that other workers have handed to `worker`.
    pub fn take_handed(&self, worker: usize) -> Vec<Handed> {
        let mut handed = self.handed[worker]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut handed)
    }

    /// Ends the server: no worker accepts connections any more, and each one leaves its loop when
    /// all connections have finished what they had begun, or after `-o drain_timeout`.
    pub fn stop(&self) {
        self.stop_within(self.live.drain_timeout_s().saturating_mul(1000));
    }

    /// Ends the server: every worker leaves its loop after its turn.
    pub fn stop_at_once(&self) {
        self.stop_within(0);
    }

    fn stop_within(&self, ms: u64) {
        let end_ms = self.clock.now().since_start_ms.saturating_add(ms);
        self.drain_end_ms.fetch_min(end_ms, Relaxed);
        // Whoever sees this sees when the time is over.
        self.stopping.store(true, Release);
        self.wake_all();
        wake_waiters();
    }

    /// Has every worker begin a turn.
    pub fn wake_all(&self) {
        for waker in self.wakers.iter() {
            waker.wake();
        }
    }

    /// As [`Shared::stop`], because the machine's memory fails: whoever started the server is told.
    pub fn stop_for_failure(&self) {
        self.failed.store(true, Relaxed);
        self.stop();
    }

    /// Whether the server stops because the machine's memory fails.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// When the time is over that connections have to finish (milliseconds since the server's start).
    pub fn drain_end_ms(&self) -> u64 {
        self.drain_end_ms.load(Relaxed)
    }

    /// A worker accepts no more connections. Those that it has accepted are counted already.
    pub fn note_accepts_no_more(&self) {
        self.closed_workers.fetch_add(1, Release);
    }

    /// Whether no worker accepts connections any more.
    pub fn accepts_no_more(&self) -> bool {
        // Acquire: whoever sees the last worker sees what it has accepted.
        self.closed_workers.load(Acquire) == self.wakers.len()
    }

    /// Connections of a worker that did not finish in time.
    pub fn note_cut_off(&self, connections: usize) {
        self.cut_off.fetch_add(connections, Relaxed);
    }

    /// How many connections did not finish before the server stopped.
    pub fn cut_off(&self) -> usize {
        self.cut_off.load(Relaxed)
    }

    /// Ends the server for the process that takes this one's place, when no connection is in the
    /// middle of a value or of replies, or when only the last part of `-o drain_timeout` is left.
    /// Until then everybody is served, new connections included: one slow client is no reason to keep
    /// the others waiting. Does nothing if the server is stopped meanwhile.
    pub fn stop_for_successor(&self) {
        let timeout = Duration::from_secs(self.live.drain_timeout_s());
        let last_part = timeout / LAST_PART;
        let began = Instant::now();
        let mut busy = self.registry.busy();
        while !busy.is_empty() && began.elapsed() + last_part < timeout && !self.is_stopping() {
            thread::sleep(LOOK);
            // One that has closed is nobody else's any more. Others may have begun something since.
            busy.retain(|connection| connection.is_busy() && Arc::strong_count(connection) > 1);
            if busy.is_empty() {
                busy = self.registry.busy();
            }
        }
        if !self.is_stopping() {
            self.stop_within(u64::try_from(last_part.as_millis()).unwrap_or(u64::MAX));
        }
    }

    /// Another process is going to take this one's place. False if one is already.
    pub fn begin_hand_over(&self) -> bool {
        !self.handing_over.swap(true, Relaxed)
    }

    /// No other process takes this one's place.
    pub fn end_hand_over(&self) {
        self.handing_over.store(false, Relaxed);
    }

    /// As [`Shared::stop`], also where another process was to take this one's place.
    pub fn stop_without_successor(&self) {
        self.end_hand_over();
        self.stop();
    }

    /// Whether another process is to take this one's place.
    pub fn is_handing_over(&self) -> bool {
        self.handing_over.load(Relaxed)
    }

    /// Whether the server is to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Acquire)
    }

    /// How much is logged.
    pub fn verbosity(&self) -> u8 {
        self.verbosity.load(Relaxed)
    }

    /// Sets how much is logged from now on.
    pub fn set_verbosity(&self, level: u32) {
        let level = u8::try_from(level.min(VERBOSITY_MAX)).unwrap_or(u8::MAX);
        self.verbosity.store(level, Relaxed);
        log::set_verbosity(level);
    }

    /// Whether new connections are accepted now.
    pub fn is_accepting(&self) -> bool {
        self.live.refuses_at_once() || !self.registry.is_full()
    }

    /// The first TCP port, or 0.
    pub fn tcp_port(&self) -> u16 {
        self.listening.addresses.first().map_or(0, SocketAddr::port)
    }

    /// The UDP port; 0 if there is none.
    pub fn udp_port(&self) -> u16 {
        self.listening
            .udp_addresses
            .first()
            .map_or(0, SocketAddr::port)
    }

    /// The TCP addresses, with the ports that the kernel chose where it was asked to.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.listening.addresses
    }

    /// How long requests have taken since the start or the last `stats reset`.
    pub fn latencies(&self) -> Latencies {
        let before = self.latencies_before();
        self.latencies_from_start().since(&before)
    }

    /// The histograms of one worker.
    pub fn latency(&self, worker: usize) -> &Latency {
        &self.latencies[worker]
    }

    fn latencies_from_start(&self) -> Latencies {
        let mut all = Latencies::default();
        for latency in &self.latencies {
            all.add(latency);
        }
        all
    }

    fn latencies_before(&self) -> MutexGuard<'_, Latencies> {
        self.latencies_before
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been counted since the start.
    pub fn totals(&self) -> Totals {
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
