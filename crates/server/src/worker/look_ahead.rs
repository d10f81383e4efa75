//! Looking ahead in a batch.
//!
//! Before an entry is executed its buckets and then its item have been asked for from memory, while
//! entries before it were executed, so that the waiting times for memory overlap. Entries advance
//! together, a group at a time:
//!
//! ```text
//! group i + 3   prefetch the keys' first buckets
//! group i + 2   look into these, prefetch the items, or else the second buckets
//! group i + 1   look into those, prefetch the items
//! group i       execute
//! ```
//! All that is a hint; a request's answer looks at the store as it is when it is executed.

use coua_store::{Ahead, Burst, Intent, KeyHash};

use super::batch::Entry;

/// Entries of a group.
const GROUP: usize = 16;

/// How many groups the first step is ahead of execution.
const STEPS: usize = 3;

/// Batches shorter than this are executed without a look ahead, which would find nothing to
/// overlap with.
const LEN_MIN: usize = 2;

/// How far the look-ahead over one batch has got.
pub(super) struct LookAhead {
    /// The group to begin with next.
    front: usize,
    /// The entry before whose execution that is done.
    due: usize,
}

impl LookAhead {
    /// Begins at the front of a batch of `len` entries.
    pub(super) fn new(len: usize) -> LookAhead {
        LookAhead {
            front: 0,
            due: if len < LEN_MIN { usize::MAX } else { 0 },
        }
    }

    /// Has looked ahead as far as the execution of entry `at` asks for.
    #[inline(always)]
    pub(super) fn reach(&mut self, at: usize, entries: &mut [Entry], burst: &Burst<'_>) {
        if at >= self.due {
            self.advance(at, entries, burst);
        }
    }

    #[inline(never)]
    fn advance(&mut self, at: usize, entries: &mut [Entry], burst: &Burst<'_>) {
        while self.front <= at + STEPS * GROUP {
            step(entries, Some(self.front), |hash, intent, _| {
                burst.prefetch(hash, intent)
            });
            step(
                entries,
                self.front.checked_sub(GROUP),
                |hash, intent, ahead| burst.look(hash, intent, ahead),
            );
            step(
                entries,
                self.front.checked_sub(2 * GROUP),
                |hash, intent, ahead| burst.look_again(hash, intent, ahead),
            );
            self.front += GROUP;
        }
        self.due = self.front - STEPS * GROUP;
    }
}

/// Takes the keys of the group that begins with entry `from`, if there is one, a step further.
#[inline(always)]
fn step(
    entries: &mut [Entry],
    from: Option<usize>,
    look: impl Fn(KeyHash, Intent, Ahead) -> Ahead,
) {
    let Some(from) = from.filter(|&from| from < entries.len()) else {
        return;
    };
    let to = entries.len().min(from + GROUP);
    for entry in &mut entries[from..to] {
        if let Some((hash, intent)) = entry.key() {
            entry.ahead = look(hash, intent, entry.ahead);
        }
    }
}
