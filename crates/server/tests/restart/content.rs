//! Values of which every byte follows from the key and the version.

/// Bytes of a part's head: it is the shortest part.
const HEAD_LEN: usize = 10;

/// What one `set` or `append` has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Numbers what is written to one key.
    pub(crate) version: u32,
    /// Bytes, at least 10.
    pub(crate) len: u32,
}

/// Writes the part's bytes: the key's and the version's number in five hexadecimal digits each, then
/// bytes of all kinds that follow from both.
pub(crate) fn write(key: u32, part: Part, to: &mut Vec<u8>) {
    assert!(key < 1 << 20 && part.version < 1 << 20 && part.len as usize >= HEAD_LEN);
    let end = to.len() + part.len as usize;
    to.extend_from_slice(format!("{key:05x}{:05x}", part.version).as_bytes());
    let mut state = (u64::from(key) << 32 | u64::from(part.version)) ^ 0x9e37_79b9_7f4a_7c15;
    while to.len() < end {
        // xorshift64, times a constant.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        to.extend_from_slice(&word[..word.len().min(end - to.len())]);
    }
}

/// What differs between what came and what was to come; the heads of both say whose they are.
pub(crate) fn difference(expected: &[u8], found: &[u8]) -> String {
    let at = expected
        .iter()
        .zip(found)
        .position(|(one, other)| one != other);
    let shown = |bytes: &[u8]| bytes[..bytes.len().min(24)].escape_ascii().to_string();
    format!(
        "{} bytes {} instead of {} bytes {}, differing from byte {at:?} on",
        found.len(),
        shown(found),
        expected.len(),
        shown(expected)
    )
}

#[test]
fn parts_tell_key_and_version() {
    let of = |key, version, len| {
        let mut bytes = Vec::new();
        write(key, Part { version, len }, &mut bytes);
        bytes
    };
    assert_eq!(of(0x1234, 0xabc, 10), b"0123400abc");
    let long = of(1, 2, 1003);
    assert_eq!(long.len(), 1003);
    assert_ne!(long[10..], of(1, 3, 1003)[10..]);
    assert_ne!(long[10..], of(2, 2, 1003)[10..]);
}
