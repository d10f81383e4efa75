//! incr, decr and `ma`.

use super::link::LinkOutcome;
use super::writer::{Body, Writer};
use crate::index::Place;
use crate::index::slot::Location;
use crate::key::Key;
use crate::request::{Arithmetic, ArithmeticResult, Miss, Refused};
use crate::segment::item::RawItem;
use crate::segment::layout::{Draft, mark};
use crate::tags::TagWords;
use crate::time::Expiry;

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

impl<'p> Writer<'p> {
    /// Counts the item of `key` up or down.
    pub(crate) fn arithmetic(&mut self, key: &Key<'_>, request: &Arithmetic) -> ArithmeticResult {
        loop {
            let done = match self.local.find_live(key, self.now) {
                Ok((place, item)) => self.count(key, request, place, item),
                Err(miss @ Miss::OnFlash(_)) => return ArithmeticResult::NotFound(miss),
                Err(miss) => match request.vivify {
                    Some((initial, expiry)) => self.vivify_number(key, request, initial, expiry),
                    None => return ArithmeticResult::NotFound(miss),
                },
            };
            match done {
                Ok(Some(counted)) => return counted,
                Ok(None) => {}
                Err(refused) => return ArithmeticResult::Refused(refused),
            }
        }
    }

    /// `None` if the item changed meanwhile.
    fn count(
        &mut self,
        key: &Key<'_>,
        request: &Arithmetic,
        place: Place<'p>,
        item: RawItem<'p>,
    ) -> Result<Option<ArithmeticResult>, Refused> {
        if self.local.is_stale_by_tag(item) {
            return self.mark_stale_by_tag(place, item).map(|_| None);
        }
        let location = place.slot.location();
        if item.value_len() == 0 {
            return Ok(self.not_numeric(location, item));
        }
        let old_cas = self.local.cas_at(location, item);
        if request.compare != 0 && request.compare != old_cas {
            return Ok(Some(ArithmeticResult::Exists));
        }
        let number = if item.is_head() {
            None
        } else {
            parse(item.value())
        };
        let Some(old) = number else {
            return Ok(self.not_numeric(location, item));
        };
        let number = if request.decrement {
            old.saturating_sub(request.delta)
        } else {
            old.wrapping_add(request.delta)
        };
        let mut text = [b' '; DIGITS_MAX];
        let digits = format(number, &mut text);
        // memcached counts in place if the number fits, and pads it with spaces.
        let in_place = digits <= item.value_len();
        let value_len = item.value_len().max(digits);
        let tags = TagWords::of(item.tags());
        let draft = Draft {
            key: key.bytes,
            key_is_binary: in_place && item.key_is_binary(),
            client_flags: item.client_flags(),
            cas: request.cas,
            expiry: match request.touch {
                Some(expiry) => expiry.given(),
                None => item.expiry_field(),
            },
            fine: match request.touch {
                Some(expiry) => expiry.is_fine(),
                None => item.has_fine_expiry(),
            },
            tags: &tags,
            access: self.access_word(0),
            value_len,
            chunks: None,
        };
        let queue = self.queue_for(key.hash, Some(location));
        let (new, body) = self.write_header(key.hash, queue, &draft, old_cas)?;
        body.fill(b' ');
        body[..digits].copy_from_slice(&text[..digits]);
        let known = if request.return_cas {
            mark::CAS_KNOWN
        } else {
            0
        };
        let mut expiry_before = Expiry::NEVER;
        let done = self.replace(place, new, |new_item| {
            expiry_before = item.expiry();
            let expiry = request.touch.unwrap_or(expiry_before);
            self.local
                .shared
                .log
                .entry_of(new.location())
                .note_expiry(expiry);
            new_item.set_expiry(expiry);
            let kept = if in_place {
                mark::STALE | mark::WON | mark::FETCHED
            } else {
                0
            };
            new_item.change_marks(item.access() & kept | known, 0);
        });
        if !done {
            return Ok(None);
        }
        let cas = self.cas_if(request.return_cas, new.location());
        Ok(Some(ArithmeticResult::Value {
            number,
            cas,
            expiry_before,
            created: false,
        }))
    }

