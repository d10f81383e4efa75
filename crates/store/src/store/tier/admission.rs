//! Which of the items that memory evicts are written to flash.
//!
//! Nothing is counted while requests are served: what is asked here is asked of an item that is evicted.
//! `coua-bench admission` compares the rules on traces.

use crate::key::KeyHash;
// Whatever order the threads' changes come in, these are estimates.
use std::sync::atomic::{AtomicU64, Ordering};

/// Which items are written to flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// All of them.
    #[default]
    All,
    /// Those that were read since they were stored, or were stored again soon after an eviction.
    Read,
    /// Those, and what is evicted for the second time among a quarter to a half as many evictions as the volume holds items
    /// of 1 KiB (the doorkeeper of TinyLFU). It takes a byte of memory for 4 KiB of flash.
    Twice,
}

/// The length of flash that a word of the memory of evictions stands for.
const FLASH_PER_WORD: u64 = 8 * 4096;

/// How long a budget may be saved up for, in seconds.
const SAVED_S: u64 = 3600;

const DAY_MS: u64 = 86_400_000;

/// An item that is evicted, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) hash: KeyHash,
    pub(crate) len: usize,
    /// Whether it was read since it was stored, or belongs to those that are read again and again.
    pub(crate) was_read: bool,
    pub(crate) now_ms: u64,
}

/// Decides.
pub(crate) struct Gate {
    lens: std::ops::RangeInclusive<usize>,
    admission: Admission,
    evicted: Option<Evicted>,
    budget: Option<Budget>,
}

impl Admission {
    /// Bytes of memory that it takes for a volume of so many bytes, beside the store's.
    pub fn memory(self, flash_len: u64) -> usize {
        match self {
            Admission::All | Admission::Read => 0,
            Admission::Twice => 8 * Evicted::words_for(flash_len),
        }
    }
}

impl Gate {
    /// For a volume of `flash_len` bytes, of which `budget` may be written a day.
    pub(crate) fn new(
        lens: std::ops::RangeInclusive<usize>,
        admission: Admission,
        budget: Option<u64>,
        flash_len: u64,
    ) -> Gate {
        Gate {
            lens,
            admission,
            evicted: (admission == Admission::Twice).then(|| Evicted::new(flash_len)),
            budget: budget.map(Budget::new),
        }
    }

    /// Whether an item is written; if so, its bytes count against the budget.
    pub(crate) fn admits(&self, it: Candidate) -> bool {
        if !self.lens.contains(&it.len) {
            return false;
        }
        let is_wanted = match (self.admission, &self.evicted) {
            (Admission::All, _) => true,
            (_, Some(evicted)) => evicted.note(it.hash) | it.was_read,
            (_, None) => it.was_read,
        };
        let budget = self.budget.as_ref();
        is_wanted && budget.is_none_or(|budget| budget.spend(it))
    }
}

/// Which keys were evicted lately: two Bloom filters, one of which is filled while the other is asked too. A filter that is
/// full becomes the other one, so between one and two fillings of evictions are remembered.
struct Evicted {
    words: Box<[AtomicU64]>,
    counted: AtomicU64,
}

/// Bits of a filter for each of the evictions that fill it: one answer in five is wrong, towards writing.
const BITS_PER_EVICTION: u64 = 4;

impl Evicted {
    /// Words of both filters.
    fn words_for(flash_len: u64) -> usize {
        let words = (flash_len / FLASH_PER_WORD).clamp(64, 1 << 32);
        usize::try_from(words.next_power_of_two()).unwrap_or(1 << 32)
    }

    fn new(flash_len: u64) -> Evicted {
        let words = (0..Evicted::words_for(flash_len)).map(|_| AtomicU64::new(0));
        Evicted {
            words: words.collect(),
            counted: AtomicU64::new(0),
        }
    }

    /// Notes an eviction. Whether the key was evicted before, not long ago.
    fn note(&self, hash: KeyHash) -> bool {
        let half = self.words.len() as u64 / 2;
        let filling = half * 64 / BITS_PER_EVICTION;
        let counted = self.counted.fetch_add(1, Ordering::Relaxed);
        let (round, at) = (counted / filling, counted % filling);
        let mixed = hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let second = mixed.rotate_left(32).wrapping_mul(0x5851_f42d_4c95_7f2d);
        let bits = [mixed, second].map(|bits| (bits >> 6 & (half - 1), 1 << (bits >> 58)));
        let has = |filter: u64, set: bool| {
            let mut all = true;
            for (word, bit) in bits {
                let word = &self.words[place(filter % 2 * half + word)];
                all &= word.load(Ordering::Relaxed) & bit != 0;
                if set {
                    word.fetch_or(bit, Ordering::Relaxed);
                }
            }
            all
        };
        let was_there = has(round + 1, false) | has(round, true);
        if at == filling - 1 {
            // The older one is filled next.
            for word in 0..half {
                self.words[place((round + 1) % 2 * half + word)].store(0, Ordering::Relaxed);
            }
        }
        was_there
    }
}

