//! loom knows no errors, so nothing is watched.

use std::convert::Infallible;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// There is none.
#[derive(Debug)]
pub struct WatchedMemory(Infallible);

/// A moment in the life of a [`WatchedMemory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossMark(());

impl LossMark {
    /// Before anything was lost.
    pub const BEGINNING: LossMark = LossMark(());
}

impl WatchedMemory {
    /// None is mapped.
    ///
    /// # Errors
    /// Always.
    pub fn map(_: usize) -> io::Result<WatchedMemory> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Where it begins.
    pub fn start(&self) -> NonNull<u8> {
        match self.0 {}
    }

    /// Its bytes.
    #[expect(clippy::len_without_is_empty, reason = "there is none")]
    pub fn len(&self) -> usize {
        match self.0 {}
    }

    /// Now.
    pub fn mark(&self) -> LossMark {
        match self.0 {}
    }

    /// Whether a page of these bytes was lost since then.
    pub fn is_lost_since(&self, _: Range<usize>, _: LossMark) -> bool {
        match self.0 {}
    }
}

/// Nothing is lost.
#[must_use]
pub fn check(_: &[u8]) -> bool {
    false
}
