//! Requests whose items are on flash.
//!
//! The store says that an item may be there, and does nothing. A read is begun, the session waits, and the request is
//! executed again from its beginning when the session's reads have ended. Then what was read answers it, if the
//! request only reads; any other request finds its item in memory, where that was brought back to. A record that
//! cannot be read is a miss: the store drops its slot.

use coua_store::{Access, BroughtBack, FetchStart, FetchedGet, FlashPlace, Item, Key, Miss};

use super::binary::ItemForm;
use super::{Answers, Executor, Request};
use crate::fetches::Found;
use crate::outcome::Outcome;
use crate::prefixes::PrefixEvent;
use crate::session::{Session, SessionId};

/// How often a request looks its item up again before it goes on without: others may move the item, or its tag is that of
/// many keys.
const TRIES_MAX: u8 = 16;

/// How often a request waits for reads at most.
const WAITS_MAX: u8 = 64;

/// What there is of a record that a request needs.
pub(super) enum Reading {
    /// It was read, and is this one of the session's.
    Record(u32),
    /// The request is to look its item up again.
    Again,
    /// It is to be executed again later.
    Later(Outcome),
    /// It has waited or tried for as long as it may.
    Never,
}

/// What became of an item that a request needs in memory.
pub(super) enum Back {
    /// The request is to look it up again.
    Again,
    /// It is to be executed again later.
    Later(Outcome),
    /// The item cannot be brought back; to the client that is a lack of memory.
    Refused,
}

impl Executor<'_, '_> {
    /// Answers a read of an item that is on flash. `None`: the request is to look it up again, for it is in memory
    /// or nowhere.
    #[cold]
    pub(super) fn get_from_flash(
        &mut self,
        request: &mut Request<'_>,
        key: &Key<'_>,
        form: ItemForm,
        mut place: FlashPlace,
    ) -> Option<Outcome> {
        let access = form.access(true);
        loop {
            let at = match self.reading(request, place) {
                Reading::Later(outcome) => return Some(outcome),
                Reading::Never => {
                    return Some(self.answers.get_miss(key.bytes, Miss::Absent, form));
                }
                Reading::Again => None,
                Reading::Record(at) => Some(at),
            };
            let found = at.and_then(|at| {
                let fetched = self.fetches.record(at)?;
                Some((at, self.burst.get_fetched(key, place, fetched, access)))
            });
            match found {
                Some((_, FetchedGet::Hit(item))) if access.cas && item.is_stale_by_tag() => {
                    // It gets another CAS, which what is on flash does not have.
                    match self.bring_back(request, key, place) {
                        Back::Again => {}
                        Back::Later(outcome) => return Some(outcome),
                        Back::Refused => {
                            return Some(self.answers.get_miss(key.bytes, Miss::Absent, form));
                        }
                    }
                }
                Some((at, FetchedGet::Hit(item))) => {
                    let outcome = self.answers.record_value(request.session, &item, form);
                    self.fetches.note_used(at);
                    return Some(outcome);
                }
                Some((at, FetchedGet::InPieces { item, .. })) if form.is_copied(&item) => {
                    let outcome = self.answers.record_value(request.session, &item, form);
                    self.fetches.note_used(at);
                    return Some(outcome);
                }
                Some((at, FetchedGet::InPieces { item, comes_back })) => {
                    let is_changed = access.cas && item.is_stale_by_tag();
                    let is_from_memory = is_changed || request.session.message.is_some();
                    if comes_back || is_from_memory {
                        match self.bring_back(request, key, place) {
                            Back::Again => {}
                            Back::Later(Outcome::Wait) | Back::Refused if !is_from_memory => {
                                // There is no memory for it, so it is answered from flash.
                                if let Some(outcome) = self.begin_get(request, key, place, at, form)
                                {
                                    return Some(outcome);
                                }
                            }
                            Back::Later(outcome) => return Some(outcome),
                            Back::Refused => {
                                return Some(self.answers.get_miss(key.bytes, Miss::Absent, form));
                            }
                        }
                    } else if let Some(outcome) = self.begin_get(request, key, place, at, form) {
                        return Some(outcome);
                    }
                }
                Some((_, FetchedGet::Dead(miss))) => {
                    return Some(self.answers.get_miss(key.bytes, miss, form));
                }
                Some((_, FetchedGet::OtherKey | FetchedGet::Moved)) | None => {}
            }
            match self.burst.get(key, access) {
                Err(Miss::OnFlash(other)) => place = other,
                _ => return None,
            }
        }
    }

