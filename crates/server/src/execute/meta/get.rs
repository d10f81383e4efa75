//! `mg`.

use coua_protocol::reply::{MetaFacts, MetaHead, MetaKey};
use coua_protocol::{ErrorLine, Flags, Meta};
use coua_store::{
    Access, Burst, Expiry, FetchedGet, FlashPlace, Item, Key, MetaGet, MetaHit, MetaMiss, Miss,
    Refused, UnixTime,
};

use super::meta_key;
use crate::execute::flash::{Back, Reading};
use crate::execute::tags::tag_numbers;
use crate::execute::{Answers, Executor, Request, To, stored_key};
use crate::outcome::Outcome;
use crate::output::{IN_PLACE_LEN_MIN, InPlace, Question};
use crate::session::Session;

impl Executor<'_, '_> {
    pub(in crate::execute) fn meta_get(
        &mut self,
        mut request: Request<'_>,
        meta: &Meta,
    ) -> Outcome {
        let mut room = None;
        let bytes = stored_key(meta.key, meta.key_base64(), request.input, &mut room);
        if meta.names_tag() {
            return self.answers.tag(meta, request.input, bytes);
        }
        let key = self.key(bytes, request.hash);
        loop {
            if meta.set.has(b'v') && self.must_wait_for_pin(&key, request.gives_up) {
                return Outcome::Wait;
            }
            let mut get = self.answers.meta_get_request(meta, request.input);
            let ends_it = get
                .touch
                .filter(|expiry| self.is_last_of_large(meta, &key, *expiry));
            if ends_it.is_some() {
                get.touch = None;
            }
            let place = match self.meta_lookup(&mut request, meta, &key, &get) {
                Ok(outcome) => {
                    if let Some(expiry) = ends_it
                        && outcome != Outcome::Wait
                    {
                        // Whether it was still there does not matter: now it is gone.
                        let _ = self.burst.touch(&key, expiry, get.access);
                    }
                    return outcome;
                }
                Err(place) => place,
            };
            if let Some(outcome) = self.meta_get_from_flash(&mut request, meta, &key, &get, place) {
                return outcome;
            }
        }
    }

    /// Whether the request ends an item whose value it sends in place. Such an item is looked up
    /// twice, so it must not end before the answer.
    fn is_last_of_large(&self, meta: &Meta, key: &Key<'_>, expiry: Expiry) -> bool {
        let access = Access {
            bump: false,
            cas: false,
        };
        expiry.is_past(self.answers.now.time)
            && meta.set.has(b'v')
            && self
                .burst
                .get(key, access)
                .is_ok_and(|item| item.value_len() >= IN_PLACE_LEN_MIN)
    }

    /// Looks the item up and answers; `Err` if it is on flash: then nothing has been done.
    fn meta_lookup(
        &mut self,
        request: &mut Request<'_>,
        meta: &Meta,
        key: &Key<'_>,
        get: &MetaGet,
    ) -> Result<Outcome, FlashPlace> {
        let known = match self.burst.meta_get(key, get) {
            Err(MetaMiss::Miss(Miss::OnFlash(place))) => return Err(place),
            Ok(hit) => {
                self.answers.count_meta_hit(meta);
                let known = Known::of(&hit);
                if !is_sent_in_place(meta, &hit.item) {
                    let flags = meta.flags(request.input);
                    return Ok(self
                        .answers
                        .meta_hit(meta, flags, &known, key.bytes, &hit.item));
                }
                Ok(known)
            }
            Err(miss) => Err(miss),
        };
        Ok(self.meta_answer(request, meta, key, get, known))
    }

    /// Answers what [`Self::meta_lookup`] has not: a miss, or a value that is sent in place.
    fn meta_answer(
        &mut self,
        request: &mut Request<'_>,
        meta: &Meta,
        key: &Key<'_>,
        get: &MetaGet,
        known: Result<Known, MetaMiss>,
    ) -> Outcome {
        let flags = meta.flags(request.input);
        let known = match known {
            Ok(known) => known,
            Err(MetaMiss::Refused(Refused::Wait) | MetaMiss::Untouched(Refused::Wait))
                if !request.gives_up =>
            {
                return Outcome::Wait;
            }
            Err(MetaMiss::Untouched(_)) => {
                return self.answers.error(ErrorLine::OutOfMemoryStoring, To::Line);
            }
            Err(miss) => return self.answers.meta_miss(meta, flags, key.bytes, miss),
        };
        // Another worker may have replaced or deleted it since. The whole answer is of one item.
        let access = Access {
            bump: false,
            cas: get.access.cas,
        };
        match self.burst.get_ahead(key, request.ahead, access) {
            Ok(item) if item.is_doubtful() => {
                let absent = MetaMiss::Miss(Miss::Absent);
                self.answers.meta_miss(meta, flags, key.bytes, absent)
            }
            Ok(item) if is_sent_in_place(meta, &item) => {
                let burst = Some(&self.burst);
                self.answers
                    .meta_value_in_place(burst, request.session, meta, flags, &known, &item)
            }
            Ok(item) => self.answers.meta_hit(meta, flags, &known, key.bytes, &item),
            Err(miss) => self
                .answers
                .meta_miss(meta, flags, key.bytes, MetaMiss::Miss(miss)),
        }
    }

