//! S3-FIFO exactly as published (SOSP 2023), by item.
//!
//! New keys enter a small queue of a tenth of the capacity. At its front, a key that was asked for
//! at least twice since goes to the main queue. Other keys leave and are remembered as ghosts, as
//! many as the main queue holds. A key that is remembered enters the main queue at once. At the
//! front of the main queue, a key whose frequency is not 0 goes to the back with one less.
//! Frequencies stop at 3.

use std::collections::VecDeque;

use super::Cache;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Small,
    Main,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: Place,
    frequency: u8,
    /// The number of the ghost that remembers the key; 0 if none does.
    ghost: u64,
}

/// Both queues and the ghosts.
#[derive(Debug)]
pub(crate) struct S3Fifo {
    entries: Vec<Entry>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// With their numbers, since a key that comes back leaves its old ghost in the queue.
    ghosts: VecDeque<(u32, u64)>,
    ghosts_alive: usize,
    ghosts_made: u64,
    capacity: usize,
}

impl S3Fifo {
    const FREQUENCY_MAX: u8 = 3;
    /// How many requests after the first take a key from the small queue to the main one.
    const PROMOTION: u8 = 2;

    /// Holds `capacity` items (two at least) with keys below `keys`.
    pub(crate) fn new(keys: u32, capacity: usize) -> S3Fifo {
        S3Fifo {
            entries: vec![
                Entry {
                    place: Place::Nowhere,
                    frequency: 0,
                    ghost: 0
                };
                keys as usize
            ],
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            ghosts_alive: 0,
            ghosts_made: 0,
            capacity: capacity.max(2),
        }
    }

    fn small_capacity(&self) -> usize {
        (self.capacity / 10).max(1)
    }

    fn evict_from_small(&mut self) {
        while let Some(key) = self.small.pop_front() {
            let entry = &mut self.entries[key as usize];
            if entry.frequency >= Self::PROMOTION {
                (entry.place, entry.frequency) = (Place::Main, 0);
                self.main.push_back(key);
            } else {
                entry.place = Place::Nowhere;
                self.remember(key);
                return;
            }
        }
    }

    fn evict_from_main(&mut self) {
        while let Some(key) = self.main.pop_front() {
            let entry = &mut self.entries[key as usize];
            if entry.frequency == 0 {
                entry.place = Place::Nowhere;
                return;
            }
            entry.frequency -= 1;
            self.main.push_back(key);
        }
    }

    fn remember(&mut self, key: u32) {
        self.ghosts_made += 1;
        self.entries[key as usize].ghost = self.ghosts_made;
        self.ghosts.push_back((key, self.ghosts_made));
        self.ghosts_alive += 1;
        let most = self.capacity - self.small_capacity();
        while self.ghosts_alive > most {
            let Some((oldest, number)) = self.ghosts.pop_front() else {
                return;
            };
            if self.entries[oldest as usize].ghost == number {
                self.forget(oldest);
            }
        }
    }

    fn forget(&mut self, key: u32) {
        self.entries[key as usize].ghost = 0;
        self.ghosts_alive -= 1;
    }
}

impl Cache for S3Fifo {
    fn get_or_set(&mut self, key: u32) -> bool {
        let entry = &mut self.entries[key as usize];
        if entry.place != Place::Nowhere {
            entry.frequency = (entry.frequency + 1).min(Self::FREQUENCY_MAX);
            return true;
        }
        while self.small.len() + self.main.len() >= self.capacity {
            if self.small.len() >= self.small_capacity() || self.main.is_empty() {
                self.evict_from_small();
            } else {
                self.evict_from_main();
            }
        }
        let remembered = self.entries[key as usize].ghost != 0;
        if remembered {
            self.forget(key);
            self.main.push_back(key);
        } else {
            self.small.push_back(key);
        }
        let place = if remembered {
            Place::Main
        } else {
            Place::Small
        };
        self.entries[key as usize] = Entry {
            place,
            frequency: 0,
            ghost: 0,
        };
        false
    }

    fn set(&mut self, key: u32) {
        self.get_or_set(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_does_not_push_out_what_is_popular() {
        let mut cache = S3Fifo::new(10_000, 100);
        for _ in 0..4 {
            for key in 0..50 {
                cache.get_or_set(key);
            }
        }
        for key in 1000..9000 {
            assert!(!cache.get_or_set(key));
        }
        let kept = (0..50).filter(|&key| cache.get_or_set(key)).count();
        assert_eq!(kept, 50);
    }

    #[test]
    fn a_remembered_key_enters_the_main_queue() {
        let mut cache = S3Fifo::new(100, 10);
        for key in 0..11 {
            cache.get_or_set(key);
        }
        assert_eq!(cache.entries[0].place, Place::Nowhere);
        assert!(!cache.get_or_set(0));
        assert_eq!(cache.entries[0].place, Place::Main);
    }

    #[test]
    fn neither_items_nor_ghosts_pass_their_bounds() {
        let mut cache = S3Fifo::new(5000, 50);
        let mut key = 1u32;
        for _ in 0..50_000 {
            key = key.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            cache.get_or_set((key >> 16) % if key >> 31 == 0 { 60 } else { 5000 });
            assert!(cache.small.len() + cache.main.len() <= 50);
            assert!(cache.ghosts_alive <= 45);
            let remembered = cache
                .entries
                .iter()
                .filter(|entry| entry.ghost != 0)
                .count();
            assert_eq!(remembered, cache.ghosts_alive);
        }
    }
}
