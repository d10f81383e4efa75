//! When sub-tables of the index merge, and what becomes of those that are given up.
//!
//! A worker at the end of its turn does a little of this work, if no other worker is at it. Once a
//! second it compares the number of items with that of slots. If the index is much too large, it goes
//! through the directory, round after round, and merges siblings that are nearly empty
//! ([`crate::index`]), one pair at a time, until a round finds none.
//!
//! # Concurrency
//! All of the state is under a lock that is only tried. A sub-table that was given up waits here for
//! its grace period, which begins when no word of the directory names it any more.

use super::Store;
use crate::counters::Counters;
use crate::epoch::Epoch;
use crate::index::{Drained, Merge, SLOTS, TABLE_BYTES, TableId, Unlinked};
use crate::sync::{Mutex, MutexGuard};
use crate::time::UnixSeconds;
use std::collections::VecDeque;
// They only say when to look, so loom need not know them.
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The index is too large when items fill less than this percentage of its slots.
const LOOSE: u64 = 25;

/// Pairs of sub-tables that are looked at in a turn, and buckets that are emptied: some 10 µs.
const LOOKS: u32 = 4;
const BUCKETS: u32 = 128;

/// Seconds after a round that found nothing to merge.
const REST_S: u32 = 10;

/// Turns that follow soon upon one another while a grace period is waited for.
const HOPE_TURNS: u32 = 256;

/// See the module.
#[derive(Default)]
pub(super) struct Merging {
    /// Whether there is work.
    is_busy: AtomicBool,
    /// Whether merges are set aside, which have to come to an end though the index is no longer too
    /// large: until then their sub-tables cannot split.
    has_set_aside: AtomicBool,
    /// The second in which to look next whether there is.
    due: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The word of the directory to look at next.
    word: usize,
    /// Whether this round has merged any.
    has_merged: bool,
    under_way: Option<UnderWay>,
    /// Merges that found no room for some slots, to be tried again once a round.
    set_aside: Vec<UnderWay>,
    /// Those of the round before, which come first.
    again: Vec<UnderWay>,
    /// Sub-tables that were given up, with the end of their grace period.
    left: VecDeque<(Epoch, TableId)>,
    /// Turns in a row that could only wait.
    waited: u32,
}

struct UnderWay {
    merge: Merge,
    /// The grace period after which the merge may be settled.
    published: Epoch,
    /// How often all buckets were looked at and there was no room.
    refusals: u32,
}

/// So often a merge is tried again whose slots find no room, before it is given up or set aside.
const REFUSALS_MAX: u32 = 4;

/// What a turn could do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Some,
    /// Others have to end their bursts first, or room is missing.
    Waits,
    NothingToDo,
}

impl Merging {
    /// Whether to look for work; reads two words only.
    #[inline]
    fn is_due(&self, now: UnixSeconds) -> bool {
        self.is_busy.load(Ordering::Relaxed) || self.due.load(Ordering::Relaxed) <= now.0
    }

    fn rest(&self, now: UnixSeconds, seconds: u32) {
        self.is_busy.store(false, Ordering::Relaxed);
        self.due
            .store(now.0.saturating_add(seconds), Ordering::Relaxed);
    }
}

impl Store {
    /// Does a part of the merging that is due, at the end of a turn of the worker with `counters`,
    /// which is present; `evict` notes what there is no room for. True if the next turn should come soon.
    #[inline]
    pub(crate) fn merge_tables(
        &self,
        counters: &Counters,
        now: UnixSeconds,
        mut evict: impl FnMut(Unlinked),
    ) -> bool {
        self.merging.is_due(now) && self.go_on_merging(counters, now, &mut evict)
    }

