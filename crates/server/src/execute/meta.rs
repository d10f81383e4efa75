//! The meta dialect.

mod get;

use coua_protocol::expiry::TtlStart;
use coua_protocol::reply::{Line, MetaDebug, MetaFacts, MetaHead, MetaKey};
use coua_protocol::{ErrorLine, Meta, MetaArithmetic, Span, StoreReply};
use coua_store::{
    Access, Arithmetic, ArithmeticResult, Delete, Deleted, Expiry, Miss, Refused, Stored,
};

use super::classic::StoreAnswer;
use super::flash::Back;
use super::tags::tag_numbers;
use super::{Answers, Executor, Request, To, Ttl, stored_key};
use crate::outcome::Outcome;

impl Executor<'_, '_> {
    pub(super) fn meta_delete(&mut self, mut request: Request<'_>, meta: &Meta) -> Outcome {
        let mut room = None;
        let bytes = stored_key(meta.key, meta.key_base64(), request.input, &mut room);
        if meta.names_tag() {
            return self.invalidate(meta, request.input, bytes);
        }
        let key = self.key(bytes, request.hash);
        let touch = meta
            .touch()
            .map(|exptime| self.answers.fine_expiry(exptime));
        let mark_stale = meta.set.has(b'I');
        let delete = Delete {
            compare: meta.cas(),
            clear_value: meta
                .set
                .has(b'x')
                .then(|| (meta.client_flags, touch.unwrap_or(Expiry::NEVER))),
            mark_stale,
            expiry: touch,
            cas: meta.explicit_cas(),
        };
        let deleted = match self.delete_anywhere(&mut request, &key, &delete) {
            Ok(deleted) => deleted,
            Err(outcome) => return outcome,
        };
        let head = match deleted {
            Deleted::Done => {
                if !mark_stale {
                    self.answers.counters.delete_hits.add(1);
                }
                if meta.quiet() {
                    return Outcome::Done;
                }
                MetaHead::Done
            }
            Deleted::Exists => {
                self.answers.counters.delete_misses.add(1);
                MetaHead::Exists
            }
            Deleted::NotFound(miss) => {
                self.answers.counters.delete_misses.add(1);
                self.answers.count_miss(miss);
                MetaHead::NotFound
            }
            Deleted::Refused(Refused::Wait) if !request.gives_up => return Outcome::Wait,
            Deleted::Refused(_) => return self.answers.error(ErrorLine::OutOfMemory, To::Line),
        };
        let facts = MetaFacts {
            key: meta_key(bytes, meta),
            ..MetaFacts::default()
        };
        let flags = meta.flags(request.input);
        self.answers
            .output
            .reply(|reply| reply.meta(head, flags, &facts));
        Outcome::Done
    }

    pub(super) fn meta_arithmetic(
        &mut self,
        mut request: Request<'_>,
        op: &MetaArithmetic,
    ) -> Outcome {
        let meta = &op.meta;
        let mut room = None;
        let bytes = stored_key(meta.key, meta.key_base64(), request.input, &mut room);
        let key = self.key(bytes, request.hash);
        let arithmetic = Arithmetic {
            delta: op.delta,
            decrement: op.decrement,
            compare: meta.cas().unwrap_or(0),
            cas: meta.explicit_cas(),
            return_cas: meta.set.has(b'c'),
            vivify: meta
                .vivify()
                .map(|_| (op.initial, self.answers.expiry_of_created(meta))),
            tags: self.answers.tags_if_given(meta, request.input),
            touch: meta
                .touch()
                .map(|exptime| self.answers.fine_expiry(exptime)),
        };
        let counted = match self.count_anywhere(&mut request, &key, &arithmetic) {
            Ok(counted) => counted,
            Err(outcome) => return outcome,
        };
        if counted == ArithmeticResult::Refused(Refused::Wait) && !request.gives_up {
            return Outcome::Wait;
        }
        self.answers.count_arithmetic(counted, op.decrement);
        let mut facts = MetaFacts {
            key: meta_key(bytes, meta),
            ..MetaFacts::default()
        };
        let flags = meta.flags(request.input);
        let head = match counted {
            ArithmeticResult::Value { .. } if meta.quiet() => return Outcome::Done,
            ArithmeticResult::Value {
                number,
                cas,
                expiry_before,
                created,
            } => {
                facts.cas = Some(self.answers.shown_cas(cas));
                let ttl = self.answers.ttl_shown(meta, expiry_before, created);
                (facts.ttl, facts.ttl_ms) = (Some(ttl.seconds), Some(ttl.ms));
                if meta.set.has(b'v') {
                    self.answers
                        .output
                        .reply(|reply| reply.meta_number(flags, &facts, number));
                    return Outcome::Done;
                }
                MetaHead::Done
            }
            ArithmeticResult::NotNumeric => {
                return self.answers.error(ErrorLine::NotNumeric, To::Line);
            }
            ArithmeticResult::Exists => MetaHead::Exists,
            ArithmeticResult::NotFound(_) => MetaHead::NotFound,
            ArithmeticResult::Refused(_) => {
                let error = match meta.vivify() {
                    Some(_) => ErrorLine::OutOfMemoryVivifying,
                    None => ErrorLine::OutOfMemory,
                };
                return self.answers.error(error, To::Line);
            }
        };
        self.answers
            .output
            .reply(|reply| reply.meta(head, flags, &facts));
        Outcome::Done
    }

