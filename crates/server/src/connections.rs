//! The connections that exist, as all threads may see them.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coua_store::UnixSeconds;
use coua_transport::{PeerAddress, Stream};

/// What a connection is doing, in memcached's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Activity {
    /// It waits for a request, or for the rest of one.
    Reading = 0,
    /// A value that it sends is arriving.
    ReceivingValue = 1,
    /// Replies wait for the client to read.
    Writing = 2,
    /// A value that has been refused is arriving.
    Swallowing = 3,
    /// It has been accepted, and nothing has been received.
    New = 4,
    /// It is sent lines about what happens (`watch`).
    Watching = 5,
}

/// What is known of one connection, shared between its worker and the threads that answer `stats
/// conns`.
pub struct ConnectionInfo {
    /// The socket's number.
    pub descriptor: i32,
    /// The client's address.
    pub peer: PeerAddress,
    /// The address that it has connected to.
    pub local: PeerAddress,
    last_request: AtomicU32,
    activity: AtomicU8,
}

impl ConnectionInfo {
    /// The state of a connection that has just been accepted.
    pub fn new(stream: &Stream, now: UnixSeconds) -> ConnectionInfo {
        ConnectionInfo {
            descriptor: stream.descriptor(),
            peer: stream.peer(),
            local: stream.local(),
            last_request: AtomicU32::new(now.0),
            activity: AtomicU8::new(Activity::New as u8),
        }
    }

    /// Notes that a request was executed at `now`.
    pub fn note_request(&self, now: UnixSeconds) {
        self.last_request.store(now.0, Relaxed);
        if self.activity.load(Relaxed) == Activity::New as u8 {
            self.set_activity(Activity::Reading);
        }
    }

    /// When the last request was executed.
    pub fn last_request(&self) -> UnixSeconds {
        UnixSeconds(self.last_request.load(Relaxed))
    }

    /// Sets what the connection is doing from now on.
    pub fn set_activity(&self, activity: Activity) {
        self.activity.store(activity as u8, Relaxed);
    }

    /// Whether it is in the middle of a value that arrives or of replies that wait to be read.
    pub fn is_busy(&self) -> bool {
        let activity = self.activity.load(Relaxed);
        [
            Activity::ReceivingValue,
            Activity::Writing,
            Activity::Swallowing,
        ]
        .into_iter()
        .any(|busy| busy as u8 == activity)
    }

    /// memcached's name for what the connection is doing.
    pub fn state_name(&self) -> &'static str {
        match self.activity.load(Relaxed) {
            1 => "conn_nread",
            2 => "conn_mwrite",
            3 => "conn_swallow",
            4 => "conn_new_cmd",
            5 => "conn_watch",
            _ => "conn_read",
        }
    }
}

/// One worker's connections, by place.
type Places = Vec<Option<Arc<ConnectionInfo>>>;

/// All connections of all workers.
///
/// # Invariants
/// Workers whose connections belong to the kernel open equally many of them. The kernel alone would
/// spread connections over listeners by a hash of their addresses; with few clients that leaves
/// some workers with twice as many as others, and some with none.
///
/// # Concurrency
/// The locks are taken when a connection opens or closes and by `stats conns`, never by requests.
pub struct Registry {
    open: AtomicUsize,
    open_most: AtomicUsize,
    open_max: AtomicUsize,
    by_worker: Box<[Mutex<Places>]>,
    /// How many connections each worker has, including those being handed over to it.
    shares: Mutex<Box<[usize]>>,
}

impl Registry {
    /// An empty registry for `workers` workers and at most `open_max` connections at a time.
    pub fn new(workers: usize, open_max: usize) -> Registry {
        Registry {
            open: AtomicUsize::new(0),
            open_most: AtomicUsize::new(0),
            open_max: AtomicUsize::new(open_max),
            by_worker: (0..workers).map(|_| Mutex::default()).collect(),
            shares: Mutex::new(vec![0; workers].into_boxed_slice()),
        }
    }