    /// Answers an item that is on flash. `None`: the request is to look it up again.
    #[cold]
    fn meta_get_from_flash(
        &mut self,
        request: &mut Request<'_>,
        meta: &Meta,
        key: &Key<'_>,
        get: &MetaGet,
        place: FlashPlace,
    ) -> Option<Outcome> {
        let only_reads = get.touch.is_none() && get.recache.is_none();
        if only_reads {
            let at = match self.reading(request, place) {
                Reading::Later(outcome) => return Some(outcome),
                Reading::Never => {
                    let (flags, absent) = (meta.flags(request.input), MetaMiss::Miss(Miss::Absent));
                    return Some(self.answers.meta_miss(meta, flags, key.bytes, absent));
                }
                Reading::Again => return None,
                Reading::Record(at) => at,
            };
            let fetched = self.fetches.record(at)?;
            match self.burst.get_fetched(key, place, fetched, get.access) {
                FetchedGet::Hit(item) if item.is_marked() || item.is_stale_by_tag() => {}
                FetchedGet::Hit(item) => {
                    let outcome = self.answers.meta_record(request, meta, &item);
                    self.fetches.note_used(at);
                    return Some(outcome);
                }
                FetchedGet::InPieces { item, .. } if item.is_marked() || item.is_stale_by_tag() => {
                }
                FetchedGet::InPieces { item, .. } if !sends_value(meta, &item) => {
                    let outcome = self.answers.meta_record(request, meta, &item);
                    self.fetches.note_used(at);
                    return Some(outcome);
                }
                FetchedGet::InPieces { comes_back, .. } => {
                    let is_from_memory = request.session.message.is_some();
                    if !comes_back && !is_from_memory {
                        return self.begin_meta_get(request, meta, key, place, at);
                    }
                    match self.bring_back(request, key, place) {
                        Back::Later(Outcome::Wait) | Back::Refused if !is_from_memory => {
                            return self.begin_meta_get(request, meta, key, place, at);
                        }
                        Back::Again => return None,
                        Back::Later(outcome) => return Some(outcome),
                        Back::Refused => {
                            return Some(
                                self.answers.error(ErrorLine::OutOfMemoryStoring, To::Line),
                            );
                        }
                    }
                }
                // Whoever makes one where there is none finds none now.
                FetchedGet::OtherKey | FetchedGet::Moved | FetchedGet::Dead(_) => return None,
            }
        }
        match self.bring_back(request, key, place) {
            Back::Again => None,
            Back::Later(outcome) => Some(outcome),
            Back::Refused => Some(self.answers.error(ErrorLine::OutOfMemoryStoring, To::Line)),
        }
    }
}

