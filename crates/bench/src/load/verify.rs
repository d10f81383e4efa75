//! Reads keys back and compares every byte with the value that belongs to the key.

use std::ops::Range;

use crate::client::{Client, Error};
use crate::workload::{KeyFormat, Values};

/// What reading back found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verified {
    /// Keys with the value that belongs to them.
    pub(crate) right: u64,
    /// Keys that the server does not hold.
    pub(crate) missing: u64,
    /// Keys with another value.
    pub(crate) wrong: u64,
}

/// Asks for every key of the range, a hundred at a time.
pub(crate) fn verify(
    client: &mut Client,
    keys: KeyFormat,
    values: &Values,
    range: Range<u32>,
) -> Result<Verified, Error> {
    const AT_A_TIME: u32 = 100;
    let mut verified = Verified::default();
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min(start.saturating_add(AT_A_TIME));
        let mut request = b"get".to_vec();
        for number in start..end {
            request.push(b' ');
            keys.append(number, &mut request);
        }
        request.extend_from_slice(b"\r\n");
        client.send(&request)?;
        let mut expected = start..end;
        let mut key = vec![0; keys.size()];
        while let Some(item) = client.read_value()? {
            // Values come back in the order of the request, less those that are missing.
            let number = expected.find(|&number| {
                keys.write(number, &mut key);
                if key != item.key {
                    verified.missing += 1;
                }
                key == item.key
            });
            match number {
                Some(number) if item.value == values.of(number) => verified.right += 1,
                _ => verified.wrong += 1,
            }
        }
        verified.missing += u64::from(expected.end - expected.start);
        start = end;
    }
    Ok(verified)
}
