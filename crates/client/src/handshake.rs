//! What a new connection asks before it is used.

use crate::config::DialectChoice;
use crate::error::Cause;
use crate::wire::{Dialect, ProtocolError, Refusal, Reply};

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
