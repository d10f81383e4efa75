//! Grace periods: when memory that a reader may still be reading can be reused.
//!
//! Reclamation is based on quiescent states. A worker announces the global epoch at the start of
//! each burst, and holds no reference to items between bursts. A thread that unlinks items
//! increments the global epoch afterwards. Once every worker has announced that epoch or a later
//! one, or is absent, no worker holds a reference to them.
//!
//! # Concurrency
//! - A worker's announcement needs no fence: it read the global epoch with Acquire, so whatever was
//!   unlinked before that epoch is unlinked for its later loads too; and the Release store keeps
//! - A worker that comes back from being absent needs a SeqCst fence between its announcement and
//!   its first load: the cleaner may have found it absent already, and then the worker must see
//!   what the cleaner has unlinked. `loom_tests` shows the race without it.

use crate::sync::{AtomicU64, Ordering, fence};
use crossbeam_utils::CachePadded;
use std::marker::PhantomData;

/// A moment in the order of unlinkings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch(u64);

const ABSENT: u64 = u64::MAX;

/// One worker's side of the grace periods: the only way to announce a quiescent state, and to get
/// the [`Guard`] that reading items requires. A worker has one.
///
/// Announcing needs `&mut` access to the presence, and a guard borrows it. So the compiler ensures
/// that no guard, and no item that was found under it, is left when the next quiescent state is
/// announced.
pub(crate) struct Presence {
    worker: usize,
    present: bool,
}

/// The proof that a worker is between two quiescent states: the memory of items that it finds is
/// not reused while `'g` lasts. It has no size.
#[derive(Clone, Copy)]
pub(crate) struct Guard<'g>(PhantomData<&'g Presence>);

impl Presence {
    /// Worker number `worker`, absent.
    pub(crate) fn new(worker: usize) -> Presence {
        Presence {
            worker,
            present: false,
        }
    }

    /// The worker holds no reference, and may take new ones from now on.
    #[inline]
    pub(crate) fn announce(&mut self, epochs: &Epochs) -> Guard<'_> {
        if self.present {
            epochs.announce(self.worker);
        } else {
            epochs.come_back(self.worker);
            self.present = true;
        }
        Guard(PhantomData)
    }

    /// Whether it has announced itself and has not left since.
    pub(crate) fn is_present(&self) -> bool {
        self.present
    }

    /// The worker holds no reference, and takes none until it announces itself again.
    pub(crate) fn leave(&mut self, epochs: &Epochs) {
        if self.present {
            epochs.leave(self.worker);
        }
        self.present = false;
    }
}

/// The epochs of a store's workers.
pub(crate) struct Epochs {
    global: CachePadded<AtomicU64>,
    workers: Box<[CachePadded<AtomicU64>]>,
}

impl Epochs {
    /// `workers` workers, all absent.
    pub(crate) fn new(workers: usize) -> Epochs {
        Epochs {
            global: CachePadded::new(AtomicU64::new(1)),
            workers: (0..workers)
                .map(|_| CachePadded::new(AtomicU64::new(ABSENT)))
                .collect(),
        }
    }

    /// The worker holds no reference, and may take new ones.
    #[inline]
    fn announce(&self, worker: usize) {
        let now = self.global.load(Ordering::Acquire);
        self.workers[worker].store(now, Ordering::Release);
    }

    /// The worker, absent so far, begins to take references.
    fn come_back(&self, worker: usize) {
        self.announce(worker);
        fence(Ordering::SeqCst);
    }

    /// The worker holds no reference and takes none until it comes back.
    fn leave(&self, worker: usize) {
        self.workers[worker].store(ABSENT, Ordering::Release);
    }

    /// Begins a grace period for what was unlinked before the call.
    pub(crate) fn advance(&self) -> Epoch {
        Epoch(self.global.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Whether the grace period of `epoch` is over.
    pub(crate) fn is_over(&self, epoch: Epoch) -> bool {
        fence(Ordering::SeqCst);
        self.workers
            .iter()
            .all(|worker| worker.load(Ordering::Acquire) >= epoch.0)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