    /// Zeros are no number; if they stand where the value was lost, there is no item any more.
    fn not_numeric(&self, location: Location, item: RawItem<'_>) -> Option<ArithmeticResult> {
        let is_lost = self.local.is_unsettled() && self.local.is_lost(location, item);
        (!is_lost).then_some(ArithmeticResult::NotNumeric)
    }

    fn vivify_number(
        &mut self,
        key: &Key<'_>,
        request: &Arithmetic,
        initial: u64,
        expiry: Expiry,
    ) -> Result<Option<ArithmeticResult>, Refused> {
        let mut text = [0; DIGITS_MAX];
        let digits = format(initial, &mut text);
        let tags = self.tag_words(&request.tags)?;
        let draft = Draft {
            key: key.bytes,
            key_is_binary: false,
            client_flags: 0,
            cas: request.cas,
            expiry: expiry.given(),
            fine: expiry.is_fine(),
            tags: &tags,
            access: self.access_word(if request.return_cas {
                mark::CAS_KNOWN
            } else {
                0
            }),
            value_len: digits,
            chunks: None,
        };
        let queue = self.queue_for(key.hash, None);
        let new = self.write(key.hash, queue, &draft, &[Body::Bytes(&text[..digits])], 0)?;
        match self.link(key, new) {
            LinkOutcome::Done => {
                let cas = self.cas_if(request.return_cas, new.location());
                let expiry_before = Expiry::NEVER;
                Ok(Some(ArithmeticResult::Value {
                    number: initial,
                    cas,
                    expiry_before,
                    created: true,
                }))
            }
            LinkOutcome::Raced => Ok(None),
            LinkOutcome::Refused(refused) => Err(refused),
        }
    }

    fn cas_if(&self, wanted: bool, location: Location) -> u64 {
        if wanted {
            self.local.cas_at(location, self.local.item(location))
        } else {
            0
        }
    }
}

/// A number as C's `strtoull` accepts it, followed by white space, NUL or the end: what memcached
/// can count.
fn parse(text: &[u8]) -> Option<u64> {
    let is_space = |b: &u8| matches!(b, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|b| !is_space(b))?;
    let text = &text[start..];
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let end = text
        .iter()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(text.len());
    if end == 0 || text.get(end).is_some_and(|b| *b != 0 && !is_space(b)) {
        return None;
    }
    let number = text[..end].iter().try_fold(0u64, |n, b| {
        n.checked_mul(10)?.checked_add(u64::from(b - b'0'))
    })?;
    // A minus sign negates the number; memcached refuses it only if the result looks negative.
    if negative {
        let turned = number.wrapping_neg();
        return (turned >> 63 == 0).then_some(turned);
    }
    Some(number)
}

/// Writes `number` in decimal to the start of `text`. Returns the number of digits.
fn format(number: u64, text: &mut [u8; DIGITS_MAX]) -> usize {
    let mut digits = [0; DIGITS_MAX];
    let (mut at, mut left) = (DIGITS_MAX, number);
    loop {
        at -= 1;
        let digit = (left % 10) as u8;
        digits[at] = b'0' + digit;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    let len = DIGITS_MAX - at;
    text[..len].copy_from_slice(&digits[at..]);
    len
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_as_strtoull_takes_them() {
        for (text, number) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            (" \t12", Some(12)),
            ("+7", Some(7)),
            ("12 x", Some(12)),
            ("12x", None),
            ("", None),
            (" ", None),
            ("-", None),
            ("-5", None),
            ("-0", Some(0)),
            ("-18446744073709551615", Some(1)),
            ("9\0x", Some(9)),
        ] {
            assert_eq!(parse(text.as_bytes()), number, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 9, 10, 12345, u64::MAX] {
            let mut text = [0; DIGITS_MAX];
            let len = format(number, &mut text);
            assert_eq!(text[..len], *number.to_string().as_bytes());
        }
    }
}
