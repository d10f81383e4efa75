//! A piece of somebody else's bytes.

/// `len` bytes from offset `start` of the input that was parsed.
///
/// Four bytes each, so that an operation with several of them stays small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Number of bytes.
    pub len: u32,
}

impl Span {
    /// The bytes that the span names in `input`, which must be the slice (or one
    /// with the same front) that the span came from.
    ///
    /// # Panics
    /// If the span reaches beyond `input`: it belongs to another one.
    #[inline]
    #[must_use]
    pub fn of(self, input: &[u8]) -> &[u8] {
        &input[self.start as usize..][..self.len as usize]
    }

    /// The same bytes as seen from a slice that begins `base` bytes earlier.
    ///
    /// # Panics
    /// In debug builds, if the offset passes `u32::MAX`.
    #[inline]
    #[must_use]
    pub fn shifted(self, base: u32) -> Span {
        Span {
            start: self.start + base,
            len: self.len,
        }
    }

    /// The span of `start..end`; both have been bounded by the length of an
    /// input, which is at most `u32::MAX`.
    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn between(start: usize, end: usize) -> Span {
        debug_assert!(start <= end && u32::try_from(end).is_ok());
        Span {
            start: start as u32,
            len: (end - start) as u32,
        }
    }
}
