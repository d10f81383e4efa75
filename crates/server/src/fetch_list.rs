//! What a session knows of its reads of flash; [`crate::fetches`] has them.

/// No place.
pub(crate) const NONE: u32 = u32::MAX;

/// A session's reads.
#[derive(Debug)]
pub struct FetchList {
    /// The first place, or [`NONE`].
    pub(crate) first: u32,
    /// How many reads are under way.
    pub(crate) under_way: u8,
    /// How many places it has.
    pub(crate) len: u8,
    /// How often in a row the session's next request has waited.
    pub waits: u8,
}

impl Default for FetchList {
    fn default() -> FetchList {
        FetchList {
            first: NONE,
            under_way: 0,
            len: 0,
            waits: 0,
        }
    }
}

impl FetchList {
    /// Whether there is nothing to be released.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Whether reads are under way.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.under_way > 0
    }
}
