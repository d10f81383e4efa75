//! Sees to what the machine has lost, on a thread of its own, while the workers go on.
//!
//! The owner of a lost page, by the page table, decides what follows:
//!
//! | page | what is lost | what the mender does |
//! |---|---|---|
//! | segment | items and pieces that overlap the range | drops their slots, moves all others away, retires the segment |
//! | index | the slots in the range | drops what is left where no lookup looks, and slots of one key that are there twice |
//! | tables | how many bytes of a segment are dead, how far one is filled; what the handler restores is not lost | nothing: the cleaner finds out |
//! | lent | bytes of connections | nothing: the server closes them |
//! | free | nothing | nothing |
//!
//! Behind a lost header nothing says where the next item begins. So what lives in a damaged segment is found
//! by a sweep (`Index::sweep`) over the index, a sub-table at a time. Between two sub-tables the mender is
//! quiescent, so it keeps nobody's memory.
//!
//! For a sealed segment without pieces nobody has to wait for that sweep. Zeros in the place of a key match no
//! key, so of all that lay there only one item could still be read with zeros in its value: the one that begins
//! before the lost page and ends in it ([`quick`]). It is found by the headers before it, and dropped by its
//! key. Then the loss is settled, and the sweep follows behind the scenes; nothing is written there before it
//! has ended. So the time until nothing is doubtful does not grow with memory.
//!
//! # The order
//!
//! 1. Damaged segments are taken out of their queues, so that no cleaner takes them. One that is
//!    still open, under cleaning or held is taken later, when its owner has let go.
//! 2. A grace period: bursts end that may have looked for losses before this one was counted, and may
//!    be about to publish an item that lies in the range, or have a bucket locked that is lost.
//! 3. Index pages are put in order; then the items that are cut off are dropped, or the sweep drops all.
//! 4. Another grace period: bursts end that may have found an item that is lost.
//! 5. The loss is settled: from here on nobody compares what was read with it.
//! 6. The sweep, if it was not needed before. Then the segment is empty, and after another grace period free.
//!
//! A loss that comes meanwhile stays unsettled, and is seen to next.

use crate::epoch::Presence;
use crate::index::slot::{Location, Slot};
use crate::index::{Place, Visited};
use crate::memory::{PageId, PageState, Purpose, Queue};
use crate::segment::OpenSegment;
use crate::segment::item::RawItem;
use crate::segment::layout::LEN_AT_MOST;
use crate::store::Store;
use crate::store::losses::{Entry, overlap};
use crate::sync::Ordering;
use crate::time::UnixSeconds;
use crate::worker_store::{Rewrite, Rewritten, WorkerStore};
use coua_cpu::prefetch_lines;
use coua_memory_errors::{Events, Lost};
use std::ops::Range;
use std::sync::Arc;

mod quick;
use std::time::{Duration, Instant};

/// How long to wait before looking again whether a grace period is over.
const GRACE_PAUSE: Duration = Duration::from_micros(100);

/// How long a sweep that nobody waits for leaves its core to others after each sub-table, which takes it some tens of
/// microseconds.
const SLICE_PAUSE: Duration = Duration::from_micros(50);

/// Items of which a segment is known by its pieces: they are fetched some ahead.
const HEADER_LINES: usize = 1;

/// What a lost page was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Items, or pieces of large ones.
    Items,
    /// Buckets of the index.
    Index,
    /// Buffers of connections.
    Lent,
    /// Notes that the store can do without.
    Tables,
    /// The table of tags: items with tags that lay there are gone.
    Tags,
    /// Memory that is not the store's: what flash is read into and written from.
    Flash,
    /// Nothing.
    Free,
}

/// A range that the machine has lost.
#[derive(Clone, Debug)]
pub struct Loss {
    /// What is known of it.
    pub lost: Lost,
    /// What it was used for.
    pub kind: PageKind,
}

/// What was seen to at once.
#[derive(Clone, Debug, Default)]
pub struct Mended {
    /// The ranges that were lost.
    pub losses: Vec<Loss>,
    /// Items that are gone. Of those that were lost with a page of the index it is an estimate.
    pub items: u64,
    /// The bytes of those whose length is known.
    pub bytes: u64,
    /// From when the mender began to when nothing was doubtful any more: requests no longer compare what they read
    /// with what was lost.
    pub doubtful_for: Duration,
    /// To when nothing referred to the losses any more, and the memory could be used again.
    pub took: Duration,
    /// Sub-tables of the index that were looked at before nothing was doubtful any more.
    pub tables: u64,
    /// So many were lost at once that they were not all noted: anything may be gone.
    pub overflowed: bool,
}

