//! What was lost, for whoever decides what follows from it.

use crate::state::{EVENTS_MAX, Taken};
use crate::{SEEN, STATE};

/// How many times memory of a registered region was lost since the start.
///
/// A worker remembers the count before it reads what it is going to answer from, and asks again
/// before the answers leave. If it moved, something that was read may have been zeros. One load and
/// two comparisons a turn: nothing else of the errors costs while there are none.
#[inline]
#[must_use]
pub fn events_seen() -> u64 {
    SEEN.load()
}

/// The list of what was lost. There is one in a process, which [`install`](crate::install()) gives out.
#[derive(Debug)]
pub struct Events {
    pub(crate) _one: (),
}

impl Events {
    /// Takes what was lost since the last time. It waits for repairs that are under way: what
    /// [`events_seen`] has counted is in the list, unless it overflowed.
    pub fn take(&mut self) -> Taken {
        let mut taken = Taken {
            lost: Vec::with_capacity(EVENTS_MAX),
            ..Taken::default()
        };
        STATE.lock().take(&mut taken);
        taken
    }

    /// As [`events_seen`].
    #[must_use]
    pub fn count(&self) -> u64 {
        events_seen()
    }
}
