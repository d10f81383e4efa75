//! Tags: names that items carry, so that all items of a name die, or become stale, at once.
//!
//! A tag has a slot in a table, and the slot has a generation. An item carries, for each of its tags,
//! the generation that it found when it was stored. To invalidate a tag is to give its slot the next
//! generation: one store, however many items there are. What carries an older one is dead from then
//! on, or stale, and is found so when somebody looks at it.
//!
//! ```text
//! an item's word   63                    32 31                        2 1       0
//!                  +-----------------------+---------------------------+---------+
//!                  |      generation       |           tag             | further |
//!                  +-----------------------+---------------------------+---------+
//! a slot           63                    32  31   30                            0
//!                  +-----------------------+----+--------------------------------+
//!                  |  present generation   | un-|    oldest that is not gone     |
//!                  |       (31 bits)       |used|                                |
//!                  +-----------------------+----+--------------------------------+
//! ```
//! A generation from the oldest to the one before the present is stale, an older one is gone. All
//! zeros mean that nothing of that slot lives: a lost page of the table loses items, and raises none.
//! Generations are drawn from the log's sequence numbers, so a slot that begins anew has none that
//! an item could carry.
//!
//! A tag is 30 bits of its name's hash. They choose the slot, so names may share one; then both are
//! invalidated together. The table has no page before the first tag is used. A page splits when a
//! quarter of its slots are used: both halves have what the page had, so no item has to change. The
//! bit "unused" says that nobody has stored with a slot since its page was split.
//!
//! When no item has tags any more, the table's pages are given back (`tags/give_back.rs`).
//!
//! # Concurrency
//! Readers load a page's number and a slot. All changes are made under one mutex, by a worker that
//! invalidates, or that stores with a slot for the first time. A reader that still reads the page
//! from before a split has begun before whatever changed a slot since, and may see it as it was.
//!
//! An operation reads the generations of a new item's tags before it looks at the old item. If the
//! tag is invalidated after that, the new item is dead when it is published, as if the operation had
//! come before; if it is invalidated before, the new item lives. What is made from an old item keeps
//! its generations, so it cannot live longer. Nothing has to be looked at again under a bucket's lock.

mod give_back;

use crate::memory::{Doubled, PageEntry, PageId, PageState, Pages, Purpose, Slice, Superblock};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering};
use give_back::Phase;
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError};

/// The most tags of an item.
pub const TAGS_MAX: usize = 4;

/// Bits of a tag that choose the table's page; the others choose the slot in it.
const PAGE_BITS: u32 = 12;

/// The part of memory that the table may take: one of 128 bytes.
const TABLE_SHARE: usize = 128;

/// A page splits when one of so many of its slots is used.
const USED_SHARE: usize = 4;

/// A slot that nobody has stored with since its page was split.
const UNUSED: u64 = 1 << 31;

/// A bit of a page's number in the list of pages: nobody stores with the page's slots before the table is
/// open again.
const CLOSED: u32 = 1 << 31;

/// The bits of a tag's number.
const NUMBER: u64 = (1 << Tag::BITS) - 1;

/// The bits of a generation.
const GENERATION: u64 = UNUSED - 1;

/// A tag: what the store keeps of a name. Made by [`Store::tag`](crate::Store::tag).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(NonZeroU32);

impl Tag {
    /// Bits of a tag's number.
    pub(crate) const BITS: u32 = 30;

    pub(crate) fn of_hash(hash: u64) -> Tag {
        let bits = (hash >> 34) as u32;
        Tag(NonZeroU32::new(bits).unwrap_or(NonZeroU32::MIN))
    }

    /// The number by which the store knows the name: 30 bits, the same as long as the store lives.
    pub fn number(self) -> u32 {
        self.0.get()
    }
}

/// The tags of an item to be stored.
pub type Tags = [Option<Tag>; TAGS_MAX];

/// No tags.
pub const NO_TAGS: Tags = [None; TAGS_MAX];

/// A tag as an item carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct TagWord(u64);

impl TagWord {
    /// The number of the tag.
    pub(crate) fn number(self) -> u32 {
        (self.0 >> 2 & NUMBER) as u32
    }

    fn generation(self) -> u64 {
        self.0 >> 32
    }

    /// How many tags an item has whose first word begins with these four bytes.
    pub(crate) fn count(low: u32) -> usize {
        (low & 3) as usize + 1
    }

