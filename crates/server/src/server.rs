//! The server as a whole: how it starts and how it stops.

mod listening;
#[cfg(feature = "simulated")]
pub mod simulated;
pub mod userspace;

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use coua_memory_errors::Events;
use coua_store::{Start, Store, StoreError, Topology};
use coua_transport::{ListenError, Waker};

use crate::clock::Clock;
use crate::flags::Settings;
use crate::flash::{AttachedFlash, Flash, FlashError, RunningFlash};
use crate::host::{Host, conditions};
use crate::memory_errors;
use crate::rdma::{self, RdmaError};
use crate::shared::Shared;
use crate::version::BUILD;
use crate::watch::{EvictionTeller, Watchers};
use crate::worker::{MEMORY_PER_WORKER, Worker, WorkerBuffers, WorkerFlash, WorkerSockets};
pub use listening::Sockets;
use listening::{remedy, write_port_file};

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The memory.
    #[error("{}", store_refusal(.0))]
    Store(#[from] StoreError),
    /// The flash.
    #[error("{0}")]
    Flash(#[from] FlashError),
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
    /// RDMA.
    #[error("{0}")]
    Rdma(#[from] RdmaError),
    /// The socket for scrapes.
    #[error("--metrics: cannot listen on {address}: {source}; give another address or port")]
    Metrics {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The service manager gives sockets for datagrams, in which nobody can log in and nothing is
    /// encrypted.
    #[error(
        "a socket for UDP was given (LISTEN_FDS), and UDP has neither passwords (-Y) nor TLS (-Z); leave one out"
    )]
    GivenDatagrams,
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
    flash: Option<RunningFlash>,
}

impl Server {
    /// Takes the memory and starts the workers. With `events` the server survives errors of its memory.
    ///
    /// # Errors
    /// [`StartError`]: the store has no memory, or the system refuses threads or descriptors.
    pub fn start(
        settings: Settings,
        sockets: Sockets,
        events: Option<Events>,
    ) -> Result<Server, StartError> {
        Server::start_with(settings, sockets, None, events)
    }

    /// As [`Server::start`], with devices of flash for which the settings have memory.
    ///
    /// # Errors
    /// As of [`Server::start`], and where flash cannot be used.
    pub fn start_with(
        mut settings: Settings,
        sockets: Sockets,
        flash: Option<Flash>,
        events: Option<Events>,
    ) -> Result<Server, StartError> {
        let clock = Clock::start();
        let wakers = (0..settings.workers)
            .map(|_| Waker::new())
            .collect::<io::Result<Arc<[Waker]>>>();
        let wakers = wakers.map_err(|source| StartError::System {
            action: "make wakers",
            source,
        })?;
        let watchers = Arc::new(Watchers::new(Arc::clone(&wakers), settings.watcher_queue));
        let store = open_store(&mut settings, &clock, &watchers, None)?;
        let mut flash = flash.map(|flash| flash.attach(&store)).transpose()?;
        reserve_for_workers(settings.workers)?;
        if let Some(settings_of_rdma) = &settings.rdma {
            rdma::probe(settings_of_rdma, settings.workers)?;
        }
        let mut shared = Shared::new(settings, store, clock, wakers, watchers, MEMORY_PER_WORKER);
        shared.listening = sockets.listening;
        if let Some(flash) = &flash {
            flash.tell(&mut shared);
        }
        let mut server = Server {
            shared: Arc::new(shared),
            threads: Vec::new(),
            flash: None,
        };
        let worker_buffers: Vec<WorkerBuffers> = match &mut flash {
            Some(AttachedFlash { by_worker, .. }) => mem::take(by_worker)
                .into_iter()
                .map(|flash: WorkerFlash| WorkerBuffers::new(Some(flash)))
                .collect(),
            None => (sockets.by_worker.iter())
                .map(|_| WorkerBuffers::new(None))
                .collect(),
        };
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
        if let Some(events) = events {
            let mender = server.shared.store.watch(events);
            match memory_errors::start(&server.shared, mender) {
                Ok(thread) => server.threads.push(thread),
                Err(source) => {
                    server.shared.stop();
                    drop(starts);
                    server.wait();
                    return Err(StartError::System {
                        action: "start a thread",
                        source,
                    });
                }
            }
        }
        if let Some(flash) = flash {
            match flash.start(&server.shared) {
                Ok(running) => server.flash = Some(running),
                Err(error) => {
                    server.shared.stop();
                    drop(starts);
                    server.wait();
                    return Err(error.into());
                }
            }
        }
        // Nobody is served before all workers are there.
        drop(starts);
        if let Some(endpoint) = sockets.metrics {
            let failed = |source| StartError::System {
                action: "start a thread for --metrics",
                source,
            };
            endpoint.serve(Arc::clone(&server.shared)).map_err(failed)?;
        }
        if server.shared.settings.unix_socket.is_none() {
            write_port_file(&server.shared.listening);
        }
        announce(&server.shared);
        Ok(server)
    }

    /// Makes a worker. It begins to serve when the returned value is dropped.
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
        let run = move || {
            let _stack = memory_errors::install_stack();
            match Worker::new(index, shared, sockets, buffers) {
                Ok(worker) => {
                    // The other end is there: it waits for this.
                    let _ = tells.send(Ok(()));
                    // Nothing is ever sent: this ends when the other end is dropped.
                    let _ = started.recv();
                    worker.run();
                }
                Err(error) => {
                    let _ = tells.send(Err(error));
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name(format!("coua-{index}"))
            .spawn(run)
            .map_err(failed("start a thread"))?;
        self.threads.push(thread);
        let made = hears.recv().unwrap_or(Err(io::ErrorKind::Other.into()));
        made.map_err(|error| match error.downcast::<RdmaError>() {
            Ok(error) => StartError::Rdma(error),
            Err(error) => failed("make a worker")(error),
        })?;
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
        if let Some(flash) = self.flash {
            flash.end();
        }
        let path = self.shared.listening.unix_path.as_ref();
        if let Some(path) = path.filter(|_| !self.shared.is_handing_over()) {
            // It does not matter if the file is gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Names the flag to change.
fn store_refusal(error: &StoreError) -> String {
    match error {
        StoreError::File { .. } => {
            format!("-e: {error}; name another file, or give another size (-m)")
        }
        _ => format!("-m: {error}; give another size, or fewer threads (-t)"),
    }
}

/// Takes the memory. If it cannot be locked the cache does without that, as memcached does; and
/// without the file if there is no room for it, or with less memory if the file was made for less.
/// The settings then say what is.
fn open_store(
    settings: &mut Settings,
    clock: &Clock,
    watchers: &Arc<Watchers>,
    seed: Option<u64>,
) -> Result<Arc<Store>, StoreError> {
    let opened = loop {
        match Store::new(store_config(settings, watchers, seed), clock.now().unix) {
            Err(StoreError::NoSpace { path, has, wants }) => {
                settings.memory_file = None;
                settings.unmet.push(format!(
                    "-e has no effect: the file system of {} has room for {} MiB, and {} MiB are \
                     wanted: the items go with this process; name a file elsewhere, or give less -m",
                    path.display(),
                    has >> 20,
                    wants >> 20,
                ));
            }
            Err(error @ StoreError::System { .. }) if settings.lock_memory => {
                settings.lock_memory = false;
                settings.unmet.push(format!(
                    "-k has no effect: {error}; raise the limit on locked memory (ulimit -l)"
                ));
            }
            opened => break opened,
        }
    };
    let store = opened.map_err(|error| match error {
        // The figures in the message are to be those of -m.
        StoreError::MemoryTooSmall {
            given,
            workers,
            least,
        } => StoreError::MemoryTooSmall {
            given: given + settings.memory_beside_store(),
            workers,
            least: least + settings.memory_beside_store(),
        },
        other => other,
    })?;
    let most = store.memory_most() + settings.memory_beside_store();
    if most < settings.memory_max {
        let wanted = mem::replace(&mut settings.memory_max, most);
        settings.memory = settings.memory.min(most);
        settings.unmet.push(format!(
            "-e: the file was made for {} MiB, which is all of {} MiB that is used, so that its \
             items stay; for more, stop coua, remove the file and start coua empty (--memory-max \
             leaves room to grow)",
            most >> 20,
            wanted >> 20,
        ));
    }
    Ok(store)
}

fn store_config(
    settings: &Settings,
    watchers: &Arc<Watchers>,
    seed: Option<u64>,
) -> coua_store::Config {
    coua_store::Config {
        memory: settings.store_memory_max(),
        memory_limit: (settings.memory_max > settings.memory).then(|| settings.store_memory()),
        item_size_max: settings.limits.item_size_max as usize,
        workers: settings.workers,
        evict: settings.evict,
        lock_memory: settings.lock_memory,
        survives_memory_errors: true,
        file: settings.memory_file.clone(),
        memory_refused: Some(warn_of_refused_memory),
        observer: Some(Box::new(EvictionTeller(Arc::clone(watchers)))),
        seed,
        topology: match seed {
            None => Topology::of_machine(),
            // A simulated server is the same on every machine.
            Some(_) => Topology::default(),
        },
        ..coua_store::Config::default()
    }
}

/// Logs that the file system of `-e` is full.
fn warn_of_refused_memory(bytes: usize) {
    tracing::warn!(
        "-e: the file system is full: {} MiB of memory less are used; when it has room again, \
         cache_memlimit takes them back",
        bytes >> 20
    );
}

/// Memory that a thread takes beside its buffers: its stack, and the allocator's for it.
const MEMORY_PER_THREAD: usize = 3 << 20;

/// Threads beside the workers: for signals, and for the store's first steps.
const OTHER_THREADS: usize = 2;

/// Checks that there is memory for the threads, which cannot do without it once they have begun.
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
        .sockets
        .iter()
        .map(|socket| socket.address.as_str());
    let mut addresses: Vec<&str> = addresses.collect();
    // Each worker has a socket of its own for an address.
    addresses.dedup();
    tracing::info!(
        "coua {BUILD}: {} MiB of memory ({} pages) for items up to {} KiB, index {} KiB, \
         {} workers with {} KiB each beside it, listening on {}",
        (store.memory + shared.settings.memory_beside_store() as u64) >> 20,
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
    if let Some(address) = shared.listening.metrics {
        tracing::info!("metrics on http://{address}/metrics");
    }
    let nodes = shared.store.nodes().len();
    if nodes > 1 {
        tracing::info!("memory in {nodes} NUMA nodes: workers take that of their own core's first");
    }
    if let Some(path) = &shared.settings.memory_file {
        announce_file(path, shared);
    }
    for line in &shared.settings.without_effect {
        tracing::info!("{line}");
    }
    for line in &shared.settings.unmet {
        tracing::warn!("{line}");
    }
    for line in conditions::warnings(&Host::this(), &shared.settings) {
        tracing::warn!("{line}");
    }
    if shared.settings.flash_memory > 0 {
        tracing::info!(
            "flash takes {} MiB of memory for what is read from and written to it",
            shared.settings.flash_memory >> 20
        );
    }
    if let Some(net) = &shared.settings.net {
        tracing::info!(
            "the stacks of --net take {} MiB of memory for what they hold of connections",
            shared.settings.stacks_memory() >> 20
        );
        let who = match net.allow.is_empty() {
            true => "everybody may send to it (--allow limits that)",
            false => "only who --allow names may send to it",
        };
        tracing::warn!("the host's firewall does not see what comes by --net; {who}");
    }
}

/// Logs what the store began with.
fn announce_file(path: &Path, shared: &Shared) {
    let path = path.display();
    match shared.store.start() {
        Start::Private => {}
        Start::Cold(why) => tracing::info!("{path}: the cache begins empty: {why}"),
        Start::Warm(warm) => {
            let beside = shared.settings.memory_beside_store();
            let lowered = match warm.memory > shared.store.memory_most() {
                true => format!(
                    "; it was made for {} MiB, and what {} MiB do not hold is evicted",
                    (warm.memory + beside) >> 20,
                    shared.settings.memory >> 20
                ),
                false => String::new(),
            };
            let mended = match warm.was_killed {
                true => format!(" after a process that was killed ({} mends)", warm.mended),
                false => String::new(),
            };
            tracing::info!(
                "{path}: the cache begins with {} items in {} segments{mended}, in {:.3} s{lowered}",
                warm.items,
                warm.segments,
                warm.took.as_secs_f64(),
            );
        }
    }
}
