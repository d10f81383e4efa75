//! What a session knows of its reads of flash; [`crate::fetches`] has them.

use coua_store::{FlashPieces, Recall};

/// No place.
pub(crate) const NONE: u32 = u32::MAX;

/// A value on flash in pieces that a session's next request is about.
#[expect(clippy::large_enum_variant, reason = "it is always in a box")]
pub enum LargeValue {
    /// It is being sent: its length has been promised.
    Sending {
        /// The pieces.
        pieces: FlashPieces,
        /// The next to be sent.
        next: usize,
        /// What follows the last.
        tail: &'static [u8],
    },
    /// It is brought back to memory.
    Recalling(Recall),
}

/// A session's reads.
pub struct FetchList {
    /// The first place, or [`NONE`].
    pub(crate) first: u32,
    /// How many reads are under way.
    pub(crate) under_way: u8,
    /// How many places it has.
    pub(crate) len: u8,
    /// How often in a row the session's next request has waited.
    pub waits: u8,
    /// What has been done of a value in pieces.
    pub large: Option<Box<LargeValue>>,
}

impl Default for FetchList {
    fn default() -> FetchList {
        FetchList {
            first: NONE,
            under_way: 0,
            len: 0,
            waits: 0,
            large: None,
        }
    }
}

impl FetchList {
    /// Whether there is nothing to be released.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == NONE && self.large.is_none()
    }

    /// Whether a value in pieces is being sent.
    #[inline]
    pub fn is_sending(&self) -> bool {
        matches!(self.large.as_deref(), Some(LargeValue::Sending { .. }))
    }

    /// Whether reads are under way.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.under_way > 0
    }
}
