//! A worker's handle to the store, and the bursts in which it uses it.

mod flash;

use crate::clean::Cleaner;
use crate::epoch::Presence;
use crate::index::{Hint, MIGRATIONS_MAX, Migration, TABLE_BUCKETS};
use crate::item::Item;
use crate::key::{Key, KeyHash};
use crate::look_ahead::{Ahead, BurstNumber, LookAheadStep};
use crate::memory::{Queue, events_seen};
use crate::request::{Access, Miss};
use crate::segment::OpenSegment;
use crate::store::Store;
use crate::time::UnixTime;
use crate::worker_store::{Turn, WorkerStore};
use coua_cpu::{prefetch, prefetch_for_write, prefetch_lines};
use std::sync::{Arc, PoisonError};

/// Cache lines of an item that are worth prefetching. The processor prefetches the lines after them
/// by itself.
const PREFETCH_LINES: usize = 4;

/// The same for an item that is going to be replaced: header and key.
const PREFETCH_LINES_REPLACED: usize = 2;

/// Buckets of a split that are filled at the end of a burst: about 10 µs.
const MIGRATE_BUCKETS: u32 = 128;

/// One thread's part of the store: its open segments, its statistics, its share of the cleaning.
///
/// A thread works in turns: [`Worker::burst`], operations, end of the burst, [`Worker::end`].
/// Before it may sleep for long it calls [`Worker::park`]; otherwise memory that other workers have
/// freed cannot be reused while it sleeps.
pub struct Worker {
    pub(crate) store: Arc<Store>,
    pub(crate) id: usize,
    presence: Presence,
    pub(crate) own: Own,
}

/// The state that belongs to one worker alone.
pub(crate) struct Own {
    pub(crate) open: [OpenSegment; 2],
    pub(crate) migrations: Vec<Migration>,
    pub(crate) cleaner: Cleaner,
    /// Memory errors that were seen when this worker last looked whether they hit a segment that it
    /// fills.
    losses_seen: u64,
    /// The latest flush for which this worker has sealed its open segments.
    flush_seen: u64,
    /// Bytes appended since the last turn ended.
    pub(crate) appended: usize,
    burst: BurstNumber,
}

/// What will be done with a key, so that its buckets are prefetched in the right way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// The key will be looked up.
    Read,
    /// The key will be stored, changed or deleted.
    Write,
}

impl Store {
    /// The worker with number `id`, below [`Config::workers`](crate::Config::workers).
    ///
    /// # Panics
    /// If `id` is too high, or that worker exists already.
    pub fn worker(self: &Arc<Store>, id: usize) -> Worker {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(
            !std::mem::replace(&mut taken[id], true),
            "worker {id} exists already"
        );
        drop(taken);
        self.begin_flash();
        Worker::new(Arc::clone(self), id)
    }

    fn give_worker_back(&self, id: usize) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)[id] = false;
    }
}

