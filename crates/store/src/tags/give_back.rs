//! Gives the table's memory back when no item has a tag any more.
//!
//! Each segment's entry says whether an item with tags may live there. When none says so, the next store
//! with a tag may begin a new table as well as go on with this one: generations are never drawn twice, so
//! no item that was gone has one of the new table's.
//!
//! # Concurrency
//! Nobody counts items with tags. A thread looks at all segments, some at a time, and must not miss an
//! item that moves behind its back, or that is being stored:
//!
//! 1. *Looking.* It begins by lowering [`Generations::is_stirred`], which whoever notes the first item
//!    with tags in a segment raises, after the note and before the item can be found. A segment that is
//!    seen with tags, or the flag, begins the look anew.
//! 2. *Closed.* The pages in the list are marked, so that whoever stores with a tag takes the mutex first
//!    and opens the table again. After a grace period all that have read a generation before have noted
//!    it, so if the flag is still down, no item with tags lives or is about to.
//! 3. *Unlisted.* No tag leads to a page any more. After another grace period nobody reads one, and all
//!    are freed under the mutex. Until then a store lists them again, as they are: nothing of them was
//!    to be invalidated meanwhile.
//!
//! What is on flash is not looked at: the table stays until the last filling is gone that an item with
//! tags went to.
//!
//! # A process that dies meanwhile
//! The first two steps change nothing in the arena. Of the third, the page that was made first is freed
//! first. The others all came from splitting it, and without it the next process frees them
//! too.

use super::{CLOSED, Generations, Part, Parts};
use crate::epoch::{Epoch, Epochs};
use crate::memory::{PageEntry, PageId};
use crate::sync::Ordering;

/// Segments looked at in a step: some ten microseconds.
const SLICE: usize = 4096;

/// How far the table is on its way out.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    /// The last `clean` segments before `next` had no tags.
    Looking { next: usize, clean: usize },
    /// Those that store with tags open it again.
    Closed(Epoch),
    /// No tag leads to a page.
    Unlisted(Epoch),
}

impl Default for Phase {
    fn default() -> Phase {
        Phase::Looking { next: 0, clean: 0 }
    }
}

impl Generations {
    /// Notes that an item with tags is being stored in a segment. To be called before it can be found.
    #[inline]
    pub(crate) fn note_in(&self, segment: &PageEntry) {
        if segment.set_has_tags() {
            // Release: who sees it sees the segment's note.
            self.is_stirred.store(1, Ordering::Release);
        }
    }

    /// Notes that an item with tags goes to a filling on flash. To be called before its segment is
    /// emptied.
    pub(crate) fn note_on_flash(&self, filling: u64) {
        self.on_flash.fetch_max(filling, Ordering::AcqRel);
    }

    /// Goes a step towards giving the table back, if nothing uses it. To be called once a second, with
    /// whether flash has a filling of a number or an older one.
    pub(crate) fn give_back_unused(&self, epochs: &Epochs, is_on_flash: impl Fn(u64) -> bool) {
        if self.page_count() == 0 {
            return;
        }
        let mut parts = self.parts();
        match parts.phase {
            Phase::Looking { next, clean } => {
                let (next, clean) = self.look(next, clean);
                parts.phase = Phase::Looking { next, clean };
                if clean == self.entries.len() && !self.may_be_used(&is_on_flash) {
                    for page in &self.pages {
                        let number = page.load(Ordering::Relaxed);
                        page.store(number | CLOSED, Ordering::Release);
                    }
                    parts.phase = Phase::Closed(epochs.advance());
                }
            }
            Phase::Closed(epoch) if epochs.is_over(epoch) => {
                if self.may_be_used(&is_on_flash) {
                    self.reopen(&mut parts);
                    return;
                }
                for page in &self.pages {
                    page.store(0, Ordering::Release);
                }
                parts.phase = Phase::Unlisted(epochs.advance());
            }
            Phase::Unlisted(epoch) if epochs.is_over(epoch) => {
                let Parts { all, .. } = std::mem::take(&mut *parts);
                self.table_pages.store(0, Ordering::Relaxed);
                self.free_pages(all);
            }
            Phase::Closed(_) | Phase::Unlisted(_) => {}
        }
    }

    /// Looks at some segments. Returns how far it has come.
    fn look(&self, mut next: usize, mut clean: usize) -> (usize, usize) {
        if self.is_stirred.fetch_min(0, Ordering::AcqRel) != 0 {
            clean = 0;
        }
        for _ in 0..SLICE.min(self.entries.len() - clean) {
            if self.entries.at(next).may_have_tags() {
                // It is looked at again first: while it has tags, no other needs to be.
                return (next, 0);
            }
            clean += 1;
            next = (next + 1) % self.entries.len();
        }
        (next, clean)
    }

    /// Whether an item with tags may have come since the look began, or be on flash.
    fn may_be_used(&self, is_on_flash: impl Fn(u64) -> bool) -> bool {
        // Flash first: what comes back from there raises the flag before it is gone there.
        let latest = self.on_flash.load(Ordering::Acquire);
        latest != 0 && is_on_flash(latest) || self.is_stirred.load(Ordering::Acquire) != 0
    }

    /// Whether the table is on its way out.
    #[inline]
    pub(super) fn is_closed(&self, tag: u32) -> bool {
        let number = tag as usize & (self.pages.len() - 1);
        self.pages[number].load(Ordering::Acquire) & CLOSED != 0
    }

    /// Has the table go on, if it was on its way out.
    pub(super) fn reopen(&self, parts: &mut Parts) {
        if matches!(parts.phase, Phase::Closed(_) | Phase::Unlisted(_)) {
            parts.all.iter().for_each(|part| self.list(part));
        }
        parts.phase = match parts.phase {
            Phase::Closed(_) | Phase::Unlisted(_) => Phase::default(),
            looking @ Phase::Looking { .. } => looking,
        };
    }

    /// Frees the table's pages, the first one first. Nobody reads them any more.
    pub(super) fn free_pages(&self, parts: Vec<Part>) {
        let mut pages: Vec<PageId> = parts.into_iter().map(|part| part.page).collect();
        // The depth that a page was made with: its entry does not follow when it splits.
        pages.sort_by_key(|&page| self.entries.at(page as usize).tags_part().1);
        for &page in &pages {
            self.entries.at(page as usize).end();
        }
        for page in pages {
            self.free.give_back(page);
        }
    }
}
