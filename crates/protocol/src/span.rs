//! A piece of bytes that somebody else owns.

/// `len` bytes from offset `start` of the input that was parsed.
///
/// The two numbers have four bytes each, so that an operation with several spans stays small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Number of bytes.
    pub len: u32,
}

impl Span {
    /// The bytes of `input` that the span names. `input` must be the slice that was
    /// parsed, or one that begins with the same bytes.
    ///
    /// # Panics
    /// If the span reaches beyond `input`: it then belongs to another slice.
    #[inline]
    #[must_use]
    pub fn of(self, input: &[u8]) -> &[u8] {
        &input[self.start as usize..][..self.len as usize]
    }

    /// The same bytes as seen from a slice that begins `base` bytes earlier.
    ///
    /// # Panics
    /// In debug builds, if the offset exceeds `u32::MAX`.
    #[inline]
    #[must_use]
    pub fn shifted(self, base: u32) -> Span {
        Span {
            start: self.start + base,
            len: self.len,
        }
    }

    /// The span of `start..end`. The caller has bounded both by the length of an
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
