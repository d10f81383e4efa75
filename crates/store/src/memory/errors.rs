//! Memory errors under the arena: which of its pages may turn to zeros, and how many have.
//!
//! The pages that are given out are watched: items, index, lent buffers. Whoever reads there takes
//! zeros for any bytes, and asks [`events_seen`](super::events_seen) before it relies on what it has read. Of the tables
//! before them those to which zeros would do harm are kept twice, and restored.
#![allow(
    unsafe_code,
    reason = "says that the arena's bytes may change by themselves, and poisons them for tests"
)]

#[cfg(not(any(miri, loom)))]
pub(crate) use watched::{address_of, hwpoison, poison};

#[cfg(not(any(miri, loom)))]
mod watched {
    use crate::memory::file::FileKind;
    use crate::memory::keeper::ArenaKeeper;
    use crate::memory::{DoubledPart, HugePages, Mapping};
    use coua_memory_errors::poison::{by_madvise, by_userfaultfd};
    use coua_memory_errors::{
        Backing, RegisterError, Registration, check, register, register_kept,
    };
    use std::io;
    use std::ops::Range;
    use std::sync::{Arc, PoisonError};

    /// Bytes that are lost with one page.
    fn page_size(mapping: &Mapping) -> usize {
        match mapping.huge_pages() {
            HugePages::Reserved => 2 << 20,
            HugePages::Transparent | HugePages::None => 4096,
        }
    }

    impl Mapping {
        /// Whether the machine has lost a part of a range. Then zeros are there from now on. Nobody uses
        /// the mapping yet.
        pub(crate) fn has_lost(&self, range: Range<usize>) -> bool {
            self.survive_errors(std::slice::from_ref(&(0..self.len())));
            let start = self.at(range.start).as_ptr();
            // SAFETY: the range is inside the mapping, and nobody writes to it meanwhile but the
            // handler.
            let bytes = unsafe { std::slice::from_raw_parts(start, range.len()) };
            let has_lost = check(bytes);
            self.survive_errors(&[]);
            has_lost
        }

        /// Has pages in these ranges of bytes replaced by zeros when the machine loses them; no others
        /// any more.
        pub(crate) fn survive_errors(&self, ranges: &[Range<usize>]) {
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            watched.clear();
            // Where it is refused, an error ends the process, as it would anyway.
            watched.extend(
                ranges
                    .iter()
                    .filter_map(|range| watch(self, range, None).ok()),
            );
        }

        /// Has all lost pages replaced: those of tables that are kept twice by what stood there, where
        /// that can be; all others by zeros, and puts them on record.
        pub(crate) fn survive_all_errors(&self, parts: [DoubledPart; 3]) {
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            watched.clear();
            let keeper = Arc::new(ArenaKeeper::new(self, parts));
            watched.extend(watch(self, &(0..self.len()), Some(keeper)));
        }
    }

    /// Has the lost ones of the pages that lie wholly in a range replaced by fresh ones, as long as the
    /// registration lives, which is not longer than the mapping.
    fn watch(
        mapping: &Mapping,
        range: &Range<usize>,
        keeper: Option<Arc<ArenaKeeper>>,
    ) -> Result<Registration, RegisterError> {
        let page_size = page_size(mapping);
        let from = range.start.next_multiple_of(page_size);
        let end = range.end / page_size * page_size;
        let len = end.saturating_sub(from);
        let backing = match mapping.file() {
            None => Backing::Anonymous,
            Some(file) if file.kind() == FileKind::Other && file.is_dax() => Backing::Dax,
            Some(_) => Backing::File,
        };
        let start = mapping.at(from);
        match keeper {
            // SAFETY: one writable mapping, and nothing else lies in it. What reads there takes zeros for
            // any bytes: all of it is atomics, lent bytes, or items, no length of which grows by zeros.
            None => unsafe { register(start, len, page_size, backing) },
            // SAFETY: as above but for the tables, which the keeper restores or cannot do without.
            Some(keeper) => unsafe { register_kept(start, len, page_size, backing, keeper) },
        }
    }

    /// The address of a byte, which the process's other parts know memory by.
    pub(crate) fn address_of(mapping: &Mapping, offset: usize) -> usize {
        mapping.at(offset).as_ptr().addr()
    }

    /// Loses the page of the system's that a byte lies in, for tests.
    pub(crate) fn poison(mapping: &Mapping, offset: usize) -> io::Result<()> {
        let page_size = page_size(mapping);
        let start = offset & !(page_size - 1);
        // SAFETY: the caller poisons what is watched; the mapping is page-aligned.
        unsafe { by_userfaultfd(mapping.at(start), page_size) }
    }

    /// Has the kernel take the page that a byte lies in out of use, for tests.
    pub(crate) fn hwpoison(mapping: &Mapping, offset: usize) -> io::Result<()> {
        const SMALL: usize = 4096;
        // Of a huge page it takes the whole, whichever part is named.
        // SAFETY: as above.
        unsafe { by_madvise(mapping.at(offset & !(SMALL - 1)), SMALL) }
    }
}
