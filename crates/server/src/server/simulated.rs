//! A server on a simulated network and clock, driven turn by turn in one thread.

use std::sync::Arc;

use coua_transport::simulated::Network;
use coua_transport::{Listener, Poller, Waker};

use super::{StartError, open_store};
use crate::clock::Clock;
use crate::flags::Settings;
use crate::shared::Shared;
use crate::watch::Watchers;
use crate::worker::{MEMORY_PER_WORKER, Worker, WorkerSockets};

/// A worker, and the number of its poller in the network.
pub type Driven = (Worker, usize);

/// Makes a server of `settings` that listens on `network`: for TCP, or as on a unix socket if the
/// settings name one. `seed` is the store's.
///
/// # Errors
/// If there is no memory.
pub fn start(
    mut settings: Settings,
    network: &Network,
    clock: Clock,
    seed: u64,
) -> Result<(Arc<Shared>, Vec<Driven>), StartError> {
    let workers = settings.workers;
    let wakers: Arc<[Waker]> = (0..workers).map(|_| Waker::from(network.waker())).collect();
    let watchers = Arc::new(Watchers::new(Arc::clone(&wakers), settings.watcher_queue));
    let store = open_store(&mut settings, &clock, &watchers, Some(seed))?;
    let failed = |source| StartError::System {
        action: "make a worker",
        source,
    };
    let listeners = match settings.unix_socket {
        None => (network.listen_tcp(workers).into_iter())
            .map(Listener::from)
            .collect(),
        Some(_) => {
            let listener = Listener::from(network.listen_unix());
            listener.shared_by(workers).map_err(failed)?
        }
    };
    let shared = Arc::new(Shared::new(
        settings,
        store,
        clock,
        wakers,
        watchers,
        MEMORY_PER_WORKER,
    ));
    let mut driven = Vec::with_capacity(workers);
    for (index, listener) in listeners.into_iter().enumerate() {
        let sockets = WorkerSockets {
            listeners: vec![listener],
            ..WorkerSockets::default()
        };
        let (poller, number) = network.poller();
        let worker = Worker::simulated(Poller::from(poller), index, Arc::clone(&shared), sockets)
            .map_err(failed)?;
        driven.push((worker, number));
    }
    Ok((shared, driven))
}
