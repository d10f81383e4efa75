//! The end of a segment: what lies in it.
//!
//! ```text
//! … ┌───────────────────── entry ─────────────────────┬ … ┬───────────────── trailer, 64 bytes ─────────────────────┐
//!   │ hash u64 │ order u64 │ offset u32 │ length u32   │   │ magic │ volume │ sequence │ segment, entries │ … │ 2 CRC  │
//! … └─────────────────────────────────────────────────┴ … ┴────────────────────────────────────────────────────────┘
//! ```
//! Little-endian. Entries grow downwards from the trailer. An entry of length 0 is a tombstone: what has this hash and a
//! lower order is no more. The trailer has a checksum of the entries, and one of itself: it can be read alone.

use super::layout::GRANULE;
use super::record::{u32_at, u64_at};

/// Bytes of an entry.
pub(super) const ENTRY_LEN: usize = 24;

/// Bytes of the trailer.
pub(super) const TRAILER_LEN: usize = 64;

const MAGIC: u64 = u64::from_le_bytes(*b"couaSGM1");

/// What a segment says of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The full hash of the key.
    pub hash: u64,
    /// The CAS: of two entries of one key the one with the higher order is newer.
    pub order: u64,
    /// The record's offset in the segment, in bytes. Of no meaning in a tombstone.
    pub offset: u32,
    /// The record's bytes; 0 for a tombstone.
    pub len: u32,
}

/// What a trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) volume: u64,
    pub(super) sequence: u64,
    pub(super) segment: u32,
    pub(super) entries: u32,
    pub(super) order_max: u64,
    pub(super) expiry_max: u32,
}

/// Where the entries begin in a segment with so many.
pub(super) fn entries_from(segment_len: usize, entries: usize) -> usize {
    segment_len - TRAILER_LEN - entries * ENTRY_LEN
}

/// Writes the `nth` entry.
pub(super) fn write_entry(segment: &mut [u8], nth: usize, entry: &Entry) {
    let from = entries_from(segment.len(), nth + 1);
    let into = &mut segment[from..from + ENTRY_LEN];
    into[..8].copy_from_slice(&entry.hash.to_le_bytes());
    into[8..16].copy_from_slice(&entry.order.to_le_bytes());
    into[16..20].copy_from_slice(&entry.offset.to_le_bytes());
    into[20..].copy_from_slice(&entry.len.to_le_bytes());
}

/// Reads the `nth` entry of a segment whose trailer was verified.
pub(super) fn entry(segment: &[u8], nth: usize) -> Entry {
    let from = entries_from(segment.len(), nth + 1);
    let bytes = &segment[from..from + ENTRY_LEN];
    Entry {
        hash: u64_at(bytes, 0),
        order: u64_at(bytes, 8),
        offset: u32_at(bytes, 16),
        len: u32_at(bytes, 20),
    }
}

/// Writes the trailer of a segment with all its entries.
pub(super) fn write_trailer(segment: &mut [u8], trailer: &Trailer) {
    let from = segment.len() - TRAILER_LEN;
    let into = &mut segment[from..];
    into.fill(0);
    into[..8].copy_from_slice(&MAGIC.to_le_bytes());
    into[8..16].copy_from_slice(&trailer.volume.to_le_bytes());
    into[16..24].copy_from_slice(&trailer.sequence.to_le_bytes());
    into[24..28].copy_from_slice(&trailer.segment.to_le_bytes());
    into[28..32].copy_from_slice(&trailer.entries.to_le_bytes());
    into[32..40].copy_from_slice(&trailer.order_max.to_le_bytes());
    into[40..44].copy_from_slice(&trailer.expiry_max.to_le_bytes());
    let entries = entries_from(segment.len(), trailer.entries as usize);
    let checksum = crc32c::crc32c(&segment[entries..from]);
    segment[from + 44..from + 48].copy_from_slice(&checksum.to_le_bytes());
    let end = segment.len() - 4;
    let checksum = crc32c::crc32c(&segment[from..end]);
    segment[end..].copy_from_slice(&checksum.to_le_bytes());
}

