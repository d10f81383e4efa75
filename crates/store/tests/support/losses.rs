//! A store beside a mender, and operations that mind losses.
#![allow(dead_code, reason = "each test takes what it needs")]

use coua_memory_errors::{Events, events_seen, install, install_thread, wait_for_events};
use coua_store::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) const NOW: UnixSeconds = UnixSeconds(1_000_000);

/// There is one list of losses in a process, so one test at a time has it.
pub(crate) fn events() -> std::sync::MutexGuard<'static, Option<Events>> {
    static EVENTS: Mutex<Option<Events>> = Mutex::new(None);
    let mut events = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if events.is_none() {
        *events = Some(install().expect("nothing is installed yet"));
    }
    events
}

/// A random number below `below`.
pub(crate) fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// A value that names its key and version, in bytes that are never zero.
pub(crate) fn value(key: u64, version: u64, len: usize) -> Vec<u8> {
    let text = format!("{key}:{version}:");
    text.bytes().cycle().take(len.max(1)).collect()
}

/// What the mender says of all that was lost.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) items: AtomicU64,
    pub(crate) losses: AtomicU64,
    pub(crate) index: AtomicU64,
}

/// Says that the test has ended when it is dropped.
struct Ends<'e>(&'e AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Runs `body` beside a mender that works until it has returned and nothing is left to do.
pub(crate) fn beside_mender(
    store: &Arc<Store>,
    events: &mut Option<Events>,
    body: impl FnOnce(&Told),
) {
    let mut mender = store.watch(events.take().expect("the list"));
    let (ends, told) = (AtomicBool::new(false), Told::default());
    let mender = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let _stack = install_thread().expect("there is memory");
            let mut seen = 0;
            loop {
                let is_last = ends.load(SeqCst);
                if let Some(mended) = mender.mend(NOW) {
                    told.items.fetch_add(mended.items, SeqCst);
                    told.losses.fetch_add(mended.losses.len() as u64, SeqCst);
                    let index = mended.losses.iter().filter(|l| l.kind == PageKind::Index);
                    told.index.fetch_add(index.count() as u64, SeqCst);
                    assert!(!mended.overflowed);
                } else if is_last && !mender.is_waiting() {
                    return mender;
                }
                wait_for_events(seen, Duration::from_millis(1));
                seen = events_seen();
            }
        });
        {
            // Also where the test fails.
            let _ends = Ends(&ends);
            body(&told);
        }
        thread.join().expect("the mender")
    });
    *events = mender.into_events();
}

/// Whether pages can be poisoned here.
pub(crate) fn is_possible(worker: &mut Worker) -> bool {
    let set = Put::set(0, Expiry::NEVER);
    put(worker, b"possible?", &set, b"value");
    let burst = worker.burst(NOW);
    let key = burst.key(b"possible?");
    burst
        .poison(&key, PoisonTarget::Item, PoisonMeans::Userfault)
        .is_ok()
}

/// A value as a client would get it: a miss where the copy is doubtful.
pub(crate) fn get(worker: &mut Worker, name: &[u8]) -> Option<Vec<u8>> {
    let burst = worker.burst(NOW);
    let key = burst.key(name);
    let item = burst.get(&key, Access::default()).ok()?;
    let copy = item.value().collect::<Vec<_>>().concat();
    if !item.is_doubtful() {
        assert_eq!(copy.len(), item.value_len());
        return Some(copy);
    }
    assert!(
        burst.get(&key, Access::default()).is_err(),
        "a doubtful item is none"
    );
    None
}

/// Stores, and waits where the store asks for it.
pub(crate) fn put(worker: &mut Worker, name: &[u8], put: &Put, value: &[u8]) -> Stored {
    for _ in 0..10_000 {
        let mut burst = worker.burst(NOW);
        let key = burst.key(name);
        let stored = burst.store(&key, put, value);
        burst.close();
        worker.end(NOW);
        if stored != Stored::Refused(Refused::Wait) {
            return stored;
        }
        worker.park();
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it waits for ever");
}
