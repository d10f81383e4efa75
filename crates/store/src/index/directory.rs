//! Which sub-table a hash belongs to.
//!
//! The directory is an array of words, one for each value of the directory key's top bits, so a
//! sub-table of depth `d` fills `2^(bits-d)` neighbouring words. It has its final size from the
//! start. A directory key consists of `base_bits` hash bits that nothing else uses, followed by the
//! tag. The first `base_bits` levels cost nothing; each split beyond them spends a bit of the tag.
//!
//! ```text
//! word   63        62 61                     34 33     28 27                        0
//!        +-----------+-------------------------+---------+---------------------------+
//!        |   state   |     other sub-table     |  depth  |         sub-table         |
//!        +-----------+-------------------------+---------+---------------------------+
//! state 0  settled
//!       1  filling: its slots come over from `other`, the parent, bucket by bucket
//!       2  giving: slots of its keys' other half still stand in it, to go to `other`, the child
//!       3  merging: takes the slots of `other`, which has served the upper half of its words
//! ```
//! A sub-table is identified by its offset in the arena, in units of its own size.

use crate::key::{KeyHash, Tag};
use crate::memory::Doubled;
#[cfg(not(loom))]
use crate::memory::Twin;
use crate::sync::{AtomicU64, Ordering};
use std::ops::Range;

const TABLE_BITS: u32 = 28;
const TABLE_MASK: u64 = (1 << TABLE_BITS) - 1;
const DEPTH_SHIFT: u32 = 28;
const OTHER_SHIFT: u32 = 34;
const STATE_SHIFT: u32 = 62;

/// A sub-table's number in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableId(pub(crate) u32);

/// Whether a split or merge of the sub-table is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitState {
    Settled,
    Filling,
    Giving,
    Merging,
}

/// A word of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    pub(crate) fn new(table: TableId, depth: u32, state: SplitState, other: TableId) -> Entry {
        let state = match state {
            SplitState::Settled => 0,
            SplitState::Filling => 1,
            SplitState::Giving => 2,
            SplitState::Merging => 3,
        };
        Entry(
            u64::from(table.0)
                | (u64::from(depth) << DEPTH_SHIFT)
                | (u64::from(other.0) << OTHER_SHIFT)
                | (state << STATE_SHIFT),
        )
    }

    #[inline]
    pub(crate) fn table(self) -> TableId {
        TableId((self.0 & TABLE_MASK) as u32)
    }

    #[inline]
    pub(crate) fn other(self) -> TableId {
        TableId((self.0 >> OTHER_SHIFT & TABLE_MASK) as u32)
    }

    #[inline]
    pub(crate) fn depth(self) -> u32 {
        (self.0 >> DEPTH_SHIFT & 63) as u32
    }

    #[inline]
    pub(crate) fn is_settled(self) -> bool {
        self.0 >> STATE_SHIFT == 0
    }

    #[inline]
    pub(crate) fn is_filling(self) -> bool {
        self.0 >> STATE_SHIFT == 1
    }

    #[inline]
    pub(crate) fn is_giving(self) -> bool {
        self.0 >> STATE_SHIFT == 2
    }

    #[inline]
    pub(crate) fn is_merging(self) -> bool {
        self.0 >> STATE_SHIFT == 3
    }

    /// Whether the slots of its keys may stand in two sub-tables: it is filling or merging.
    #[inline]
    pub(crate) fn is_in_two_tables(self) -> bool {
        self.0 >> STATE_SHIFT & 1 == 1
    }

    /// The entry of `table` while nothing is under way.
    pub(crate) fn settled(table: TableId, depth: u32) -> Entry {
        Entry::new(table, depth, SplitState::Settled, table)
    }
}

/// See the module.
pub(crate) struct Directory {
    words: Doubled<AtomicU64>,
    /// Hash bits before the tag.
    base_bits: u32,
    /// All bits that choose a word: `base_bits` and those that splits may spend.
    bits: u32,
}

impl Directory {
    /// A directory over `words`, whose number is a power of two, with `base_bits` free levels.
    pub(crate) fn new(words: Doubled<AtomicU64>, base_bits: u32) -> Directory {
        assert!(words.len().is_power_of_two());
        let bits = words.len().trailing_zeros();
        assert!(bits >= base_bits && bits <= base_bits + 16 && base_bits <= 16);
        Directory {
            words,
            base_bits,
            bits,
        }
    }