    /// Brings the item of a request that does more than read back to memory.
    #[cold]
    pub(super) fn bring_back(
        &mut self,
        request: &mut Request<'_>,
        key: &Key<'_>,
        place: FlashPlace,
    ) -> Back {
        let at = match self.reading(request, place) {
            Reading::Later(outcome) => return Back::Later(outcome),
            Reading::Never => return Back::Refused,
            Reading::Again => return Back::Again,
            Reading::Record(at) => at,
        };
        let Some(fetched) = self.fetches.record(at) else {
            return Back::Again;
        };
        match self.burst.bring_back(key, place, fetched) {
            BroughtBack::InPieces => self.recall(request, key, place, at),
            BroughtBack::NoMemory if request.gives_up => Back::Refused,
            BroughtBack::NoMemory => Back::Later(Outcome::Wait),
            BroughtBack::InMemory
            | BroughtBack::OtherKey
            | BroughtBack::Moved
            | BroughtBack::Dead(_) => {
                self.fetches.note_used(at);
                Back::Again
            }
        }
    }

    /// What there is of a record that a request needs. Begins to read it if nobody has.
    pub(super) fn reading(&mut self, request: &mut Request<'_>, place: FlashPlace) -> Reading {
        request.flash_tries += 1;
        if request.flash_tries > TRIES_MAX {
            return Reading::Never;
        }
        let session = &mut *request.session;
        match self.fetches.find(&session.fetches, place) {
            Found::UnderWay => return Reading::Later(Outcome::WaitForFlash),
            Found::Ended(at) if self.fetches.record(at).is_some() => return Reading::Record(at),
            Found::Ended(at) => {
                self.fetches.note_used(at);
                self.burst.drop_flash(place);
                return Reading::Again;
            }
            Found::Nothing => {}
        }
        if session.fetches.waits >= WAITS_MAX {
            return Reading::Never;
        }
        match self.begin_fetch(request.id, session, place) {
            FetchStart::UnderWay => {
                session.fetches.waits += 1;
                self.answers.counters.flash_waits.add(1);
                Reading::Later(Outcome::WaitForFlash)
            }
            FetchStart::Gone => Reading::Again,
            FetchStart::Busy => {
                // What it holds for later requests may be what others wait for.
                self.fetches.release(&mut session.fetches, false);
                match session.fetches.is_waiting() {
                    true => Reading::Later(Outcome::WaitForFlash),
                    false if request.gives_up => {
                        self.answers.counters.flash_given_up.add(1);
                        Reading::Never
                    }
                    false => Reading::Later(Outcome::Wait),
                }
            }
        }
    }

    pub(super) fn begin_fetch(
        &mut self,
        id: SessionId,
        session: &mut Session,
        place: FlashPlace,
    ) -> FetchStart {
        let fetches = &mut *self.fetches;
        let started = fetches.begin(&mut self.burst, id, &mut session.fetches, place);
        session.has_fetches |= started == FetchStart::UnderWay;
        started
    }

    /// Begins to read the item of a later request, if that is on flash. False if no more can be read now.
    pub fn fetch_ahead(&mut self, id: SessionId, session: &mut Session, key: &Key<'_>) -> bool {
        let unseen = Access {
            bump: false,
            cas: false,
        };
        let Err(Miss::OnFlash(place)) = self.burst.get(key, unseen) else {
            return true;
        };
        if self.fetches.find(&session.fetches, place) != Found::Nothing {
            return true;
        }
        self.begin_fetch(id, session, place) != FetchStart::Busy
    }

    /// A session's part of the batch is over: lets go of what its requests have used, or of everything if all of
    /// them have been executed.
    #[cold]
    pub fn end_fetches(&mut self, session: &mut Session, is_whole: bool) {
        self.fetches.release(&mut session.fetches, !is_whole);
        session.has_fetches = !session.fetches.is_empty();
    }
}

impl Executor<'_, '_> {
    /// As [`Executor::end_fetches`], for a session that has nothing more to execute: also reads that are under way.
    #[inline]
    pub fn abandon_fetches(&mut self, session: &mut Session) {
        if session.has_fetches {
            self.fetches.abandon(&mut session.fetches);
            session.has_fetches = false;
        }
    }
}

impl Answers<'_> {
    /// Answers and counts a key of a `get` that finds nothing.
    pub(super) fn get_miss(&mut self, key: &[u8], miss: Miss, form: ItemForm) -> Outcome {
        self.counters.cmd_get.add(1);
        self.counters.get_misses.add(1);
        self.count_miss(miss);
        self.count_prefix(key, PrefixEvent::Miss);
        self.no_value(key, form)
    }

    /// Counts an item that was answered from flash.
    pub(super) fn count_record(&self, item: &Item<'_>) {
        self.counters.get_flash_hits.add(1);
        let bytes = item.key().len() + item.value_len();
        self.counters.flash_bytes_read.add(bytes as u64);
    }

    /// Answers and counts a key of a `get` with an item that was read from flash.
    fn record_value(&mut self, session: &mut Session, item: &Item<'_>, form: ItemForm) -> Outcome {
        self.counters.cmd_get.add(1);
        self.counters.get_hits.add(1);
        self.count_record(item);
        self.count_prefix(item.key(), PrefixEvent::Hit);
        self.value(None, session, item, item.key(), form)
    }
}
