//! Memory with flash below it, by item: which items are written there, and what the oldest segment leaves behind.
//!
//! Memory is S3-FIFO as coua's store has it: a small queue of a tenth, a main one, ghosts as many as memory has items.
//! Flash is a log of segments; the oldest is dropped when it is full. An item that is read there twice comes back to memory
//! if [`Recalls`] lets it.
//! Bytes count in items, all of which are of one length.

use std::collections::VecDeque;

use super::stream::Stream;

/// Which of the items that memory evicts are written to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// All of them.
    All,
    /// Those that were read since they were stored, or that came back soon after an eviction.
    Read,
    /// Those, and what is evicted for the second time among a quarter to a half as many evictions as flash has items.
    Twice,
}

impl Admission {
    /// All of them.
    pub(crate) const EACH: [Admission; 3] = [Admission::All, Admission::Read, Admission::Twice];
}

/// How a tier is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// What is written.
    pub(crate) admission: Admission,
    /// Items that may be written for 1000 requests; 0 for no limit.
    pub(crate) budget: u64,
    /// Whether what was read since it was written is written again before the oldest segment is dropped.
    pub(crate) second_chance: bool,
    /// Which items that are read on flash come back to memory.
    pub(crate) recalls: Recalls,
}

/// Which items that are read on flash come back to memory. Each leaves a dead record there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recalls {
    /// What is read for the second time.
    All,
    /// Of these one for so many written items at most, once half of flash is written, as in the store.
    Share(u64),
}

/// What came of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Gets.
    pub(crate) gets: u64,
    /// Those answered from memory.
    pub(crate) memory_hits: u64,
    /// Those answered from flash.
    pub(crate) flash_hits: u64,
    /// Items written to flash.
    pub(crate) written: u64,
    /// Those of them that were there before.
    pub(crate) rewritten: u64,
    /// Items that came back to memory.
    pub(crate) recalled: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Small,
    Main,
    /// In this segment, counted from the first.
    Flash(u64),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: Place,
    frequency: u8,
    was_read: bool,
    /// The number of the eviction that left a ghost, from 1.
    ghost: u64,
    /// The number of its last eviction.
    evicted: u64,
}

/// A tier over keys from 0.
pub(crate) struct Tier {
    rules: Rules,
    entries: Vec<Entry>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    memory: usize,
    evictions: u64,
    segments: VecDeque<Vec<u32>>,
    first_segment: u64,
    segment_len: usize,
    segments_max: usize,
    /// Evictions after which what was remembered of those before the last so many is forgotten.
    filling: u64,
    /// Items that may still be written, in thousandths.
    tokens: u64,
    /// Written items that no recall was counted against.
    unspent: u64,
    counts: Counts,
}

/// Items of a segment: a volume has this many segments at least.
const SEGMENTS_MIN: usize = 64;

/// Reads of a budget that may be saved up.
const SAVED_REQUESTS: u64 = 10_000;

const FREQUENCY_MAX: u8 = 3;

impl Tier {
    /// `memory` and `flash` items, of keys below `keys`.
    pub(crate) fn new(keys: u32, memory: usize, flash: usize, rules: Rules) -> Tier {
        let segment_len = (flash / SEGMENTS_MIN).clamp(1, 1024);
        let empty = Entry {
            place: Place::Nowhere,
            frequency: 0,
            was_read: false,
            ghost: 0,
            evicted: 0,
        };
        Tier {
            rules,
            entries: vec![empty; keys as usize],
            small: VecDeque::new(),
            main: VecDeque::new(),
            memory: memory.max(2),
            evictions: 0,
            segments: VecDeque::from([Vec::new()]),
            first_segment: 0,
            segment_len,
            segments_max: (flash / segment_len).max(2),
            filling: (flash as u64 / 4).max(1),
            tokens: 0,
            unspent: 0,
            counts: Counts::default(),
        }
    }

