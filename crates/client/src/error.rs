//! What went wrong, and what is known of the request.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::key::KeyError;
use crate::wire::{Effect, ProtocolError, Refusal, RequestError};

/// Why an operation has no result.
///
/// The variants tell what matters to a caller: whether the server may have executed the request.
///
/// | variant | executed? |
/// |---|---|
/// | [`Error::Request`] | no: it was never sent |
/// | [`Error::NotSent`] | no: the server did not get all of it |
/// | [`Error::Interrupted`] | perhaps, but it changes nothing: ask again |
/// | [`Error::OutcomeUnknown`] | perhaps: a set may or may not be stored |
/// | [`Error::Refused`] | no: the server says so |
///
/// A miss, "not stored" and "exists" are results, not errors.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request itself cannot be sent.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The server did not get the whole request, so it had no effect.
    #[error("{server}: not sent: {cause}")]
    NotSent {
        /// Which server, as the client was told it.
        server: Arc<str>,
        /// What happened.
        cause: Cause,
    },
    /// A request that only reads was sent, and its answer did not come.
    #[error("{server}: no answer: {cause}")]
    Interrupted {
        /// Which server.
        server: Arc<str>,
        /// What happened.
        cause: Cause,
    },
    /// A request that changes something was sent, and its answer did not come.
    #[error("{server}: sent, and whether it was done is not known: {cause}")]
    OutcomeUnknown {
        /// Which server.
        server: Arc<str>,
        /// What happened.
        cause: Cause,
    },
    /// The server answered that it does not do this.
    #[error("{server}: {refusal}")]
    Refused {
        /// Which server.
        server: Arc<str>,
        /// Its words.
        refusal: Refusal,
    },
    /// Which servers there are could not be found out ([`crate::Discovery`]).
    #[error("{server}: {reason}")]
    Discovery {
        /// Who was asked.
        server: Arc<str>,
        /// What went wrong.
        reason: String,
    },
    /// The address of a server cannot be read.
    #[error("`{0}` is not an address: HOST, HOST:PORT, [IPV6]:PORT or unix:/PATH is expected")]
    Address(String),
}

impl Error {
    /// True when the request has certainly changed nothing.
    #[must_use]
    pub fn had_no_effect(&self) -> bool {
        !matches!(self, Error::OutcomeUnknown { .. })
    }

    /// True when time ran out.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.cause(), Some(Cause::Timeout(_)))
    }

    /// What happened to the connection, where something did.
    #[must_use]
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Error::NotSent { cause, .. }
            | Error::Interrupted { cause, .. }
            | Error::OutcomeUnknown { cause, .. } => Some(cause),
            _ => None,
        }
    }

    pub(crate) fn of(server: &Arc<str>, effect: Effect, cause: Cause) -> Error {
        let server = Arc::clone(server);
        match effect {
            Effect::NotSent => Error::NotSent { server, cause },
            Effect::Reads => Error::Interrupted { server, cause },
            Effect::Unknown => Error::OutcomeUnknown { server, cause },
        }
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Error {
        Error::Request(RequestError::Key(error))
    }
}

/// What happened to a connection.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// No connection could be opened.
    #[error("cannot connect: {}", Io(.0, .1))]
    Connect(io::ErrorKind, Option<i32>),
    /// The connection failed.
    #[error("{}", Io(.0, .1))]
    Io(io::ErrorKind, Option<i32>),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// No answer came in time.
    #[error("nothing came within {0:?}")]
    Timeout(Duration),
    /// What came is not an answer to the request.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    /// All connections were in use, or the bound on requests in flight was reached, until time ran out.
    #[error("no connection was free within {0:?}")]
    Busy(Duration),
    /// The server failed lately and is left alone for a while.
    #[error("the server failed lately and is not asked again yet")]
    Ejected,
    /// Encryption failed: a certificate that nobody vouches for, for one.
    #[error("TLS: {0}")]
    Tls(Arc<str>),
    /// The server answered an opening connection with this.
    #[error("the server turned the connection away: {0}")]
    TurnedAway(Refusal),
}

impl Cause {
    pub(crate) fn io(error: &io::Error) -> Cause {
        Cause::tls(error).unwrap_or(Cause::Io(error.kind(), error.raw_os_error()))
    }

    pub(crate) fn connect(error: &io::Error) -> Cause {
        Cause::tls(error).unwrap_or(Cause::Connect(error.kind(), error.raw_os_error()))
    }

    #[cfg(feature = "tls")]
    fn tls(error: &io::Error) -> Option<Cause> {
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(Cause::Tls(error.to_string().into()))
    }

    #[cfg(not(feature = "tls"))]
    fn tls(_error: &io::Error) -> Option<Cause> {
        None
    }
}

/// An error's words: the system's where it has a number.
struct Io<'a>(&'a io::ErrorKind, &'a Option<i32>);

impl fmt::Display for Io<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(number) => write!(f, "{}", io::Error::from_raw_os_error(*number)),
            None => write!(f, "{}", self.0),
        }
    }
}
