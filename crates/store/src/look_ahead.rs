//! What a look-ahead has seen of a key; see [`Burst::prefetch`](crate::Burst::prefetch).

use crate::index::Hint;

/// What a look-ahead has seen.
#[derive(Clone, Copy)]
pub struct Ahead(pub(crate) LookAheadStep);

#[derive(Clone, Copy)]
pub(crate) enum LookAheadStep {
    /// No item of the key's tag, or not looked.
    Nothing,
    /// The first bucket is on its way.
    First(usize),
    /// No item of the tag in the first bucket; the second is on its way.
    Second(usize),
    /// What is likely the key's item.
    Seen(Hint),
}

impl Ahead {
    /// Nothing was seen.
    pub const NONE: Ahead = Ahead(LookAheadStep::Nothing);
}
