//! Clients and a worker on one thread: the clients take the place of the worker's network card.
//!
//! When the worker asks its card for frames, the clients have their turn: they look at what the
//! worker has sent, and what they send lies ready for it. Nothing waits for another thread, so where two
//! workers reach less than twice one's rate, they slow each other.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use coua_tcp::nic::{BURST_LEN, Features, Frame, Mac, Nic, Offload};
use coua_transport::userspace::OtherCard;

use super::client::{Clients, Datagrams, Pace, Settings, Stretch};

const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Bytes of an IP packet at most.
const MTU: u16 = 1500;
/// Bytes of room for a frame.
const SLOT_LEN: usize = 1536;
/// Frames that wait for the clients at most.
const REPLIES_MAX: usize = 4 * BURST_LEN;

/// What all clients are to do.
const OPEN: u8 = 0;
const WARM_UP: u8 = 1;
const MEASURE: u8 = 2;
const REST: u8 = 3;

/// Tells the clients of all workers what to do, and collects what they measured.
#[derive(Default)]
pub(crate) struct Control {
    stage: AtomicU8,
    /// Workers whose clients are all connected.
    ready: AtomicUsize,
    results: Mutex<Vec<anyhow::Result<Share>>>,
}

/// What the clients of one worker measured.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) stretch: Stretch,
    /// The time that the clients took for it.
    pub(crate) clients: Duration,
}

impl Control {
    /// Whether the clients of so many workers are connected, or some of them have failed.
    pub(crate) fn is_ready(&self, workers: usize) -> bool {
        self.ready.load(Relaxed) >= workers || !self.lock().is_empty()
    }

    /// Begins the warm-up.
    pub(crate) fn warm_up(&self) {
        self.stage.store(WARM_UP, Relaxed);
    }

    /// Begins the measurement.
    pub(crate) fn measure(&self) {
        self.stage.store(MEASURE, Relaxed);
    }

    /// Ends the measurement.
    pub(crate) fn rest(&self) {
        self.stage.store(REST, Relaxed);
    }