    /// Replays a stream.
    pub(crate) fn replay(mut self, stream: &Stream) -> Counts {
        for (index, request) in stream.requests.iter().enumerate() {
            let most = self.rules.budget * SAVED_REQUESTS;
            self.tokens = (self.tokens + self.rules.budget).min(most);
            if index == stream.warm_up {
                self.counts = Counts::default();
            }
            if request.set {
                self.store(request.key);
                continue;
            }
            self.counts.gets += 1;
            match self.entry(request.key).place {
                Place::Nowhere => self.store(request.key),
                Place::Small | Place::Main => {
                    self.counts.memory_hits += 1;
                    self.warm(request.key);
                }
                Place::Flash(_) => {
                    self.counts.flash_hits += 1;
                    let comes_back = self.entry(request.key).frequency > 0 && self.may_recall();
                    self.warm(request.key);
                    if comes_back {
                        self.counts.recalled += 1;
                        self.insert(request.key, Place::Main);
                    }
                }
            }
        }
        self.counts
    }

    fn entry(&mut self, key: u32) -> &mut Entry {
        &mut self.entries[key as usize]
    }

    fn may_recall(&mut self) -> bool {
        let Recalls::Share(share) = self.rules.recalls else {
            return true;
        };
        if self.segments.len() * 2 < self.segments_max {
            return true;
        }
        let may = self.unspent >= share;
        self.unspent -= if may { share } else { 0 };
        may
    }

    fn warm(&mut self, key: u32) {
        let entry = self.entry(key);
        entry.frequency = (entry.frequency + 1).min(FREQUENCY_MAX);
        entry.was_read = true;
    }

    /// Stores an item, whether or not there is one.
    fn store(&mut self, key: u32) {
        let (evictions, memory) = (self.evictions, self.memory as u64);
        let entry = self.entry(key);
        match entry.place {
            Place::Small | Place::Main => return,
            Place::Nowhere | Place::Flash(_) => {}
        }
        let is_ghost = entry.ghost > 0 && evictions - entry.ghost <= memory;
        (entry.frequency, entry.was_read) = (0, false);
        let place = if is_ghost { Place::Main } else { Place::Small };
        self.insert(key, place);
    }

    fn insert(&mut self, key: u32, place: Place) {
        while self.small.len() + self.main.len() >= self.memory {
            self.evict();
        }
        self.entry(key).place = place;
        match place {
            Place::Main => self.main.push_back(key),
            _ => self.small.push_back(key),
        }
    }

    fn evict(&mut self) {
        let from_small = self.small.len() * 10 >= self.memory || self.main.is_empty();
        let queue = if from_small {
            &mut self.small
        } else {
            &mut self.main
        };
        let Some(key) = queue.pop_front() else { return };
        let frequency = self.entry(key).frequency;
        if frequency > 0 {
            self.entry(key).frequency = if from_small { 0 } else { frequency - 1 };
            self.entry(key).place = Place::Main;
            self.main.push_back(key);
            return;
        }
        self.evictions += 1;
        let evictions = self.evictions;
        if self.is_admitted(key, !from_small) {
            self.write(key);
            return;
        }
        let entry = self.entry(key);
        entry.place = Place::Nowhere;
        if from_small {
            entry.ghost = evictions;
        }
    }

    fn is_admitted(&mut self, key: u32, is_of_main: bool) -> bool {
        let was_read = self.entry(key).was_read || is_of_main;
        let is_wanted = match self.rules.admission {
            Admission::All => true,
            Admission::Read => was_read,
            Admission::Twice => {
                let round = self.evictions / self.filling;
                let now = self.evictions;
                let before = std::mem::replace(&mut self.entry(key).evicted, now);
                was_read || before > 0 && before / self.filling + 1 >= round
            }
        };
        if !is_wanted || self.rules.budget == 0 {
            return is_wanted;
        }
        // When half of what may be saved up is used, only what was read is written.
        let is_scarce = self.tokens < self.rules.budget * SAVED_REQUESTS / 2;
        let may = self.tokens >= 1000 && (was_read || !is_scarce);
        self.tokens -= if may { 1000 } else { 0 };
        may
    }

