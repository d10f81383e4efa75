//! What the handler knows and what it has to tell: registered regions and lost ranges.

use crate::keeper::KeeperPointer;
use std::ops::Range;

/// How many regions may be registered at a time.
pub const REGIONS_MAX: usize = 64;

/// How many lost ranges wait to be taken. More are counted and not kept.
pub const EVENTS_MAX: usize = 128;

/// The smallest page of any supported processor.
const PAGE_SIZE_MIN: usize = 4096;

/// What is behind a region, which decides how a page of it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Private anonymous memory, transparent huge pages included, and private anonymous memory of
    /// hugetlb.
    Anonymous,
    /// A file that is mapped shared and writable: of tmpfs (a memfd too), of hugetlbfs, on a disk.
    File,
    /// A file that is itself memory (DAX), mapped shared and writable. The kernel leaves its lost
    /// pages mapped. So two threads that touch one of them at the same time lose it twice.
    Dax,
}

/// Why memory was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Begin and length are not whole pages, or there are none.
    #[error("the region is not of whole pages")]
    NoPages,
    /// A part of it is registered.
    #[error("a part of the region is registered already")]
    Overlap,
    /// No place of the table is free.
    #[error("no more than {REGIONS_MAX} regions can be registered")]
    TooMany,
}

/// A registered range of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) start: usize,
    pub(crate) length: usize,
    pub(crate) page_size: usize,
    pub(crate) backing: Backing,
    pub(crate) keeper: Option<KeeperPointer>,
}

impl Region {
    fn end(&self) -> usize {
        self.start + self.length
    }

    /// What is lost of the region with an error at `address` in it that spoils an aligned block of
    /// `1 << lsb` bytes. The address itself need not be aligned: from Linux 6.12 on it is not for
    /// hugetlb.
    pub(crate) fn lost_at(&self, address: usize, lsb: u32) -> Range<usize> {
        let block = 1_usize.checked_shl(lsb).unwrap_or(self.page_size);
        let block = block.max(self.page_size);
        let start = address & !(block - 1);
        start.max(self.start)..start.saturating_add(block).min(self.end())
    }

    fn check(&self) -> Result<(), RegisterError> {
        let is_page_size = self.page_size.is_power_of_two() && self.page_size >= PAGE_SIZE_MIN;
        let is_aligned = is_page_size
            && self.start.is_multiple_of(self.page_size)
            && self.length.is_multiple_of(self.page_size);
        let is_range = self.length > 0 && self.start.checked_add(self.length).is_some();
        if is_aligned && is_range {
            Ok(())
        } else {
            Err(RegisterError::NoPages)
        }
    }
}

/// How much of a hurry there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The kernel told of a page that nobody had touched yet (`BUS_MCEERR_AO`).
    ActionOptional,
    /// A thread touched the page (`BUS_MCEERR_AR`).
    ActionRequired,
}

/// A range whose bytes are lost. It reads as zeros until somebody writes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its first byte: a multiple of the region's page size.
    pub address: usize,
    /// Its length in bytes: a page of the region, or what the kernel says was lost at once.
    pub length: usize,
    /// Whether a thread had touched it.
    pub severity: Severity,
    /// When, by `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// The file could give no fresh page. Private memory is there now, which nobody else sees and
    /// which is gone when the process ends; the file has a hole there, or still the error.
    pub is_detached: bool,
    /// Its keeper has written it anew: no byte is lost.
    pub is_restored: bool,
}

/// What the consumer finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "what was taken is told once"]
pub struct Taken {
    /// Ranges that were lost since the last time, oldest first, each once.
    pub lost: Vec<Lost>,
    /// More were lost than the list holds: anything of any region may have turned to zeros.
    pub overflowed: bool,
    /// Errors outside of all regions that nobody has touched. Whoever does ends the process.
    pub elsewhere: u64,
}