    pub(crate) fn to_ne_bytes(self) -> [u8; 8] {
        self.0.to_ne_bytes()
    }

    pub(crate) fn from_ne_bytes(bytes: [u8; 8]) -> TagWord {
        TagWord(u64::from_ne_bytes(bytes))
    }
}

/// The words of an item to be written: at most [`TAGS_MAX`].
#[derive(Clone, Copy, Default)]
pub(crate) struct TagWords {
    words: [TagWord; TAGS_MAX],
    len: usize,
}

impl TagWords {
    pub(crate) const NONE: TagWords = TagWords {
        words: [TagWord(0); TAGS_MAX],
        len: 0,
    };

    /// Words with generations that follow from the tags.
    #[cfg(test)]
    pub(crate) fn for_tests(tags: &[u32]) -> TagWords {
        let mut words = TagWords::NONE;
        for &tag in tags {
            words.push(tag, u64::from(tag.wrapping_mul(77)) & GENERATION);
        }
        words
    }

    /// The same words again.
    pub(crate) fn of(words: impl Iterator<Item = TagWord>) -> TagWords {
        let mut same = TagWords::NONE;
        for word in words {
            same.push(word.number(), word.generation());
        }
        same
    }

    fn push(&mut self, tag: u32, generation: u64) {
        self.words[self.len] = TagWord(generation << 32 | u64::from(tag) << 2);
        self.len += 1;
        // The first word says how many follow it.
        self.words[0].0 = self.words[0].0 & !3 | (self.len - 1) as u64;
    }
}

impl std::ops::Deref for TagWords {
    type Target = [TagWord];

    fn deref(&self) -> &[TagWord] {
        &self.words[..self.len]
    }
}

/// How an item stands to its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// None of them was invalidated since it was stored.
    Fresh,
    /// One of them was made stale.
    Stale,
    /// One of them was made gone.
    Gone,
}

/// What becomes of the items of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// They are gone, as if each had been deleted (`md`).
    Gone,
    /// They are stale, as if each had been marked so (`md I`).
    Stale,
}

/// The table of generations. See the module.
pub(crate) struct Generations {
    /// All of the arena as slots.
    slots: Slice<AtomicU64>,
    page_slots: usize,
    superblock: Doubled<Superblock>,
    entries: Doubled<PageEntry>,
    free: Arc<Pages>,
    /// The page for each of the lowest bits of a tag; 0 for none.
    pages: Box<[AtomicU32]>,
    table_pages: AtomicUsize,
    /// The generation drawn last, for the crawler; 0 if none was.
    latest: AtomicU32,
    parts: Mutex<Parts>,
    /// Whether a segment has got its first item with tags since somebody last asked.
    is_stirred: AtomicU32,
    /// The latest filling on flash that an item with tags was copied into; 0 for none.
    on_flash: AtomicU64,
}

/// What the mutex guards.
#[derive(Default)]
struct Parts {
    all: Vec<Part>,
    /// How far the table is on its way out.
    phase: Phase,
}

/// A page of the table.
struct Part {
    page: PageId,
    /// The bits that all tags of the page end with, and how many they are.
    prefix: usize,
    depth: u32,
    /// Slots that items were stored with since the page was made.
    used: usize,
}

impl Generations {
    /// The table in an arena: empty, or with what the previous process has left. `slots` is all of the
    /// arena.
    pub(crate) fn new(
        superblock: Doubled<Superblock>,
        entries: Doubled<PageEntry>,
        free: Arc<Pages>,
        slots: Slice<AtomicU64>,
    ) -> Generations {
        let most = (entries.len() / TABLE_SHARE).clamp(1, 1 << PAGE_BITS);
        let table = Generations {
            page_slots: free.page_len() / size_of::<u64>(),
            slots,
            superblock,
            entries,
            free,
            pages: (0..1usize << most.ilog2())
                .map(|_| AtomicU32::new(0))
                .collect(),
            table_pages: AtomicUsize::new(0),
            latest: AtomicU32::new(0),
            parts: Mutex::new(Parts::default()),
            is_stirred: AtomicU32::new(0),
            on_flash: AtomicU64::new(0),
        };
        let mut left: Vec<Part> = (0..table.entries.len())
            .filter(|&page| table.entries.at(page).state() == PageState::Tags)
            .map(|page| table.part_left(page))
            .collect();
        if !left.iter().any(|part| part.depth == 0) {
            // The process before was giving it back.
            table.free_pages(std::mem::take(&mut left));
        }
        if !left.is_empty() {
            // Something may have been invalidated that no crawl has seen.
            table.latest.store(1, Ordering::Relaxed);
        }
        left.sort_by_key(|part| part.depth);
        let mut parts = table.parts();
        for part in left {
            table.adopt(&mut parts.all, part);
        }
        drop(parts);
        table
    }

