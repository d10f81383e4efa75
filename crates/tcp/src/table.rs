//! A hash table that finds the connection of a segment by its four-tuple.
//!
//! Open addressing with linear probing over one array of 8-byte entries, at most half full. An
//! entry is a hash of 32 bits and the number of a connection. The hash is keyed, so that nobody can
//! choose addresses and ports that collide. The caller compares the four-tuple with the
//! connection's.
//!
//! ```text
//! 63          32 31           0
//! hash           number + 1      0 where there is nothing
//! ```

use crate::wire::four_tuple::FourTuple;

/// Entries of the smallest table: a page.
const SLOTS_MIN: usize = 512;

/// A hash of a four-tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(u32);

/// The table.
pub(crate) struct Table {
    entries: Box<[u64]>,
    mask: usize,
    len: usize,
    key: [u64; 4],
}

impl Table {
    /// A table for `capacity` connections.
    pub(crate) fn new(capacity: usize, key: [u64; 4]) -> Table {
        let slots = (capacity * 2).next_power_of_two().max(SLOTS_MIN);
        Table {
            entries: vec![0; slots].into_boxed_slice(),
            mask: slots - 1,
            len: 0,
            key,
        }
    }

    /// The memory that it takes.
    pub(crate) fn memory(&self) -> *const [u8] {
        let len = size_of_val(&*self.entries);
        std::ptr::slice_from_raw_parts(self.entries.as_ptr().cast(), len)
    }

    /// The hash of a four-tuple.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "halves are taken")]
    pub(crate) fn hash(&self, tuple: &FourTuple) -> Hash {
        let (remote, local) = (tuple.remote.bits(), tuple.local.bits());
        let ports = u64::from(tuple.remote_port) << 16 | u64::from(tuple.local_port);
        let hash = fold(remote as u64 ^ self.key[0], ports ^ self.key[1]);
        let hash = fold(hash ^ (remote >> 64) as u64 ^ local as u64, self.key[2]);
        let hash = fold(hash ^ (local >> 64) as u64, self.key[3]);
        Hash(hash as u32)
    }

    /// The entry where the search for a hash begins.
    #[inline]
    pub(crate) fn home(&self, hash: Hash) -> &u64 {
        &self.entries[hash.0 as usize & self.mask]
    }

    /// The number of a connection with this hash: nearly always the right one, as hashes have 32
    /// bits.
    #[inline]
    pub(crate) fn guess(&self, hash: Hash) -> Option<u32> {
        self.find(hash, |_| true)
    }

    /// The number of the connection with this hash for which `is_it` is true.
    #[inline]
    pub(crate) fn find(&self, hash: Hash, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = hash.0 as usize & self.mask;
        loop {
            let entry = self.entries[at];
            if entry == 0 {
                return None;
            }
            if entry_hash(entry) == hash.0 && is_it(entry_number(entry)) {
                return Some(entry_number(entry));
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Adds a connection that is not in it.
    ///
    /// # Panics
    /// If there are more than it was made for.
    pub(crate) fn insert(&mut self, hash: Hash, number: u32) {
        self.len += 1;
        assert!(
            self.len * 2 <= self.entries.len(),
            "more connections than allowed"
        );
        let mut at = hash.0 as usize & self.mask;
        while self.entries[at] != 0 {
            at = (at + 1) & self.mask;
        }
        self.entries[at] = u64::from(hash.0) << 32 | (u64::from(number) + 1);
    }

    /// Removes a connection, and moves up later entries that would not be found any more.
    pub(crate) fn remove(&mut self, hash: Hash, number: u32) {
        let wanted = u64::from(hash.0) << 32 | (u64::from(number) + 1);
        let mut at = hash.0 as usize & self.mask;
        while self.entries[at] != wanted {
            if self.entries[at] == 0 {
                return;
            }
            at = (at + 1) & self.mask;
        }
        self.len -= 1;
        let mut gap = at;
        loop {
            at = (at + 1) & self.mask;
            let entry = self.entries[at];
            if entry == 0 {
                break;
            }
            let home = entry_hash(entry) as usize & self.mask;
            // Whether the gap lies between the entry's home and its place.
            if at.wrapping_sub(home) & self.mask >= at.wrapping_sub(gap) & self.mask {
                self.entries[gap] = entry;
                gap = at;
            }
        }
        self.entries[gap] = 0;
    }
}

#[inline]
const fn entry_hash(entry: u64) -> u32 {
    (entry >> 32) as u32
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
const fn entry_number(entry: u64) -> u32 {
    (entry as u32).wrapping_sub(1)
}

/// Both halves of the product, combined.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "halves are taken")]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::wire::Address;

    fn last_slot() -> u32 {
        u32::try_from(SLOTS_MIN - 1).expect("a small table")
    }

    fn tuple(port: u16) -> FourTuple {
        FourTuple {
            local: Address::v4([192, 0, 2, 1]),
            remote: Address::v4([192, 0, 2, 2]),
            local_port: 11211,
            remote_port: port,
        }
    }

    #[test]
    fn every_part_of_a_tuple_counts() {
        let table = Table::new(8, [1 << 60 | 3, 1 << 61 | 5, 1 << 62 | 7, 1 << 63 | 9]);
        let first = tuple(7);
        let others = [
            tuple(8),
            FourTuple {
                local_port: 11212,
                ..first
            },
            FourTuple {
                local: first.remote,
                ..first
            },
            FourTuple {
                remote: first.local,
                ..first
            },
            FourTuple {
                local: first.remote,
                remote: first.local,
                ..first
            },
            FourTuple {
                local_port: 7,
                remote_port: 11211,
                ..first
            },
        ];
        for other in others {
            assert_ne!(table.hash(&first), table.hash(&other), "{other:?}");
        }
    }

    proptest! {
        /// With hashes that collide, against a map.
        #[test]
        fn it_finds_what_a_map_finds(steps in proptest::collection::vec((any::<bool>(), 0u32..40, 0u32..6), 1..300)) {
            let mut table = Table::new(32, [0; 4]);
            let mut map: HashMap<u32, Hash> = HashMap::new();
            for (inserts, number, hash) in steps {
                // At both ends of the array, so that probing goes round.
                let hash = Hash(hash * last_slot());
                if inserts && map.len() < 32 {
                    map.entry(number).or_insert_with(|| {
                        table.insert(hash, number);
                        hash
                    });
                } else if let Some(hash) = map.remove(&number) {
                    table.remove(hash, number);
                }
                for number in 0..40 {
                    let found = map.get(&number).and_then(|&hash| table.find(hash, |n| n == number));
                    prop_assert_eq!(found.is_some(), map.contains_key(&number));
                }
                for hash in 0..6 {
                    let mut seen = Vec::new();
                    table.find(Hash(hash * last_slot()), |number| { seen.push(number); false });
                    seen.sort_unstable();
                    let mut right: Vec<u32> = map.iter().filter(|(_, of)| of.0 == hash * last_slot()).map(|(&n, _)| n).collect();
                    right.sort_unstable();
                    prop_assert_eq!(seen, right);
                }
            }
        }
    }
}
