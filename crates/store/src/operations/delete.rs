//! delete, and the variants of `md`: dropping only the value, marking the item stale.

use super::writer::Writer;
use crate::index::Place;
use crate::index::slot::Slot;
use crate::key::Key;
use crate::memory::Purpose;
use crate::observer::RemovalReason;
use crate::request::{Delete, Deleted, Miss, Refused};
use crate::segment::item::RawItem;
use crate::segment::layout::{Draft, mark};
use crate::tags::TagWords;
use crate::time::Expiry;

impl Writer<'_> {
    /// Deletes the item of `key`, or does the variant that `delete` asks for.
    pub(crate) fn delete(&mut self, key: &Key<'_>, delete: &Delete) -> Deleted {
        let is_removed = delete.clear_value.is_none() && !delete.mark_stale;
        loop {
            let (place, item) = match self.local.find_live(key, self.now) {
                Ok(found) => found,
                Err(Miss::OnFlash(_)) if is_removed && delete.compare.is_none() => {
                    match self.drop_all_on_flash(key) {
                        true => return Deleted::Done,
                        false => continue,
                    }
                }
                Err(miss) => return Deleted::NotFound(miss),
            };
            if (delete.compare.is_some() || !is_removed) && self.local.is_stale_by_tag(item) {
                match self.mark_stale_by_tag(place, item) {
                    Ok(_) => continue,
                    Err(refused) => return Deleted::Refused(refused),
                }
            }
            let cas = self.local.cas_at(place.slot.location(), item);
            if delete.compare.is_some_and(|compare| compare != cas) {
                return Deleted::Exists;
            }
            let done = if let Some((client_flags, expiry)) = delete.clear_value {
                self.clear(key, delete, (client_flags, expiry), place, item)
            } else if delete.mark_stale {
                self.mark_stale(delete, place, item, cas)
            } else {
                Ok(self.remove(place, item))
            };
            match done {
                Ok(true) => return Deleted::Done,
                Ok(false) => {}
                Err(refused) => return Deleted::Refused(refused),
            }
        }
    }

    /// Drops all slots on flash that may be the key's, which is not in memory. False if it is, or there are none.
    #[cold]
    fn drop_all_on_flash(&self, key: &Key<'_>) -> bool {
        let (local, store) = (self.local, self.local.shared);
        let Some(flash) = store.flash.get() else {
            return false;
        };
        let locked = store.index.lock(key.hash);
        if locked.find(|slot| local.is_key(slot, key.bytes)).is_some() {
            return false;
        }
        let may_be = |slot| flash.may_be(local.id, key.hash, slot);
        let gone = locked.replace_on_flash(Slot::EMPTY, may_be);
        drop(locked);
        local.note_off_flash(gone);
        gone > 0
    }

    /// False if the item is no longer where it was found.
    fn remove(&self, place: Place<'_>, item: RawItem<'_>) -> bool {
        let Some(lock) = place.lock() else {
            return false;
        };
        let gone = lock.replace(Slot::EMPTY);
        self.local.tell_gone(item, RemovalReason::Deleted);
        self.local.discard(gone);
        true
    }

    /// Replaces the item by one without a value.
    fn clear(
        &mut self,
        key: &Key<'_>,
        delete: &Delete,
        (client_flags, mut expiry): (u32, Expiry),
        place: Place<'_>,
        item: RawItem<'_>,
    ) -> Result<bool, Refused> {
        let cas = self.local.cas_at(place.slot.location(), item);
        let tags = TagWords::of(item.tags());
        let (mut marks, mut new_cas) = (0, Some(cas));
        if delete.mark_stale {
            expiry = delete.expiry.unwrap_or(expiry);
            marks = mark::STALE;
            new_cas = None;
        }
        let draft = Draft {
            key: key.bytes,
            // As in memcached, an item made from another does not keep how its key was sent.
            key_is_binary: false,
            client_flags,
            cas: delete.cas.or(new_cas),
            expiry: expiry.given(),
            fine: expiry.is_fine(),
            tags: &tags,
            access: self.access_word(marks),
            value_len: 0,
            chunks: None,
        };
        let queue = self.queue_for(key.hash, Some(place.slot.location()));
        let new = self.write(key.hash, queue, &draft, &[], cas)?;
        Ok(self.replace(place, new, |_| ()))
    }

    /// Marks an item stale since a tag of its was made so, as [`Writer::mark_stale`] does. Whoever
    /// calls it finds the item once more afterwards.
    #[cold]
    pub(crate) fn mark_stale_by_tag(
        &mut self,
        place: Place<'_>,
        item: RawItem<'_>,
    ) -> Result<bool, Refused> {
        let cas = self.local.cas_at(place.slot.location(), item);
        self.mark_stale(&Delete::default(), place, item, cas)
    }

    /// Replaces the item by the same item, stale, with a new CAS. A large item keeps its pieces, and
    /// an item its tags, as of now. False if the item is no longer where it was found, or gone.
    fn mark_stale(
        &mut self,
        delete: &Delete,
        place: Place<'_>,
        item: RawItem<'_>,
        cas: u64,
    ) -> Result<bool, Refused> {
        let log = &self.local.shared.log;
        let location = place.slot.location();
        let open = &mut self.open[log.entry_of(location).queue() as usize];
        let new_expiry = delete.expiry.and_then(Expiry::given);
        let Some(tags) = self.local.shared.tags.renewed(item.tags()) else {
            return Ok(false);
        };
        let draft = Draft {
            cas: delete.cas.or_else(|| log.cas_after(open, cas)),
            expiry: new_expiry.or(item.expiry_field()),
            fine: item.has_fine_expiry() || new_expiry.is_some_and(Expiry::is_fine),
            tags: &tags,
            ..item.draft()
        };
        let len = draft.layout().total;
        let Some(mut space) = log.append(open, len, Purpose::Items) else {
            return Err(self.refused(len));
        };
        *self.appended += len;
        item.copy_to(&mut space, &draft);
        if item.has_tags() {
            let entry = log.entry_of(space.location);
            self.local.shared.tags.note_in(&entry);
        }
        let new = Slot::item(place.slot.tag(), space.location, len);
        // The pieces continue under the new head, or under the old one.
        Ok(self.replace_head(place, new, |new_item| {
            item.copy_changing(new_item);
            // No client knows the new CAS, and the next one to ask may win.
            new_item.change_marks(mark::STALE, mark::WON | mark::CAS_KNOWN);
            let expiry = delete.expiry.unwrap_or_else(|| item.expiry());
            log.entry_of(new.location()).note_expiry(expiry);
            new_item.set_expiry(expiry);
        }))
    }
}
