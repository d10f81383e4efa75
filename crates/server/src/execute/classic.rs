//! The classic dialect.

use coua_protocol::reply::Line;
use coua_protocol::{Arithmetic, ErrorLine, Span, Store, StoreMode, StoreRefused, StoreReply};
use coua_store::{Access, Burst, Counted, Delete, Deleted, Item, Mode, Put, Refused, Stored};

use super::{Answers, Executor, Outcome, Request, stored_key};
use crate::output::{IN_PLACE_LEN_MIN, InPlace};
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
        let sent = key.of(request.input);
        let key = self.key(sent, request.hash);
        self.answers.counters.cmd_get.add(1);
        match self
            .burst
            .get_ahead(&key, request.ahead, Access { bump: true, cas })
        {
            Ok(item) => {
                self.answers.counters.get_hits.add(1);
                self.answers.count_prefix(sent, PrefixEvent::Hit);
                self.answers
                    .value(&self.burst, request.session, &item, cas, last)
            }
            Err(miss) => {
                self.answers.counters.get_misses.add(1);
                self.answers.count_miss(miss);
                self.answers.count_prefix(sent, PrefixEvent::Miss);
                self.answers.end_if(last)
            }
        }
    }

    pub(super) fn get_and_touch(
        &mut self,
        request: Request<'_>,
        key: Span,
        exptime: i32,
        cas: bool,
        last: bool,
    ) -> Outcome {
        let sent = key.of(request.input);
        let key = self.key(sent, request.hash);
        let expiry = self.answers.expiry(exptime);
        let access = Access { bump: true, cas };
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
                return self.answers.end_if(last);
            }
        };
        self.answers.counters.touch_hits.add(1);
        self.answers.count_prefix(sent, PrefixEvent::Hit);
        let outcome = if item.value_len() < IN_PLACE_LEN_MIN {
            self.answers.copied_value(&item, cas, last)
        } else {
            // Another worker may have deleted it since, which is as if it had done so before.
            match self.burst.get(&key, Access { bump: false, cas }) {
                Ok(item) => self
                    .answers
                    .value(&self.burst, request.session, &item, cas, last),
                Err(_) => self.answers.end_if(last),
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
        self.answers.error(refused.error, refused.noreply)
    }

    pub(super) fn delete(&mut self, request: Request<'_>, key: Span, noreply: bool) -> Outcome {
        let sent = key.of(request.input);
        let key = self.key(sent, request.hash);
        let deleted = self.burst.delete(&key, &Delete::default());
        let line = match deleted {
            Deleted::Done => {
                self.answers.counters.delete_hits.add(1);
                Line::Deleted
            }
            Deleted::Refused(Refused::Wait) if !request.gives_up => return Outcome::Wait,
            Deleted::Refused(_) => return self.answers.error(ErrorLine::OutOfMemory, noreply),
            Deleted::Exists => {
                self.answers.counters.delete_misses.add(1);
                Line::NotFound
            }
            Deleted::NotFound(miss) => {
                self.answers.counters.delete_misses.add(1);
                self.answers.count_miss(miss);
                Line::NotFound
            }
        };
        self.answers.count_prefix(sent, PrefixEvent::Delete);
        self.answers.line_unless(noreply, line)
    }

    pub(super) fn arithmetic(&mut self, request: Request<'_>, op: &Arithmetic) -> Outcome {
        let key = self.key(op.key.of(request.input), request.hash);
        let arithmetic = coua_store::Arithmetic {
            delta: op.delta,
            decrement: op.decrement,
            compare: 0,
            cas: None,
            return_cas: false,
            vivify: None,
            touch: None,
        };
        let counted = self.burst.arithmetic(&key, &arithmetic);
        if counted == Counted::Refused(Refused::Wait) && !request.gives_up {
            return Outcome::Wait;
        }
        self.answers.count_arithmetic(counted, op.decrement);
        match counted {
            Counted::Value { number, .. } if !op.noreply => {
                self.answers.output.reply(|reply| reply.number(number));
                Outcome::Done
            }
            Counted::Value { .. } => Outcome::Done,
            Counted::NotNumeric => self.answers.error(ErrorLine::NotNumeric, op.noreply),
            Counted::Exists | Counted::NotFound(_) => {
                self.answers.line_unless(op.noreply, Line::NotFound)
            }
            Counted::Refused(_) => self.answers.error(ErrorLine::OutOfMemory, op.noreply),
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
        self.answers.line_unless(noreply, line)
    }
}

impl Answers<'_> {
    /// Answers an item of a `get`.
    #[inline]
    fn value(
        &mut self,
        burst: &Burst<'_>,
        session: &mut Session,
        item: &Item<'_>,
        cas: bool,
        last: bool,
    ) -> Outcome {
        if item.value_len() < IN_PLACE_LEN_MIN {
            return self.copied_value(item, cas, last);
        }
        self.value_in_place(burst, session, item, cas, last)
    }

    fn value_in_place(
        &mut self,
        burst: &Burst<'_>,
        session: &mut Session,
        item: &Item<'_>,
        cas: bool,
        last: bool,
    ) -> Outcome {
        let (key, flags) = (item.key(), item.client_flags());
        let cas = cas.then(|| self.shown_cas(item.cas()));
        let reply_start = self.output.next_start();
        self.output
            .reply(|reply| reply.value_line(key, flags, cas, item.value_len()));
        let tail: &[u8] = if last { b"\r\nEND\r\n" } else { b"\r\n" };
        let value = InPlace {
            item,
            tail,
            reply_start,
        };
        self.send_in_place(burst, session, &value)
    }

    /// Answers an item of a `get` whose value is copied.
    #[inline]
    fn copied_value(&mut self, item: &Item<'_>, cas: bool, last: bool) -> Outcome {
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
        }
        self.end_if(last)
    }

    /// Appends a value that lies in pieces, and a line end.
    pub(super) fn copy_value(&mut self, item: &Item<'_>) {
        for chunk in item.value() {
            self.output.reply(|reply| reply.bytes(chunk));
        }
        self.output.reply(|reply| reply.bytes(b"\r\n"));
    }

    /// Sends what has been gathered and a large value behind it.
    pub(super) fn send_in_place(
        &mut self,
        burst: &Burst<'_>,
        session: &mut Session,
        value: &InPlace<'_>,
    ) -> Outcome {
        self.output
            .flush_with_value(value, burst, session, self.pool)
            .into()
    }

    pub(super) fn get_end(&mut self) -> Outcome {
        self.end_if(true)
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
            return_cas: store.tokens.len > 0 && store.flags(input).any(|(flag, _)| flag == b'c'),
            client_flags: store.client_flags,
            expiry: self.expiry(store.exptime),
            key_is_binary: store.key_base64,
        }
    }

    pub(super) fn answer_store(&mut self, stored: Stored, answer: StoreAnswer<'_>) -> Outcome {
        self.count_store(stored, answer.mode);
        let line = match stored {
            Stored::Refused(refused) => {
                let noreply = answer.reply == StoreReply::None;
                return self.error(refusal_line(refused), noreply);
            }
            _ if answer.reply == StoreReply::None => return Outcome::Done,
            _ if answer.reply != StoreReply::Classic => {
                return self.answer_meta_store(stored, answer);
            }
            Stored::Stored { .. } => Line::Stored,
            Stored::NotStored => Line::NotStored,
            Stored::Exists => Line::Exists,
            Stored::NotFound => Line::NotFound,
        };
        self.output.reply(|reply| reply.line(line));
        Outcome::Done
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

    fn line_unless(&mut self, noreply: bool, line: Line) -> Outcome {
        if !noreply {
            self.output.reply(|reply| reply.line(line));
        }
        Outcome::Done
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

/// The error line for a value that was refused.
pub(super) fn refusal_line(refused: Refused) -> ErrorLine {
    match refused {
        Refused::TooLarge => ErrorLine::TooLarge,
        Refused::Wait | Refused::OutOfMemory => ErrorLine::OutOfMemoryStoring,
    }
}