/// Regions and events. It lies behind one lock and owns no memory of the heap.
pub(crate) struct State {
    regions: [Option<Region>; REGIONS_MAX],
    events: [Option<Lost>; EVENTS_MAX],
    overflowed: bool,
    elsewhere: u64,
    /// Faults, since the last loss, on what could be read again when their turn came.
    late_faults: u32,
}

impl State {
    pub(crate) const fn new() -> State {
        State {
            regions: [None; REGIONS_MAX],
            events: [None; EVENTS_MAX],
            overflowed: false,
            elsewhere: 0,
            late_faults: 0,
        }
    }

    /// Adds a region; its place in the table.
    pub(crate) fn register(&mut self, region: Region) -> Result<usize, RegisterError> {
        region.check()?;
        let mut others = self.regions.iter().flatten();
        if others.any(|other| other.start < region.end() && region.start < other.end()) {
            return Err(RegisterError::Overlap);
        }
        let free = self.regions.iter().position(Option::is_none);
        let free = free.ok_or(RegisterError::TooMany)?;
        self.regions[free] = Some(region);
        Ok(free)
    }

    pub(crate) fn forget(&mut self, place: usize) {
        self.regions[place] = None;
    }

    /// The region that an address is in.
    pub(crate) fn find(&self, address: usize) -> Option<Region> {
        let mut regions = self.regions.iter().flatten();
        regions
            .find(|region| (region.start..region.end()).contains(&address))
            .copied()
    }

    /// Notes a loss, or that there was no room to note it.
    pub(crate) fn lose(&mut self, lost: Lost) {
        self.late_faults = 0;
        match self.events.iter_mut().find(|event| event.is_none()) {
            Some(free) => *free = Some(lost),
            None => self.overflowed = true,
        }
    }

    pub(crate) fn note_elsewhere(&mut self) {
        self.elsewhere += 1;
    }

    /// Notes a fault on what can be read; how many there were since the last loss.
    pub(crate) fn note_late_fault(&mut self) -> u32 {
        self.late_faults = self.late_faults.saturating_add(1);
        self.late_faults
    }