/// See the module.
pub struct Mender {
    store: Arc<Store>,
    presence: Presence,
    open: [OpenSegment; 2],
    /// Damaged segments that still hold items.
    damaged: Vec<PageId>,
    /// Of these, those that nobody else may empty.
    taken: Vec<PageId>,
    /// Sub-tables that were looked at.
    tables: u64,
}

/// What a sweep looks for.
struct Wanted {
    /// What is lost.
    lost: Vec<Range<usize>>,
    /// One bit a page: it is damaged; it is to be emptied.
    damaged: Box<[u64]>,
    taken: Box<[u64]>,
    /// Whether pieces of large items may lie there, whose heads are anywhere.
    has_pieces: bool,
}

fn bit(bits: &[u64], page: PageId) -> bool {
    let word = bits.get(page as usize / 64);
    word.is_some_and(|word| word >> (page % 64) & 1 != 0)
}

fn bits(store: &Store, pages: &[PageId]) -> Box<[u64]> {
    let mut bits = vec![0; (store.log.segment_count() as usize).div_ceil(64)];
    for page in pages {
        bits[*page as usize / 64] |= 1 << (page % 64);
    }
    bits.into()
}

impl Wanted {
    fn is_lost(&self, location: Location, total: usize) -> bool {
        let start = location.offset();
        let end = start + total.max(LEN_AT_MOST);
        let overlaps = |lost: &Range<usize>| start < lost.end && lost.start < end;
        self.lost.iter().any(overlaps)
    }
}

impl Store {
    /// Keeps the store alive when the machine loses a part of its memory: `events` says what was
    /// lost. [`Mender::mend`] is then to be called whenever something was.
    ///
    /// # Panics
    /// If there is a mender already.
    pub fn watch(self: &Arc<Store>, events: Events) -> Mender {
        self.losses.begin(&self.log, events);
        Mender::new(Arc::clone(self))
    }

    /// Sees to what the process before has lost and had not seen to when it died. Where it is not known
    /// any more what of a segment was lost, all of that goes.
    pub(crate) fn mend_before(self: &Arc<Store>, now: UnixSeconds) {
        let lost = &self.lost_before;
        let mut mender = Mender::new(Arc::clone(self));
        let is_of_index = |&page: &PageId| self.log.entry(page).state() == PageState::Index;
        for range in lost {
            for page in self.log.pages_of(range).filter(is_of_index) {
                let page = self.log.range_of(page);
                // Which items it had is not counted: what was taken over was.
                mender.put_in_order(&(range.start.max(page.start)..range.end.min(page.end)));
            }
        }
        mender.damaged = (0..self.log.segment_count())
            .filter(|&page| {
                let entry = self.log.entry(page);
                entry.state() == PageState::Sealed && entry.is_damaged()
            })
            .collect();
        let known = |page: &PageId| {
            let whole = self.log.range_of(*page);
            let here = lost.iter().filter(|range| overlap(range, &whole)).cloned();
            let here: Vec<Range<usize>> = here.collect();
            if here.is_empty() { vec![whole] } else { here }
        };
        let lost = mender.damaged.iter().flat_map(known).collect();
        mender.empty_now(lost, now);
        // What there was no room to move goes.
        let left = mender.damaged.iter().map(|&page| self.log.range_of(page));
        let left = left.collect();
        mender.empty_now(left, now);
        mender.presence.leave(&self.epochs);
        self.log.superblock().forget_losses();
    }
}

impl Mender {
    fn new(store: Arc<Store>) -> Mender {
        let id = store.workers();
        Mender {
            presence: Presence::new(id),
            open: [
                OpenSegment::new(id, Queue::Small, false),
                OpenSegment::new(id, Queue::Main, false),
            ],
            damaged: Vec::new(),
            taken: Vec::new(),
            tables: 0,
            store,
        }
    }

