//! What happens to a link, for a log.

use std::fmt;

/// What happens to a link, for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// There is no server, and the client goes on looking for one.
    Waiting {
        /// What the system said.
        why: String,
    },
    /// A peer is there.
    Connected {
        /// What it calls itself.
        peer: String,
        /// Queues that have rings; the others idle.
        queues: usize,
    },
    /// It is no longer.
    Left {
        /// In its own words, where it said some.
        why: String,
    },
    /// A peer was refused, or has refused this end.
    Refused {
        /// By this end, or in the peer's words.
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

/// Hears the news of a link. The same is not told twice in a row.
pub type Report = Box<dyn Fn(&News) + Send>;
