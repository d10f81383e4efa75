//! What a batch is made of.

use coua_protocol::{Op, Span};
use coua_store::{Ahead, Intent, KeyHash};

use crate::outcome::Outcome;
use crate::worker::input::SessionInput;

/// A request, or one key of it.
#[derive(Clone, Copy)]
pub(in crate::worker) struct Entry {
    pub(in crate::worker) what: What,
    /// Whether its key will be read or written.
    pub(in crate::worker) intent: Intent,
    /// Whether it has a key; without one, `hash` and `ahead` mean nothing.
    pub(super) has_key: bool,
    /// Whether the parser is between two requests after this entry.
    pub(super) is_boundary: bool,
    /// Where the entry ends in the input buffer (exclusive).
    pub(super) end: u32,
    /// Its key's hash.
    pub(in crate::worker) hash: KeyHash,
    /// What looking ahead has found.
    pub(in crate::worker) ahead: Ahead,
}

/// What is asked. Gets and plain sets are by far the most frequent, so they have variants of their
/// own.
#[derive(Clone, Copy)]
pub(in crate::worker) enum What {
    /// As [`Op::Get`].
    Get {
        /// The key.
        key: Span,
        /// Answer with the CAS.
        cas: bool,
        /// `END` follows.
        last: bool,
    },
    /// A plain set, by its number in the list of sets.
    Set(u16),
    /// Any other operation, by its number in the list of operations.
    Other(u16),
}

/// An operation that is neither a get nor a plain set.
pub(in crate::worker) struct Operation {
    /// The offset in the input buffer that its spans count from.
    pub(in crate::worker) base: usize,
    pub(in crate::worker) op: Op,
}

/// A session's part of the batch.
pub(in crate::worker) struct SessionBatch {
    pub(in crate::worker) input: SessionInput,
    /// End of its entries (exclusive).
    pub(in crate::worker) entries_end: usize,
    /// End of what has been parsed (exclusive).
    pub(in crate::worker) parsed_to: usize,
    pub(in crate::worker) pause: Pause,
    /// All of the input has been parsed, and it ends at the end of a request.
    pub(in crate::worker) is_exhausted: bool,
}

/// Why parsing paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Pause {
    /// The rest is not a whole request.
    NeedsMore,
    /// All has been parsed, and the next bytes belong to a request that is refused.
    Skips,
    /// Other sessions get their turn first.
    Yields,
    /// The connection closes after what has been parsed.
    Closes,
}

/// A session whose part of the batch needs more work after execution.
#[derive(Clone, Copy)]
pub(in crate::worker) struct Unfinished {
    /// Its number in [`Batch::sessions`](super::Batch::sessions).
    pub(in crate::worker) number: usize,
    /// Its first entry.
    pub(in crate::worker) first: usize,
    /// End of the entries that have been executed (exclusive).
    pub(in crate::worker) executed_to: usize,
    /// The outcome of the last one.
    pub(in crate::worker) outcome: Outcome,
}

impl Entry {
    /// The hash of its key, if it has a key.
    pub(in crate::worker) fn key_hash(&self) -> Option<KeyHash> {
        self.has_key.then_some(self.hash)
    }
}