    /// Sees to all that was lost so far, and waits for the bursts that are under way; so not to be
    /// called from within one. `None` if nothing new was lost.
    pub fn mend(&mut self, now: UnixSeconds) -> Option<Mended> {
        let began = Instant::now();
        let store = Arc::clone(&self.store);
        let (behind, entries) = store.losses.unsettled(&store.log);
        if !store.losses.are_unsettled() {
            self.empty_more(now);
            return None;
        }
        let before = self.lost();
        let damaged_before = self.damaged.clone();
        self.tables = 0;
        for page in entries
            .iter()
            .flat_map(|entry| store.log.pages_of(&entry.range))
        {
            if store.log.entry(page).is_damaged() && !self.damaged.contains(&page) {
                self.damaged.push(page);
            }
        }
        // What was moved last may lie there.
        for open in &mut self.open {
            if open
                .segment()
                .is_some_and(|page| self.damaged.contains(&page))
            {
                store.log.seal(open);
            }
        }
        self.take_damaged();
        self.wait_for_grace();
        let losses = self.mend_index(&entries);
        store.losses.settle_index(behind);
        let lost: Vec<Range<usize>> = entries.into_iter().map(|entry| entry.range).collect();
        let is_quick = self.drop_cut_off(&lost, &damaged_before);
        if !is_quick {
            self.sweep(lost.clone(), now, Duration::ZERO);
        }
        self.wait_for_grace();
        store.losses.settle(behind);
        let (doubtful_for, tables) = (began.elapsed(), self.tables);
        if is_quick && !self.damaged.is_empty() {
            self.sweep(lost.clone(), now, SLICE_PAUSE);
            // Bursts end that have found an item here, before its memory is used again.
            self.wait_for_grace();
        }
        for range in &lost {
            store.log.superblock().forget_loss(range);
        }
        self.retire_emptied();
        let after = self.lost();
        Some(Mended {
            losses,
            items: after.0 - before.0,
            bytes: after.1 - before.1,
            doubtful_for,
            took: began.elapsed(),
            tables,
            overflowed: store.losses.beyond(&store.log).0,
        })
    }

    /// Whether damaged segments are left to be emptied, which their owners have not let go yet:
    /// [`Mender::mend`] is to be called again after a while, though nothing more is lost.
    pub fn is_waiting(&self) -> bool {
        !self.damaged.is_empty()
    }

    /// Errors that were met outside of the store's memory, and that nobody has touched.
    pub fn elsewhere(&self) -> u64 {
        self.store.losses.beyond(&self.store.log).1
    }

    /// Ends the watch, and returns what says what is lost.
    pub fn into_events(self) -> Option<Events> {
        self.store.losses.end()
    }

    fn turn(&mut self) -> (&Store, WorkerStore<'_>, &mut [OpenSegment; 2]) {
        let guard = self.presence.announce(&self.store.epochs);
        let local = WorkerStore::new(&self.store, self.store.workers(), guard);
        (&self.store, local, &mut self.open)
    }

    /// Items and bytes that have been lost so far.
    fn lost(&self) -> (u64, u64) {
        let totals = self.store.stats().totals;
        (totals.lost, totals.bytes_lost)
    }

    fn wait_for_grace(&mut self) {
        let epochs = &self.store.epochs;
        self.presence.leave(epochs);
        let epoch = epochs.advance();
        while !epochs.is_over(epoch) {
            std::thread::sleep(GRACE_PAUSE);
        }
    }

    /// Empties the damaged segments, of which these ranges are lost. Nobody else works yet.
    fn empty_now(&mut self, lost: Vec<Range<usize>>, now: UnixSeconds) {
        if !self.damaged.is_empty() {
            self.take_damaged();
            self.sweep(lost, now, Duration::ZERO);
            self.retire_emptied();
        }
    }

    /// Takes those damaged segments that nobody else works in, and forgets those that are empty.
    /// True if there is one more.
    fn take_damaged(&mut self) -> bool {
        let log = &self.store.log;
        let before = self.taken.len();
        let taken = &mut self.taken;
        self.damaged.retain(|&page| {
            let entry = log.entry(page);
            if taken.contains(&page) {
                return true;
            }
            if !entry.is_damaged() || !entry.state().holds_items() {
                // Nothing lives there, or it lives again.
                return false;
            }
            let mut queues = log.queues();
            if entry.state() == PageState::Sealed && !entry.is_held() && queues.remove(page) {
                entry.set_state(PageState::Cleaning);
                taken.push(page);
            }
            true
        });
        self.taken.len() > before
    }