    /// Takes what came of it, once it is there from so many workers, or from one that failed.
    pub(crate) fn results(&self, workers: usize) -> Option<anyhow::Result<Vec<Share>>> {
        let mut results = self.lock();
        let is_over = results.len() >= workers || results.iter().any(Result::is_err);
        is_over.then(|| results.drain(..).collect())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<anyhow::Result<Share>>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Over {
    Tcp,
    Udp,
}

enum Load {
    Tcp(Box<Clients>),
    Udp(Box<Datagrams>),
}

impl Load {
    fn turn(&mut self, nic: &mut impl Nic, now: u64) -> anyhow::Result<()> {
        match self {
            Load::Tcp(clients) => clients.turn(nic, now),
            Load::Udp(clients) => clients.turn(nic, now),
        }
    }

    fn are_open(&self) -> bool {
        match self {
            Load::Tcp(clients) => clients.are_open(),
            Load::Udp(_) => true,
        }
    }

    fn begin(&mut self, pace: Pace) -> Stretch {
        match self {
            Load::Tcp(clients) => clients.begin(pace),
            Load::Udp(clients) => clients.begin(pace),
        }
    }
}

/// A worker's network card, behind which are its clients.
pub(crate) struct Inside {
    clients: Load,
    /// For the clients, and for the server.
    replies: Queue,
    requests: Queue,
    trusts_link: bool,
    control: Arc<Control>,
    stage: u8,
    is_ready: bool,
    has_failed: bool,
    started: Instant,
    begun: Instant,
    clients_time: Duration,
}

impl Inside {
    /// Clients that wait for a worker.
    ///
    /// # Errors
    /// Where the settings are out of bounds.
    pub(crate) fn new(
        settings: Settings,
        over: Over,
        trusts_link: bool,
        control: Arc<Control>,
    ) -> anyhow::Result<Inside> {
        let (mut replies, mut requests) = (Queue::new(REPLIES_MAX), Queue::new(BURST_LEN));
        let end = ClientsEnd {
            replies: &mut replies,
            requests: &mut requests,
            trusts_link,
        };
        let clients = match over {
            Over::Tcp => Load::Tcp(Box::new(Clients::new(settings, &end)?)),
            Over::Udp => Load::Udp(Box::new(Datagrams::new(settings, SERVER_MAC, CLIENT_MAC))),
        };
        let started = Instant::now();
        Ok(Inside {
            clients,
            replies,
            requests,
            trusts_link,
            control,
            stage: OPEN,
            is_ready: false,
            has_failed: false,
            started,
            begun: started,
            clients_time: Duration::ZERO,
        })
    }

    /// Goes on to another stage.
    fn enter(&mut self, stage: u8) {
        self.stage = stage;
        match stage {
            WARM_UP => {
                self.clients.begin(Pace::Closed);
            }
            MEASURE => {
                self.clients.begin(Pace::Closed);
                self.begun = Instant::now();
                self.clients_time = Duration::ZERO;
            }
            REST => {
                let mut stretch = self.clients.begin(Pace::Rest);
                stretch.measured.elapsed = self.begun.elapsed();
                let share = Share {
                    stretch,
                    clients: self.clients_time,
                };
                self.control.lock().push(Ok(share));
            }
            _ => {}
        }
    }

    /// The clients' turn.
    fn turn(&mut self) {
        let begun = Instant::now();
        let now = u64::try_from((begun - self.started).as_nanos()).unwrap_or(u64::MAX);
        let mut end = ClientsEnd {
            replies: &mut self.replies,
            requests: &mut self.requests,
            trusts_link: self.trusts_link,
        };
        if let Err(error) = self.clients.turn(&mut end, now) {
            self.has_failed = true;
            self.control.lock().push(Err(error));
        }
        if !self.is_ready && self.clients.are_open() {
            self.is_ready = true;
            self.control.ready.fetch_add(1, Relaxed);
        }
        self.clients_time += begun.elapsed();
    }
}

impl Nic for Inside {
    fn features(&self) -> Features {
        features(SERVER_MAC, self.trusts_link)
    }

    fn receive(&mut self) -> usize {
        self.requests.clear();
        if self.has_failed {
            return 0;
        }
        let stage = self.control.stage.load(Relaxed);
        if stage != self.stage {
            self.enter(stage);
        }
        self.turn();
        self.requests.len()
    }

    fn frame(&self, at: usize) -> Frame<'_> {
        self.requests.frame(at, self.trusts_link)
    }

    fn release(&mut self) {
        self.requests.clear();
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        self.replies.slot()
    }

    fn commit(&mut self, len: usize, _: Offload) {
        self.replies.lens.push(len);
    }

    fn flush(&mut self) {}
}

/// The clients' side.
struct ClientsEnd<'q> {
    replies: &'q mut Queue,
    requests: &'q mut Queue,
    trusts_link: bool,
}

impl OtherCard for Inside {}

impl Nic for ClientsEnd<'_> {
    fn features(&self) -> Features {
        features(CLIENT_MAC, self.trusts_link)
    }

    fn receive(&mut self) -> usize {
        self.replies.len().min(BURST_LEN)
    }

    #[inline]
    fn frame(&self, at: usize) -> Frame<'_> {
        self.replies.frame(at, self.trusts_link)
    }

    fn release(&mut self) {
        self.replies.pass(self.replies.len().min(BURST_LEN));
    }

    #[inline]
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.requests.slot()
    }

    #[inline]
    fn commit(&mut self, len: usize, _: Offload) {
        self.requests.lens.push(len);
    }

    fn flush(&mut self) {}
}

fn features(mac: Mac, trusts_link: bool) -> Features {
    Features {
        mac,
        mtu: MTU,
        fills_checksums: trusts_link,
        segmentation_len_max: 0,
    }
}

/// Frames on their way.
struct Queue {
    slots: Box<[[u8; SLOT_LEN]]>,
    lens: Vec<usize>,
    /// Those that have been looked at.
    passed: usize,
}

impl Queue {
    fn new(len: usize) -> Queue {
        Queue {
            slots: vec![[0; SLOT_LEN]; len].into_boxed_slice(),
            lens: Vec::with_capacity(len),
            passed: 0,
        }
    }

    fn len(&self) -> usize {
        self.lens.len() - self.passed
    }

    fn frame(&self, at: usize, is_verified: bool) -> Frame<'_> {
        let at = self.passed + at;
        Frame {
            bytes: &self.slots[at][..self.lens[at]],
            is_verified,
        }
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        self.slots
            .get_mut(self.lens.len())
            .map(|slot| &mut slot[..])
    }

    /// The first `count` have been looked at. There is room again when all have been.
    fn pass(&mut self, count: usize) {
        self.passed += count;
        if self.passed == self.lens.len() {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.lens.clear();
        self.passed = 0;
    }
}
