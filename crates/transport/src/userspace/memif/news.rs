//! What happens to a link, for a log.

use std::fmt;

/// What happens to a link, for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// There is no server; the client keeps looking for one.
    Waiting {
        /// What the system said.
        why: String,
    },
    /// A peer has connected.
    Connected {
        /// What it calls itself.
        peer: String,
        /// How many queues have rings; the others are idle.
        queues: usize,
    },
    /// The peer has left.
    Left {
        /// The reason that it gave, if any.
        why: String,
    },
    /// A peer was refused, or has refused this end.
    Refused {
        /// The reason, of this end or of the peer.
        why: String,
    },
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::Waiting { why } => write!(f, "no server yet ({why}); tries again every second"),
            News::Connected { peer, queues } => write!(f, "connected to {peer}, queues: {queues}"),
            News::Left { why } => write!(f, "the peer has left: {why}"),
            News::Refused { why } => write!(f, "no connection: {why}"),
        }
    }
}

/// Receives the news of a link. The same news is not reported twice in a row.
pub type Report = Box<dyn Fn(&News) + Send>;
