//! set, add, replace, cas, append, prepend.

use super::link::{LinkOutcome, OnFlash};
use super::writer::{Body, KEY_MAX, Writer};
use crate::index::Place;
use crate::index::slot::{Location, Slot};
use crate::key::Key;
use crate::look_ahead::Ahead;
use crate::memory::Purpose;
use crate::request::{Miss, Mode, Put, Refused, Stored};
use crate::segment::item::RawItem;
use crate::segment::layout::{Draft, mark};
use crate::tags::TagWords;
use crate::time::Expiry;
use coua_cpu::copy_short;

/// Where the old item's value goes in the new one's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Join {
    /// Nowhere.
    Replace,
    /// In front of the new value.
    Behind,
    /// After the new value.
    Before,
}

/// What is to be written.
struct PutPlan {
    join: Join,
    client_flags: u32,
    /// As in [`Draft`].
    expiry: Option<Expiry>,
    fine: bool,
    tags: TagWords,
    key_is_binary: bool,
    marks: u32,
    over_newer: bool,
    /// No item on flash that is replaced has a higher CAS.
    cas_on_flash: u64,
    on_flash: OnFlash,
}

impl PutPlan {
    /// Whether the new item does not depend on the old one, so that it can replace any item.
    fn is_fresh(&self) -> bool {
        self.join == Join::Replace && !self.over_newer
    }
}

/// The mark for an item whose CAS is shown to a client.
#[inline]
fn known_mark(put: &Put) -> u32 {
    if put.return_cas { mark::CAS_KNOWN } else { 0 }
}

impl<'p> Writer<'p> {
    /// Sets a value over the item that the look-ahead saw, as [`Writer::put`] would. Most stores
    /// are like this. They need no plan: the old item only says where the new one goes. `Err` if
    /// there is more to do; then nothing has been stored, but an item may have been written, for
    /// [`Writer::put`] to continue with.
    #[inline(always)]
    pub(crate) fn set_over(
        &mut self,
        key: &Key<'_>,
        ahead: &Ahead,
        put: &Put,
        value: &[u8],
    ) -> Result<Stored, Option<Slot>> {
        let local = self.local;
        let fits = key.bytes.len() <= KEY_MAX
            && value.len() + key.bytes.len() <= local.shared.item_size_max;
        // What few sets have would cost all of them.
        let is_plain = put.tags[0].is_none() && !put.expiry.is_fine();
        if put.mode != Mode::Set || !fits || !is_plain {
            return Err(None);
        }
        let (place, old) = local.recall(key, *ahead, self.now).ok_or(None)?;
        let old_at = place.slot.location();
        let log = &local.shared.log;
        let entry = log.entry_of(old_at);
        let open = &mut self.open[entry.queue() as usize];
        let cas_above = match old.explicit_cas() {
            Some(cas) => cas,
            None => log.cas_in(&entry, old_at),
        };
        let draft = Draft {
            key: key.bytes,
            key_is_binary: put.key_is_binary,
            client_flags: put.client_flags,
            cas: put.cas.or_else(|| log.cas_after(open, cas_above)),
            expiry: put.expiry.given(),
            fine: false,
            tags: &[],
            access: local.shared.access_time(self.now) | known_mark(put),
            value_len: value.len(),
            chunks: None,
        };
        let total = draft.layout().total;
        if total > local.shared.whole_max {
            return Err(None);
        }
        let space = log.append(open, total, Purpose::Items).ok_or(None)?;
        let (new, body) = self.fill_header(key.hash, space, &draft);
        copy_short(body, value);
        if !self.try_replace(place, new, |_| {}) {
            return Err(Some(new));
        }
        Ok(Stored::Stored {
            cas: match put.return_cas {
                true => draft.cas.unwrap_or_else(|| log.cas_of(new.location())),
                false => 0,
            },
            value_len: value.len(),
            over_newer: false,
        })
    }

