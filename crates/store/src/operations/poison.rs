//! Loses a page on purpose, for tests.

use crate::index::slot::Location;
use crate::memory::{PageState, Slice};
use crate::sync::{AtomicU32, Ordering};
use crate::{Burst, Key};
use std::io;

/// Which page is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoisonTarget {
    /// That on which the item begins.
    Item,
    /// That on which the last byte of the item's value lies.
    Value,
    /// That of the bucket in which the item's slot stands.
    Index,
    /// That of the key's first bucket, wherever its item is.
    Bucket,
    /// The first of each page that is lent for connection buffers.
    Buffers,
    /// The superblock.
    Superblock,
    /// That of the page table on which the item's segment stands.
    PageTable,
    /// That of the directory on which the word stands that the key's hash belongs to.
    Directory,
    /// Those of the copies of these three.
    Copies,
}

/// How it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoisonMeans {
    /// By `UFFDIO_POISON`: whoever touches the page next finds it lost. It needs no right.
    Userfault,
    /// By `MADV_HWPOISON`: the kernel does all that it does after a machine check, and never uses the
    /// page again. It needs `CAP_SYS_ADMIN`.
    Hwpoison,
    /// Not at all: somebody else is to be told where the page lies.
    Nothing,
}

impl Burst<'_> {
    /// Loses a page of the system's, as if the machine had. Returns the address of the byte that the
    /// page was chosen for; `None` if there is no such page. For a store that is watched
    /// ([`Store::watch`](crate::Store::watch)).
    ///
    /// # Errors
    /// When the system cannot.
    pub fn poison(
        &self,
        key: &Key<'_>,
        target: PoisonTarget,
        means: PoisonMeans,
    ) -> io::Result<Option<usize>> {
        let log = &self.local.shared.log;
        if target == PoisonTarget::Buffers {
            let lent = |&page: &u32| log.entry(page).state() == PageState::Lent;
            let mut last = None;
            for page in (0..log.segment_count()).filter(lent) {
                last = Some(self.lose(log.range_of(page).start, means)?);
            }
            return Ok(last);
        }
        let store = self.local.shared;
        if target == PoisonTarget::Bucket {
            let [first, _] = store.index.buckets_of(key.hash);
            return self.lose(log.mapping().offset_of(first), means).map(Some);
        }
        let Ok((place, item)) = self.local.find_live(key, self.now) else {
            return Ok(None);
        };
        let tables = self.tables(key, place.slot.location(), target);
        if !tables.is_empty() {
            for &offset in &tables {
                self.lose(offset, means)?;
                if means == PoisonMeans::Nothing {
                    continue;
                }
                // While a page of one copy is lost and nobody has met it, the other one's loss ends the
                // process.
                let word: Slice<AtomicU32> = Slice::new(log.mapping(), offset, 1);
                word[0].load(Ordering::Relaxed);
            }
            return Ok(tables.last().copied());
        }
        let end = |location: Location, total: usize| location.offset() + total - 1;
        let offset = match target {
            PoisonTarget::Item
            | PoisonTarget::Buffers
            | PoisonTarget::Bucket
            | PoisonTarget::Superblock
            | PoisonTarget::PageTable
            | PoisonTarget::Directory
            | PoisonTarget::Copies => place.slot.location().offset(),
            PoisonTarget::Value => {
                let (location, part) = match item.pieces().last() {
                    Some(piece) => (piece, self.local.item(piece)),
                    None => (place.slot.location(), item),
                };
                end(location, part.total_len())
            }
            PoisonTarget::Index => log.mapping().offset_of(place.bucket()),
        };
        self.lose(offset, means).map(Some)
    }

    /// Where the tables lie that a target names; none for other targets.
    fn tables(&self, key: &Key<'_>, item: Location, target: PoisonTarget) -> Vec<usize> {
        let store = self.local.shared;
        let mapping = store.log.mapping();
        let superblock = store.log.superblock();
        let entry = store.log.entry_of(item);
        let word = store.index.directory_word(key.hash);
        match target {
            PoisonTarget::Superblock => vec![mapping.offset_of(superblock.own())],
            PoisonTarget::PageTable => vec![mapping.offset_of(entry.own())],
            PoisonTarget::Directory => vec![mapping.offset_of(word.own())],
            PoisonTarget::Copies => {
                let copies = [
                    superblock.copy().map(|copy| mapping.offset_of(copy)),
                    entry.copy().map(|copy| mapping.offset_of(copy)),
                    word.copy().map(|copy| mapping.offset_of(copy)),
                ];
                copies.into_iter().flatten().collect()
            }
            _ => Vec::new(),
        }
    }

    #[cfg(not(miri))]
    fn lose(&self, offset: usize, means: PoisonMeans) -> io::Result<usize> {
        let mapping = self.local.shared.log.mapping();
        match means {
            PoisonMeans::Userfault => crate::memory::poison(mapping, offset)?,
            PoisonMeans::Hwpoison => crate::memory::hwpoison(mapping, offset)?,
            PoisonMeans::Nothing => {}
        }
        Ok(crate::memory::address_of(mapping, offset))
    }

    #[cfg(miri)]
    fn lose(&self, _: usize, _: PoisonMeans) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
