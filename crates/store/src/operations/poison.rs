//! Loses a page on purpose, for tests.

use crate::index::slot::Location;
use crate::memory::PageState;
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
    /// The first of each page that is lent for connection buffers.
    Buffers,
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
        let Ok((place, item)) = self.local.find_live(key, self.now) else {
            return Ok(None);
        };
        let end = |location: Location, total: usize| location.offset() + total - 1;
        let offset = match target {
            PoisonTarget::Item | PoisonTarget::Buffers => place.slot.location().offset(),
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
