//! Which parts of a piece of memory are in use.

/// Bytes that are taken at a time.
const UNIT: usize = 512;

/// The first place that is long enough is taken, from where the last search ended. There are few requests under way
/// and most are short, so the search is short.
#[derive(Debug)]
pub(crate) struct Areas {
    is_taken: Vec<bool>,
    next: usize,
    taken: usize,
}

impl Areas {
    /// All of `len` bytes are free.
    pub(crate) fn new(len: usize) -> Areas {
        Areas {
            is_taken: vec![false; len / UNIT],
            next: 0,
            taken: 0,
        }
    }

    /// The offset of a free place of `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Option<usize> {
        let units = len.div_ceil(UNIT).max(1);
        if self.taken == 0 && units <= self.is_taken.len() {
            // Nothing is to be looked for.
            self.next = 0;
            return Some(self.mark(0, units));
        }
        let from = self.find(self.next, self.is_taken.len(), units);
        let from = from.or_else(|| {
            let end = (self.next + units).min(self.is_taken.len());
            self.find(0, end, units)
        })?;
        Some(self.mark(from, units))
    }

    fn mark(&mut self, from: usize, units: usize) -> usize {
        self.is_taken[from..from + units].fill(true);
        self.next = from + units;
        self.taken += units;
        from * UNIT
    }

    fn find(&self, from: usize, end: usize, units: usize) -> Option<usize> {
        let mut free = 0;
        for at in from..end {
            free = if self.is_taken[at] { 0 } else { free + 1 };
            if free == units {
                return Some(at + 1 - units);
            }
        }
        None
    }

    /// Bytes that are taken.
    pub(crate) fn taken(&self) -> usize {
        UNIT * self.taken
    }

    /// Takes back what [`Areas::take`] gave out.
    pub(crate) fn give_back(&mut self, offset: usize, len: usize) {
        let (from, units) = (offset / UNIT, len.div_ceil(UNIT).max(1));
        debug_assert!(self.is_taken[from..from + units].iter().all(|&it| it));
        self.is_taken[from..from + units].fill(false);
        self.taken -= units;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn places_never_overlap(steps in proptest::collection::vec((any::<bool>(), 1usize..9000), 1..200)) {
            let mut areas = Areas::new(64 << 10);
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (takes, number) in steps {
                if takes || taken.is_empty() {
                    if let Some(offset) = areas.take(number) {
                        prop_assert!(offset + number <= 64 << 10);
                        prop_assert!(taken.iter().all(|&(at, len)| offset + number <= at || at + len <= offset));
                        taken.push((offset, number));
                    }
                } else {
                    let (offset, len) = taken.swap_remove(number % taken.len());
                    areas.give_back(offset, len);
                }
            }
            for (offset, len) in taken {
                areas.give_back(offset, len);
            }
            prop_assert_eq!(areas.take(64 << 10), Some(0));
        }
    }
}
