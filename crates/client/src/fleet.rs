//! The servers of a client, which may change while requests are under way.

use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

/// The servers of a client, with all that belongs to them.
///
/// # Concurrency
/// A request holds the servers that were there when it began: nothing is taken from under it. What a change leaves
/// out goes with the last request that uses it.
#[derive(Debug)]
pub(crate) enum Fleet<S> {
    /// They stay what they are: nothing is locked.
    Fixed(S),
    /// Somebody replaces them.
    Followed(RwLock<Arc<S>>),
}

/// The servers of a moment.
#[derive(Debug)]
pub(crate) enum Now<'f, S> {
    Fixed(&'f S),
    Held(Arc<S>),
}

impl<S> Fleet<S> {
    pub(crate) fn followed(servers: S) -> Fleet<S> {
        Fleet::Followed(RwLock::new(Arc::new(servers)))
    }

    #[inline]
    pub(crate) fn now(&self) -> Now<'_, S> {
        match self {
            Fleet::Fixed(servers) => Now::Fixed(servers),
            Fleet::Followed(servers) => {
                let servers = servers.read().unwrap_or_else(PoisonError::into_inner);
                Now::Held(Arc::clone(&servers))
            }
        }
    }

    /// Requests that begin from now on find these. Servers that are fixed stay.
    pub(crate) fn replace(&self, servers: S) {
        if let Fleet::Followed(current) = self {
            let servers = Arc::new(servers);
            let mut current = current.write().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *current, servers);
            drop(current);
            // Connections may close, and nobody waits for it.
            drop(before);
        }
    }
}

impl<S> Deref for Now<'_, S> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        match self {
            Now::Fixed(servers) => servers,
            Now::Held(servers) => servers,
        }
    }
}
