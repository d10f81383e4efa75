//! Commands that answer with values: `get`, `gat`, and their binary forms.
//!
//! A small value is copied into the reply. A large one is sent from the store, and pinned there
//! until the client has taken it.

use coua_protocol::reply::{BinaryAnswer, Line};
use coua_protocol::{ErrorLine, Span};
use coua_store::{Access, Ahead, Burst, Item, Key, Miss, Refused, Untouched};

use super::binary::ItemForm;
use super::flash::Back;
use super::{Answers, Executor, Request, To};
use crate::cluster::CLUSTER_KEY;
use crate::outcome::Outcome;
use crate::output::{COPIED_LEN_MAX, Flushed, InPlace, Question};
use crate::prefixes::PrefixEvent;
use crate::session::Session;

impl Executor<'_, '_> {
    #[inline]
    pub(super) fn get(
        &mut self,
        request: Request<'_>,
        key: Span,
        cas: bool,
        last: bool,
    ) -> Outcome {
        self.get_in_form(request, key, ItemForm::Classic { cas, last })
    }

    /// Executes a key of a `get` on the fast path, which needs room for the reply and a value that
    /// is copied into it. Returns whether there was an item, or `None` if there is more to do: then
    /// nothing has been answered. It counts only the reason of a miss.
    #[inline]
    pub fn try_get_fast(
        &mut self,
        key: &Key<'_>,
        ahead: Ahead,
        cas: bool,
        last: bool,
    ) -> Option<bool> {
        let form = ItemForm::Classic { cas, last };
        if !self.answers.output.has_room() {
            return None;
        }
        match self.burst.get_ahead(key, ahead, form.access(true)) {
            Ok(item) if form.is_copied(&item) && !(cas && item.is_stale_by_tag()) => {
                let start = self.answers.output.next_start();
                self.answers.copied_value(&item, form);
                if self.burst.is_unsettled() {
                    // Perhaps it is lost: the general path finds out.
                    self.answers.output.truncate(start);
                    return None;
                }
                Some(true)
            }
            Ok(_) | Err(Miss::OnFlash(_)) => None,
            // The general path answers it.
            Err(_) if self.answers.is_cluster_key(key.bytes) => None,
            Err(miss) => {
                self.answers.count_miss(miss);
                self.answers.no_value(key.bytes, form);
                Some(false)
            }
        }
    }

    /// Inlined into each caller, which knows the form: so a classic get has no code for binary.
    #[inline(always)]
    pub(super) fn get_in_form(
        &mut self,
        mut request: Request<'_>,
        key: Span,
        form: ItemForm,
    ) -> Outcome {
        let sent = key.of(request.input);
        let key = self.key(sent, request.hash);
        let mut found = self.burst.get_ahead(&key, request.ahead, form.access(true));
        if let Err(Miss::OnFlash(place)) = found {
            if let Some(outcome) = self.get_from_flash(&mut request, &key, form, place) {
                return outcome;
            }
            found = self.burst.get(&key, form.access(true));
        }
        if found.as_ref().is_ok_and(Item::is_doubtful) {
            // Then it is none, as this finds out.
            found = self.burst.get(&key, form.access(true));
        }
        if form.access(true).cas
            && let Ok(item) = &found
            && item.is_stale_by_tag()
        {
            // Its CAS is not to be shown any more.
            match self.burst.mark_if_stale(&key) {
                Err(Refused::Wait) if !request.gives_up => return Outcome::Wait,
                // Without memory for another one, the old CAS is still the right one.
                Ok(()) | Err(_) => found = self.burst.get(&key, form.access(false)),
            }
        }
        if let Ok(item) = &found
            && !form.is_copied(item)
            && self.waits_for_pin(item, request.gives_up)
        {
            return Outcome::Wait;
        }
        self.answers.counters.cmd_get.add(1);
        match found {
            Ok(item) => {
                self.answers.counters.get_hits.add(1);
                self.answers.count_prefix(sent, PrefixEvent::Hit);
                self.answers
                    .value(Some(&self.burst), request.session, &item, sent, form)
            }
            Err(_) if self.answers.is_cluster_key(sent) => {
                self.answers.counters.get_hits.add(1);
                self.answers.cluster_value(form)
            }
            Err(miss) => {
                self.answers.counters.get_misses.add(1);
                self.answers.count_miss(miss);
                self.answers.count_prefix(sent, PrefixEvent::Miss);
                self.answers.no_value(sent, form)
            }
        }
    }

    /// Whether a value that is sent in place must wait until connections hold less memory.
    fn waits_for_pin(&self, item: &Item<'_>, gives_up: bool) -> bool {
        !gives_up && item.value_len() > COPIED_LEN_MAX && !self.burst.can_pin(item)
    }

