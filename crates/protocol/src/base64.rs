//! Base64 as memcached reads and writes it in keys.

use crate::limits::KEY_LEN_MAX;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Marks a byte that is not in the alphabet.
const FOREIGN: u8 = 0x80;

const VALUES: [u8; 256] = {
    let mut values = [FOREIGN; 256];
    let mut at = 0;
    while at < 64 {
        #[allow(clippy::cast_possible_truncation)] // below 64
        let value = at as u8;
        values[ALPHABET[at] as usize] = value;
        at += 1;
    }
    values[b'=' as usize] = 0;
    values
};

/// How many bytes [`encode`] writes for `len` bytes.
#[must_use]
pub const fn encoded_len(len: usize) -> usize {
    len.div_ceil(3) * 4
}

/// Decodes `text` into the front of `out` and returns the number of bytes written, or
/// `None` if `text` is not valid.
///
/// It is as lenient as memcached: it skips bytes that are not in the alphabet, and
/// the first group of four with padding ends the text. A text is valid if the bytes
/// of the alphabet (`=` is one) form one or more groups of four, the last group has
/// fewer than three `=`, and the text is at most [`KEY_LEN_MAX`] bytes long.
#[must_use]
pub fn decode(text: &[u8], out: &mut [u8; KEY_LEN_MAX]) -> Option<usize> {
    let known = text
        .iter()
        .filter(|&&byte| VALUES[usize::from(byte)] != FOREIGN);
    let count = known.clone().count();
    if count == 0 || count % 4 != 0 || text.len() > KEY_LEN_MAX {
        return None;
    }
    let mut len = 0;
    let mut group: u32 = 0;
    let mut padding = 0;
    for (at, &byte) in known.enumerate() {
        group = group << 6 | u32::from(VALUES[usize::from(byte)]);
        padding += usize::from(byte == b'=');
        if at % 4 != 3 {
            continue;
        }
        let [_, first, second, third] = group.to_be_bytes();
        out[len..len + 3].copy_from_slice(&[first, second, third]);
        len += 3;
        group = 0;
        match padding {
            0 => {}
            1 | 2 => return Some(len - padding),
            _ => return None,
        }
    }
    Some(len)
}

/// Encodes `bytes` into the front of `out` and returns the number of bytes written,
/// or `None` if `out` is shorter than [`encoded_len`].
#[must_use]
pub fn encode(bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    let len = encoded_len(bytes.len());
    let out = out.get_mut(..len)?;
    for (group, text) in bytes.chunks(3).zip(out.chunks_exact_mut(4)) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (at, letter) in text.iter_mut().enumerate() {
            *letter = match at > group.len() {
                true => b'=',
                false => ALPHABET[(bits >> (18 - 6 * at)) as usize & 63],
            };
        }
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &[u8]) -> Option<std::vec::Vec<u8>> {
        let mut out = [0; KEY_LEN_MAX];
        decode(text, &mut out).map(|len| out[..len].to_vec())
    }

    #[test]
    fn decodes_leniently() {
        let table: [(&[u8], Option<&[u8]>); 14] = [
            (b"", None),
            (b"YQ==", Some(b"a")),
            (b"YWI=", Some(b"ab")),
            (b"YWJj", Some(b"abc")),
            (b"YWJjZA==", Some(b"abcd")),
            (b"YWJ", None),
            (b"YQ", None),
            (b"Y-Q_=.=", Some(b"a")),
            (b"YQ==YQ==", Some(b"a")),
            (b"A===", None),
            (b"====", None),
            (b"=AAA", Some(b"\0\0")),
            (b"/+8=", Some(&[0xff, 0xef])),
            (b"!!!!", None),
        ];
        for (text, expected) in table {
            assert_eq!(decoded(text).as_deref(), expected, "{text:?}");
        }
        assert_eq!(decoded(&[b'A'; 248]).map(|key| key.len()), Some(186));
        assert_eq!(decoded(&[b'A'; 252]), None);
    }

    proptest::proptest! {
        #[test]
        fn round_trip(bytes in proptest::collection::vec(proptest::num::u8::ANY, 1..187)) {
            let mut text = [0; 248];
            let len = encode(&bytes, &mut text).expect("it fits");
            assert_eq!(len, encoded_len(bytes.len()));
            assert_eq!(decoded(&text[..len]).as_deref(), Some(&bytes[..]));
            assert_eq!(encode(&bytes, &mut text[..len - 1]), None);
        }
    }
}
