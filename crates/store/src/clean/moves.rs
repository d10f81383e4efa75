//! The fate of an item whose segment is cleaned: it moves, it is evicted, or it was dead already.

use super::Cleaner;
use super::job::{CleanedItem, Kind};
use crate::flash::{Copying, Departing};
use crate::index::Place;
use crate::index::slot::{Location, Slot};
use crate::memory::Purpose;
use crate::memory::Queue;
use crate::segment::item::RawItem;
use crate::sync::Ordering;
use crate::time::UnixTime;
use crate::worker_store::{Rewrite, Rewritten, WorkerStore};

/// What to do with a live item.
#[derive(Clone, Copy)]
enum Fate {
    Move { queue: Queue, frequency: u64 },
    Evict { leave_ghost: bool },
}

impl Cleaner {
    /// Cleans one item. Returns the bytes moved, or `None` if there is no room to move it.
    pub(super) fn clean_item(
        &mut self,
        local: WorkerStore<'_>,
        kind: Kind,
        victim: CleanedItem,
        now: UnixTime,
    ) -> Option<usize> {
        // The item's own segment is ours, and is not reused before we retire it.
        let store = local.shared;
        let item = local.item(victim.location);
        loop {
            let place = if item.is_piece() {
                store.index.find(victim.hash, |slot| {
                    let head = local.item_of(slot);
                    let is_within = local.shared.log.is_within(slot.location(), head);
                    let chunks = if is_within { head.chunks() } else { &[] };
                    let entry = chunks.get(item.piece_index());
                    entry.is_some_and(|e| e.load(Ordering::Relaxed) == victim.location.raw())
                })
            } else {
                store
                    .index
                    .find(victim.hash, |slot| slot.location() == victim.location)
            };
            // It has been replaced or deleted: a dead item.
            let Some(place) = place else { return Some(0) };
            // The item, or the head of the piece.
            let owner = local.item_of(place.slot);
            if let Some(why) = local.death(place.slot.location(), owner, now) {
                if local.unlink_dead(place, owner, why) {
                    local.counters().reclaimed.add(1);
                    return Some(0);
                }
                continue;
            }
            let done = match self.fate(local, kind, victim.location, place.slot) {
                Fate::Evict { leave_ghost } => {
                    self.copy_or_evict(local, victim, place, owner, leave_ghost, now)
                }
                Fate::Move { queue, frequency } => {
                    let moved = if item.is_piece() {
                        self.move_piece(local, victim, place, item, owner, queue)
                    } else {
                        self.move_item(local, place, item, queue, frequency)
                    };
                    match moved {
                        Done::NoRoom if local.shared.evict => {
                            let leaves_ghost = kind == Kind::Small;
                            self.copy_or_evict(local, victim, place, owner, leaves_ghost, now)
                        }
                        Done::NoRoom => return None,
                        Done::Raced => None,
                        done => Some(done),
                    }
                }
            };
            match done {
                Some(Done::Moved(bytes)) => {
                    self.count_move(local, kind);
                    local.counters().bytes_moved.add(bytes as u64);
                    return Some(bytes);
                }
                Some(Done::Waits) => return None,
                Some(_) => return Some(0),
                // The slot has changed since it was found.
                None => {}
            }
        }
    }

    fn fate(&self, local: WorkerStore<'_>, kind: Kind, location: Location, slot: Slot) -> Fate {
        let frequency = slot.frequency();
        let own = local.shared.log.entry_of(location).queue();
        match kind {
            _ if !local.shared.evict => Fate::Move {
                queue: own,
                frequency,
            },
            Kind::Dead | Kind::Compact => Fate::Move {
                queue: own,
                frequency,
            },
            Kind::Small if frequency > self.pace.reads_ignored() => Fate::Move {
                queue: Queue::Main,
                frequency: 0,
            },
            Kind::Small => Fate::Evict { leave_ghost: true },
            Kind::Main if frequency > self.pace.reads_ignored() => Fate::Move {
                queue: Queue::Main,
                frequency: frequency - self.pace.reads_ignored() - 1,
            },
            Kind::Main => Fate::Evict { leave_ghost: false },
        }
    }

    fn count_move(&self, local: WorkerStore<'_>, kind: Kind) {
        let counters = local.counters();
        match kind {
            Kind::Small => counters.promoted.add(1),
            Kind::Main => counters.kept.add(1),
            Kind::Compact | Kind::Dead => counters.compacted.add(1),
        }
    }

