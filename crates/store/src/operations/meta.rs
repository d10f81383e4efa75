//! `mg` when it does more than read: vivify, recache, win tokens.
//!
//! A win token is a mark of the item, set under its bucket's lock, so exactly one of the requests
//! that could win does win.

use super::link::LinkOutcome;
use super::writer::Writer;
use crate::index::Place;
use crate::item::Item;
use crate::key::Key;
use crate::request::{MetaGet, MetaHit, MetaMiss, Miss};
use crate::segment::item::RawItem;
use crate::segment::layout::{Draft, mark};
use crate::time::Expiry;

impl<'p> Writer<'p> {
    /// `mg`.
    pub(crate) fn meta_get(
        &mut self,
        key: &Key<'_>,
        get: &MetaGet,
    ) -> Result<MetaHit<'p>, MetaMiss> {
        loop {
            let hit = match self.local.find_live(key, self.now) {
                Ok((place, item)) => self.hit(get, place, item),
                Err(miss @ Miss::OnFlash(_)) => return Err(MetaMiss::Miss(miss)),
                Err(miss) => match get.vivify {
                    None => return Err(MetaMiss::Miss(miss)),
                    Some(expiry) => self.vivify(key, get, expiry),
                },
            };
            if let Some(hit) = hit? {
                return Ok(hit);
            }
        }
    }

    /// `None` if the item changed meanwhile.
    fn hit(
        &mut self,
        get: &MetaGet,
        place: Place<'p>,
        item: RawItem<'p>,
    ) -> Result<Option<MetaHit<'p>>, MetaMiss> {
        if self.local.is_stale_by_tag(item) {
            // The caller finds the item once more, marked.
            let marked = self.mark_stale_by_tag(place, item);
            return marked.map(|_| None).map_err(MetaMiss::Untouched);
        }
        if let Some(expiry) = get.touch
            && !item.takes_expiry(expiry)
        {
            // Nothing has been decided yet: the caller finds the item once more, with room.
            let added = self.add_expiry(place, item, expiry);
            return added.map(|()| None).map_err(MetaMiss::Untouched);
        }
        Ok(self.show_hit(get, place, item))
    }

    /// As [`Writer::hit`], for an item that has room for the new expiry, if there is one.
    fn show_hit(&self, get: &MetaGet, place: Place<'p>, item: RawItem<'p>) -> Option<MetaHit<'p>> {
        let store = self.local.shared;
        let mut marks = item.access();
        let mut expiry_before = item.expiry();
        let mut won = false;
        if get.touch.is_some() || get.recache.is_some() || marks & mark::STALE != 0 {
            let _lock = place.lock()?;
            marks = item.access();
            expiry_before = item.expiry();
            let seen = if get.touch_first {
                get.touch.unwrap_or(expiry_before)
            } else {
                expiry_before
            };
            let is_due = get
                .recache
                .is_some_and(|at| at != Expiry::NEVER && seen.is_before(at));
            won = marks & mark::WON == 0 && (is_due || marks & mark::STALE != 0);
            if won {
                item.change_marks(mark::WON, 0);
            }
            if let Some(expiry) = get.touch {
                self.extend(place, item, expiry);
            }
            if get.access.cas {
                // Under this lock, so that showing it cannot fail: a token is won only once.
                item.change_marks(mark::CAS_KNOWN, 0);
            }
        }
        let idle_seconds = item.idle_seconds(self.now, store.made);
        let shown = self.local.show(place, item, get.access, self.now)?;
        Some(MetaHit {
            item: shown,
            created: false,
            won,
            stale: marks & mark::STALE != 0,
            token_sent: marks & mark::WON != 0,
            expiry_before,
            idle_seconds,
            fetched_before: marks & mark::FETCHED != 0,
        })
    }

    /// Makes an empty item and wins. `None` if another worker has made one meanwhile.
    fn vivify(
        &mut self,
        key: &Key<'_>,
        get: &MetaGet,
        expiry: Expiry,
    ) -> Result<Option<MetaHit<'p>>, MetaMiss> {
        let known = if get.access.cas { mark::CAS_KNOWN } else { 0 };
        let fetched = if get.access.bump { mark::FETCHED } else { 0 };
        let tags = self.tag_words(&get.tags).map_err(MetaMiss::Refused)?;
        let draft = Draft {
            key: key.bytes,
            key_is_binary: false,
            client_flags: 0,
            cas: get.vivify_cas,
            expiry: expiry.given(),
            fine: expiry.is_fine(),
            tags: &tags,
            access: self.access_word(mark::WON | known | fetched),
            value_len: 0,
            chunks: None,
        };
        let queue = self.queue_for(key.hash, None);
        let new = self
            .write(key.hash, queue, &draft, &[], 0)
            .map_err(MetaMiss::Refused)?;
        match self.link(key, new) {
            LinkOutcome::Done => {}
            LinkOutcome::Raced => return Ok(None),
            LinkOutcome::Refused(refused) => return Err(MetaMiss::Refused(refused)),
        }
        let raw = self.local.item_of(new);
        let cas = self.local.cas_at(new.location(), raw);
        Ok(Some(MetaHit {
            item: Item::new(
                raw,
                (self.local.shared, self.local.guard()),
                new.location(),
                cas,
            ),
            created: true,
            won: true,
            stale: false,
            token_sent: false,
            expiry_before: Expiry::NEVER,
            idle_seconds: 0,
            fetched_before: false,
        }))
    }
}
