//! What a look-ahead has seen of a key; see [`Burst::prefetch`](crate::Burst::prefetch).

use crate::index::Hint;

/// What a look-ahead has seen.
#[derive(Clone, Copy)]
pub struct Ahead(pub(crate) LookAheadStep);

#[derive(Clone, Copy)]
pub(crate) enum LookAheadStep {
    /// No item with the key's tag was seen, or nothing was looked at.
    Nothing,
    /// The first bucket is being prefetched.
    First(usize),
    /// The first bucket has no item with the tag; the second bucket is being prefetched.
    Second(usize),
    /// What is likely the key's item.
    Seen(Hint),
}

impl Ahead {
    /// Nothing was seen.
    pub const NONE: Ahead = Ahead(LookAheadStep::Nothing);
}
