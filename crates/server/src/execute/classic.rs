//! The classic dialect.

use coua_protocol::reply::Line;
use coua_protocol::{
    Arithmetic, ErrorLine, Span, Status, Store, StoreMode, StoreRefused, StoreReply,
};
use coua_store::{Access, Burst, Counted, Delete, Deleted, Item, Key, Mode, Put, Refused, Stored};

use super::binary::ItemForm;
use super::{Answers, Executor, Outcome, Request, To, stored_key};
use crate::output::{COPIED_LEN_MAX, Flushed, InPlace, Question};
use crate::session::Session;
use crate::stats::PrefixEvent;

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

    /// Inlined into each caller, where the form is known: a classic get asks nothing about binary.
    #[inline(always)]
    pub(super) fn get_in_form(
        &mut self,
        request: Request<'_>,
        key: Span,
        form: ItemForm,
    ) -> Outcome {
        let sent = key.of(request.input);
        let key = self.key(sent, request.hash);
        let found = self.burst.get_ahead(&key, request.ahead, form.access(true));
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
                    .value(&self.burst, request.session, &item, form)
            }
            Err(miss) => {
                self.answers.counters.get_misses.add(1);
                self.answers.count_miss(miss);
                self.answers.count_prefix(sent, PrefixEvent::Miss);
                self.answers.no_value(sent, form)
            }
        }
    }

    /// Whether a value that is sent from where it lies must wait until connections hold less memory.
    fn waits_for_pin(&self, item: &Item<'_>, gives_up: bool) -> bool {
        !gives_up && item.value_len() > COPIED_LEN_MAX && !self.burst.can_pin(item)
    }

    /// The same for a request that does more than look at an item, before it does anything.
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
        request: Request<'_>,
        key: Span,
        exptime: i32,
        form: ItemForm,
    ) -> Outcome {
        let sent = key.of(request.input);
        let key = self.key(sent, request.hash);
        if self.must_wait_for_pin(&key, request.gives_up) {
            return Outcome::Wait;
        }
        let expiry = self.answers.expiry(exptime);
        let access = form.access(true);
        self.answers.counters.cmd_touch.add(1);
        // An item that ends here is answered once more, so it is looked at before it is touched.
        let found = match expiry.is_past(self.answers.now.unix) {
            true => self.burst.get(&key, access),
            false => self.burst.touch(&key, expiry, access),
        };
        let item = match found {
            Ok(item) => item,
            Err(miss) => {
                self.answers.counters.touch_misses.add(1);
                self.answers.count_miss(miss);
                self.answers.count_prefix(sent, PrefixEvent::Miss);
                return self.answers.no_value(sent, form);
            }
        };
        self.answers.counters.touch_hits.add(1);
        self.answers.count_prefix(sent, PrefixEvent::Hit);
        let outcome = if form.is_copied(&item) {
            self.answers.copied_value(&item, form)
        } else {
            // Another worker may have deleted it since, which is as if it had done so before.
            match self.burst.get(&key, form.access(false)) {
                Ok(item) => self
                    .answers
                    .value(&self.burst, request.session, &item, form),
                Err(_) => self.answers.no_value(sent, form),
            }
        };
        if expiry.is_past(self.answers.now.unix) {
            // It may be gone by now; what matters is that it is.
            let _ = self.burst.touch(&key, expiry, access);
        }
        outcome
    }

    pub(super) fn store(&mut self, request: Request<'_>, store: &Store) -> Outcome {
        let mut room = None;
        let bytes = stored_key(store.key, store.key_base64, request.input, &mut room);
        let key = self.key(bytes, request.hash);
        let put = self.answers.put(store, request.input);
        let stored =
            self.burst
                .store_ahead(&key, request.ahead, &put, store.value.of(request.input));
        if stored == Stored::Refused(Refused::Wait) && !request.gives_up {
            return Outcome::Wait;
        }
        if let Stored::Refused(_) = stored
            && unlinks_when_refused(store)
        {
            // An old value must not outlive the attempt to replace it.
            self.burst.delete(&key, &Delete::default());
        }
        self.answers.count_prefix(bytes, PrefixEvent::Set);
        let answer = StoreAnswer {
            key: bytes,
            key_base64: store.key_base64,
            value_len: store.value_len,
            mode: store.mode,
            reply: store.reply,
            flags: store.flags(request.input),
        };
        self.answers.answer_store(stored, answer)
    }

    pub(super) fn refuse_store(&mut self, request: Request<'_>, refused: &StoreRefused) -> Outcome {
        self.answers.counters.store_too_large.add(1);
        if refused.unlink {
            let mut room = None;
            let bytes = stored_key(refused.key, refused.key_base64, request.input, &mut room);
            self.burst
                .delete(&self.key(bytes, request.hash), &Delete::default());
        }
        self.answers.error(refused.error, refused.reply.into())
    }

    pub(super) fn delete(
        &mut self,
        request: Request<'_>,
        key: Span,
        compare: Option<u64>,
        to: To,
    ) -> Outcome {
        let sent = key.of(request.input);
        let key = self.key(sent, request.hash);
        let delete = Delete {
            compare,
            ..Delete::default()
        };
        let deleted = self.burst.delete(&key, &delete);
        let line = match deleted {
            Deleted::Done => {
                self.answers.counters.delete_hits.add(1);
                Line::Deleted
            }
            Deleted::Refused(Refused::Wait) if !request.gives_up => return Outcome::Wait,
            Deleted::Refused(_) => return self.answers.error(ErrorLine::OutOfMemory, to),
            Deleted::Exists => Line::Exists,
            Deleted::NotFound(miss) => {
                self.answers.counters.delete_misses.add(1);
                self.answers.count_miss(miss);
                Line::NotFound
            }
        };
        self.answers.count_prefix(sent, PrefixEvent::Delete);
        self.answers.line(to, line)
    }

    pub(super) fn classic_arithmetic(&mut self, request: Request<'_>, op: &Arithmetic) -> Outcome {
        let to = To::line_unless(op.noreply);
        let arithmetic = coua_store::Arithmetic {
            delta: op.delta,
            decrement: op.decrement,
            compare: 0,
            cas: None,
            return_cas: false,
            vivify: None,
            touch: None,
        };
        self.arithmetic(request, op.key, &arithmetic, to)
    }

    pub(super) fn arithmetic(
        &mut self,
        request: Request<'_>,
        key: Span,
        arithmetic: &coua_store::Arithmetic,
        to: To,
    ) -> Outcome {
        let key = self.key(key.of(request.input), request.hash);
        let counted = self.burst.arithmetic(&key, arithmetic);
        if counted == Counted::Refused(Refused::Wait) && !request.gives_up {
            return Outcome::Wait;
        }
        self.answers.count_arithmetic(counted, arithmetic.decrement);
        match counted {
            Counted::Value { number, cas, .. } => self.answers.number(to, number, cas),
            Counted::NotNumeric => self.answers.error(ErrorLine::NotNumeric, to),
            Counted::Exists => self.answers.line(to, Line::Exists),
            Counted::NotFound(_) => self.answers.line(to, Line::NotFound),
            Counted::Refused(_) => self.answers.error(ErrorLine::OutOfMemory, to),
        }
    }

    pub(super) fn touch(
        &mut self,
        request: Request<'_>,
        key: Span,
        exptime: i32,
        noreply: bool,
    ) -> Outcome {
        let key = self.key(key.of(request.input), request.hash);
        self.answers.counters.cmd_touch.add(1);
        let line = match self
            .burst
            .touch(&key, self.answers.expiry(exptime), Access::default())
        {
            Ok(_) => {
                self.answers.counters.touch_hits.add(1);
                Line::Touched
            }
            Err(miss) => {
                self.answers.counters.touch_misses.add(1);
                self.answers.count_miss(miss);
                Line::NotFound
            }
        };
        self.answers.line(To::line_unless(noreply), line)
    }
}

