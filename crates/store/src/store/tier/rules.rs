//! Which items come back from flash, and what is kept free there: rules of numbers alone, so that they can be simulated.

/// Whether an item that is read from flash may come back to memory: when it is read for the second time, if there is
/// room beside what the cleaner needs. While `leaving` segments become free as soon as flash is written, the last of the others
/// are for what is stored. `frequency` is how often it was read before.
pub(crate) fn comes_back(
    frequency: u64,
    free_segments: usize,
    reserve: usize,
    leaving: usize,
) -> bool {
    let least = match leaving {
        0 => reserve,
        _ => reserve + reserve / 2,
    };
    frequency > 0 && free_segments > least
}

/// How many segments of a volume are to be free, and how many are dropped at a time: so few that most of it is in
/// use, and so many that a sweep over the index is paid by a good part of it.
pub(crate) fn free_segments(all: u32) -> u32 {
    (all / 64).max(2).min(all / 2)
}

/// Whether the index of a store with flash may have another sub-table: it takes at most half of memory. Beyond that
/// the least read item on flash whose slot stands in the way is dropped.
pub(crate) fn index_may_grow(index_len: usize, memory: usize) -> bool {
    index_len <= memory / 2
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_volume_is_kept_free() {
        assert_eq!([4, 64, 6400].map(free_segments), [2, 2, 100]);
        assert_eq!(free_segments(2), 1);
    }

    #[test]
    fn the_second_read_brings_back() {
        assert!(!comes_back(0, 100, 4, 0));
        assert!(comes_back(1, 5, 4, 0) && !comes_back(3, 4, 4, 0));
        assert!(comes_back(1, 7, 4, 1) && !comes_back(3, 6, 4, 1));
    }
}
