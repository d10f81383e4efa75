//! Values that show whether they are whole and belong to their key.
//!
//! A value is its key's number, a stamp, and letters that follow from both. So a value of another
//! key, a torn value, and one with bytes of another are all recognised, whichever user stored them.

/// Digits in front of the letters.
const HEAD_LEN: usize = 24;

/// Writes a value of about `len` bytes, at least its head.
pub(super) fn write(key: u32, stamp: u64, len: usize, to: &mut Vec<u8>) {
    to.extend(format!("{key:08x}{stamp:016x}").bytes());
    let mut state = seed(key, stamp);
    for _ in HEAD_LEN..len.max(HEAD_LEN) {
        to.push(letter(&mut state));
    }
}

/// What is wrong with a value that came for a key, if anything.
pub(super) fn fault(key: u32, value: &[u8]) -> Option<String> {
    let shown = || value[..value.len().min(60)].escape_ascii().to_string();
    let head = value
        .get(..HEAD_LEN)
        .and_then(|head| std::str::from_utf8(head).ok());
    let Some((name, stamp)) = head.and_then(|head| head.split_at_checked(8)) else {
        return Some(format!("key {key} has a value without a head: {}", shown()));
    };
    let (name, stamp) = (
        u32::from_str_radix(name, 16),
        u64::from_str_radix(stamp, 16),
    );
    let (Ok(name), Ok(stamp)) = (name, stamp) else {
        return Some(format!("key {key} has a torn head: {}", shown()));
    };
    if name != key {
        return Some(format!("key {key} has the value of {name}: {}", shown()));
    }
    let mut state = seed(key, stamp);
    let wrong = value[HEAD_LEN..]
        .iter()
        .position(|&byte| byte != letter(&mut state));
    wrong.map(|at| {
        let at = HEAD_LEN + at;
        format!(
            "key {key} has a wrong byte at {at} of {}: {}",
            value.len(),
            shown()
        )
    })
}

fn seed(key: u32, stamp: u64) -> u64 {
    (u64::from(key) ^ stamp.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// xorshift64.
fn letter(state: &mut u64) -> u8 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    b'a' + (state.to_le_bytes()[4] & 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_byte_is_seen() {
        for len in [0, 24, 300] {
            let mut value = Vec::new();
            write(7, 0xabcd, len, &mut value);
            assert_eq!(value.len(), len.max(24));
            assert_eq!(fault(7, &value), None);
            assert!(fault(8, &value).is_some());
            assert!(fault(7, &value[..23]).is_some());
            for at in 0..value.len() {
                let mut wrong = value.clone();
                wrong[at] ^= 2;
                // A stamp that was changed into another can only be told by the letters, if there
                // are any.
                let is_told = fault(7, &wrong).is_some();
                assert!(is_told || (len <= 24 && at >= 8), "{len} {at}");
            }
        }
    }
}
