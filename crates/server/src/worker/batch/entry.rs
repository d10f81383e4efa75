//! What a batch is made of.

use coua_protocol::{Op, Span};
use coua_store::{Ahead, Intent, KeyHash};

use crate::outcome::Outcome;
use crate::worker::input::SessionInput;

/// A request, or one key of it.
#[derive(Clone, Copy)]
pub(in crate::worker) struct Entry {
    pub(in crate::worker) what: What,
    /// What is going to be done to its key.
    pub(in crate::worker) intent: Intent,
    /// It has a key; else what is looked ahead for is of no use.
    pub(super) has_key: bool,
    /// The parser stands between two requests behind it.
    pub(super) is_boundary: bool,
    /// Behind its last byte in the input buffer.
    pub(super) end: u32,
    /// Its key's hash.
    pub(in crate::worker) hash: KeyHash,
    /// What looking ahead has found.
    pub(in crate::worker) ahead: Ahead,
}

/// What is asked. Gets and plain sets are by far the most, so they have forms of their own.
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
    /// The plain set of this number.
    Set(u16),
    /// The operation of this number.
    Other(u16),
}

/// An operation that is neither a get nor a plain set.
pub(in crate::worker) struct Operation {
    /// Where in the input buffer the bytes begin that its spans count from.
    pub(in crate::worker) base: usize,
    pub(in crate::worker) op: Op,
}

/// A session's part of the batch.
pub(in crate::worker) struct SessionBatch {
    pub(in crate::worker) input: SessionInput,
    /// Behind its last entry.
    pub(in crate::worker) entries_end: usize,
    /// Behind the last byte that has been parsed.
    pub(in crate::worker) parsed_to: usize,
    pub(in crate::worker) pause: Pause,
    /// All of the input has been parsed, and it ends with a whole request.
    pub(in crate::worker) is_exhausted: bool,
}

/// Why parsing paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Pause {
    /// What is left is no whole request.
    NeedsMore,
    /// All has been parsed, and what comes next belongs to something that is refused.
    Skips,
    /// Others have their turn.
    Yields,
    /// The connection closes behind what has been parsed.
    Closes,
}

/// A session whose part of the batch leaves something to be seen to.
#[derive(Clone, Copy)]
pub(in crate::worker) struct Unfinished {
    /// Its number in [`Batch::sessions`].
    pub(in crate::worker) number: usize,
    /// Its first entry.
    pub(in crate::worker) first: usize,
    /// Behind the last entry that has been executed.
    pub(in crate::worker) executed_to: usize,
    /// What the last one came to.
    pub(in crate::worker) outcome: Outcome,
}

impl Entry {
    /// Its key's hash, where it has a key.
    pub(in crate::worker) fn key_hash(&self) -> Option<KeyHash> {
        self.has_key.then_some(self.hash)
    }
}