    #[cold]
    #[inline(never)]
    fn go_on_merging(
        &self,
        counters: &Counters,
        now: UnixSeconds,
        evict: &mut dyn FnMut(Unlinked),
    ) -> bool {
        let is_busy = self.merging.is_busy.load(Ordering::Relaxed);
        let has_set_aside = self.merging.has_set_aside.load(Ordering::Relaxed);
        if !is_busy && !has_set_aside && !self.is_index_loose() {
            self.merging.rest(now, 1);
            return false;
        }
        let Ok(mut state) = self.merging.state.try_lock() else {
            return false;
        };
        self.merging.is_busy.store(true, Ordering::Relaxed);
        let mut progress = match state.under_way.take() {
            Some(under_way) => self.go_on_with(&mut state, under_way, counters, evict),
            None => self.look_for_siblings(&mut state),
        };
        if self.free_left(&mut state) {
            progress = Progress::Some;
        }
        if progress == Progress::NothingToDo && !state.left.is_empty() {
            progress = Progress::Waits;
        }
        match progress {
            Progress::Some => {
                state.waited = 0;
                true
            }
            Progress::Waits => {
                state.waited = state.waited.saturating_add(1);
                state.waited < HOPE_TURNS
            }
            Progress::NothingToDo => {
                // Those that are set aside are tried at the beginning of the next round.
                let aside = std::mem::take(&mut state.set_aside);
                self.merging
                    .has_set_aside
                    .store(!aside.is_empty(), Ordering::Relaxed);
                state.again = aside;
                self.merging
                    .rest(now, if state.again.is_empty() { REST_S } else { 1 });
                false
            }
        }
    }

    /// Whether items fill so little of the index that sub-tables should merge.
    fn is_index_loose(&self) -> bool {
        let tables = self.tables.count();
        let slots = (tables * (TABLE_BYTES / 64) * SLOTS) as u64;
        tables > self.index.tables_min() && self.items() * 100 < slots * LOOSE
    }

    fn look_for_siblings(&self, state: &mut State) -> Progress {
        if self.losses.are_unsettled() && self.losses.is_index_unsettled(&self.log) {
            // Slots may stand where no lookup looks, until their sub-tables merge.
            return Progress::Waits;
        }
        if let Some(under_way) = state.again.pop() {
            state.under_way = Some(under_way);
            return Progress::Some;
        }
        if state.word == 0 && !self.is_index_loose() {
            return Progress::NothingToDo;
        }
        for _ in 0..LOOKS {
            let (merge, next) = self.index.begin_merge(state.word);
            state.word = next;
            if let Some(merge) = merge {
                state.has_merged = true;
                state.under_way = Some(UnderWay {
                    merge,
                    published: self.epochs.advance(),
                    refusals: 0,
                });
                return Progress::Some;
            }
            if next >= self.index.words() {
                state.word = 0;
                return match std::mem::take(&mut state.has_merged) {
                    true => Progress::Some,
                    false => Progress::NothingToDo,
                };
            }
        }
        Progress::Some
    }

    fn go_on_with(
        &self,
        state: &mut State,
        mut under_way: UnderWay,
        counters: &Counters,
        evict: &mut dyn FnMut(Unlinked),
    ) -> Progress {
        let progress = match self.index.drain(&mut under_way.merge, BUCKETS) {
            Drained::Partly => Progress::Some,
            Drained::Wholly if self.epochs.is_over(under_way.published) => {
                if let Some(table) = self.index.settle_merge(&under_way.merge) {
                    counters.merges.add(1);
                    state.left.push_back((self.epochs.advance(), table));
                    if state.word >= self.index.words() {
                        state.word = 0;
                    }
                    return Progress::Some;
                }
                Progress::Waits
            }
            Drained::Wholly => Progress::Waits,
            Drained::NoRoom => {
                under_way.refusals += 1;
                if under_way.refusals < REFUSALS_MAX {
                    Progress::Waits
                } else if self.evict {
                    // As for an insert that finds its two buckets full.
                    let gone = self.index.give_up_left(&under_way.merge);
                    gone.into_iter().for_each(evict);
                    Progress::Some
                } else {
                    under_way.refusals = 0;
                    state.set_aside.push(under_way);
                    if state.word >= self.index.words() {
                        state.word = 0;
                    }
                    return Progress::Some;
                }
            }
        };
        state.under_way = Some(under_way);
        progress
    }

    /// Gives back sub-tables whose grace period is over. True if there was one.
    fn free_left(&self, state: &mut MutexGuard<'_, State>) -> bool {
        let before = state.left.len();
        while let Some(&(epoch, table)) = state.left.front()
            && self.epochs.is_over(epoch)
        {
            state.left.pop_front();
            self.tables.give_back(table);
        }
        state.left.len() < before
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests;
