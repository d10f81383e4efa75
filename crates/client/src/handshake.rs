//! What a new connection asks before it is used.

use std::fmt;
use std::time::Duration;

use crate::config::{Config, DialectChoice};
use crate::error::Cause;
use crate::expiry::Expiry;
use crate::wire::{Conversation, Dialect, ProtocolError, Refusal, Reply, Request, StoreMode};

/// Who logs in, and with what. Its words are nobody else's: `Debug` shows the user alone.
#[derive(Clone)]
pub(crate) struct Login {
    user: String,
    /// `USER PASSWORD`, as servers with `-Y` take it.
    line: Vec<u8>,
}

impl Login {
    pub(crate) fn new(user: &str, password: &str) -> Login {
        Login {
            user: user.to_owned(),
            line: format!("{user} {password}").into_bytes(),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// A conversation that begins with a login if there is one: a `set` of any key in classic text, which nobody
/// stores. What else is asked may follow at once, with the first dialect.
pub(crate) fn begin(config: &Config) -> Conversation {
    let mut conversation = Conversation::new(Dialect::Classic, config.limits);
    if let Some(login) = &config.login {
        let request = Request::store(StoreMode::Set, b"login", &login.line, 0, Expiry::NEVER);
        // A conversation that is new has room for one; a value that is too long for it is not sent, and the
        // server turns away who does not log in.
        let _ = conversation.push(&request);
    }
    conversation
}

/// What the answer to a login means.
pub(crate) fn logged_in(answer: Option<Reply>) -> Result<(), Cause> {
    match answer {
        Some(Reply::Item(_)) => Ok(()),
        Some(Reply::Refused(refusal)) => Err(Cause::TurnedAway(refusal)),
        _ => Err(Cause::Protocol(ProtocolError::Misplaced)),
    }
}

/// How long opening a connection may take. Servers let those wait who fail to log in.
pub(crate) fn time_limit(config: &Config) -> Duration {
    match config.login {
        Some(_) => config.connect_timeout + config.operation_timeout,
        None => config.connect_timeout,
    }
}

/// How the first requests are written.
pub(crate) fn first_dialect(choice: DialectChoice) -> Dialect {
    match choice {
        DialectChoice::Classic => Dialect::Classic,
        DialectChoice::Ask | DialectChoice::Meta => Dialect::Meta,
    }
}

/// Which dialect the answer to `mn` tells of: a server without the meta commands does not know it.
pub(crate) fn dialect_of(answer: Option<Reply>) -> Result<Dialect, Cause> {
    match answer {
        Some(Reply::Item(_)) => Ok(Dialect::Meta),
        Some(Reply::Refused(Refusal::Unknown(text))) if text.is_empty() => Ok(Dialect::Classic),
        Some(Reply::Refused(refusal)) => Err(Cause::TurnedAway(refusal)),
        _ => Err(Cause::Protocol(ProtocolError::Misplaced)),
    }
}