    /// Empties damaged segments that have been let go since.
    fn empty_more(&mut self, now: UnixSeconds) {
        if self.take_damaged() || !self.taken.is_empty() {
            // Items that their writers have not published yet.
            self.wait_for_grace();
            self.sweep(Vec::new(), now, SLICE_PAUSE);
            self.wait_for_grace();
            self.retire_emptied();
        }
    }

    fn retire_emptied(&mut self) {
        for page in self.taken.drain(..) {
            self.damaged.retain(|&damaged| damaged != page);
            self.store.log.retire(page, &self.store.epochs);
        }
    }

    /// Puts the index in order, and says what each lost range was.
    fn mend_index(&mut self, entries: &[Entry]) -> Vec<Loss> {
        let mut losses = Vec::new();
        for entry in entries {
            let mut kind = match entry.range.is_empty() {
                true => PageKind::Flash,
                false => PageKind::Free,
            };
            let pages: Vec<PageId> = self.store.log.pages_of(&entry.range).collect();
            for page in pages {
                let table_entry = self.store.log.entry(page);
                let here = match table_entry.state() {
                    PageState::Index => PageKind::Index,
                    PageState::Lent => PageKind::Lent,
                    PageState::Tables | PageState::Fillings => PageKind::Tables,
                    PageState::Tags => PageKind::Tags,
                    _ if table_entry.is_damaged() => PageKind::Items,
                    _ => continue,
                };
                kind = here;
                if here == PageKind::Index {
                    let bytes = self.store.log.range_of(page);
                    let start = bytes.start.max(entry.range.start);
                    let lost = start..bytes.end.min(entry.range.end);
                    self.put_in_order(&lost);
                    self.count_slots_lost(&lost);
                }
            }
            losses.push(Loss {
                lost: entry.lost,
                kind,
            });
        }
        losses
    }

    /// Puts the sub-tables in order of which these bytes are lost.
    fn put_in_order(&mut self, bytes: &Range<usize>) {
        for word in self.store.index.words_of(bytes) {
            self.tables += 1;
            let (store, local, _) = self.turn();
            let is_same_key = |one: Slot, other: Slot| {
                // What is on flash is not read for that.
                let are_in_memory = one.is_in_memory() && other.is_in_memory();
                !are_in_memory || local.item_of(one).key_is(local.item_of(other).key())
            };
            for slot in store.index.put_in_order(word, is_same_key) {
                local.note_lost(slot);
            }
            local.note_stranded();
        }
    }

    /// Counts the items whose slots stood in these bytes.
    fn count_slots_lost(&mut self, bytes: &Range<usize>) {
        for word in self.store.index.words_of(bytes) {
            let (store, local, _) = self.turn();
            let gone = store.index.estimate_lost(word, bytes, Slot::is_taken);
            local.counters().lost.add(gone);
            local.counters().unlinked.add(gone);
            let on_flash = store.index.estimate_lost(word, bytes, Slot::is_on_flash);
            local.counters().flash_unlinked.add(on_flash);
        }
    }

    /// Drops all items of which a part is in `lost`, and moves what else is in the taken segments
    /// away. It pauses between sub-tables.
    fn sweep(&mut self, lost: Vec<Range<usize>>, now: UnixSeconds, pause: Duration) {
        if self.damaged.is_empty() {
            return;
        }
        let store = Arc::clone(&self.store);
        let has_pieces = |&page: &PageId| store.log.entry(page).has_pieces();
        let wanted = Wanted {
            lost,
            damaged: bits(&store, &self.damaged),
            taken: bits(&store, &self.taken),
            has_pieces: self.damaged.iter().any(has_pieces),
        };
        let mut kept = Vec::new();
        let mut word = 0;
        while word < store.index.words() {
            self.tables += 1;
            let (store, local, open) = self.turn();
            word = store.index.sweep(
                word,
                wanted.has_pieces.then_some(|slot: Slot| {
                    let at = store.log.mapping().at(slot.location().offset());
                    prefetch_lines(at.as_ptr(), HEADER_LINES);
                }),
                |place| visit(local, open, &wanted, place, now, &mut kept),
            );
            local.note_stranded();
            if !pause.is_zero() {
                // Nobody's memory is kept meanwhile.
                self.presence.leave(&self.store.epochs);
                std::thread::sleep(pause);
            }
        }
        // Where there was no room to move what lives there, the segment stays.
        self.taken.retain(|page| !kept.contains(page));
        for page in kept {
            self.give_back(page);
        }
    }