    /// As [`Self::waits_for_pin`], for a request that changes the item: asked before it does so.
    pub(super) fn must_wait_for_pin(&self, key: &Key<'_>, gives_up: bool) -> bool {
        let access = Access {
            bump: false,
            cas: false,
        };
        self.burst.holds_memory()
            && self
                .burst
                .get(key, access)
                .is_ok_and(|item| self.waits_for_pin(&item, gives_up))
    }

    pub(super) fn get_and_touch(
        &mut self,
        mut request: Request<'_>,
        key: Span,
        exptime: i32,
        form: ItemForm,
    ) -> Outcome {
        let sent = key.of(request.input);
        let key = self.key(sent, request.hash);
        let expiry = self.answers.expiry(exptime);
        let access = form.access(true);
        let found = loop {
            if self.must_wait_for_pin(&key, request.gives_up) {
                return Outcome::Wait;
            }
            if access.cas
                && self.burst.mark_if_stale(&key) == Err(Refused::Wait)
                && !request.gives_up
            {
                return Outcome::Wait;
            }
            // An item that expires by this is still answered, so it is looked up before it is touched.
            let found = match expiry.is_past(self.answers.now.time) {
                true => self.burst.get(&key, access).map_err(Untouched::Miss),
                false => self.burst.touch(&key, expiry, access),
            };
            // What was found is borrowed from the burst, so it is looked at only where it stays.
            let Err(Untouched::Miss(Miss::OnFlash(place))) = found else {
                break found;
            };
            match self.bring_back(&mut request, &key, place) {
                Back::Again => {}
                Back::Later(outcome) => return outcome,
                Back::Refused => return self.answers.refuse_touch(request.session, form),
            }
        };
        let item = match found {
            Ok(item) => item,
            Err(Untouched::Refused(Refused::Wait)) if !request.gives_up => return Outcome::Wait,
            Err(Untouched::Refused(_)) => return self.answers.refuse_touch(request.session, form),
            Err(Untouched::Miss(miss)) => {
                self.answers.counters.cmd_touch.add(1);
                self.answers.counters.touch_misses.add(1);
                self.answers.count_miss(miss);
                self.answers.count_prefix(sent, PrefixEvent::Miss);
                return self.answers.no_value(sent, form);
            }
        };
        self.answers.counters.cmd_touch.add(1);
        self.answers.counters.touch_hits.add(1);
        self.answers.count_prefix(sent, PrefixEvent::Hit);
        let outcome = if form.is_copied(&item) {
            self.answers.copied_or_none(&item, sent, form)
        } else {
            // Another worker may have deleted it since. That counts as if it had done so before.
            match self.burst.get(&key, form.access(false)) {
                Ok(item) => {
                    self.answers
                        .value(Some(&self.burst), request.session, &item, sent, form)
                }
                Err(_) => self.answers.no_value(sent, form),
            }
        };
        if expiry.is_past(self.answers.now.time) {
            // Whether it was still there does not matter: now it is gone.
            let _ = self.burst.touch(&key, expiry, access);
        }
        outcome
    }
}

