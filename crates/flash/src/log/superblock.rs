//! What a device says of the volume that it is part of, and the table of segments that a clean stop leaves.
//!
//! ```text
//! 0               4096              8192
//! ┌───────────────┬─────────────────┬────────────────────────────────────┬─ … ┬─────────
//! │ superblock    │ superblock      │ table: 24 bytes for each segment   │    │ segments
//! └───────────────┴─────────────────┴────────────────────────────────────┴─ … ┴─────────
//! ```
//! Superblocks are written in turn, each with the next generation, so that one is whole whatever happens to a write.
//! The table is on the first device alone, and valid only where the newest superblock says that the volume is clean.

use super::record::{u32_at, u64_at};
use super::volume::SegmentTable;

/// Bytes of a superblock: one write of the largest sector, which is never torn.
pub(super) const SUPERBLOCK_LEN: usize = 4096;

/// Where the table begins.
pub(super) const TABLE_FROM: u64 = 8192;

/// Bytes of the table for each segment.
pub(super) const TABLE_ENTRY_LEN: usize = 24;

/// What is in front of the segments of a volume with so many.
pub(super) fn reserved_len(segments: u64) -> u64 {
    TABLE_FROM + segments * TABLE_ENTRY_LEN as u64
}

const MAGIC: u64 = u64::from_le_bytes(*b"couaVOL1");

/// One device's part in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) volume: u64,
    pub(super) generation: u64,
    pub(super) segment_len: u64,
    /// Of the whole volume.
    pub(super) segments: u32,
    pub(super) device: u32,
    pub(super) devices: u32,
    /// How often the volume was opened: the upper part of each sequence number.
    pub(super) start: u32,
    pub(super) is_clean: bool,
    pub(super) keeps_tombstones: bool,
    pub(super) next_turn: u64,
    /// Of the table, where the volume is clean.
    pub(super) table_checksum: u32,
}

impl Superblock {
    /// Writes it into a sector.
    pub(super) fn write(&self, into: &mut [u8]) {
        let into = &mut into[..SUPERBLOCK_LEN];
        into.fill(0);
        into[..8].copy_from_slice(&MAGIC.to_le_bytes());
        into[8..16].copy_from_slice(&self.volume.to_le_bytes());
        into[16..24].copy_from_slice(&self.generation.to_le_bytes());
        into[24..32].copy_from_slice(&self.segment_len.to_le_bytes());
        into[32..36].copy_from_slice(&self.segments.to_le_bytes());
        into[36..40].copy_from_slice(&self.device.to_le_bytes());
        into[40..44].copy_from_slice(&self.devices.to_le_bytes());
        into[44..48].copy_from_slice(&self.start.to_le_bytes());
        into[48] = u8::from(self.is_clean);
        into[49] = u8::from(self.keeps_tombstones);
        into[56..64].copy_from_slice(&self.next_turn.to_le_bytes());
        into[64..68].copy_from_slice(&self.table_checksum.to_le_bytes());
        let end = SUPERBLOCK_LEN - 4;
        let checksum = crc32c::crc32c(&into[..end]);
        into[end..].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads it, if it is one and whole.
    pub(super) fn read(bytes: &[u8]) -> Option<Superblock> {
        let bytes = bytes.get(..SUPERBLOCK_LEN)?;
        let end = SUPERBLOCK_LEN - 4;
        if u64_at(bytes, 0) != MAGIC || crc32c::crc32c(&bytes[..end]) != u32_at(bytes, end) {
            return None;
        }
        Some(Superblock {
            volume: u64_at(bytes, 8),
            generation: u64_at(bytes, 16),
            segment_len: u64_at(bytes, 24),
            segments: u32_at(bytes, 32),
            device: u32_at(bytes, 36),
            devices: u32_at(bytes, 40),
            start: u32_at(bytes, 44),
            is_clean: bytes[48] != 0,
            keeps_tombstones: bytes[49] != 0,
            next_turn: u64_at(bytes, 56),
            table_checksum: u32_at(bytes, 64),
        })
    }
}

/// Writes the entries of `table` from `first` on that fit into `into`; what is behind the last is zero.
pub(super) fn write_table(into: &mut [u8], table: &[SegmentTable]) {
    into.fill(0);
    for (into, entry) in into.chunks_exact_mut(TABLE_ENTRY_LEN).zip(table) {
        into[..8].copy_from_slice(&entry.sequence.to_le_bytes());
        into[8..16].copy_from_slice(&entry.order_max.to_le_bytes());
        into[16..20].copy_from_slice(&entry.expiry_max.to_le_bytes());
    }
}

/// The entries in `bytes`.
pub(super) fn read_table(bytes: &[u8]) -> impl Iterator<Item = SegmentTable> {
    let entries = bytes.chunks_exact(TABLE_ENTRY_LEN);
    entries.map(|entry| SegmentTable {
        sequence: u64_at(entry, 0),
        order_max: u64_at(entry, 8),
        expiry_max: u32_at(entry, 16),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_is_whole_or_none() {
        let superblock = Superblock {
            volume: 1,
            generation: 2,
            segment_len: 3,
            segments: 4,
            device: 5,
            devices: 6,
            start: 7,
            is_clean: true,
            keeps_tombstones: false,
            next_turn: 8,
            table_checksum: 9,
        };
        let mut bytes = vec![0xee; SUPERBLOCK_LEN];
        superblock.write(&mut bytes);
        assert_eq!(Superblock::read(&bytes), Some(superblock));
        for at in 0..SUPERBLOCK_LEN {
            bytes[at] ^= 4;
            assert_eq!(Superblock::read(&bytes), None, "byte {at}");
            bytes[at] ^= 4;
        }
        assert_eq!(Superblock::read(&bytes[1..]), None);
    }
}
