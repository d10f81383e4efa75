//! A parser whose connection has not logged in: it finds nothing but attempts to do so, and `version` of
//! the binary protocol.
//!
//! What an attempt comes to is the caller's business. Until the caller replaces the parser by an open one
//! it stays locked, so no mistake elsewhere lets a request through.

use super::{CloseReason, Dialect, Parser, State, Step, VALUE_END, VALUE_END_LEN, held};
use crate::error_line::ErrorLine;
use crate::limits::Limits;
use crate::login::{Attempt, LOGIN_LEN_MAX, Login, announced};
use crate::op::Op;
use crate::request::binary::{self, Front};
use crate::span::Span;

/// How far the attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing has been said.
    First,
    /// SASL waits for its message.
    Begun,
    /// Too much has been announced: the connection ends with the next byte.
    Over,
}

/// Fewer bytes than these are not looked at: memcached waits for more.
const INPUT_LEN_MIN: u32 = 3;

/// memcached closes behind a line of fewer bytes, its newline not counted.
const LINE_LEN_MIN: usize = 6;

impl Parser {
    /// A parser at the beginning of a connection that may speak only `dialect`, and must log in first.
    #[must_use]
    pub const fn locked(dialect: Dialect) -> Self {
        Parser {
            dialect,
            state: LOCKED,
        }
    }

    /// Whether the connection has not logged in, or is logging in again.
    #[must_use]
    pub const fn is_locked(&self) -> bool {
        matches!(self.state, State::Locked { .. })
    }

    /// Text of a connection that has not logged in.
    pub(super) fn locked_text(&mut self, need: u32, stage: Stage, input: &[u8]) -> Step {
        if stage == Stage::Over {
            return Step::Close {
                reason: CloseReason::NoLogin,
            };
        }
        let need = need.max(INPUT_LEN_MIN);
        if held(input) < need {
            return Step::More { at_least: need };
        }
        let seen = &input[..input.len().min(Limits::LINE_MAX_FLOOR as usize + 1)];
        let Some(at) = memchr::memchr(b'\n', seen) else {
            return match held(seen) > Limits::LINE_MAX_FLOOR {
                true => Step::Close {
                    reason: CloseReason::LineTooLong,
                },
                false => self.needs(held(input).saturating_add(1)),
            };
        };
        if at < LINE_LEN_MIN {
            return Step::Close {
                reason: CloseReason::NoLogin,
            };
        }
        let line_len = Span::between(0, at + 1).len;
        let error = |error, consumed| Step::Op {
            consumed,
            op: Op::Error {
                error,
                noreply: false,
            },
        };
        let Some(len) = announced(&input[..at]) else {
            self.state = LOCKED;
            return error(ErrorLine::Unauthenticated, line_len);
        };
        if len > LOGIN_LEN_MAX {
            self.state = State::Locked {
                need: 0,
                // What memcached cannot count it does not wait for.
                stage: match len.checked_add(VALUE_END_LEN) {
                    Some(_) => Stage::Over,
                    None => Stage::First,
                },
            };
            return error(ErrorLine::LoginTooLong, line_len);
        }
        let consumed = line_len + len + VALUE_END_LEN;
        let Some(body) = input.get(line_len as usize..consumed as usize) else {
            return self.needs(consumed);
        };
        self.state = LOCKED;
        let Some(login) = body.strip_suffix(VALUE_END) else {
            return error(ErrorLine::BadLoginEnd, consumed);
        };
        let Some(user_len) = memchr::memchr(b' ', login) else {
            return error(ErrorLine::BadLogin, consumed);
        };
        let span = |start, end| Span::between(start, end).shifted(line_len);
        Step::Op {
            consumed,
            op: Op::Login(Login {
                attempt: Attempt::Password {
                    user: span(0, user_len),
                    password: span(user_len + 1, login.len()),
                },
                asked: None,
            }),
        }
    }

    /// Binary requests of a connection that has not logged in.
    pub(super) fn locked_binary(&mut self, stage: Stage, input: &[u8]) -> Step {
        match binary::front_locked(input, stage == Stage::Begun) {
            Front::More(at_least) => Step::More { at_least },
            Front::Op { consumed, op, .. } => Step::Op { consumed, op },
            Front::Login { consumed, login } => self.locks(login, consumed),
            // The others are refused before they are told apart.
            Front::BadMagic | Front::Store { .. } | Front::Refused { .. } => Step::Close {
                reason: CloseReason::BadMagic,
            },
        }
    }

    /// An attempt to log in by SASL has been read. The connection is locked until the caller opens it.
    pub(super) fn locks(&mut self, login: Login, consumed: u32) -> Step {
        self.state = State::Locked {
            need: 0,
            stage: match login.attempt {
                Attempt::Begin => Stage::Begun,
                _ => Stage::First,
            },
        };
        Step::Op {
            consumed,
            op: Op::Login(login),
        }
    }

    fn needs(&mut self, need: u32) -> Step {
        self.state = State::Locked {
            need,
            stage: Stage::First,
        };
        Step::More { at_least: need }
    }
}

/// At the front of a request of somebody who has not logged in.
pub(super) const LOCKED: State = State::Locked {
    need: 0,
    stage: Stage::First,
};
