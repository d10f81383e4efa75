//! Looking ahead in a batch.
//!
//! Before an entry is executed, its buckets and then its item are prefetched, while earlier entries
//! are executed. In this way the memory latencies overlap. Entries advance together, a group at a
//! time:
//!
//! ```text
//! group i + 3   prefetch the keys' first buckets
//! group i + 2   look into these, prefetch the items, or else the second buckets
//! group i + 1   look into those, prefetch the items
//! group i       execute
//! ```
//! All of this is a hint: the answer to a request depends only on the store as it is at execution.

use coua_store::Burst;

use super::batch::Entry;

/// Entries of a group.
const GROUP: usize = 32;

/// How many groups the first step is ahead of execution.
const STEPS: usize = 3;

/// Batches shorter than this are executed without a look-ahead: it would have nothing to overlap
/// with.
const LEN_MIN: usize = 2;

/// How far the look-ahead over one batch has got.
pub(super) struct LookAhead {
    /// The group that starts next.
    front: usize,
    /// The next step is due before this entry is executed.
    due: usize,
}

impl LookAhead {
    /// Starts at the beginning of a batch of `len` entries.
    pub(super) fn new(len: usize) -> LookAhead {
        LookAhead {
            front: 0,
            due: if len < LEN_MIN { usize::MAX } else { 0 },
        }
    }

    /// Looks ahead as far as the execution of entry `at` requires.
    #[inline(always)]
    pub(super) fn reach(&mut self, at: usize, entries: &mut [Entry], burst: &Burst<'_>) {
        if at >= self.due {
            self.advance(at, entries, burst);
        }
    }

    #[inline(never)]
    fn advance(&mut self, at: usize, entries: &mut [Entry], burst: &Burst<'_>) {
        while self.front <= at + STEPS * GROUP {
            // The index of a group before the first wraps around to beyond the end, where there is
            // no group either.
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

/// The group that begins with entry `from`, possibly shorter than `GROUP`.
#[inline(always)]
fn group(entries: &mut [Entry], from: usize) -> &mut [Entry] {
    let len = entries.len();
    match from < len {
        true => &mut entries[from..len.min(from + GROUP)],
        false => &mut [],
    }
}
