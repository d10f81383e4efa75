//! Statuses, causes and messages, as the header has them.

use coua_client::{Cause, Error, StoreOutcome};

/// Bytes of an error's message, its zero included.
pub const MESSAGE_LEN: usize = 248;

/// Results are 0 and above, errors below.
pub mod status {
    /// Done, or found.
    pub const OK: i32 = 0;
    /// There is no such item.
    pub const MISSING: i32 = 1;
    /// The condition of a store did not hold.
    pub const NOT_STORED: i32 = 2;
    /// The item has another CAS.
    pub const EXISTS: i32 = 3;
    /// It cannot be sent.
    pub const INVALID: i32 = -1;
    /// The server has not got all of it.
    pub const NOT_SENT: i32 = -2;
    /// A request that only reads has no answer.
    pub const INTERRUPTED: i32 = -3;
    /// Sent, and whether it was done is not known.
    pub const OUTCOME_UNKNOWN: i32 = -4;
    /// The server answered an error.
    pub const REFUSED: i32 = -5;
}

/// Why a request has no answer.
pub mod cause {
    /// There is an answer, or nothing was sent.
    pub const NONE: i32 = 0;
    /// No connection could be opened.
    pub const CONNECT: i32 = 1;
    /// The connection failed.
    pub const IO: i32 = 2;
    /// The server closed it.
    pub const CLOSED: i32 = 3;
    /// No answer in time.
    pub const TIMEOUT: i32 = 4;
    /// What came is no answer to the request.
    pub const PROTOCOL: i32 = 5;
    /// All connections were in use until time ran out.
    pub const BUSY: i32 = 6;
    /// The server failed lately.
    pub const EJECTED: i32 = 7;
    /// The server refused the new connection.
    pub const TURNED_AWAY: i32 = 8;
    /// Encryption failed.
    pub const TLS: i32 = 9;
}

/// `coua_error`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ErrorDetails {
    /// One of [`status`]'s errors.
    pub status: i32,
    /// One of [`cause`].
    pub cause: i32,
    /// Words, with a zero behind them.
    pub message: [u8; MESSAGE_LEN],
}

/// An error on its way to C.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: i32,
    pub(crate) cause: i32,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure {
            status: status::INVALID,
            cause: cause::NONE,
            message: message.into(),
        }
    }

    /// Nothing was done.
    pub(crate) fn unsent(cause: i32, message: &str) -> Failure {
        Failure {
            status: status::NOT_SENT,
            cause,
            message: message.to_owned(),
        }
    }

    pub(crate) fn details(&self) -> ErrorDetails {
        let mut len = self.message.len().min(MESSAGE_LEN - 1);
        while !self.message.is_char_boundary(len) {
            len -= 1;
        }
        let mut message = [0; MESSAGE_LEN];
        message[..len].copy_from_slice(&self.message.as_bytes()[..len]);
        ErrorDetails {
            status: self.status,
            cause: self.cause,
            message,
        }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Failure {
        let status = match error {
            Error::Request(_) | Error::Address(_) => status::INVALID,
            Error::NotSent { .. } => status::NOT_SENT,
            Error::Interrupted { .. } => status::INTERRUPTED,
            Error::Refused { .. } | Error::Discovery { .. } => status::REFUSED,
            // One that this library does not know promises nothing.
            _ => status::OUTCOME_UNKNOWN,
        };
        let cause = error.cause().map_or(cause::NONE, |cause| match cause {
            Cause::Connect(..) => cause::CONNECT,
            Cause::Closed => cause::CLOSED,
            Cause::Timeout(_) => cause::TIMEOUT,
            Cause::Protocol(_) => cause::PROTOCOL,
            Cause::Busy(_) => cause::BUSY,
            Cause::Ejected => cause::EJECTED,
            Cause::TurnedAway(_) => cause::TURNED_AWAY,
            Cause::Tls(_) => cause::TLS,
            _ => cause::IO,
        });
        let message = error.to_string();
        Failure {
            status,
            cause,
            message,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::from(&error)
    }
}

pub(crate) fn of_store(outcome: StoreOutcome) -> i32 {
    match outcome {
        StoreOutcome::Stored => status::OK,
        StoreOutcome::NotStored => status::NOT_STORED,
        StoreOutcome::Exists => status::EXISTS,
        StoreOutcome::Missing => status::MISSING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_letters() {
        let details = Failure::invalid("\u{fc}".repeat(200)).details();
        assert_eq!(details.message[MESSAGE_LEN - 2..], [0, 0]);
        let text = std::str::from_utf8(&details.message[..MESSAGE_LEN - 2]);
        assert_eq!(text.map(str::len), Ok(MESSAGE_LEN - 2));
    }
}