    /// Stores `body` under `key` as `put` says, looking first where the look-ahead saw the item.
    /// `written` is a whole item made from it that is not published yet, if there is one.
    pub(crate) fn put(
        &mut self,
        key: &Key<'_>,
        mut ahead: Ahead,
        put: &Put,
        body: Body<'_>,
        mut written: Option<Slot>,
    ) -> Stored {
        let limit = self.local.shared.item_size_max;
        if key.bytes.len() > KEY_MAX || body.len() + key.bytes.len() > limit {
            return Stored::Refused(Refused::TooLarge);
        }
        loop {
            if let Body::Upload(upload) = body
                && upload.is_doubtful()
            {
                self.abandon_if_any(written);
                return Stored::Refused(Refused::OutOfMemory);
            }
            // Before the old item is looked at.
            let tags = match self.tag_words(&put.tags) {
                Ok(tags) => tags,
                Err(refused) => {
                    self.abandon_if_any(written);
                    return Stored::Refused(refused);
                }
            };
            let mut cas_on_flash = 0;
            let old = match self.local.recall(key, ahead, self.now) {
                Some(seen) => Some(seen),
                None => match self.local.find_live(key, self.now) {
                    Ok(found) => Some(found),
                    Err(Miss::OnFlash(_)) if put.mode == Mode::Set => {
                        cas_on_flash = self.local.cas_max_on_flash(key.hash);
                        None
                    }
                    Err(Miss::OnFlash(place)) => {
                        self.abandon_if_any(written);
                        return Stored::OnFlash(place);
                    }
                    Err(_) => None,
                },
            };
            // If that is lost, the next attempt looks it up again.
            ahead = Ahead::NONE;
            if let Some((place, item)) = old
                && put.mode.depends_on_the_old()
                && self.local.is_stale_by_tag(item)
            {
                match self.mark_stale_by_tag(place, item) {
                    Ok(_) => continue,
                    Err(refused) => {
                        self.abandon_if_any(written);
                        return Stored::Refused(refused);
                    }
                }
            }
            let plan = match self.plan(put, tags, old) {
                Ok(plan) => PutPlan {
                    cas_on_flash,
                    on_flash: match put.mode {
                        Mode::Set => OnFlash::IsDropped,
                        _ => OnFlash::IsLookedAt,
                    },
                    ..plan
                },
                // What it was decided by is no item any more.
                Err(_) if self.is_lost(old) => continue,
                Err(outcome) => {
                    self.abandon_if_any(written);
                    return outcome;
                }
            };
            let value_len = body.len()
                + old
                    .filter(|_| plan.join != Join::Replace)
                    .map_or(0, |(_, item)| item.value_len());
            if value_len + key.bytes.len() > limit {
                // memcached's append gives no other reason when the whole would be too large.
                self.abandon_if_any(written);
                return Stored::NotStored;
            }
            let draft = Draft {
                key: key.bytes,
                key_is_binary: plan.key_is_binary,
                client_flags: plan.client_flags,
                cas: put.cas,
                expiry: plan.expiry,
                fine: plan.fine,
                tags: &plan.tags,
                access: self.access_word(plan.marks),
                value_len,
                chunks: None,
            };
            let reused = match written.take() {
                Some(written) => self.reuse(key, &draft, &plan, old, written),
                None => Ok(None),
            };
            let new = match reused {
                Ok(Some(reused)) => Ok(reused),
                Ok(None) => self.write_new(key, &draft, &plan, old, body),
                Err(refused) => Err(refused),
            };
            let new = match new {
                Ok(new) => new,
                Err(refused) => return Stored::Refused(refused),
            };
            if let Body::Upload(upload) = body
                && upload.is_doubtful()
            {
                self.local.abandon(new.location());
                return Stored::Refused(Refused::OutOfMemory);
            }
            match self.publish_put(key, new, &plan, old) {
                LinkOutcome::Done => {
                    return Stored::Stored {
                        cas: self.told_cas(put, new),
                        value_len,
                        over_newer: plan.over_newer,
                    };
                }
                // The value need not be copied again.
                LinkOutcome::Raced if plan.is_fresh() => written = Some(new),
                LinkOutcome::Raced => self.local.abandon(new.location()),
                LinkOutcome::Refused(refused) => {
                    self.local.abandon(new.location());
                    return Stored::Refused(refused);
                }
            }
        }
    }

    /// The CAS of a new item that the client is told, if any.
    fn told_cas(&self, put: &Put, new: Slot) -> u64 {
        if put.return_cas {
            let item = self.local.item_of(new);
            self.local.cas_at(new.location(), item)
        } else {
            0
        }
    }

    /// Decides from the mode and the old item. `Err` is an answer that changes nothing.
    #[inline]
    fn plan(
        &self,
        put: &Put,
        tags: TagWords,
        old: Option<(Place<'p>, RawItem<'p>)>,
    ) -> Result<PutPlan, Stored> {
        let known = known_mark(put);
        let fresh = PutPlan {
            join: Join::Replace,
            client_flags: put.client_flags,
            expiry: put.expiry.given(),
            fine: put.expiry.is_fine(),
            tags,
            key_is_binary: put.key_is_binary,
            marks: known,
            over_newer: false,
            cas_on_flash: 0,
            on_flash: OnFlash::IsLookedAt,
        };
        let Some((place, item)) = old else {
            return match put.mode {
                Mode::Set | Mode::Add | Mode::AppendOrSet | Mode::PrependOrSet => Ok(fresh),
                Mode::Replace | Mode::Append | Mode::Prepend => Err(Stored::NotStored),
                Mode::Cas => Err(Stored::NotFound),
            };
        };
        let join = match put.mode {
            Mode::Set | Mode::Replace => return Ok(fresh),
            Mode::Add => {
                place.warm();
                return Err(Stored::NotStored);
            }
            Mode::Cas => {
                let cas = self.local.cas_at(place.slot.location(), item);
                return if put.compare != 0 && put.compare == cas {
                    Ok(fresh)
                } else if put.compare != 0 && put.allow_stale && put.compare < cas {
                    let won = item.access() & mark::WON;
                    Ok(PutPlan {
                        expiry: item.expiry_field(),
                        fine: item.has_fine_expiry(),
                        marks: known | mark::STALE | won,
                        over_newer: true,
                        ..fresh
                    })
                } else {
                    Err(Stored::Exists)
                };
            }
            Mode::Append | Mode::AppendOrSet => Join::Behind,
            Mode::Prepend | Mode::PrependOrSet => Join::Before,
        };
        if put.compare != 0 && put.compare != self.local.cas_at(place.slot.location(), item) {
            return Err(Stored::Exists);
        }
        Ok(PutPlan {
            join,
            client_flags: item.client_flags(),
            expiry: item.expiry_field(),
            fine: item.has_fine_expiry(),
            tags: TagWords::of(item.tags()),
            // As in memcached, an item made from two does not keep how its key was sent.
            key_is_binary: false,
            ..fresh
        })
    }