    fn write(&mut self, key: u32) {
        let segment = self.first_segment + self.segments.len() as u64 - 1;
        self.entry(key).place = Place::Flash(segment);
        self.counts.written += 1;
        if let Recalls::Share(share) = self.rules.recalls {
            let most = share * self.segment_len as u64;
            self.unspent = (self.unspent + 1).min(most);
        }
        let Some(open) = self.segments.back_mut() else {
            return;
        };
        open.push(key);
        if open.len() < self.segment_len {
            return;
        }
        self.segments
            .push_back(Vec::with_capacity(self.segment_len));
        while self.segments.len() > self.segments_max {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let gone = Place::Flash(self.first_segment);
        let Some(keys) = self.segments.pop_front() else {
            return;
        };
        self.first_segment += 1;
        for key in keys {
            let second_chance = self.rules.second_chance;
            let entry = self.entry(key);
            if entry.place != gone {
                continue;
            }
            if second_chance && entry.frequency > 0 {
                entry.frequency -= 1;
                self.counts.rewritten += 1;
                self.write(key);
            } else {
                entry.place = Place::Nowhere;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Rules = Rules {
        admission: Admission::All,
        budget: 0,
        second_chance: false,
        recalls: Recalls::All,
    };

    fn cycle(keys: u64, rounds: u64) -> Stream {
        let requests = (0..keys * rounds).map(|at| (at % keys, false));
        Stream::new("cycle", requests, usize::try_from(keys).unwrap())
    }

    #[test]
    fn what_fits_into_both_is_always_found() {
        let counts = Tier::new(1000, 100, 2000, ALL).replay(&cycle(1000, 10));
        assert_eq!(counts.memory_hits + counts.flash_hits, counts.gets);
        assert!(counts.flash_hits > counts.gets / 2, "{counts:?}");
    }

    #[test]
    fn reads_alone_lose_nothing_if_recalls_are_paid_for() {
        let mut random = 1_u64;
        let reads = (0..100_000).map(|at| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let key = if at < 1000 { at } else { (random >> 33) % 1000 };
            (key, false)
        });
        let reads = Stream::new("reads", reads, 1000);
        let found = |recalls| {
            let rules = Rules { recalls, ..ALL };
            let counts = Tier::new(1000, 100, 2500, rules).replay(&reads);
            (counts.memory_hits + counts.flash_hits, counts.gets)
        };
        let (hits, gets) = found(Recalls::Share(2));
        assert_eq!(hits, gets);
        let (hits, gets) = found(Recalls::All);
        assert!(hits < gets, "{hits} of {gets}");
    }

    #[test]
    fn what_is_never_read_is_not_written_where_reads_admit() {
        let rules = Rules {
            admission: Admission::Read,
            ..ALL
        };
        let once = Stream::new("once", (0..5000).map(|key| (key, false)), 0);
        assert_eq!(Tier::new(5000, 100, 1000, rules).replay(&once).written, 0);
        let all = Tier::new(5000, 100, 1000, ALL).replay(&once).written;
        assert!(all > 4800, "{all}");
    }

    #[test]
    fn a_budget_is_kept() {
        let rules = Rules { budget: 100, ..ALL };
        let once = Stream::new("once", (0..100_000).map(|key| (key, false)), 0);
        let written = Tier::new(100_000, 100, 1000, rules).replay(&once).written;
        assert!((5000..=10_000).contains(&written), "{written}");
    }

    #[test]
    fn a_second_chance_writes_again() {
        let rules = Rules {
            second_chance: true,
            ..ALL
        };
        // Keys that come again and again, among such that never do.
        let requests = (0..60_000u64).map(|at| match at % 2 {
            0 => (at / 2 % 450, false),
            _ => (1_000_000 + at, false),
        });
        let stream = Stream::new("again", requests, 0);
        let without = Tier::new(stream.keys, 50, 1000, ALL).replay(&stream);
        let with = Tier::new(stream.keys, 50, 1000, rules).replay(&stream);
        assert!(without.rewritten == 0 && with.rewritten > 0, "{with:?}");
        assert!(with.flash_hits > without.flash_hits, "{with:?} {without:?}");
    }
}