impl Worker {
    pub(crate) fn new(store: Arc<Store>, id: usize) -> Worker {
        let own = Own {
            cleaner: Cleaner::new(&store, id),
            open: [
                OpenSegment::new(id, Queue::Small, false),
                OpenSegment::new(id, Queue::Main, false),
            ],
            migrations: Vec::with_capacity(MIGRATIONS_MAX),
            losses_seen: events_seen(),
            flush_seen: 0,
            appended: 0,
            burst: BurstNumber::default(),
        };
        Worker {
            store,
            id,
            presence: Presence::new(id),
            own,
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Begins a burst: from here on items may be read. `now` is the time of all its operations.
    #[inline]
    pub fn burst(&mut self, now: impl Into<UnixTime>) -> Burst<'_> {
        let now = now.into();
        let guard = self.presence.announce(&self.store.epochs);
        self.own.burst = self.own.burst.next(self.id);
        let local = WorkerStore::new(&self.store, self.id, guard).in_burst(self.own.burst);
        self.own.take_part_in_flush(&self.store, now);
        if events_seen() != self.own.losses_seen {
            self.own.leave_lost(&self.store);
        }
        Burst {
            store: &self.store,
            local,
            own: &mut self.own,
            now,
        }
    }

    /// Ends a turn: no references to items are held, and some of the store's own work is done, in
    /// proportion to what was stored. True if more work waits, so that the next turn should come
    /// soon.
    pub fn end(&mut self, now: impl Into<UnixTime>) -> bool {
        let now = now.into();
        let guard = self.presence.announce(&self.store.epochs);
        self.store.log.note_time(now.second());
        self.own.migrate(&self.store, MIGRATE_BUCKETS);
        WorkerStore::new(&self.store, self.id, guard).note_stranded();
        for open in self.own.open.iter().chain(&self.own.cleaner.open) {
            self.store.log.publish_used(open);
        }
        let mut turn = Turn::new(&self.store, self.id, &mut self.presence);
        let more = self.own.cleaner.clean(&mut turn, self.own.appended, now);
        self.own.appended = 0;
        let local = turn.reclaim();
        let evict = |gone| local.evict_for_room(gone, now);
        let merges = self
            .store
            .merge_tables(local.counters(), now.second(), evict);
        more || merges || !self.own.migrations.is_empty()
    }

    /// Lets the thread sleep: grace periods no longer wait for this worker. The next burst ends
    /// that.
    pub fn park(&mut self) {
        if self.presence.is_present() {
            // As long as it is present, the sub-tables stay what they are.
            let guard = self.presence.announce(&self.store.epochs);
            self.own.migrate(&self.store, u32::MAX);
            WorkerStore::new(&self.store, self.id, guard).note_stranded();
            self.presence.leave(&self.store.epochs);
            self.store.log.reclaim(&self.store.epochs);
        }
    }
}

impl Own {
    /// Carries out a flush that is due, and seals this worker's open segments if there was one.
    #[inline]
    fn take_part_in_flush(&mut self, store: &Store, now: UnixTime) {
        let latest = store.flush.latest(&store.log, now.second());
        if latest != self.flush_seen {
            self.renew(store, latest);
        }
    }

    /// Seals the open segments, whose contents the flush `latest` has killed.
    pub(crate) fn renew(&mut self, store: &Store, latest: u64) {
        for open in self.open.iter_mut().chain(&mut self.cleaner.open) {
            store.log.seal_older(open, latest);
        }
        if let Some(flash) = &mut self.cleaner.flash {
            flash.end_filling();
        }
        self.flush_seen = latest;
    }

    /// Seals the open segments of which a part was lost since this worker last looked.
    #[cold]
    fn leave_lost(&mut self, store: &Store) {
        let (log, since) = (&store.log, self.losses_seen);
        self.losses_seen = events_seen();
        for open in self.open.iter_mut().chain(&mut self.cleaner.open) {
            let is_lost = |segment| store.losses.overlaps(log, since, &log.range_of(segment));
            if open.segment().is_some_and(is_lost) {
                log.seal(open);
            }
        }
    }

    /// Continues the splits that this worker began, the oldest first.
    fn migrate(&mut self, store: &Store, buckets: u32) {
        let mut left = buckets;
        while left > 0 {
            let Some(migration) = self.migrations.first_mut() else {
                return;
            };
            let step = left.min(TABLE_BUCKETS);
            if store.index.migrate(migration, step) {
                self.migrations.remove(0);
            } else if migration.is_filled() {
                // Another worker is changing the directory.
                return;
            }
            left -= step;
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let guard = self.presence.announce(&self.store.epochs);
        let local = WorkerStore::new(&self.store, self.id, guard);
        let now = self.store.log.noted_time();
        self.own.cleaner.abandon(local, now.into());
        for open in self.own.open.iter_mut().chain(&mut self.own.cleaner.open) {
            self.store.log.seal(open);
        }
        self.park();
        self.store.give_worker_back(self.id);
    }
}

/// A worker between two quiescent states. Items that it returns stay readable until it is dropped.
pub struct Burst<'w> {
    pub(crate) store: &'w Arc<Store>,
    pub(crate) local: WorkerStore<'w>,
    pub(crate) own: &'w mut Own,
    pub(crate) now: UnixTime,
}

impl Burst<'_> {
    /// The time of the burst's operations.
    pub fn now(&self) -> UnixTime {
        self.now
    }

    /// Ends the burst, as dropping it does.
    pub fn close(self) {}

