//! One item on flash.
//!
//! ```text
//!  0        4        8                16               24               32               40       44     46
//! ┌────────┬────────┬────────────────┬────────────────┬────────────────┬────────────────┬────────┬──────┬──────┬─────
//! │ CRC32C │ length │ sequence of    │ address        │ hash of the    │ CAS            │ key's  │ key's│ 0    │ item
//! │        │        │ the filling    │                │ key            │                │ offset │ len  │      │ …
//! └────────┴────────┴────────────────┴────────────────┴────────────────┴────────────────┴────────┴──────┴──────┴─────
//! ```
//! Little-endian. The checksum begins with the volume's identity and covers all that follows it. The length is that of
//! header and item; the key is a part of the item.

use std::ops::Range;

use super::layout::GRANULE;

/// Bytes in front of the item.
pub(super) const HEADER_LEN: usize = 48;

/// An item that is to be written.
#[derive(Clone, Debug)]
pub struct Draft<'i> {
    /// The full hash of the key.
    pub hash: u64,
    /// The item's CAS: rises with each version of a key.
    pub cas: u64,
    /// When it expires, in seconds of the caller's clock; `u32::MAX` for never.
    pub expiry: u32,
    /// Its bytes.
    pub item: &'i [u8],
    /// Where its key is in them; empty for the pieces of a large item.
    pub key: Range<usize>,
}

/// An item that was read: of the right key, and whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'b> {
    /// The item's CAS.
    pub cas: u64,
    /// Its bytes.
    pub item: &'b [u8],
    /// Its key, a part of them.
    pub key: &'b [u8],
}

/// What a record must say of itself to be believed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// What the checksum of each record of the volume begins with.
    pub(super) seed: u32,
    pub(super) sequence: u64,
    pub(super) address: u64,
}

/// What a volume's checksums begin with.
pub(super) fn checksum_seed(volume: u64) -> u32 {
    crc32c::crc32c(&volume.to_le_bytes())
}

/// Writes a record, and zeros up to the next granule.
pub(super) fn write(into: &mut [u8], draft: &Draft<'_>, expected: &Expected) {
    let len = HEADER_LEN + draft.item.len();
    let (record, padding) = into[..len.next_multiple_of(GRANULE)].split_at_mut(len);
    padding.fill(0);
    let whole = |value: usize| u32::try_from(value).expect("a record is short");
    let key_len = u16::try_from(draft.key.len()).expect("a key is short");
    record[4..8].copy_from_slice(&whole(len).to_le_bytes());
    record[8..16].copy_from_slice(&expected.sequence.to_le_bytes());
    record[16..24].copy_from_slice(&expected.address.to_le_bytes());
    record[24..32].copy_from_slice(&draft.hash.to_le_bytes());
    record[32..40].copy_from_slice(&draft.cas.to_le_bytes());
    record[40..44].copy_from_slice(&whole(draft.key.start).to_le_bytes());
    record[44..46].copy_from_slice(&key_len.to_le_bytes());
    record[46..48].fill(0);
    record[HEADER_LEN..].copy_from_slice(draft.item);
    let checksum = crc32c::crc32c_append(expected.seed, &record[4..]);
    record[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// The record at the beginning of `bytes` if it is the expected one: its length.
pub(super) fn verified_len(bytes: &[u8], expected: &Expected) -> Option<usize> {
    let header = bytes.get(..HEADER_LEN)?;
    let len = u32_at(header, 4) as usize;
    let is_of_this_place =
        u64_at(header, 8) == expected.sequence && u64_at(header, 16) == expected.address;
    let record = bytes.get(..len)?;
    if !is_of_this_place || len < HEADER_LEN {
        return None;
    }
    let checksum = crc32c::crc32c_append(expected.seed, &record[4..]);
    (checksum == u32_at(header, 0)).then_some(len)
}

/// The hash of a verified record's key.
pub(super) fn hash_of(record: &[u8]) -> u64 {
    u64_at(record, 24)
}

/// The item of a verified record, if it is that of a key.
pub(super) fn of_key<'b>(record: &'b [u8], hash: u64, key: &[u8]) -> Option<Record<'b>> {
    let header = record.get(..HEADER_LEN)?;
    let item = &record[HEADER_LEN..];
    let from = u32_at(header, 40) as usize;
    let end = from.checked_add(usize::from(u16_at(header, 44)))?;
    let found = item.get(from..end)?;
    (u64_at(header, 24) == hash && found == key).then(|| Record {
        cas: u64_at(header, 32),
        item,
        key: found,
    })
}

/// Numbers of a layout; the caller has looked at the length.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// See [`u16_at`].
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// See [`u16_at`].
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_can_change_unnoticed() {
        let expected = Expected {
            seed: 7,
            sequence: 11,
            address: 3,
        };
        let draft = Draft {
            hash: 5,
            cas: 6,
            expiry: 0,
            item: b"\x03keyvalue",
            key: 1..4,
        };
        let mut bytes = vec![0; 128];
        write(&mut bytes, &draft, &expected);
        let len = verified_len(&bytes, &expected).expect("whole");
        assert_eq!(len, HEADER_LEN + 9);
        let record = of_key(&bytes[..len], 5, b"key").expect("of the key");
        assert_eq!(
            (record.cas, record.item, record.key),
            (6, &b"\x03keyvalue"[..], &b"key"[..])
        );
        assert_eq!(of_key(&bytes[..len], 5, b"kez"), None);
        assert_eq!(of_key(&bytes[..len], 4, b"key"), None);

        for at in 0..len {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                assert_eq!(
                    verified_len(&bytes, &expected),
                    None,
                    "bit {bit} of byte {at}"
                );
                bytes[at] ^= 1 << bit;
            }
        }
        for other in [
            Expected {
                seed: 8,
                ..expected
            },
            Expected {
                sequence: 12,
                ..expected
            },
            Expected {
                address: 2,
                ..expected
            },
        ] {
            assert_eq!(verified_len(&bytes, &other), None, "{other:?}");
        }
        for short in [0, 1, HEADER_LEN - 1, HEADER_LEN, len - 1] {
            assert_eq!(verified_len(&bytes[..short], &expected), None);
        }
    }
}