    /// Deals a connection that a worker has accepted to the worker with the fewest connections,
    /// preferring the one that accepted it.
    pub fn deal(&self, accepted_by: usize) -> usize {
        let mut shares = self.shares();
        let least = shares.iter().copied().min().unwrap_or_default();
        let to = match shares[accepted_by] == least {
            true => accepted_by,
            false => shares
                .iter()
                .position(|share| *share == least)
                .unwrap_or(accepted_by),
        };
        shares[to] += 1;
        to
    }

    /// Counts a connection that cannot be handed over as its worker's.
    pub fn keep(&self, accepted_by: usize) {
        self.shares()[accepted_by] += 1;
    }

    /// How many connections a worker has, including those being handed over to it.
    pub fn share(&self, worker: usize) -> usize {
        self.shares()[worker]
    }

    fn shares(&self) -> MutexGuard<'_, Box<[usize]>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// The highest number that were open at a time.
    pub fn open_most(&self) -> usize {
        self.open_most.load(Relaxed)
    }

    /// How many may be open at a time.
    pub fn open_max(&self) -> usize {
        self.open_max.load(Relaxed)
    }

    /// Changes how many may be open at a time. Those that are open stay.
    pub fn set_open_max(&self, open_max: usize) {
        self.open_max.store(open_max, Relaxed);
    }

    /// Whether one more would be too many.
    pub fn is_full(&self) -> bool {
        self.open() >= self.open_max()
    }

    /// Takes a place for one more connection, unless there are too many.
    pub fn admit(&self) -> bool {
        let most = self.open_max();
        self.open
            .fetch_update(Relaxed, Relaxed, |open| (open < most).then_some(open + 1))
            .is_ok()
    }

    /// Gives back a place at which no connection was shown.
    pub fn give_place_back(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    /// Shows an admitted connection at place `slot` of its worker.
    pub fn show(&self, worker: usize, slot: usize, connection: Arc<ConnectionInfo>) {
        self.open_most.fetch_max(self.open(), Relaxed);
        let mut places = self.places(worker);
        if places.len() <= slot {
            places.resize(slot + 1, None);
        }
        places[slot] = Some(connection);
    }

    /// Removes the closing connection at place `slot` of its worker.
    pub fn remove(&self, worker: usize, slot: usize) {
        self.places(worker)[slot] = None;
        self.shares()[worker] -= 1;
        self.open.fetch_sub(1, Relaxed);
    }

    /// The first connection of a worker at or after place `from`, and its place.
    pub fn next(&self, worker: usize, from: usize) -> Option<(usize, Arc<ConnectionInfo>)> {
        let places = self.places(worker);
        let rest = places.get(from..)?;
        let at = rest.iter().position(Option::is_some)?;
        rest[at].clone().map(|connection| (from + at, connection))
    }

    /// The connections that are in the middle of a value or of replies.
    pub fn busy(&self) -> Vec<Arc<ConnectionInfo>> {
        let mut busy = Vec::new();
        for worker in 0..self.workers() {
            let places = self.places(worker);
            let all = places.iter().flatten();
            busy.extend(all.filter(|connection| connection.is_busy()).cloned());
        }
        busy
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.by_worker.len()
    }

    fn places(&self, worker: usize) -> MutexGuard<'_, Places> {
        // The list is whole after every statement, so a panic elsewhere does not spoil it.
        self.by_worker[worker]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Registry;

    #[test]
    fn connections_are_dealt_to_who_has_the_fewest() {
        let registry = Registry::new(4, 100);
        // The kernel gives them all to two of the workers.
        for number in 0..8 {
            registry.deal(number % 2);
        }
        let shares: Vec<usize> = (0..4).map(|worker| registry.share(worker)).collect();
        assert_eq!(shares, [2, 2, 2, 2]);
        assert_eq!(registry.deal(3), 3, "who has it keeps it among equals");
    }
}
