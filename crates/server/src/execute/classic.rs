//! The classic dialect.

use coua_protocol::reply::Line;
use coua_protocol::{
    Arithmetic, ErrorLine, Op, PlainSet, Span, Status, Store, StoreMode, StoreRefused, StoreReply,
};
use coua_store::{
    Access, Ahead, ArithmeticResult, Delete, Deleted, Expiry, Key, Miss, Mode, NO_TAGS, Put,
    Refused, Stored, Untouched,
};

use super::flash::Back;
use super::watched::WatchedStore;
use super::{Answers, Executor, Request, To, complaints, stored_key};
use crate::connections::Activity;
use crate::outcome::Outcome;
use crate::prefixes::PrefixEvent;

impl Executor<'_, '_> {
    pub(super) fn store(&mut self, mut request: Request<'_>, store: &Store) -> Outcome {
        let mut room = None;
        let bytes = stored_key(store.key, store.key_base64, request.input, &mut room);
        let key = self.key(bytes, request.hash);
        let put = self.answers.put(store, request.input);
        let before = self.look(&key);
        let value = store.value.of(request.input);
        let mut stored = self.burst.store_ahead(&key, request.ahead, &put, value);
        while let Stored::OnFlash(place) = stored {
            stored = match self.bring_back(&mut request, &key, place) {
                Back::Again => self.burst.store(&key, &put, value),
                Back::Later(outcome) => return outcome,
                Back::Refused => Stored::Refused(Refused::OutOfMemory),
            };
        }
        if stored == Stored::Refused(Refused::Wait) && !request.gives_up {
            return Outcome::Wait;
        }
        if let Stored::Refused(_) = stored
            && unlinks_when_refused(store)
        {
            // An old value must not outlive the attempt to replace it.
            self.burst.delete(&key, &Delete::default());
        }
        if let Some(before) = before {
            let wanted = WatchedStore {
                mode: store.mode,
                expiry: put.expiry,
                value_len: store.value_len,
                unlinks_when_refused: unlinks_when_refused(store),
            };
            self.tell_store(request.session, &key, before, stored, &wanted);
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

    /// Executes a plain set on the general path.
    pub fn execute_set(&mut self, request: Request<'_>, set: &PlainSet) -> Outcome {
        let store = Store {
            key: set.key,
            value: set.value,
            tokens: Span::default(),
            value_len: set.value.len,
            client_flags: set.client_flags,
            exptime: set.exptime.into(),
            cas: 0,
            explicit_cas: 0,
            explicit: false,
            key_base64: false,
            invalidate: false,
            mode: StoreMode::Set,
            reply: set.reply,
        };
        self.execute(request, &Op::Store(store))
    }

    /// Executes a plain set on the fast path, which needs room for the reply and memory for the
    /// item. False if there is more to do: then nothing has been stored or answered. Nothing is
    /// counted.
    #[inline]
    pub fn try_set_fast(
        &mut self,
        key: &Key<'_>,
        ahead: Ahead,
        set: &PlainSet,
        value: &[u8],
    ) -> bool {
        if !self.answers.output.has_room() {
            return false;
        }
        let put = Put::set(set.client_flags, self.answers.expiry(set.exptime));
        let stored = self.burst.try_store_ahead(key, ahead, &put, value);
        if !matches!(stored, Stored::Stored { .. }) {
            return false;
        }
        match set.reply {
            StoreReply::Classic => self.answers.output.reply(|reply| reply.line(Line::Stored)),
            StoreReply::Meta => self
                .answers
                .output
                .reply(|reply| reply.line(Line::MetaDone)),
            StoreReply::None | StoreReply::MetaQuiet | StoreReply::Binary(_) => {}
        }
        true
    }

    /// Notes a store command whose value is too large, and deletes the old item if that must not
    /// stay. The answer is an operation of its own, after the body.
    pub(super) fn refuse_store(&mut self, request: Request<'_>, refused: &StoreRefused) -> Outcome {
        self.answers.counters.store_too_large.add(1);
        let mut room = None;
        let bytes = stored_key(refused.key, refused.key_base64, request.input, &mut room);
        let connection = &request.session.connection;
        connection.set_activity(Activity::Swallowing);
        complaints::too_large(connection, bytes, refused.value_len, self.answers.now);
        let key = self.key(bytes, request.hash);
        let before = self.look(&key);
        if refused.unlink {
            self.burst.delete(&key, &Delete::default());
        }
        if let Some(before) = before {
            let wanted = WatchedStore {
                mode: refused.mode,
                expiry: Expiry::NEVER,
                value_len: 0,
                unlinks_when_refused: refused.unlink,
            };
            let stored = Stored::Refused(Refused::TooLarge);
            self.tell_store(request.session, &key, before, stored, &wanted);
        }
        Outcome::Done
    }

    pub(super) fn delete(
        &mut self,
        mut request: Request<'_>,
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
        let deleted = match self.delete_anywhere(&mut request, &key, &delete) {
            Ok(deleted) => deleted,
            Err(outcome) => return outcome,
        };
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

    /// Deletes as `delete` says, also an item on flash. `Err`: the request is to be executed again later.
    pub(super) fn delete_anywhere(
        &mut self,
        request: &mut Request<'_>,
        key: &Key<'_>,
        delete: &Delete,
    ) -> Result<Deleted, Outcome> {
        loop {
            let deleted = self.burst.delete(key, delete);
            let Deleted::NotFound(Miss::OnFlash(place)) = deleted else {
                return Ok(deleted);
            };
            match self.bring_back(request, key, place) {
                Back::Again => {}
                Back::Later(outcome) => return Err(outcome),
                Back::Refused => return Ok(Deleted::Refused(Refused::OutOfMemory)),
            }
        }
    }

    /// Counts as `arithmetic` says, also an item on flash. `Err`: as of [`Self::delete_anywhere`].
    pub(super) fn count_anywhere(
        &mut self,
        request: &mut Request<'_>,
        key: &Key<'_>,
        arithmetic: &coua_store::Arithmetic,
    ) -> Result<ArithmeticResult, Outcome> {
        loop {
            let counted = self.burst.arithmetic(key, arithmetic);
            let ArithmeticResult::NotFound(Miss::OnFlash(place)) = counted else {
                return Ok(counted);
            };
            match self.bring_back(request, key, place) {
                Back::Again => {}
                Back::Later(outcome) => return Err(outcome),
                Back::Refused => return Ok(ArithmeticResult::Refused(Refused::OutOfMemory)),
            }
        }
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
            tags: NO_TAGS,
            touch: None,
        };
        self.arithmetic(request, op.key, &arithmetic, to)
    }

    pub(super) fn arithmetic(
        &mut self,
        mut request: Request<'_>,
        key: Span,
        arithmetic: &coua_store::Arithmetic,
        to: To,
    ) -> Outcome {
        let key = self.key(key.of(request.input), request.hash);
        let counted = match self.count_anywhere(&mut request, &key, arithmetic) {
            Ok(counted) => counted,
            Err(outcome) => return outcome,
        };
        if counted == ArithmeticResult::Refused(Refused::Wait) && !request.gives_up {
            return Outcome::Wait;
        }
        self.answers.count_arithmetic(counted, arithmetic.decrement);
        match counted {
            ArithmeticResult::Value { number, cas, .. } => self.answers.number(to, number, cas),
            ArithmeticResult::NotNumeric => self.answers.error(ErrorLine::NotNumeric, to),
            ArithmeticResult::Exists => self.answers.line(to, Line::Exists),
            ArithmeticResult::NotFound(_) => self.answers.line(to, Line::NotFound),
            ArithmeticResult::Refused(_) => self.answers.error(ErrorLine::OutOfMemory, to),
        }
    }

    pub(super) fn touch(
        &mut self,
        mut request: Request<'_>,
        key: Span,
        exptime: i32,
        noreply: bool,
    ) -> Outcome {
        let to = To::line_unless(noreply);
        let key = self.key(key.of(request.input), request.hash);
        let expiry = self.answers.expiry(exptime);
        let touched = loop {
            let touched = self.burst.touch(&key, expiry, Access::default());
            let touched = touched.map(|_| ());
            let Err(Untouched::Miss(Miss::OnFlash(place))) = touched else {
                break touched;
            };
            match self.bring_back(&mut request, &key, place) {
                Back::Again => {}
                Back::Later(outcome) => return outcome,
                Back::Refused => break Err(Untouched::Refused(Refused::OutOfMemory)),
            }
        };
        let line = match touched {
            Ok(()) => {
                self.answers.counters.touch_hits.add(1);
                Line::Touched
            }
            Err(Untouched::Miss(miss)) => {
                self.answers.counters.touch_misses.add(1);
                self.answers.count_miss(miss);
                Line::NotFound
            }
            Err(Untouched::Refused(Refused::Wait)) if !request.gives_up => return Outcome::Wait,
            Err(Untouched::Refused(_)) => {
                return self.answers.error(ErrorLine::OutOfMemoryStoring, to);
            }
        };
        self.answers.counters.cmd_touch.add(1);
        self.answers.line(to, line)
    }
}

impl Answers<'_> {
    /// Answers with the number after counting.
    fn number(&mut self, to: To, number: u64, cas: u64) -> Outcome {
        match to {
            To::Line => self.output.reply(|reply| reply.number(number)),
            To::Nobody => {}
            To::Binary(asked) => self.binary_number(asked, number, cas),
        }
        Outcome::Done
    }

    /// The request to the store.
    pub(super) fn put(&self, store: &Store, input: &[u8]) -> Put {
        let has_tokens = store.tokens.len > 0;
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
            // No item has the CAS 0: for that memcached chooses one.
            cas: store.explicit_cas().filter(|&cas| cas != 0),
            return_cas: match store.reply {
                StoreReply::Binary(_) => true,
                _ => has_tokens && store.flags(input).any(|(flag, _)| flag == b'c'),
            },
            client_flags: store.client_flags,
            expiry: self.fine_expiry(store.exptime),
            key_is_binary: store.key_base64,
            tags: match has_tokens {
                true => self.tags(store.flags(input)),
                false => NO_TAGS,
            },
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
            (Stored::NotFound | Stored::OnFlash(_), _) => Line::NotFound,
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
                Stored::NotFound | Stored::OnFlash(_) => self.counters.cas_misses.add(1),
                Stored::NotStored | Stored::Refused(_) => {}
            }
        }
    }

    pub(super) fn count_arithmetic(&self, counted: ArithmeticResult, decrement: bool) {
        let counters = self.counters;
        match counted {
            ArithmeticResult::Value { created: true, .. } => {}
            ArithmeticResult::Value { .. } if decrement => counters.decr_hits.add(1),
            ArithmeticResult::Value { .. } => counters.incr_hits.add(1),
            ArithmeticResult::NotFound(miss) => {
                let misses = if decrement {
                    &counters.decr_misses
                } else {
                    &counters.incr_misses
                };
                misses.add(1);
                self.count_miss(miss);
            }
            ArithmeticResult::NotNumeric
            | ArithmeticResult::Exists
            | ArithmeticResult::Refused(_) => {}
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
    pub(super) fn count_prefix(&self, key: &[u8], event: PrefixEvent) {
        if self.shared.prefixes.is_enabled() {
            self.shared.prefixes.count(key, event);
        }
    }
}

/// What is needed to answer a store command.
pub(super) struct StoreAnswer<'a> {
    /// The key as stored.
    pub(super) key: &'a [u8],
    /// The key came in base64.
    pub(super) key_base64: bool,
    /// Bytes of the value as sent.
    pub(super) value_len: u32,
    /// How the value was to be stored.
    pub(super) mode: StoreMode,
    /// How it is answered.
    pub(super) reply: StoreReply,
    /// The flags that the answer repeats.
    pub(super) flags: coua_protocol::Flags<'a>,
}

/// Whether the old item is deleted when a new value is refused. memcached does so for `set`, and
/// for `ms` in all its modes.
pub(super) fn unlinks_when_refused(store: &Store) -> bool {
    let is_meta = matches!(store.reply, StoreReply::Meta | StoreReply::MetaQuiet);
    is_meta || store.mode == StoreMode::Set
}

/// The answer to a binary store that its mode forbids.
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