    #[expect(clippy::cast_possible_truncation, reason = "page numbers are 32 bits")]
    fn part_left(&self, page: usize) -> Part {
        let (prefix, depth) = self.entries.at(page).tags_part();
        let page = page as PageId;
        let is_used = |slot: usize| {
            let slot = self.at(page, slot).load(Ordering::Relaxed);
            slot != 0 && slot & UNUSED == 0
        };
        Part {
            page,
            prefix,
            depth,
            used: (0..self.page_slots).filter(|&slot| is_used(slot)).count(),
        }
    }

    /// The pages of the table.
    pub(crate) fn page_count(&self) -> usize {
        self.table_pages.load(Ordering::Relaxed)
    }

    /// The generation that was drawn last.
    pub(crate) fn latest(&self) -> u32 {
        self.latest.load(Ordering::Relaxed)
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn at(&self, page: PageId, slot: usize) -> &AtomicU64 {
        // loom has few atomics, and no memory behind them.
        #[cfg(loom)]
        return &self.slots[(page as usize ^ slot) % self.slots.len()];
        #[cfg(not(loom))]
        &self.slots[page as usize * self.page_slots + slot]
    }

    /// The slot of a tag; `None` if its page does not exist.
    #[inline]
    fn slot(&self, tag: u32) -> Option<&AtomicU64> {
        let number = tag as usize & (self.pages.len() - 1);
        // Acquire: the page's slots have been written.
        let page = self.pages[number].load(Ordering::Acquire) & !CLOSED;
        let slot = (tag >> PAGE_BITS) as usize & (self.page_slots - 1);
        (page != 0).then(|| self.at(page, slot))
    }

    /// The present generation of a slot, 0 for none.
    fn read(&self, tag: u32) -> u64 {
        self.slot(tag)
            .map_or(0, |slot| slot.load(Ordering::Acquire))
    }

    /// How an item with these words stands.
    pub(crate) fn standing(&self, words: impl Iterator<Item = TagWord>) -> Standing {
        words
            .map(|word| standing(word.generation(), self.read(word.number())))
            .max()
            .unwrap_or(Standing::Fresh)
    }

    /// The words of an item with these tags that is stored now. `None` if there is no page for the
    /// table.
    pub(crate) fn words(&self, tags: &Tags) -> Option<TagWords> {
        let mut words = TagWords::NONE;
        for tag in tags.iter().flatten() {
            let slot = self.read(tag.number());
            let generation = match slot & UNUSED {
                0 if slot != 0 && !self.is_closed(tag.number()) => slot >> 32,
                _ => self.use_slot(tag.number())?,
            };
            words.push(tag.number(), generation);
        }
        Some(words)
    }

    /// The same tags, as of now. `None` if one of them is gone.
    pub(crate) fn renewed(&self, words: impl Iterator<Item = TagWord>) -> Option<TagWords> {
        let mut renewed = TagWords::NONE;
        for word in words {
            let slot = self.read(word.number());
            if standing(word.generation(), slot) == Standing::Gone {
                return None;
            }
            renewed.push(word.number(), slot >> 32);
        }
        Some(renewed)
    }

    /// Makes a slot a used one, and returns its generation. `None` if there is no page for it.
    #[cold]
    fn use_slot(&self, tag: u32) -> Option<u64> {
        let mut parts = self.parts();
        self.reopen(&mut parts);
        let parts = &mut parts.all;
        if self.slot(tag).is_none() {
            self.make_first_page(parts)?;
        }
        let slot = self.slot(tag)?;
        let was = slot.load(Ordering::Relaxed);
        let is = match was {
            0 => {
                let drawn = self.draw();
                drawn << 32 | drawn
            }
            _ => was & !UNUSED,
        };
        if is != was {
            slot.store(is, Ordering::Release);
            let number = tag as usize & (self.pages.len() - 1);
            let page = self.pages[number].load(Ordering::Relaxed);
            let part = parts.iter().position(|part| part.page == page)?;
            parts[part].used += 1;
            if parts[part].used > self.page_slots / USED_SHARE
                && 1 << parts[part].depth < self.pages.len()
            {
                self.split(parts, part);
            }
        }
        Some(is >> 32)
    }

    /// Invalidates a tag.
    pub(crate) fn invalidate(&self, tag: Tag, how: Invalidation) {
        let _parts = self.parts();
        let Some(slot) = self.slot(tag.number()) else {
            return;
        };
        let was = slot.load(Ordering::Relaxed);
        if was == 0 {
            // No item of it lives.
            return;
        }
        let drawn = self.draw();
        let oldest = match how {
            Invalidation::Gone => drawn,
            // What is stale may not be so old that its generation comes again.
            Invalidation::Stale if distance(drawn, was & GENERATION) > GENERATION / 2 => {
                drawn.wrapping_sub(GENERATION / 2) & GENERATION
            }
            Invalidation::Stale => was & GENERATION,
        };
        slot.store(drawn << 32 | was & UNUSED | oldest, Ordering::Release);
    }

    /// A generation that no slot has had.
    fn draw(&self) -> u64 {
        loop {
            let number = self.superblock.at(0).draw() & GENERATION;
            if number != 0 {
                self.latest.store(number as u32, Ordering::Relaxed);
                return number;
            }
        }
    }

    fn make_first_page(&self, parts: &mut Vec<Part>) -> Option<()> {
        let page = self.free.take(Purpose::Tags)?;
        for slot in 0..self.page_slots {
            self.at(page, slot).store(0, Ordering::Relaxed);
        }
        let part = Part {
            page,
            prefix: 0,
            depth: 0,
            used: 0,
        };
        self.entries
            .at(page as usize)
            .begin_tags(part.prefix, part.depth);
        self.adopt(parts, part);
        Some(())
    }

    /// Has all tags that end with a part's prefix lead to its page.
    fn list(&self, part: &Part) {
        let mask = (1 << part.depth) - 1;
        for number in (0..self.pages.len()).filter(|number| number & mask == part.prefix) {
            self.pages[number].store(part.page, Ordering::Release);
        }
    }

    /// Splits a page, if there is another one for its upper half.
    fn split(&self, parts: &mut Vec<Part>, at: usize) {
        let Some(page) = self.free.take(Purpose::Tags) else {
            return;
        };
        let Part {
            page: old,
            prefix,
            depth,
            ..
        } = parts[at];
        for slot in 0..self.page_slots {
            let was = self.at(old, slot).load(Ordering::Relaxed);
            let copy = if was == 0 { 0 } else { was | UNUSED };
            self.at(page, slot).store(copy, Ordering::Relaxed);
            self.at(old, slot).store(copy, Ordering::Release);
        }
        parts[at].used = 0;
        let part = Part {
            page,
            prefix: prefix | 1 << depth,
            depth: depth + 1,
            used: 0,
        };
        // This store makes it count for the next process; before it the page is a free one.
        self.entries
            .at(page as usize)
            .begin_tags(part.prefix, part.depth);
        self.adopt(parts, part);
    }

    /// Makes a page the one of all tags that end with its prefix. The page that had them keeps those
    /// that end with the other half.
    fn adopt(&self, parts: &mut Vec<Part>, part: Part) {
        if part.depth > 0 {
            let kept = part.prefix ^ 1 << (part.depth - 1);
            let page = self.pages[kept & (self.pages.len() - 1)].load(Ordering::Relaxed);
            if let Some(parent) = parts.iter_mut().find(|parent| parent.page == page) {
                parent.depth = part.depth;
                parent.prefix = kept;
            }
        }
        self.list(&part);
        parts.push(part);
        self.table_pages.store(parts.len(), Ordering::Relaxed);
    }
}

/// How many generations lie between two.
fn distance(from: u64, to: u64) -> u64 {
    from.wrapping_sub(to) & GENERATION
}

/// How a generation stands to its tag's slot.
fn standing(generation: u64, slot: u64) -> Standing {
    let (present, oldest) = (slot >> 32, slot & GENERATION);
    if slot == 0 {
        Standing::Gone
    } else if generation == present {
        Standing::Fresh
    } else if distance(present, generation) <= distance(present, oldest) {
        Standing::Stale
    } else {
        Standing::Gone
    }
}
