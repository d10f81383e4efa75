//! Whether the user of a connection may do what is asked: the one place where that is decided for items,
//! in all dialects. What is about the whole server looks at the session's
//! [`Permissions`](crate::permissions::Permissions).

use coua_protocol::{ErrorLine, Op, PlainSet, Span};

use super::{Executor, Request, To, key_of, stored_key};
use crate::connections::Activity;
use crate::outcome::Outcome;
use crate::permissions::Access;

impl Executor<'_, '_> {
    /// Answers a key of a `get` that the user may not read; `None` where nothing forbids it. The request
    /// ends there, like one with a bad key.
    pub fn deny_get(
        &mut self,
        request: &mut Request<'_>,
        key: Span,
        last: bool,
    ) -> Option<Outcome> {
        match request.session.skips_keys || may(request, Access::GET, key.of(request.input)) {
            true => None,
            false => Some(self.deny_key(request, last)),
        }
    }

    /// Answers a plain set that the user may not execute; `None` where nothing forbids it.
    pub fn deny_set(&mut self, request: &mut Request<'_>, set: &PlainSet) -> Option<Outcome> {
        match may(request, Access::SET, set.key.of(request.input)) {
            true => None,
            false => Some(self.answer_denied(request, set.reply.into())),
        }
    }

    /// Answers an operation that the user may not execute; `None` where nothing forbids it.
    pub fn deny_op(&mut self, request: &mut Request<'_>, op: &Op) -> Option<Outcome> {
        let access = Access::of(op)?;
        let (key, base64, _) = key_of(op)?;
        let mut room = None;
        let key = stored_key(key, base64, request.input, &mut room);
        if may(request, access, key) {
            return None;
        }
        Some(match op {
            // The keys behind one that was refused are passed over.
            Op::Get { .. } | Op::GetAndTouch { .. } if request.session.skips_keys => return None,
            Op::Get { last, .. } | Op::GetAndTouch { last, .. } => self.deny_key(request, *last),
            Op::StoreStream(store) => {
                // As with every refused value, the answer stands behind it.
                self.answers.counters.requests_denied.add(1);
                let session = &mut *request.session;
                session.connection.set_activity(Activity::Swallowing);
                session.refused_value = Some((ErrorLine::NotPermitted, store.reply));
                Outcome::Done
            }
            // It is answered as too large, behind its body.
            Op::StoreRefused(_) => Outcome::Done,
            Op::Store(store) => self.answer_denied(request, store.reply.into()),
            Op::Arithmetic(arithmetic) => {
                self.answer_denied(request, To::line_unless(arithmetic.noreply))
            }
            Op::Delete { noreply, .. } | Op::Touch { noreply, .. } => {
                self.answer_denied(request, To::line_unless(*noreply))
            }
            Op::Binary(binary) => self.answer_denied(request, To::Binary(binary.asked)),
            _ => self.answer_denied(request, To::Line),
        })
    }

    fn deny_key(&mut self, request: &mut Request<'_>, last: bool) -> Outcome {
        let outcome = self.answer_denied(request, To::Line);
        if outcome == Outcome::Done {
            request.session.skips_keys = !last;
        }
        outcome
    }

    fn answer_denied(&mut self, request: &mut Request<'_>, to: To) -> Outcome {
        if let Some(outcome) = self.make_room(request.session) {
            return outcome;
        }
        self.answers.counters.requests_denied.add(1);
        self.answers.error(ErrorLine::NotPermitted, to)
    }
}

fn may(request: &Request<'_>, access: Access, key: &[u8]) -> bool {
    let user = request.session.user.as_deref();
    user.is_none_or(|user| user.may(access, key))
}