    /// Copies an item for flash, or evicts it, `owner` being itself or its head. `None` if it is no longer where it
    /// was found.
    fn copy_or_evict(
        &mut self,
        local: WorkerStore<'_>,
        victim: CleanedItem,
        place: Place<'_>,
        owner: RawItem<'_>,
        leave_ghost: bool,
        now: UnixTime,
    ) -> Option<Done> {
        let patience = !self.is_late();
        if self.evicts && self.flash.is_some() {
            local.counters().flash_refused.add(1);
        } else if let Some(flash) = &mut self.flash {
            let (location, log) = (place.slot.location(), &local.shared.log);
            let departing = Departing {
                hash: victim.hash,
                location,
                item: owner,
                leaves_ghost: leave_ghost,
                now_ms: now.millis(),
                is_elsewhere: log.segment_of(location) != log.segment_of(victim.location),
            };
            match flash.copy(local, &departing, patience) {
                Copying::Into(filling) => {
                    // Until it is written there, nothing changes.
                    if owner.has_tags() {
                        local.shared.tags.note_on_flash(filling);
                    }
                    self.copied = self.copied.max(Some(filling));
                    return Some(Done::Gone);
                }
                Copying::Waits => {
                    self.waits = true;
                    return Some(Done::Waits);
                }
                Copying::Refused => {}
            }
        }
        self.evict(local, place, owner, leave_ghost, now)
            .then_some(Done::Gone)
    }

    /// Moves an item to the end of its queue, or evicts it if there is no room. False if it is no longer where
    /// it was found.
    pub(crate) fn keep_or_evict(
        &mut self,
        local: WorkerStore<'_>,
        place: Place<'_>,
        item: RawItem<'_>,
        leave_ghost: bool,
        now: UnixTime,
    ) -> bool {
        let queue = local.shared.log.entry_of(place.slot.location()).queue();
        match self.move_item(local, place, item, queue, place.slot.frequency()) {
            Done::NoRoom => self.evict(local, place, item, leave_ghost, now),
            Done::Raced => false,
            Done::Moved(bytes) => {
                local.counters().bytes_moved.add(bytes as u64);
                true
            }
            Done::Gone | Done::Waits => true,
        }
    }

    /// Evicts a live item. False if it is no longer where it was found.
    pub(crate) fn evict(
        &self,
        local: WorkerStore<'_>,
        place: Place<'_>,
        item: RawItem<'_>,
        leave_ghost: bool,
        now: UnixTime,
    ) -> bool {
        let Some(lock) = place.lock() else {
            return false;
        };
        let slot = lock.slot;
        let gone = lock.replace(if leave_ghost {
            Slot::ghost(slot.tag(), local.shared.log.clock())
        } else {
            Slot::EMPTY
        });
        local.count_eviction(slot, item, now);
        local.discard(gone);
        true
    }

    fn move_item(
        &mut self,
        local: WorkerStore<'_>,
        place: Place<'_>,
        item: RawItem<'_>,
        queue: Queue,
        frequency: u64,
    ) -> Done {
        let how = Rewrite {
            purpose: Purpose::Cleaning,
            frequency: Some(frequency),
            room_for: None,
        };
        match local.rewrite(&mut self.open[queue as usize], place, item, &how) {
            Rewritten::Done(bytes) => Done::Moved(bytes),
            Rewritten::NoRoom => Done::NoRoom,
            Rewritten::Raced => Done::Raced,
        }
    }

    fn move_piece(
        &mut self,
        local: WorkerStore<'_>,
        victim: CleanedItem,
        place: Place<'_>,
        piece: RawItem<'_>,
        head: RawItem<'_>,
        queue: Queue,
    ) -> Done {
        let store = local.shared;
        let log = &store.log;
        let open = &mut self.open[queue as usize];
        let Some(location) = local.copy_piece(open, piece) else {
            return Done::NoRoom;
        };
        let lock = place.lock();
        let entry = head.chunks().get(piece.piece_index());
        let is_doubtful = local.is_unsettled()
            && (local.is_lost(place.slot.location(), head) || local.is_piece_lost(location));
        if is_doubtful {
            drop(lock);
            local.abandon_head(location);
            local.leave_lost(open);
            if local.is_lost(place.slot.location(), head) {
                local.unlink_lost(place);
            }
            return Done::Raced;
        }
        let (Some(_lock), Some(entry)) = (lock, entry) else {
            local.abandon_head(location);
            return Done::Raced;
        };
        // Only this worker moves what is in its segment, so the entry is unchanged. Release: a
        // thread that finds the piece by this entry sees the piece.
        entry.store(location.raw(), Ordering::Release);
        log.note_dead(local.id, victim.location, victim.len);
        Done::Moved(victim.len)
    }
}

/// The result of an attempt to clean an item.
#[derive(Clone, Copy)]
enum Done {
    /// So many bytes were written elsewhere.
    Moved(usize),
    /// It was evicted, or is on its way to flash.
    Gone,
    /// It can go to flash when something has been written there.
    Waits,
    /// There is no segment to move it to.
    NoRoom,
    /// The slot changed meanwhile.
    Raced,
}
