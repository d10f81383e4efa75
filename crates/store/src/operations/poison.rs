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

impl Burst<'_> {
    /// Loses a page of the system's, as if the machine had, by `UFFDIO_POISON`: whoever touches it
    /// next finds it lost. Returns its address; `None` if there is no such page. For a store that is
    /// watched ([`Store::watch`](crate::Store::watch)).
    ///
    /// # Errors
    /// When the system cannot.
    pub fn poison(&self, key: &Key<'_>, target: PoisonTarget) -> io::Result<Option<usize>> {
        let log = &self.local.shared.log;
        if target == PoisonTarget::Buffers {
            let lent = |&page: &u32| log.entry(page).state() == PageState::Lent;
            let mut last = None;
            for page in (0..log.segment_count()).filter(lent) {
                last = Some(self.lose(log.range_of(page).start)?);
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
        self.lose(offset).map(Some)
    }

    #[cfg(not(miri))]
    fn lose(&self, offset: usize) -> io::Result<usize> {
        let mapping = self.local.shared.log.mapping();
        crate::memory::poison(mapping, offset)?;
        Ok(crate::memory::address_of(mapping, offset))
    }

    #[cfg(miri)]
    fn lose(&self, _: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