    pub(super) fn meta_debug(
        &mut self,
        mut request: Request<'_>,
        key: Span,
        base64: bool,
    ) -> Outcome {
        let mut room = None;
        let bytes = stored_key(key, base64, request.input, &mut room);
        let key = self.key(bytes, request.hash);
        let access = Access {
            bump: false,
            cas: true,
        };
        while let Err(Miss::OnFlash(place)) = self.burst.get(&key, access) {
            match self.bring_back(&mut request, &key, place) {
                Back::Again => {}
                Back::Later(outcome) => return outcome,
                Back::Refused => break,
            }
        }
        self.answers.counters.cmd_meta.add(1);
        // Without memory it is shown as it was.
        let _ = self.burst.mark_if_stale(&key);
        match self.burst.get(&key, access) {
            Ok(item) => {
                let facts = MetaDebug {
                    key: MetaKey {
                        bytes: item.key(),
                        base64: item.key_is_binary(),
                    },
                    ttl: self.answers.ttl(item.expiry()).seconds,
                    idle: item.idle_seconds(self.answers.now.time),
                    cas: self.answers.shown_cas(item.cas()),
                    fetched: item.fetched(),
                    class: 1,
                    size: item.stored_len() as u64,
                    tags: tag_numbers(&item),
                };
                let start = self.answers.output.next_start();
                self.answers.output.reply(|reply| reply.meta_debug(&facts));
                if item.is_doubtful() {
                    self.answers.output.truncate(start);
                    self.answers
                        .output
                        .reply(|reply| reply.line(Line::MetaMiss));
                }
            }
            Err(miss) => {
                self.answers.count_miss(miss);
                self.answers
                    .output
                    .reply(|reply| reply.line(Line::MetaMiss));
            }
        }
        Outcome::Done
    }
}

impl Answers<'_> {
    /// The expiry of an item that the request creates, from `T` and `N` in the order sent.
    fn expiry_of_created(&self, meta: &Meta) -> Expiry {
        let created = TtlStart {
            created: true,
            ..TtlStart::default()
        };
        let started = self.shared.clock.started();
        let walk = meta.walk_ttl(created, self.now.time.millis(), started.0);
        Expiry::at_millis(walk.expiry_ms)
    }

    /// The time left that the flag `t` shows, from `t`, `T` and `N` in the order sent.
    fn ttl_shown(&self, meta: &Meta, before: Expiry, created: bool) -> Ttl {
        let before = if created { Expiry::NEVER } else { before };
        let start = TtlStart {
            expiry_ms: before.millis().unwrap_or(0),
            created,
            ..TtlStart::default()
        };
        let started = self.shared.clock.started();
        let walk = meta.walk_ttl(start, self.now.time.millis(), started.0);
        self.ttl(Expiry::at_millis(walk.expiry_shown_ms))
    }

    /// Answers an `ms` that was not refused.
    pub(super) fn answer_meta_store(&mut self, stored: Stored, answer: StoreAnswer<'_>) -> Outcome {
        let mut facts = MetaFacts {
            key: MetaKey {
                bytes: answer.key,
                base64: answer.key_base64,
            },
            cas: Some(0),
            value_len: Some(answer.value_len),
            ..MetaFacts::default()
        };
        let head = match stored {
            Stored::Stored { .. } if answer.reply == StoreReply::MetaQuiet => return Outcome::Done,
            Stored::Stored { cas, value_len, .. } => {
                facts.cas = Some(self.shown_cas(cas));
                facts.value_len = u32::try_from(value_len).ok();
                MetaHead::Done
            }
            Stored::NotStored | Stored::Refused(_) => MetaHead::NotStored,
            Stored::Exists => MetaHead::Exists,
            Stored::NotFound | Stored::OnFlash(_) => MetaHead::NotFound,
        };
        self.output
            .reply(|reply| reply.meta(head, answer.flags, &facts));
        Outcome::Done
    }

    pub(super) fn meta_noop(&mut self) -> Outcome {
        self.output.reply(|reply| reply.line(Line::MetaNoop));
        Outcome::Done
    }
}

/// A key for an answer that repeats it as the request has sent it.
fn meta_key<'k>(bytes: &'k [u8], meta: &Meta) -> MetaKey<'k> {
    MetaKey {
        bytes,
        base64: meta.key_base64(),
    }
}
