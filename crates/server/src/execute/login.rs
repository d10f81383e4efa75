//! Logging in.
//!
//! A failed attempt costs its connection a pause: the next request is not looked at for a second. The
//! worker goes on with the others meanwhile.

use coua_protocol::reply::{BinaryAnswer, Line};
use coua_protocol::{
    Attempt, BinaryRequestId, Dialect, ErrorLine, Login, Parser, SASL_MECHANISM, Status,
};

use super::{Answers, Executor, Request, To};
use crate::clock::Now;
use crate::log::Limit;
use crate::outcome::Outcome;
use crate::output::Flushed;
use crate::session::Session;
use crate::shared::Shared;
use crate::users::Owner;

/// What memcached answers to a login by SASL.
const AUTHENTICATED: &[u8] = b"Authenticated";

static FAILED: Limit = Limit::new();

static SEVERAL: Limit = Limit::new();

/// Logs in whose certificate says who it is, where the file of users has a name in it. Everybody else logs
/// in with a password, if somebody has to.
pub fn by_certificate(session: &mut Session, shared: &Shared, worker: usize, now: Now) {
    let Some(users) = shared.users().filter(|users| users.certificates() > 0) else {
        return;
    };
    match users.owner(&session.stream.peer_names()) {
        Owner::Nobody => {}
        Owner::User(user) => {
            session.parser = Parser::of(shared.settings.dialect);
            session.log_in(user, shared.live.permissions());
            shared.counters(worker).certificate_logins.add(1);
        }
        Owner::Several => {
            if let Some(others) = SEVERAL.pass(now.since_start_ms) {
                let peer = &session.connection.peer;
                tracing::warn!(
                    "certificate from {peer} is several users' (and {others} more before)"
                );
            }
        }
    }
}

impl Executor<'_, '_> {
    pub(super) fn login(&mut self, request: Request<'_>, login: &Login) -> Outcome {
        let Request { session, input, .. } = request;
        let users = self.answers.shared.users();
        let user = match login.attempt {
            Attempt::Begin => return self.answers.continue_login(login.asked),
            Attempt::Malformed => None,
            Attempt::Password { user, password } => {
                users.and_then(|users| users.check(user.of(input), password.of(input)))
            }
        };
        self.answers.counters.auth_cmds.add(1);
        let Some(user) = user else {
            self.answers.counters.auth_errors.add(1);
            return self.answers.refuse_login(session, login.asked);
        };
        let dialect = match login.asked {
            Some(_) => Dialect::Binary,
            None => Dialect::Text,
        };
        session.parser = Parser::of(dialect);
        session.log_in(user, self.answers.shared.live.permissions());
        match login.asked {
            Some(asked) => self.answers.binary_text(asked, AUTHENTICATED),
            None => self.answers.line(To::Line, Line::Stored),
        }
    }
}

impl Answers<'_> {
    /// Answers which mechanisms of SASL there are.
    pub(super) fn sasl_mechanisms(&mut self, asked: BinaryRequestId) -> Outcome {
        self.binary_text(asked, SASL_MECHANISM)
    }

    /// Asks for the message of SASL.
    fn continue_login(&mut self, asked: Option<BinaryRequestId>) -> Outcome {
        match asked {
            Some(asked) => self.refuse(asked, Status::AuthContinue),
            None => Outcome::Done,
        }
    }

    fn refuse_login(&mut self, session: &mut Session, asked: Option<BinaryRequestId>) -> Outcome {
        if let Some(others) = FAILED.pass(self.now.since_start_ms) {
            let peer = &session.connection.peer;
            tracing::warn!("login from {peer} refused (and {others} more before)");
        }
        match asked {
            Some(asked) => self.refuse(asked, Status::AuthError),
            None => self.error(ErrorLine::LoginFailed, To::Line),
        };
        match self.output.flush(session, self.pool) {
            Flushed::All | Flushed::Blocked => {
                session.is_held = true;
                Outcome::Blocked
            }
            lost => lost.into(),
        }
    }

    fn binary_text(&mut self, asked: BinaryRequestId, text: &[u8]) -> Outcome {
        let answer = BinaryAnswer {
            value_len: text.len(),
            ..BinaryAnswer::default()
        };
        self.output.reply(|reply| reply.binary(asked, &answer));
        self.output.reply(|reply| reply.bytes(text));
        Outcome::Done
    }
}
