//! Frees segments without live items without reading them.
//!
//! Every item is noted dead once, by the worker that unlinked it, so no slot points into a segment
//! whose bytes are all dead (`segment/dead_bytes.rs`). When few keys are written again and again,
//! most segments come to that. Freeing them at once keeps the memory in use small, and warm in the
//! caches, however much memory there is.

use super::Cleaner;
use crate::memory::PageId;
use crate::memory::PageState;
use crate::worker_store::WorkerStore;

/// Segments looked at in a slice.
const LOOK: u32 = 2;

impl Cleaner {
    /// Looks at the next few segments, among those that have ever been used, and frees the dead
    /// ones.
    pub(super) fn free_dead(&mut self, local: WorkerStore<'_>) {
        let log = &local.shared.log;
        let touched = log.pages().touched_pages().min(log.segment_count());
        for _ in 0..LOOK.min(touched) {
            self.look_for_dead = (self.look_for_dead + 1) % touched;
            let segment = self.look_for_dead;
            let entry = log.entry(segment);
            // Pieces die with their heads, which are noted in another segment, and later.
            let may_be_dead = entry.state() == PageState::Sealed
                && !entry.has_pieces()
                && entry.may_be_cleaned()
                && log.is_all_dead(segment);
            // Another worker may have taken it by now.
            if may_be_dead && log.queues().remove(segment) {
                debug_assert!(
                    local.shared.has_foreign_items() || nothing_points_into(local, segment),
                    "a dead item lives"
                );
                local.counters().segments_dead.add(1);
                log.retire(segment, &local.shared.epochs);
            }
        }
    }
}

/// Whether no slot points into a segment: looks up all of its items.
fn nothing_points_into(local: WorkerStore<'_>, segment: PageId) -> bool {
    let log = &local.shared.log;
    let mut offset = 0;
    while offset < log.entry(segment).used() {
        let found = log.item_in(local.guard(), segment, offset, log.entry(segment).used());
        let Some((location, item)) = found.filter(|_| !local.is_damaged(segment)) else {
            return true;
        };
        let hash = local.shared.hasher.hash(item.key());
        if local
            .shared
            .index
            .find(hash, |slot| slot.location() == location)
            .is_some()
        {
            return false;
        }
        offset += item.total_len();
    }
    true
}