impl Answers<'_> {
    /// Answers an item of a `get`.
    #[inline(always)]
    fn value(
        &mut self,
        burst: &Burst<'_>,
        session: &mut Session,
        item: &Item<'_>,
        form: ItemForm,
    ) -> Outcome {
        if form.is_copied(item) {
            return self.copied_value(item, form);
        }
        self.value_in_place(burst, session, item, form)
    }

    fn value_in_place(
        &mut self,
        burst: &Burst<'_>,
        session: &mut Session,
        item: &Item<'_>,
        form: ItemForm,
    ) -> Outcome {
        let reply_start = self.output.next_start();
        let question = match form {
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
        };
        let value = InPlace {
            item,
            question,
            reply_start,
        };
        self.send_in_place(burst, session, &value)
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
                .reply(|reply| reply.value(key, flags, cas, value));
        } else {
            self.output
                .reply(|reply| reply.value_line(key, flags, cas, value_len));
            self.copy_value(item);
            self.output.reply(|reply| reply.bytes(b"\r\n"));
        }
        self.end_if(last)
    }

    /// Appends a value that lies in pieces.
    pub(super) fn copy_value(&mut self, item: &Item<'_>) {
        for chunk in item.value() {
            self.output.reply(|reply| reply.bytes(chunk));
        }
    }

    /// Answers that there is no item.
    #[inline]
    fn no_value(&mut self, key: &[u8], form: ItemForm) -> Outcome {
        match form {
            ItemForm::Classic { last, .. } => self.end_if(last),
            ItemForm::Binary(binary) => self.binary_miss(key, binary),
        }
    }

    /// Sends what has been gathered and a large value behind it.
    pub(super) fn send_in_place(
        &mut self,
        burst: &Burst<'_>,
        session: &mut Session,
        value: &InPlace<'_>,
    ) -> Outcome {
        let flushed = self
            .output
            .flush_with_value(value, burst, session, self.pool);
        if flushed == Flushed::Refused {
            self.counters.values_refused.add(1);
        }
        flushed.into()
    }

    pub(super) fn get_end(&mut self) -> Outcome {
        self.end_if(true)
    }

    /// Answers what a number has come to.
    fn number(&mut self, to: To, number: u64, cas: u64) -> Outcome {
        match to {
            To::Line => self.output.reply(|reply| reply.number(number)),
            To::Nobody => {}
            To::Binary(asked) => self.binary_number(asked, number, cas),
        }
        Outcome::Done
    }

    #[inline]
    fn end_if(&mut self, last: bool) -> Outcome {
        if last {
            self.output.reply(|reply| reply.line(Line::End));
        }
        Outcome::Done
    }

    /// What the store is asked for.
    pub(super) fn put(&self, store: &Store, input: &[u8]) -> Put {
        Put {
            mode: match store.mode {
                StoreMode::Set => Mode::Set,
                StoreMode::Add => Mode::Add,
                StoreMode::Replace => Mode::Replace,
                StoreMode::Append => Mode::Append,
                StoreMode::Prepend => Mode::Prepend,
                StoreMode::AppendVivify => Mode::AppendOrSet,
                StoreMode::PrependVivify => Mode::PrependOrSet,
                StoreMode::Cas => Mode::Cas,
            },
            compare: store.cas,
            allow_stale: store.invalidate,
            // 0 is no CAS that an item can have; memcached chooses one then.
            cas: store.explicit_cas().filter(|&cas| cas != 0),
            return_cas: match store.reply {
                StoreReply::Binary(_) => true,
                _ => store.tokens.len > 0 && store.flags(input).any(|(flag, _)| flag == b'c'),
            },
            client_flags: store.client_flags,
            expiry: self.expiry(store.exptime),
            key_is_binary: store.key_base64,
        }
    }

    pub(super) fn answer_store(&mut self, stored: Stored, answer: StoreAnswer<'_>) -> Outcome {
        self.count_store(stored, answer.mode);
        let to = To::from(answer.reply);
        let line = match (stored, answer.reply) {
            (Stored::Refused(refused), _) => return self.error(refusal_line(refused), to),
            (_, StoreReply::Meta | StoreReply::MetaQuiet) => {
                return self.answer_meta_store(stored, answer);
            }
            (Stored::Stored { cas, .. }, StoreReply::Binary(asked)) => {
                return self.succeed(asked, self.shown_cas(cas));
            }
            (Stored::NotStored, StoreReply::Binary(asked)) => {
                return self.refuse(asked, not_stored(answer.mode));
            }
            (Stored::Stored { .. }, _) => Line::Stored,
            (Stored::NotStored, _) => Line::NotStored,
            (Stored::Exists, _) => Line::Exists,
            (Stored::NotFound, _) => Line::NotFound,
        };
        self.line(to, line)
    }

    fn count_store(&self, stored: Stored, mode: StoreMode) {
        match stored {
            Stored::Refused(Refused::TooLarge) => return self.counters.store_too_large.add(1),
            Stored::Refused(_) => return self.counters.store_no_memory.add(1),
            _ => self.counters.cmd_set.add(1),
        }
        if mode == StoreMode::Cas {
            match stored {
                Stored::Stored { .. } => self.counters.cas_hits.add(1),
                Stored::Exists => self.counters.cas_badval.add(1),
                Stored::NotFound => self.counters.cas_misses.add(1),
                Stored::NotStored | Stored::Refused(_) => {}
            }
        }
    }

    pub(super) fn count_arithmetic(&self, counted: Counted, decrement: bool) {
        let counters = self.counters;
        match counted {
            Counted::Value { created: true, .. } => {}
            Counted::Value { .. } if decrement => counters.decr_hits.add(1),
            Counted::Value { .. } => counters.incr_hits.add(1),
            Counted::NotFound(miss) => {
                let misses = if decrement {
                    &counters.decr_misses
                } else {
                    &counters.incr_misses
                };
                misses.add(1);
                self.count_miss(miss);
            }
            Counted::NotNumeric | Counted::Exists | Counted::Refused(_) => {}
        }
    }

    /// A CAS as clients see it: 0 where items have none (`-C`).
    pub(super) fn shown_cas(&self, cas: u64) -> u64 {
        if self.shared.settings.limits.cas {
            cas
        } else {
            0
        }
    }

    #[inline]
    fn count_prefix(&self, key: &[u8], event: PrefixEvent) {
        if self.shared.prefixes.is_enabled() {
            self.shared.prefixes.count(key, event);
        }
    }
}