    /// Writes the item of `plan` for the first time.
    #[inline]
    fn write_new(
        &mut self,
        key: &Key<'_>,
        draft: &Draft<'_>,
        plan: &PutPlan,
        old: Option<(Place<'p>, RawItem<'p>)>,
        body: Body<'_>,
    ) -> Result<Slot, Refused> {
        let location = old.map(|(place, _)| place.slot.location());
        let queue = self.queue_for(key.hash, location);
        let cas_above = self.cas_above(plan, old);
        match (plan.join, old) {
            (Join::Behind, Some((_, item))) => {
                self.write(key.hash, queue, draft, &[Body::Item(item), body], cas_above)
            }
            (Join::Before, Some((_, item))) => {
                self.write(key.hash, queue, draft, &[body, Body::Item(item)], cas_above)
            }
            _ => match body {
                Body::Upload(upload) => self.adopt(upload, queue, draft, cas_above),
                _ => self.write(key.hash, queue, draft, &[body], cas_above),
            },
        }
    }

    /// The item of `plan`, made from `written`, which has lost a race: `written` itself, if it can
    /// replace the item that is there now, or a new head for its pieces. `None` if it has to be
    /// rewritten.
    #[cold]
    fn reuse(
        &mut self,
        key: &Key<'_>,
        draft: &Draft<'_>,
        plan: &PutPlan,
        old: Option<(Place<'p>, RawItem<'p>)>,
        written: Slot,
    ) -> Result<Option<Slot>, Refused> {
        let log = &self.local.shared.log;
        let item = self.local.item_of(written);
        // If a flush or a tag has killed it meanwhile, it would be dead when published.
        let is_whole = !self.local.is_unsettled() || !self.local.is_lost(written.location(), item);
        let has_its_tags = item.tags().eq(draft.tags.iter().copied());
        let is_of_use =
            is_whole && plan.is_fresh() && has_its_tags && !log.is_flushed(written.location());
        let cas_above = self.cas_above(plan, old);
        let cas = self.local.cas_at(written.location(), item);
        if is_of_use && (draft.cas.is_some() || cas > cas_above) {
            return Ok(Some(written));
        }
        if !is_of_use || !item.is_head() {
            self.local.abandon(written.location());
            if !is_whole {
                self.leave_lost();
            }
            return Ok(None);
        }
        let queue = log.entry_of(written.location()).queue();
        let pieces: Vec<Location> = item.pieces().collect();
        let new = self.write_head(key.hash, queue, draft, &pieces, cas_above);
        match new {
            Ok(_) => self.local.abandon_head(written.location()),
            Err(_) => self.local.abandon(written.location()),
        }
        new.map(Some)
    }

    /// The CAS that the new item's CAS must exceed.
    fn cas_above(&self, plan: &PutPlan, old: Option<(Place<'p>, RawItem<'p>)>) -> u64 {
        old.map_or(plan.cas_on_flash, |(place, item)| {
            self.local.cas_at(place.slot.location(), item)
        })
    }

    /// Publishes what was written, in place of `old` if that is still there.
    #[inline]
    fn publish_put(
        &mut self,
        key: &Key<'_>,
        new: Slot,
        plan: &PutPlan,
        old: Option<(Place<'p>, RawItem<'p>)>,
    ) -> LinkOutcome {
        let Some((place, item)) = old else {
            return self.try_link(key, new, plan.on_flash);
        };
        let done = self.try_replace(place, new, |new_item| {
            if !plan.is_fresh() {
                // The item may have been touched, or its token won, since the plan was made.
                let expiry = item.expiry();
                self.local
                    .shared
                    .log
                    .entry_of(new.location())
                    .note_expiry(expiry);
                new_item.set_expiry(expiry);
            }
            if plan.over_newer {
                new_item.change_marks(item.access() & mark::WON, 0);
            }
        });
        if !done {
            return LinkOutcome::Raced;
        }
        LinkOutcome::Done
    }

    /// Whether a part of the item that was found is lost. Then the next lookup does not find it.
    fn is_lost(&self, old: Option<(Place<'p>, RawItem<'p>)>) -> bool {
        self.local.is_unsettled()
            && old.is_some_and(|(place, item)| self.local.is_lost(place.slot.location(), item))
    }

    fn abandon_if_any(&self, written: Option<Slot>) {
        if let Some(written) = written {
            self.local.abandon(written.location());
        }
    }
}