#[expect(clippy::cast_possible_truncation, reason = "below the number of words")]
fn place(word: u64) -> usize {
    word as usize
}

/// Bytes that may be written a day.
struct Budget {
    a_day: u64,
    /// When everything written so far is paid for, in milliseconds.
    paid_at_ms: AtomicU64,
}

impl Budget {
    fn new(a_day: u64) -> Budget {
        Budget {
            a_day: a_day.max(1),
            paid_at_ms: AtomicU64::new(0),
        }
    }

    /// Spends an item's bytes, if there is so much. When half of what may be saved up is spent, only what was read is worth it.
    fn spend(&self, it: Candidate) -> bool {
        let paid_at = self.paid_at_ms.load(Ordering::Relaxed) / COST_UNITS;
        let ahead = paid_at.saturating_sub(it.now_ms);
        let most = SAVED_S * 1000;
        if ahead >= most || ahead >= most / 2 && !it.was_read {
            return false;
        }
        let cost = it.len as u128 * u128::from(DAY_MS * COST_UNITS) / u128::from(self.a_day);
        let cost = u64::try_from(cost).unwrap_or(u64::MAX / 2);
        let begins_at = it.now_ms * COST_UNITS;
        let spent = self
            .paid_at_ms
            .fetch_max(begins_at, Ordering::Relaxed)
            .max(begins_at);
        self.paid_at_ms
            .store(spent.saturating_add(cost), Ordering::Relaxed);
        true
    }
}

/// Parts of a millisecond in which costs are counted: an item of 64 bytes is a fraction of one.
const COST_UNITS: u64 = 1 << 20;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn candidate(n: u64, was_read: bool, now_ms: u64) -> Candidate {
        Candidate {
            hash: KeyHash(n.wrapping_mul(0xd134_2543_de82_ef95)),
            len: 1000,
            was_read,
            now_ms,
        }
    }

    #[test]
    fn the_second_eviction_is_remembered_for_a_while() {
        let flash_len = 64 << 20;
        let gate = Gate::new(0..=usize::MAX, Admission::Twice, None, flash_len);
        // As many as a filter takes: a quarter of the items of 1 KiB that flash has room for.
        let filling = flash_len / 1024 / 4;
        let admitted = |from: u64, count: u64| {
            let evicted = (from..from + count).map(|n| gate.admits(candidate(n, false, 0)));
            evicted.filter(|&admits| admits).count() as u64
        };
        let first = admitted(0, filling);
        assert!(first < filling / 8, "{first} of {filling}");
        assert_eq!(admitted(0, filling), filling);
        // Much else, and it is forgotten.
        admitted(1_000_000, 4 * filling);
        let late = admitted(0, filling);
        assert!(late < filling / 2, "{late} of {filling}");
        assert!(gate.admits(candidate(9_000_000, true, 0)));
    }

    #[test]
    fn a_budget_is_kept_over_a_day_and_what_was_read_comes_first() {
        let a_day = 24_000_000;
        let gate = Gate::new(0..=usize::MAX, Admission::All, Some(a_day), 64 << 20);
        let start = 1_000_000_000_000;
        let (mut written, mut read) = (0, 0);
        for minute in 0..24 * 60 {
            // Twenty times as much as may be written, a tenth of which was read.
            for n in 0..333 {
                let was_read = n % 10 == 0;
                if gate.admits(candidate(n, was_read, start + minute * 60_000)) {
                    written += 1000;
                    read += u64::from(was_read);
                }
            }
        }
        // An hour's may have been saved up.
        assert!((a_day..=a_day * 26 / 24).contains(&written), "{written}");
        assert!(read * 1000 > written * 8 / 10, "{read} of {written}");
    }

    #[test]
    fn lengths_and_reads_decide() {
        let gate = Gate::new(900..=1100, Admission::Read, None, 1 << 30);
        assert!(gate.admits(candidate(1, true, 0)) && !gate.admits(candidate(1, false, 0)));
        let gate = Gate::new(1001..=usize::MAX, Admission::All, None, 1 << 30);
        assert!(!gate.admits(candidate(1, true, 0)));
    }
}
