//! Values that say who wrote them, so that a wrong or torn value is found.
//!
//! ```text
//! byte 0          4        8         12     16
//!      +----------+--------+---------+------+--------------------------+
//!      | key hash | writer | version | len  | bytes that follow from it |
//!      +----------+--------+---------+------+--------------------------+
//! ```
//! Numbers are little-endian. A shorter value is the beginning of this.

use std::rc::Rc;

/// Length in bytes of the part from which the rest follows.
pub(crate) const HEAD_LEN: usize = 16;

/// The value that `writer` stores under `key` as its store number `version`.
pub(crate) fn value(key: &[u8], writer: u32, version: u32, len: usize) -> Rc<[u8]> {
    let words = [
        hash(key),
        writer,
        version,
        u32::try_from(len).unwrap_or(u32::MAX),
    ];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut state = u64::from(words[0]) << 32 ^ u64::from(writer) << 48 ^ u64::from(version);
    while bytes.len() < len {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        bytes.extend((state ^ state >> 29).to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

/// The version, if somebody has stored exactly this value under `key`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(key: &[u8], bytes: &[u8]) -> Result<u32, String> {
    let word = |at: usize| -> Option<u32> {
        let four = bytes.get(at * 4..at * 4 + 4)?;
        Some(u32::from_le_bytes(four.try_into().ok()?))
    };
    let (Some(writer), Some(version)) = (word(1), word(2)) else {
        return Err(format!("{} bytes are too few", bytes.len()));
    };
    if *value(key, writer, version, bytes.len()) == *bytes {
        Ok(version)
    } else {
        Err(format!(
            "{} bytes that say they are version {version} of writer {writer} are not",
            bytes.len()
        ))
    }
}

/// FNV-1a, folded. Its first byte is not ASCII, so no value looks like a number.
fn hash(bytes: &[u8]) -> u32 {
    let long = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [a, b, c, d, rest @ ..] = (long ^ long >> 32).to_le_bytes();
    let _ = rest;
    u32::from_le_bytes([a | 0x80, b, c, d])
}
