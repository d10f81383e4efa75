//! Why a load ended early.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error as ThisError;

/// Why a load ended early.
#[derive(Debug, ThisError)]
pub(crate) enum Error {
    /// The connection could not be made, or broke.
    #[error("the connection to the server failed: {0}")]
    Io(io::Error),
    /// The network card of an own stack, or its flags.
    #[error("{0}")]
    Net(Box<str>),
    /// There was no reply for ten seconds.
    #[error("the server has not answered for 10 s")]
    Silent,
    /// A load thread has ended.
    #[error("a load thread has ended early; see its message above")]
    Thread,
    /// Another member of the team has failed, or the team is being dropped.
    #[error("stopped")]
    Stopped,
    /// An agent, or the connection to it, has failed.
    #[error("agent {agent}: {why}")]
    Agent {
        /// Where it listens.
        agent: SocketAddr,
        /// The reason in words.
        why: Box<str>,
    },
    /// A reply that does not belong to its request.
    #[error("the server answered out of step: {0:?}")]
    Unexpected(Box<str>),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}

impl Error {
    /// After this time without any reply a server counts as dead: [`Error::Silent`].
    pub(super) const SILENCE: Duration = Duration::from_secs(10);

    /// An error with the beginning of what was received.
    pub(super) fn unexpected(bytes: &[u8]) -> Error {
        let shown = &bytes[..bytes.len().min(120)];
        Error::Unexpected(String::from_utf8_lossy(shown).into())
    }
}