impl Answers<'_> {
    fn meta_miss(&mut self, meta: &Meta, flags: Flags<'_>, key: &[u8], miss: MetaMiss) -> Outcome {
        self.counters.cmd_get.add(1);
        self.counters.get_misses.add(1);
        if let MetaMiss::Miss(miss) = miss {
            self.count_miss(miss);
        }
        if !meta.quiet() {
            let facts = MetaFacts {
                key: meta_key(key, meta),
                ..MetaFacts::default()
            };
            self.output
                .reply(|reply| reply.meta(MetaHead::Miss, flags, &facts));
        }
        Outcome::Done
    }

    /// Answers a hit. Its value, if that is asked for, is copied.
    fn meta_hit(
        &mut self,
        meta: &Meta,
        flags: Flags<'_>,
        known: &Known,
        key: &[u8],
        item: &Item<'_>,
    ) -> Outcome {
        let start = self.output.next_start();
        let outcome = self.copied_hit(meta, flags.clone(), known, item);
        if item.is_doubtful() {
            // A part of it is lost, so it is no item.
            self.output.truncate(start);
            return self.meta_miss(meta, flags, key, MetaMiss::Miss(Miss::Absent));
        }
        outcome
    }

    fn copied_hit(
        &mut self,
        meta: &Meta,
        flags: Flags<'_>,
        known: &Known,
        item: &Item<'_>,
    ) -> Outcome {
        let facts = self.facts(meta, known, item);
        if !sends_value(meta, item) {
            self.output
                .reply(|reply| reply.meta(MetaHead::Done, flags, &facts));
        } else if let Some(value) = item.as_slice() {
            self.output
                .reply(|reply| reply.meta_value(flags, &facts, value));
        } else {
            let head = MetaHead::Value(item.value_len());
            self.output.reply(|reply| reply.meta(head, flags, &facts));
            self.copy_value(item);
            self.output.reply(|reply| reply.bytes(b"\r\n"));
        }
        Outcome::Done
    }

    /// Answers and counts an item that was read from flash, where nothing is asked beyond that.
    fn meta_record(&mut self, request: &mut Request<'_>, meta: &Meta, item: &Item<'_>) -> Outcome {
        self.count_meta_hit(meta);
        self.count_record(item);
        let known = Known::of_record(item, self.now.time);
        let flags = meta.flags(request.input);
        match is_sent_in_place(meta, item) {
            true => self.meta_value_in_place(None, request.session, meta, flags, &known, item),
            false => self.copied_hit(meta, flags, &known, item),
        }
    }

    /// Answers a hit whose value is sent in place; without a burst one that was read from flash.
    fn meta_value_in_place(
        &mut self,
        burst: Option<&Burst<'_>>,
        session: &mut Session,
        meta: &Meta,
        flags: Flags<'_>,
        known: &Known,
        item: &Item<'_>,
    ) -> Outcome {
        let reply_start = self.output.next_start();
        self.meta_value_head(meta, flags, known, item);
        let value = InPlace {
            item,
            question: Question::Meta,
            reply_start,
        };
        self.send_in_place(burst, session, &value)
    }

    /// Writes what stands before a value that is not copied into the reply.
    fn meta_value_head(&mut self, meta: &Meta, flags: Flags<'_>, known: &Known, item: &Item<'_>) {
        let facts = self.facts(meta, known, item);
        let head = MetaHead::Value(item.value_len());
        self.output.reply(|reply| reply.meta(head, flags, &facts));
    }

    /// As [`Self::meta_record`], of an item whose value is sent from its pieces on flash.
    pub(in crate::execute) fn meta_record_head(
        &mut self,
        meta: &Meta,
        input: &[u8],
        item: &Item<'_>,
    ) -> Question {
        self.count_meta_hit(meta);
        self.count_record(item);
        let known = Known::of_record(item, self.now.time);
        self.meta_value_head(meta, meta.flags(input), &known, item);
        Question::Meta
    }

    fn facts<'i>(&self, meta: &Meta, known: &Known, item: &Item<'i>) -> MetaFacts<'i> {
        let ttl = self.ttl_shown(meta, known.expiry_before, known.created);
        MetaFacts {
            key: MetaKey {
                bytes: item.key(),
                base64: item.key_is_binary(),
            },
            cas: Some(self.shown_cas(item.cas())),
            value_len: u32::try_from(item.value_len()).ok(),
            client_flags: Some(item.client_flags()),
            ttl: Some(ttl.seconds),
            ttl_ms: Some(ttl.ms),
            tags: meta.set.has(b'g').then(|| tag_numbers(item)),
            idle: Some(known.idle_seconds),
            fetched: Some(known.fetched_before),
            token_sent: known.token_sent,
            stale: known.stale,
            won: known.won,
        }
    }

    fn meta_get_request(&self, meta: &Meta, input: &[u8]) -> MetaGet {
        let vivify = meta.vivify().map(|_| self.expiry_of_created(meta));
        let recache = meta.recache().map(|exptime| self.fine_expiry(exptime));
        let touch = meta.touch().map(|exptime| self.fine_expiry(exptime));
        let touch_first = recache.is_some()
            && touch.is_some()
            && meta
                .flags(input)
                .find(|(flag, _)| matches!(flag, b'T' | b'R'))
                .is_some_and(|(flag, _)| flag == b'T');
        MetaGet {
            access: Access {
                bump: !meta.set.has(b'u'),
                cas: meta.set.has(b'c') || meta.set.has(b'C'),
            },
            vivify,
            vivify_cas: meta.explicit_cas(),
            tags: self.tags_if_given(meta, input),
            recache,
            touch,
            touch_first,
        }
    }

    fn count_meta_hit(&self, meta: &Meta) {
        if meta.touch().is_some() {
            self.counters.cmd_touch.add(1);
            self.counters.touch_hits.add(1);
        } else {
            self.counters.cmd_get.add(1);
            self.counters.get_hits.add(1);
        }
    }
}

/// What `mg` shows of an item and the item itself does not know.
struct Known {
    created: bool,
    won: bool,
    stale: bool,
    token_sent: bool,
    expiry_before: Expiry,
    idle_seconds: u32,
    fetched_before: bool,
}

impl Known {
    /// Of an item that was read from flash.
    fn of_record(item: &Item<'_>, now: UnixTime) -> Known {
        Known {
            created: false,
            won: false,
            stale: false,
            token_sent: false,
            expiry_before: item.expiry(),
            idle_seconds: item.idle_seconds(now),
            fetched_before: item.fetched(),
        }
    }

    fn of(hit: &MetaHit<'_>) -> Known {
        Known {
            created: hit.created,
            won: hit.won,
            stale: hit.stale,
            token_sent: hit.token_sent,
            expiry_before: hit.expiry_before,
            idle_seconds: hit.idle_seconds,
            fetched_before: hit.fetched_before,
        }
    }
}

/// Whether the value is sent: it is asked for, and the client has not got it already (`C`).
fn sends_value(meta: &Meta, item: &Item<'_>) -> bool {
    meta.set.has(b'v') && meta.cas().is_none_or(|cas| cas != item.cas())
}

/// Whether the value is sent from the store without a copy.
fn is_sent_in_place(meta: &Meta, item: &Item<'_>) -> bool {
    item.value_len() >= IN_PLACE_LEN_MIN && sends_value(meta, item)
}
