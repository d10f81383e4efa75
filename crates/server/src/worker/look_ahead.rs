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

use coua_store::Burst;

use super::batch::Entry;

/// Entries of a group.
const GROUP: usize = 32;

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
            // Groups before the first lie behind the last, where there are none either.
            let groups = [0, 1, 2].map(|step| self.front.wrapping_sub(step * GROUP));
            for entry in group(entries, groups[0]) {
                entry.ahead = burst.prefetch(entry.hash, entry.intent);
            }
            for entry in group(entries, groups[1]) {
                entry.ahead = burst.look(entry.hash, entry.intent, entry.ahead);
            }
            for entry in group(entries, groups[2]) {
                entry.ahead = burst.look_again(entry.hash, entry.intent, entry.ahead);
            }
            self.front += GROUP;
        }
        self.due = self.front - STEPS * GROUP;
    }
}

/// The group that begins with entry `from`; what there is of it.
#[inline(always)]
fn group(entries: &mut [Entry], from: usize) -> &mut [Entry] {
    let len = entries.len();
    match from < len {
        true => &mut entries[from..len.min(from + GROUP)],
        false => &mut [],
    }
}
