//! Which change of the directory is being published.
//!
//! A change of the directory is stored word by word. A worker that may not go on before the last word
//! has changed stores the others itself, if the thread that publishes has lost its core. It finds out
//! here whether that is needed.
//!
//! # Concurrency
//! A worker that has seen a word of a change, by an Acquire load, sees one of these here:
//! - the table of that change: it may still be under way;
//! - nothing, or another table: then all words of the change are stored. Both are stored with Release
//!   by a thread that holds the index's lock, after all words of the change.

use super::TableId;
use crate::sync::{AtomicU64, Ordering};

/// The number of the table that the change adds or takes away, plus one; 0 for none. Stored under
/// the index's lock.
pub(super) struct Publishing(AtomicU64);

impl Default for Publishing {
    fn default() -> Publishing {
        Publishing(AtomicU64::new(0))
    }
}

impl Publishing {
    /// From now on words change, to add or take away `table`.
    pub(super) fn begin(&self, table: TableId) {
        self.0.store(u64::from(table.0) + 1, Ordering::Release);
    }

    /// All words have changed.
    pub(super) fn end(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Whether the change that adds or takes away `table` may not be complete.
    pub(super) fn is_of(&self, table: TableId) -> bool {
        self.0.load(Ordering::Acquire) == u64::from(table.0) + 1
    }
}