    /// Leaves a segment that could not be emptied, until there is room.
    fn give_back(&mut self, page: PageId) {
        let entry = self.store.log.entry(page);
        let mut queues = self.store.log.queues();
        if entry.state() == PageState::Cleaning {
            entry.set_state(PageState::Sealed);
            queues.push_oldest(entry.queue(), page);
        }
    }
}

impl Drop for Mender {
    fn drop(&mut self) {
        for page in std::mem::take(&mut self.taken) {
            self.give_back(page);
        }
        for open in &mut self.open {
            self.store.log.seal(open);
        }
        self.presence.leave(&self.store.epochs);
    }
}

/// Looks at one slot of a sweep. Segments in which something could not be moved go to `kept`.
fn visit(
    local: WorkerStore<'_>,
    open: &mut [OpenSegment; 2],
    wanted: &Wanted,
    place: Place<'_>,
    now: UnixSeconds,
    kept: &mut Vec<PageId>,
) -> Visited {
    if !place.slot.is_in_memory() {
        return Visited::Done;
    }
    let log = &local.shared.log;
    let location = place.slot.location();
    let page = log.segment_of(location);
    let is_damaged = bit(&wanted.damaged, page);
    if !is_damaged && !wanted.has_pieces {
        return Visited::Done;
    }
    let item = local.item_of(place.slot);
    let in_damaged = |&piece: &Location| bit(&wanted.damaged, log.segment_of(piece));
    if !log.is_within(location, item) {
        local.unlink_unsound(place);
        return Visited::Done;
    }
    // What is no piece is lost, or its head is.
    let is_piece_lost = |at: Location| match local.piece(at) {
        Some(piece) => wanted.is_lost(at, piece.total_len()),
        None => true,
    };
    let is_lost = is_damaged && wanted.is_lost(location, item.total_len())
        || item.pieces().filter(in_damaged).any(is_piece_lost);
    if is_lost {
        return done(local.unlink_lost(place));
    }
    if wanted.has_pieces && item.is_head() && !move_pieces(local, open, wanted, place, item, kept) {
        return Visited::Again;
    }
    if !bit(&wanted.taken, page) {
        return Visited::Done;
    }
    if let Some(why) = local.death(location, item, now.into()) {
        return done(local.unlink_dead(place, item, why));
    }
    let how = Rewrite {
        purpose: Purpose::Cleaning,
        frequency: None,
        room_for: None,
    };
    let queue = log.entry(page).queue();
    match local.rewrite(&mut open[queue as usize], place, item, &how) {
        Rewritten::Done(bytes) => {
            local.counters().bytes_moved.add(bytes as u64);
            Visited::Done
        }
        Rewritten::Raced => Visited::Again,
        Rewritten::NoRoom => {
            keep(kept, page);
            Visited::Done
        }
    }
}

fn done(is_done: bool) -> Visited {
    match is_done {
        true => Visited::Done,
        false => Visited::Again,
    }
}

fn keep(kept: &mut Vec<PageId>, page: PageId) {
    if !kept.contains(&page) {
        kept.push(page);
    }
}

/// Moves those pieces of a head that lie in segments to be emptied. False if the head has changed.
fn move_pieces(
    local: WorkerStore<'_>,
    open: &mut [OpenSegment; 2],
    wanted: &Wanted,
    place: Place<'_>,
    head: RawItem<'_>,
    kept: &mut Vec<PageId>,
) -> bool {
    let log = &local.shared.log;
    for chunk in head.chunks() {
        let old = Location::from_raw(chunk.load(Ordering::Acquire));
        let page = log.segment_of(old);
        if !bit(&wanted.taken, page) {
            continue;
        }
        let Some(piece) = local.piece(old) else {
            return false;
        };
        let open = &mut open[log.entry(page).queue() as usize];
        let Some(new) = local.copy_piece(open, piece) else {
            keep(kept, page);
            continue;
        };
        let lock = place.lock();
        let is_same = lock.is_some() && chunk.load(Ordering::Acquire) == old.raw();
        let is_doubtful = local.is_unsettled() && local.is_piece_lost(new);
        if !is_same || is_doubtful {
            drop(lock);
            local.abandon_head(new);
            local.leave_lost(open);
            return false;
        }
        // Release: a thread that finds the piece by this entry sees the piece.
        chunk.store(new.raw(), Ordering::Release);
        local.abandon_head(old);
    }
    true
}
