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

/// Waits until [`events_seen`] is no longer `seen`, or for `at_most`; it may end early. For the thread
/// that sees to what was lost.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the kernel compares half of the count"
)]
pub fn wait_for_events(seen: u64, at_most: std::time::Duration) {
    crate::sys::wait_while(SEEN.word(), seen as u32, at_most);
}

/// Ends all [`wait_for_events`] that are under way, though nothing was lost.
pub fn wake_waiters() {
    crate::sys::wake_all(SEEN.word());
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