    /// Levels that cost no tag bits.
    pub(crate) fn base_bits(&self) -> u32 {
        self.base_bits
    }

    /// The most levels that a sub-table can have.
    pub(crate) fn bits_max(&self) -> u32 {
        self.bits
    }

    /// Words of the directory.
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    #[inline]
    fn position(&self, hash: KeyHash) -> usize {
        let key = (u64::from(hash.base()) >> (16 - self.base_bits) << 16) | u64::from(hash.tag().0);
        #[expect(clippy::cast_possible_truncation, reason = "at most 32 bits")]
        let position = (key >> (self.base_bits + 16 - self.bits)) as usize;
        position
    }

    #[inline]
    pub(crate) fn entry(&self, hash: KeyHash) -> Entry {
        Entry(self.words.at(self.position(hash)).load(Ordering::Acquire))
    }

    /// The word that a hash belongs to.
    #[cfg(not(loom))]
    pub(crate) fn word(&self, hash: KeyHash) -> Twin<'_, AtomicU64> {
        self.words.at(self.position(hash))
    }

    /// The entry at word `position`.
    pub(crate) fn entry_at(&self, position: usize) -> Entry {
        Entry(self.words.at(position).load(Ordering::Acquire))
    }

    /// Words that a sub-table of `depth` fills.
    pub(crate) fn span(&self, depth: u32) -> usize {
        1 << (self.bits - depth)
    }

    /// Whether word `at` belongs to the upper one of two sub-tables of `depth` that were one.
    pub(crate) fn is_upper_half(&self, at: usize, depth: u32) -> bool {
        at & self.span(depth) != 0
    }

    /// Stores `entry` to all words of a sub-table of its depth, starting at word `start`.
    pub(crate) fn publish_at(&self, start: usize, entry: Entry) {
        for at in start..start + self.span(entry.depth()) {
            self.words
                .at(at)
                .store(|word| word, entry.0, Ordering::Release);
        }
    }

    /// Changes those of some words that are still `old` to `entry`. Other threads may do the same at
    /// the same time.
    pub(crate) fn change(&self, words: Range<usize>, old: Entry, entry: Entry) {
        for at in words {
            let word = self.words.at(at);
            // If the machine loses the word between its change and that of its copy, it is the old one
            // again. Whoever made the change that this is a part of returns only when both are changed.
            while word
                .compare_exchange(old.0, entry.0, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                word.follow(|word| word);
                if cfg!(loom) || word.load(Ordering::Acquire) != old.0 {
                    break;
                }
            }
            word.follow(|word| word);
        }
    }

    /// The first word of the sub-table of `depth` that serves `hash`.
    pub(crate) fn start(&self, hash: KeyHash, depth: u32) -> usize {
        self.position(hash) & !(self.span(depth) - 1)
    }

    /// The word that a slot of `tag` in a sub-table which serves `word` belongs to.
    #[inline]
    pub(crate) fn word_of(&self, word: usize, tag: Tag) -> usize {
        // The first levels are never merged, so the word's first bits are the slot's.
        let bits = self.bits - self.base_bits;
        word >> bits << bits | usize::from(tag.0) >> (16 - bits)
    }

    /// A hash that belongs to `word`'s base, with this tag and first bucket.
    pub(crate) fn hash_of(&self, word: usize, tag: Tag, first: u32) -> KeyHash {
        let base = (word >> (self.bits - self.base_bits)) as u64;
        KeyHash(u64::from(tag.0) << 48 | base << (16 - self.base_bits) << 32 | u64::from(first))
    }

    /// Whether a slot of `tag` can belong to the sub-table of `depth` whose words begin at `start`.
    pub(crate) fn serves(&self, start: usize, depth: u32, tag: Tag) -> bool {
        let spent = depth - self.base_bits;
        let wanted = start >> (self.bits - depth) & ((1 << spent) - 1);
        usize::from(tag.0) >> (16 - spent) == wanted
    }

    /// Which half a slot of `tag` belongs to when a sub-table of `depth` splits.
    #[inline]
    pub(crate) fn upper_half(&self, tag: Tag, depth: u32) -> bool {
        debug_assert!(depth >= self.base_bits);
        tag.0 >> (15 - (depth - self.base_bits)) & 1 == 1
    }
}