/// The trailer in the last bytes of a segment, if it is whole and claims no more entries than have room.
pub(super) fn verified_trailer(tail: &[u8], segment_len: usize) -> Option<Trailer> {
    let trailer = tail.get(tail.len().checked_sub(TRAILER_LEN)?..)?;
    let end = TRAILER_LEN - 4;
    if u64_at(trailer, 0) != MAGIC || crc32c::crc32c(&trailer[..end]) != u32_at(trailer, end) {
        return None;
    }
    let trailer = Trailer {
        volume: u64_at(trailer, 8),
        sequence: u64_at(trailer, 16),
        segment: u32_at(trailer, 24),
        entries: u32_at(trailer, 28),
        order_max: u64_at(trailer, 32),
        expiry_max: u32_at(trailer, 40),
    };
    let room = (segment_len - TRAILER_LEN) / ENTRY_LEN;
    (trailer.entries as usize <= room).then_some(trailer)
}

/// Whether the entries of a segment are those that its trailer, which was verified, speaks of. `segment` may lack its
/// front, but no entry.
pub(super) fn entries_are_whole(segment: &[u8], trailer: &Trailer) -> bool {
    let summary_len = TRAILER_LEN + trailer.entries as usize * ENTRY_LEN;
    let Some(from) = segment.len().checked_sub(summary_len) else {
        return false;
    };
    let end = segment.len() - TRAILER_LEN;
    crc32c::crc32c(&segment[from..end]) == u32_at(segment, end + 44)
}

/// Whether a segment that is filled up to `data_end` with so many entries has room for one more of `len` bytes.
pub(super) fn has_room(segment_len: usize, data_end: usize, entries: usize, len: usize) -> bool {
    let summary = TRAILER_LEN + (entries + 1) * ENTRY_LEN;
    data_end + len.next_multiple_of(GRANULE) + summary <= segment_len
}

/// How many records of `len` bytes there is room for in so many bytes, the trailer among them.
pub(super) fn records_in(room: usize, len: usize) -> usize {
    room.saturating_sub(TRAILER_LEN) / (len.next_multiple_of(GRANULE) + ENTRY_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_whole_or_none() {
        let mut segment = vec![0xee; 4096];
        let trailer = Trailer {
            volume: 1,
            sequence: 2,
            segment: 3,
            entries: 2,
            order_max: 5,
            expiry_max: 6,
        };
        let entries = [
            Entry {
                hash: 1,
                order: 4,
                offset: 0,
                len: 100,
            },
            Entry {
                hash: 2,
                order: 5,
                offset: 0,
                len: 0,
            },
        ];
        for (nth, entry) in entries.iter().enumerate() {
            write_entry(&mut segment, nth, entry);
        }
        write_trailer(&mut segment, &trailer);
        let is_whole = |segment: &[u8]| {
            let trailer = verified_trailer(segment, 4096);
            trailer.filter(|trailer| entries_are_whole(segment, trailer))
        };
        assert_eq!(is_whole(&segment), Some(trailer));
        assert_eq!([entry(&segment, 0), entry(&segment, 1)], entries);
        // Its front is not part of it.
        assert_eq!(is_whole(&segment[3000..]), Some(trailer));
        segment[0] ^= 1;
        assert_eq!(is_whole(&segment), Some(trailer));
        for at in entries_from(4096, 2)..4096 {
            segment[at] ^= 0x10;
            assert_eq!(is_whole(&segment), None, "byte {at}");
            segment[at] ^= 0x10;
        }
        assert_eq!(verified_trailer(&segment[4096 - 10..], 4096), None);
        assert!(!entries_are_whole(&segment[4096 - 70..], &trailer));
        write_trailer(
            &mut segment,
            &Trailer {
                entries: 0,
                ..trailer
            },
        );
        let end = 4096 - TRAILER_LEN;
        segment[end + 28..end + 32].fill(0xff);
        let checksum = crc32c::crc32c(&segment[end..4092]);
        segment[4092..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(
            verified_trailer(&segment, 4096),
            None,
            "more than have room"
        );
    }
}