    /// Moves everything that was noted to `taken`, which has room for [`EVENTS_MAX`] losses, so that
    /// nothing is allocated while the lock is held.
    pub(crate) fn take(&mut self, taken: &mut Taken) {
        // The list is filled from its beginning on.
        let events = self.events.iter_mut().map_while(Option::take);
        taken.lost.extend(events);
        taken.overflowed = std::mem::take(&mut self.overflowed);
        taken.elsewhere = std::mem::take(&mut self.elsewhere);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: usize = 2 << 20;

    fn region(start: usize, length: usize, page_size: usize) -> Region {
        Region {
            start,
            length,
            page_size,
            backing: Backing::Anonymous,
            keeper: None,
        }
    }

    fn lost(address: usize) -> Lost {
        Lost {
            address,
            length: 4096,
            severity: Severity::ActionRequired,
            monotonic_ns: 1,
            is_detached: false,
            is_restored: false,
        }
    }

    #[test]
    fn what_is_lost_is_whole_pages_inside_the_region() {
        let small = region(0x10_0000, 0x10_0000, 4096);
        assert_eq!(small.lost_at(0x10_5010, 12), 0x10_5000..0x10_6000);
        // The kernel of a machine without machine checks says nothing of the block.
        assert_eq!(small.lost_at(0x10_5010, 0), 0x10_5000..0x10_6000);
        // A block that is larger than the region.
        assert_eq!(small.lost_at(0x10_5010, 21), 0x10_0000..0x20_0000);
        assert_eq!(small.lost_at(0x10_5010, 63), 0x10_0000..0x20_0000);
        assert_eq!(small.lost_at(0x10_5010, 64), 0x10_5000..0x10_6000);
        let huge = region(4 * HUGE, 2 * HUGE, HUGE);
        assert_eq!(huge.lost_at(5 * HUGE + 0x5010, 21), 5 * HUGE..6 * HUGE);
        assert_eq!(huge.lost_at(5 * HUGE + 0x5010, 12), 5 * HUGE..6 * HUGE);
    }

    #[test]
    fn an_address_finds_its_region_and_no_other() {
        let mut state = State::new();
        let first = state.register(region(0x10_0000, 0x2000, 4096));
        state
            .register(region(0x20_0000, 0x2000, 4096))
            .expect("there is room");
        let start = |state: &State, address| state.find(address).map(|region| region.start);
        assert_eq!(start(&state, 0x0f_ffff), None);
        assert_eq!(start(&state, 0x10_0000), Some(0x10_0000));
        assert_eq!(start(&state, 0x10_1fff), Some(0x10_0000));
        assert_eq!(start(&state, 0x10_2000), None);
        assert_eq!(start(&state, 0x20_0001), Some(0x20_0000));
        state.forget(first.expect("there is room"));
        assert_eq!(start(&state, 0x10_0000), None);
    }

    #[test]
    fn regions_that_cannot_be_are_refused() {
        let mut state = State::new();
        let mut register = |start, length, page_size| {
            let place = state.register(region(start, length, page_size));
            place.map(|_| ())
        };
        assert_eq!(register(4096, 0, 4096), Err(RegisterError::NoPages));
        assert_eq!(register(4097, 4096, 4096), Err(RegisterError::NoPages));
        assert_eq!(register(4096, 4097, 4096), Err(RegisterError::NoPages));
        assert_eq!(register(4096, 4096, 1024), Err(RegisterError::NoPages));
        assert_eq!(register(4096, 4096, 5000), Err(RegisterError::NoPages));
        assert_eq!(register(4096, HUGE, HUGE), Err(RegisterError::NoPages));
        let last_page = usize::MAX - 4095;
        assert_eq!(register(last_page, 4096, 4096), Err(RegisterError::NoPages));
        assert_eq!(register(8192, 8192, 4096), Ok(()));
        assert_eq!(register(12288, 8192, 4096), Err(RegisterError::Overlap));
        assert_eq!(register(4096, 8192, 4096), Err(RegisterError::Overlap));
        assert_eq!(register(4096, 4096, 4096), Ok(()));
    }

    #[test]
    fn the_table_is_bounded_and_its_places_are_used_again() {
        let mut state = State::new();
        for number in 1..=REGIONS_MAX {
            let place = state.register(region(number * 4096, 4096, 4096));
            assert!(place.is_ok(), "{number}");
        }
        let one_more = region(1 << 30, 4096, 4096);
        assert_eq!(state.register(one_more), Err(RegisterError::TooMany));
        state.forget(7);
        assert_eq!(state.register(one_more), Ok(7));
    }

    #[test]
    fn losses_are_taken_once_in_their_order_and_an_overflow_is_told() {
        let mut state = State::new();
        let take = |state: &mut State| {
            let mut taken = Taken::default();
            state.take(&mut taken);
            taken
        };
        assert_eq!(take(&mut state), Taken::default());
        for number in 0..EVENTS_MAX {
            state.lose(lost(number));
        }
        state.note_elsewhere();
        let taken = take(&mut state);
        let addresses: Vec<usize> = taken.lost.iter().map(|lost| lost.address).collect();
        assert_eq!(addresses, (0..EVENTS_MAX).collect::<Vec<_>>());
        assert!(!taken.overflowed);
        assert_eq!(taken.elsewhere, 1);
        for number in 0..=EVENTS_MAX {
            state.lose(lost(number));
        }
        let taken = take(&mut state);
        assert_eq!(taken.lost.len(), EVENTS_MAX);
        assert!(taken.overflowed);
        assert_eq!(take(&mut state), Taken::default());
    }

    #[test]
    fn late_faults_are_counted_from_loss_to_loss() {
        let mut state = State::new();
        assert_eq!(state.note_late_fault(), 1);
        assert_eq!(state.note_late_fault(), 2);
        state.lose(lost(0));
        assert_eq!(state.note_late_fault(), 1);
    }
}