impl Answers<'_> {
    /// Answers an item of a `get`; without a burst one that was read from flash.
    #[inline(always)]
    pub(super) fn value(
        &mut self,
        burst: Option<&Burst<'_>>,
        session: &mut Session,
        item: &Item<'_>,
        key: &[u8],
        form: ItemForm,
    ) -> Outcome {
        if form.is_copied(item) {
            return self.copied_or_none(item, key, form);
        }
        self.value_in_place(burst, session, item, form)
    }

    fn value_in_place(
        &mut self,
        burst: Option<&Burst<'_>>,
        session: &mut Session,
        item: &Item<'_>,
        form: ItemForm,
    ) -> Outcome {
        let reply_start = self.output.next_start();
        let question = self.value_head(item, form);
        let value = InPlace {
            item,
            question,
            reply_start,
        };
        self.send_in_place(burst, session, &value)
    }

    /// Writes what stands before a value that is not copied into the reply.
    pub(super) fn value_head(&mut self, item: &Item<'_>, form: ItemForm) -> Question {
        match form {
            ItemForm::Classic { cas, last } => {
                let (key, flags) = (item.key(), item.client_flags());
                let cas = cas.then(|| self.shown_cas(item.cas()));
                self.output
                    .reply(|reply| reply.value_line(key, flags, cas, item.value_len()));
                Question::Classic { last }
            }
            ItemForm::Binary(binary) => {
                self.binary_head(item, binary);
                Question::Binary(binary.asked)
            }
        }
    }

    /// Answers an item of a `get` whose value is copied; as if it were none, if the machine has lost
    /// a part of it.
    #[inline]
    fn copied_or_none(&mut self, item: &Item<'_>, key: &[u8], form: ItemForm) -> Outcome {
        let start = self.output.next_start();
        let outcome = self.copied_value(item, form);
        if item.is_doubtful() {
            self.output.truncate(start);
            return self.no_value(key, form);
        }
        outcome
    }

    /// Answers an item of a `get` whose value is copied.
    #[inline(always)]
    fn copied_value(&mut self, item: &Item<'_>, form: ItemForm) -> Outcome {
        let (cas, last) = match form {
            ItemForm::Classic { cas, last } => (cas, last),
            ItemForm::Binary(form) => return self.copied_binary_value(item, form),
        };
        let (key, flags) = (item.key(), item.client_flags());
        let cas = cas.then(|| self.shown_cas(item.cas()));
        let value_len = item.value_len();
        if let Some(value) = item.as_slice() {
            self.output
                .reply(|reply| reply.value(key, flags, cas, value, last));
            return Outcome::Done;
        }
        self.output
            .reply(|reply| reply.value_line(key, flags, cas, value_len));
        self.copy_value(item);
        self.output.reply(|reply| reply.bytes(b"\r\n"));
        self.end_if(last)
    }

    /// Appends a value that lies in pieces.
    pub(super) fn copy_value(&mut self, item: &Item<'_>) {
        for chunk in item.value() {
            self.output.reply(|reply| reply.bytes(chunk));
        }
    }

    /// Answers that there is no memory for an item's first expiry. Nothing has been done.
    fn refuse_touch(&mut self, session: &mut Session, form: ItemForm) -> Outcome {
        let to = match form {
            ItemForm::Classic { last, .. } => {
                // The error line ends the answer, as it does when a value is refused.
                session.skips_keys = !last;
                To::Line
            }
            ItemForm::Binary(binary) => To::Binary(binary.asked),
        };
        self.error(ErrorLine::OutOfMemoryStoring, to)
    }

    /// Whether a key that is missed is the one under which clients of old look for the list of servers.
    #[inline]
    fn is_cluster_key(&self, key: &[u8]) -> bool {
        key.len() == CLUSTER_KEY.len()
            && self.shared.settings.cluster.is_some()
            && key == CLUSTER_KEY
    }

    /// Answers with the list of servers.
    #[cold]
    fn cluster_value(&mut self, form: ItemForm) -> Outcome {
        let Some(cluster) = self.shared.cluster() else {
            return self.no_value(CLUSTER_KEY, form);
        };
        let value = &cluster.value;
        match form {
            ItemForm::Classic { cas, last } => {
                let cas = cas.then_some(0);
                self.output
                    .reply(|reply| reply.value(CLUSTER_KEY, 0, cas, value, last));
            }
            ItemForm::Binary(binary) => {
                let answer = BinaryAnswer {
                    cas: 0,
                    client_flags: Some(0),
                    key: if binary.with_key { CLUSTER_KEY } else { b"" },
                    value_len: if binary.with_value { value.len() } else { 0 },
                };
                self.output
                    .reply(|reply| reply.binary(binary.asked, &answer));
                if binary.with_value {
                    self.output.reply(|reply| reply.bytes(value));
                }
            }
        }
        Outcome::Done
    }

    /// Answers that there is no item.
    #[inline]
    pub(super) fn no_value(&mut self, key: &[u8], form: ItemForm) -> Outcome {
        match form {
            ItemForm::Classic { last, .. } => self.end_if(last),
            ItemForm::Binary(binary) => self.binary_miss(key, binary),
        }
    }

    /// Sends the replies so far, and a large value after them.
    pub(super) fn send_in_place(
        &mut self,
        burst: Option<&Burst<'_>>,
        session: &mut Session,
        value: &InPlace<'_>,
    ) -> Outcome {
        let flushed = self
            .output
            .flush_with_value(value, burst, session, self.pool);
        if flushed == Flushed::Refused {
            self.counters.values_refused.add(1);
            // The error line ends the answer, as in memcached: a client reads nothing after it.
            session.skips_keys = matches!(value.question, Question::Classic { last: false });
        }
        flushed.into()
    }

    pub(super) fn get_end(&mut self) -> Outcome {
        self.end_if(true)
    }

    #[inline]
    pub(super) fn end_if(&mut self, last: bool) -> Outcome {
        if last {
            self.output.reply(|reply| reply.line(Line::End));
        }
        Outcome::Done
    }
}