    /// Whether the machine has lost memory that items may lie in, and nobody has seen to it yet. As
    /// long as it has not, no item is [doubtful](Item::is_doubtful). To be asked after bytes of items
    /// were copied; it is a load and a comparison.
    #[inline(always)]
    pub fn is_unsettled(&self) -> bool {
        self.local.is_unsettled()
    }

    /// A key with its hash.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.local.shared.key(bytes)
    }

    /// Prefetches the key's first bucket. The look-ahead has three steps: [`Burst::prefetch`],
    /// [`Burst::look`], [`Burst::look_again`]. Each step should come some eight requests after the
    /// one before, and the operation as many after the last. The steps change nothing and may be
    /// left out. The number of lines that a core can fetch at a time bounds lookups, so the second
    /// bucket is fetched only if the first does not hold the key.
    #[inline(always)]
    pub fn prefetch(&self, hash: KeyHash, intent: Intent) -> Ahead {
        let first = self.local.shared.index.first_number(hash);
        self.prefetch_bucket(first, intent);
        self.saw(LookAheadStep::First(first))
    }

    /// Prefetches what is likely the key's item, or else its second bucket.
    #[inline(always)]
    pub fn look(&self, hash: KeyHash, intent: Intent, ahead: Ahead) -> Ahead {
        let LookAheadStep::First(first) = ahead.seen_in(self.local.burst) else {
            return ahead;
        };
        let index = &self.local.shared.index;
        if let Some(hint) = index.likely(first, hash) {
            return self.prefetch_item(hint, intent);
        }
        let second = index.other_number(hash, first);
        self.prefetch_bucket(second, intent);
        self.saw(LookAheadStep::Second(second))
    }

    /// Prefetches what is likely the key's item from its second bucket, if `look` did not find it
    /// in the first.
    #[inline(always)]
    pub fn look_again(&self, hash: KeyHash, intent: Intent, ahead: Ahead) -> Ahead {
        let LookAheadStep::Second(second) = ahead.seen_in(self.local.burst) else {
            return ahead;
        };
        match self.local.shared.index.likely(second, hash) {
            Some(hint) => self.prefetch_item(hint, intent),
            None => Ahead::NONE,
        }
    }

    #[inline(always)]
    fn prefetch_bucket(&self, number: usize, intent: Intent) {
        let bucket = self.local.shared.index.bucket_at(number);
        match intent {
            Intent::Read => prefetch(bucket),
            Intent::Write => prefetch_for_write(bucket),
        }
    }

    #[inline(always)]
    fn prefetch_item(&self, hint: Hint, intent: Intent) -> Ahead {
        let start = self
            .local
            .shared
            .log
            .mapping()
            .at(hint.slot.location().offset())
            .as_ptr();
        let most = match intent {
            Intent::Read => PREFETCH_LINES,
            Intent::Write => PREFETCH_LINES_REPLACED,
        };
        prefetch_lines(start, hint.slot.lines().min(most));
        self.saw(LookAheadStep::Seen(hint))
    }

    #[inline(always)]
    fn saw(&self, step: LookAheadStep) -> Ahead {
        Ahead::new(step, self.local.burst)
    }

    /// As [`Burst::get`], starting from where the look-ahead saw the item.
    ///
    /// # Errors
    /// As of [`Burst::get`].
    #[inline(always)]
    pub fn get_ahead(&self, key: &Key<'_>, ahead: Ahead, access: Access) -> Result<Item<'_>, Miss> {
        let local = self.local;
        if let Some((place, item)) = local.recall(key, ahead, self.now)
            && let Some(item) = local.show(place, item, access, self.now)
        {
            return Ok(item);
        }
        self.get(key, access)
    }

    /// Looks `key` up.
    ///
    /// # Errors
    /// [`Miss`] if there is no item with that key, or it has expired or was flushed.
    #[inline]
    pub fn get(&self, key: &Key<'_>, access: Access) -> Result<Item<'_>, Miss> {
        let local = self.local;
        loop {
            let (place, item) = local.find_live(key, self.now)?;
            if let Some(item) = local.show(place, item, access, self.now) {
                return Ok(item);
            }
        }
    }
}
