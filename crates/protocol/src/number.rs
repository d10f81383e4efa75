//! What memcached accepts as a number. It depends on the field: most words must consist of digits
//! only, while flags and expiry of the classic store commands go through C's `strtoul` and
//! `strtol`.

use crate::limits::VALUE_LEN_MAX;

/// The longest word that is parsed as a 32-bit number.
const WORD32_LEN_MAX: usize = 11;

/// The longest word that is parsed as a 64-bit number.
const WORD64_LEN_MAX: usize = 22;

/// A word of digits, up to `u32::MAX`.
pub(crate) fn word_u32(word: &[u8]) -> Option<u32> {
    if word.len() > WORD32_LEN_MAX {
        return None;
    }
    u32::try_from(digits(word)?).ok()
}

/// A word of digits, up to `u64::MAX`.
pub(crate) fn word_u64(word: &[u8]) -> Option<u64> {
    if word.len() > WORD64_LEN_MAX {
        return None;
    }
    digits(word)
}

/// A word of digits with or without a minus; a lone minus is 0.
pub(crate) fn word_i32(word: &[u8]) -> Option<i32> {
    if word.len() > WORD32_LEN_MAX {
        return None;
    }
    let number = match word.split_first() {
        Some((b'-', rest)) => -i64::try_from(digits(rest)?).ok()?,
        _ => i64::try_from(digits(word)?).ok()?,
    };
    i32::try_from(number).ok()
}

/// As [`word_i32`], of 64 bits.
pub(crate) fn word_i64(word: &[u8]) -> Option<i64> {
    if word.len() > WORD64_LEN_MAX {
        return None;
    }
    match word.split_first() {
        Some((b'-', rest)) => 0i64.checked_sub_unsigned(digits(rest)?),
        _ => i64::try_from(digits(word)?).ok(),
    }
}

/// The length of a value, which is sent as a signed number.
pub(crate) fn value_len(word: &[u8]) -> Option<u32> {
    let len = u32::try_from(word_i32(word)?).ok()?;
    (len <= VALUE_LEN_MAX).then_some(len)
}

/// `strtoul` as the client flags go through it: white space, a sign, digits, and
/// then white space or a NUL. A number above 32 bits loses its upper half. `text`
/// runs to the end of the line.
pub(crate) fn strtoul(text: &[u8]) -> Option<u32> {
    let (negative, magnitude) = c_number(text)?;
    let number = match negative {
        true => magnitude.wrapping_neg(),
        false => magnitude,
    };
    if negative && number > i64::MAX.unsigned_abs() {
        return None;
    }
    Some(low_half(number))
}

/// `strtol` as applied to the expiry; see [`strtoul`].
pub(crate) fn strtol(text: &[u8]) -> Option<i32> {
    let (negative, magnitude) = c_number(text)?;
    let limit = i64::MAX.unsigned_abs() + u64::from(negative);
    if magnitude > limit {
        return None;
    }
    let number = match negative {
        true => magnitude.wrapping_neg(),
        false => magnitude,
    };
    Some(low_half(number).cast_signed())
}

#[allow(clippy::cast_possible_truncation)] // losing the upper half is the point
fn low_half(number: u64) -> u32 {
    number as u32
}

fn digits(word: &[u8]) -> Option<u64> {
    let mut number: u64 = 0;
    for &byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(number)
}

/// Sign and magnitude at the start of `text`, whose end counts as white space.
fn c_number(text: &[u8]) -> Option<(bool, u64)> {
    let start = text.iter().position(|&byte| !is_space(byte))?;
    let text = &text[start..];
    let (negative, text) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let len = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(len);
    let ended = rest.first().is_none_or(|&byte| is_space(byte) || byte == 0);
    if number.is_empty() || !ended {
        return None;
    }
    Some((negative, digits(number)?))
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert_eq!(word_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(word_u32(b"04294967295"), Some(u32::MAX));
        assert_eq!(word_u32(b"004294967295"), None);
        assert_eq!(word_u32(b"4294967296"), None);
        assert_eq!(word_u32(b"-1"), None);
        assert_eq!(word_u32(b"+1"), None);
        assert_eq!(word_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(word_u64(b"18446744073709551616"), None);
        assert_eq!(word_u64(b"0018446744073709551615"), Some(u64::MAX));
        assert_eq!(word_u64(b"00018446744073709551615"), None);
        assert_eq!(word_i32(b"-"), Some(0));
        assert_eq!(word_i32(b"-0"), Some(0));
        assert_eq!(word_i32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(word_i32(b"-2147483649"), None);
        assert_eq!(word_i32(b"2147483647"), Some(i32::MAX));
        assert_eq!(word_i32(b"2147483648"), None);
        assert_eq!(word_i32(b"1-"), None);
        assert_eq!(word_i32(b"--1"), None);
    }

    #[test]
    fn c_numbers() {
        assert_eq!(strtoul(b"1 2"), Some(1));
        assert_eq!(strtoul(b"\t 7\tx"), Some(7));
        assert_eq!(strtoul(b"+7"), Some(7));
        assert_eq!(strtoul(b"7\0x"), Some(7));
        assert_eq!(strtoul(b"7x"), None);
        assert_eq!(strtoul(b"-1"), None);
        assert_eq!(strtoul(b"-0"), Some(0));
        assert_eq!(strtoul(b"4294967296"), Some(0));
        assert_eq!(strtoul(b"18446744073709551615"), Some(u32::MAX));
        assert_eq!(strtoul(b"18446744073709551616"), None);
        assert_eq!(strtoul(b"-18446744073709551615"), Some(1));
        assert_eq!(strtoul(b"-"), None);
        assert_eq!(strtoul(b" "), None);
        assert_eq!(strtol(b"-1 "), Some(-1));
        assert_eq!(strtol(b"4294967295"), Some(-1));
        assert_eq!(strtol(b"9223372036854775807"), Some(-1));
        assert_eq!(strtol(b"9223372036854775808"), None);
        assert_eq!(strtol(b"-9223372036854775808"), Some(0));
        assert_eq!(strtol(b"-9223372036854775809"), None);
        assert_eq!(strtol(b"+-1"), None);
    }
}