/// What the answer to a store command is made of.
pub(super) struct StoreAnswer<'a> {
    /// The key as stored.
    pub(super) key: &'a [u8],
    /// It came in base64.
    pub(super) key_base64: bool,
    /// Bytes of the value as sent.
    pub(super) value_len: u32,
    /// How it was to be stored.
    pub(super) mode: StoreMode,
    /// How it is answered.
    pub(super) reply: StoreReply,
    /// The flags that the answer repeats.
    pub(super) flags: coua_protocol::Flags<'a>,
}

/// Whether an item's old value goes when a new one is refused: memcached does so for `set` and
/// for all that `ms` does.
pub(super) fn unlinks_when_refused(store: &Store) -> bool {
    let is_meta = matches!(store.reply, StoreReply::Meta | StoreReply::MetaQuiet);
    is_meta || store.mode == StoreMode::Set
}

/// What a binary store is told where its mode forbids it.
fn not_stored(mode: StoreMode) -> Status {
    match mode {
        StoreMode::Add => Status::KeyExists,
        StoreMode::Replace => Status::KeyNotFound,
        _ => Status::NotStored,
    }
}

/// The error line for a value that was refused.
pub(super) fn refusal_line(refused: Refused) -> ErrorLine {
    match refused {
        Refused::TooLarge => ErrorLine::TooLarge,
        Refused::Wait | Refused::OutOfMemory => ErrorLine::OutOfMemoryStoring,
    }
}
