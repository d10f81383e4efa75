//! Commands of 64 bytes, and what a status means.

use crate::device::{Command, Failure};

/// A submission queue entry.
///
/// ```text
/// dword 0            1     2–5        6, 7   8, 9   10–15
/// ┌─────────┬──────┬──────┬──────────┬──────┬──────┬─────────────────
/// │ opcode  │ id   │ NSID │ reserved │ PRP1 │ PRP2 │ of each command
/// └─────────┴──────┴──────┴──────────┴──────┴──────┴─────────────────
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SubmissionEntry {
    pub(super) opcode: u8,
    pub(super) id: u16,
    pub(super) namespace: u32,
    pub(super) prp1: u64,
    pub(super) prp2: u64,
    pub(super) dwords: [u32; 6],
}

pub(super) mod opcode {
    //! Of admin commands, and of those of namespaces.
    pub(in crate::nvme) const DELETE_SUBMISSION_QUEUE: u8 = 0x00;
    pub(in crate::nvme) const CREATE_SUBMISSION_QUEUE: u8 = 0x01;
    pub(in crate::nvme) const DELETE_COMPLETION_QUEUE: u8 = 0x04;
    pub(in crate::nvme) const CREATE_COMPLETION_QUEUE: u8 = 0x05;
    pub(in crate::nvme) const IDENTIFY: u8 = 0x06;
    pub(in crate::nvme) const ABORT: u8 = 0x08;
    pub(in crate::nvme) const SET_FEATURES: u8 = 0x09;

    pub(in crate::nvme) const FLUSH: u8 = 0x00;
    pub(in crate::nvme) const WRITE: u8 = 0x01;
    pub(in crate::nvme) const READ: u8 = 0x02;
    pub(in crate::nvme) const DATASET_MANAGEMENT: u8 = 0x09;
}

impl SubmissionEntry {
    /// As eight words, as they lie in memory.
    pub(super) fn words(&self) -> [u64; 8] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let first = u32::from(self.opcode) | u32::from(self.id) << 16;
        let [a, b, c, d, e, f] = self.dwords;
        [
            pair(first, self.namespace),
            0,
            0,
            self.prp1,
            self.prp2,
            pair(a, b),
            pair(c, d),
            pair(e, f),
        ]
    }

    /// What a command of the seam comes to, without its memory. Nothing for what is not one command.
    pub(super) fn of(command: &Command, namespace: u32, sector_len: usize) -> SubmissionEntry {
        let mut entry = SubmissionEntry {
            namespace,
            ..SubmissionEntry::default()
        };
        match command {
            Command::Read(transfer) | Command::Write(transfer) => {
                let is_read = matches!(command, Command::Read(_));
                entry.opcode = if is_read { opcode::READ } else { opcode::WRITE };
                let [low, high] = halves(transfer.sector);
                // Counted from 0, in the lower 16 bits.
                let sectors = u32::try_from(transfer.len / sector_len).unwrap_or(u32::MAX);
                entry.dwords = [low, high, sectors.wrapping_sub(1), 0, 0, 0];
            }
            Command::Flush => entry.opcode = opcode::FLUSH,
            Command::Discard { .. } => {
                entry.opcode = opcode::DATASET_MANAGEMENT;
                // One range, to be deallocated.
                entry.dwords = [0, 1 << 2, 0, 0, 0, 0];
            }
        }
        entry
    }
}

/// The range of a discard, as dataset management has it.
pub(super) fn discard_range(sector: u64, sectors: u64) -> Option<[u64; 2]> {
    let sectors = u32::try_from(sectors).ok()?;
    Some([u64::from(sectors) << 32, sector])
}

/// The lower and the upper half.
pub(super) fn halves(value: u64) -> [u32; 2] {
    let low = u32::try_from(value & 0xffff_ffff).unwrap_or(u32::MAX);
    let high = u32::try_from(value >> 32).unwrap_or(u32::MAX);
    [low, high]
}

/// What a completion's status means: bits 0 to 7 are the code, 8 to 10 its type.
pub(super) fn judged(status: u16) -> Result<(), Failure> {
    let (kind, code) = (status >> 8 & 7, status & 0xff);
    match (kind, code) {
        (0, 0) => Ok(()),
        // Aborted, by request or with its queue.
        (0, 0x07 | 0x08) => Err(Failure::TimedOut),
        // Invalid opcode, field, namespace, PRP offset, out of range, write to what is read-only.
        (0, 0x01 | 0x02 | 0x0b | 0x13 | 0x20 | 0x80) | (1, _) => Err(Failure::Refused),
        // Namespace not ready, of which nobody knows for how long.
        (0, 0x82) => Err(Failure::TimedOut),
        // Path-related, and what the vendor says, are no statement about sectors, but the caller is to look elsewhere.
        _ => Err(Failure::Media),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Region, Transfer};

    #[test]
    fn entries_are_laid_out_as_specified() {
        let transfer = Transfer {
            sector: 0x1_0000_0002,
            len: 4096,
            buffer: Region::allocate(4096),
        };
        let mut entry = SubmissionEntry::of(&Command::Write(transfer), 7, 512);
        (entry.id, entry.prp1, entry.prp2) = (0x1234, 0x1000, 0x2000);
        assert_eq!(
            entry.words(),
            [0x7_1234_0001, 0, 0, 0x1000, 0x2000, 0x1_0000_0002, 7, 0]
        );
        assert_eq!(
            SubmissionEntry::of(&Command::Flush, 1, 512).words()[0],
            0x1_0000_0000
        );
        assert_eq!(discard_range(5, 6), Some([6 << 32, 5]));
        assert_eq!(discard_range(5, 1 << 32), None);
    }

    #[test]
    fn statuses_are_of_the_seams_kinds() {
        assert_eq!(judged(0), Ok(()));
        assert_eq!(judged(0x281), Err(Failure::Media));
        assert_eq!(judged(0x02), Err(Failure::Refused));
        assert_eq!(judged(0x07), Err(Failure::TimedOut));
        assert_eq!(judged(0x80), Err(Failure::Refused));
    }
}
