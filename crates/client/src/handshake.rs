//! What a new connection asks before it is used.

use crate::config::{Config, DialectChoice};
use crate::error::Cause;
use crate::expiry::Expiry;
use crate::wire::{Conversation, Dialect, ProtocolError, Refusal, Reply, Request, StoreMode};

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
