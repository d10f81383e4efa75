//! What a controller and a namespace say of themselves, checked.

use crate::device::OpenError;

/// Bytes of each answer.
pub(super) const IDENTIFY_LEN: usize = 4096;

/// A controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ControllerFacts {
    pub(super) serial: String,
    pub(super) model: String,
    /// The longest transfer, as a power of two of the controller's pages; 0 for no limit.
    pub(super) transfer_pages_log2: u8,
    pub(super) has_volatile_cache: bool,
    pub(super) can_discard: bool,
    pub(super) namespaces: u32,
}

impl ControllerFacts {
    /// Reads an answer.
    ///
    /// # Errors
    /// Where its queue entries are not of the sizes that every controller has to have.
    pub(super) fn read(answer: &[u8; IDENTIFY_LEN]) -> Result<ControllerFacts, OpenError> {
        let holds = |sizes: u8, log2: u8| sizes & 15 <= log2 && log2 <= sizes >> 4;
        if !holds(answer[512], 6) || !holds(answer[513], 4) {
            return Err(OpenError::Misbehaves("the sizes of queue entries"));
        }
        Ok(ControllerFacts {
            serial: text(&answer[4..24]),
            model: text(&answer[24..64]),
            transfer_pages_log2: answer[77],
            has_volatile_cache: answer[525] & 1 != 0,
            can_discard: answer[520] & 1 << 2 != 0,
            namespaces: u32_at(answer, 516),
        })
    }
}

/// A namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamespaceFacts {
    pub(super) sectors: u64,
    pub(super) sector_len: usize,
}

impl NamespaceFacts {
    /// Reads an answer.
    ///
    /// # Errors
    /// Where the namespace is not there, or has sectors that coua does not use.
    pub(super) fn read(answer: &[u8; IDENTIFY_LEN]) -> Result<NamespaceFacts, OpenError> {
        let sectors = u64_at(answer, 0);
        if sectors == 0 {
            return Err(OpenError::TooSmall);
        }
        let flags = answer[26];
        let format = usize::from(flags & 15 | flags >> 1 & 0x30);
        if format > usize::from(answer[25]) {
            return Err(OpenError::Misbehaves(
                "a format that is not among its formats",
            ));
        }
        let format = u32_at(answer, 128 + 4 * format);
        let (metadata_len, len_log2) = (format & 0xffff, format >> 16 & 0xff);
        if metadata_len != 0 || !(9..=12).contains(&len_log2) {
            return Err(OpenError::SectorLen);
        }
        // What is longer than any device would overflow when it is counted in bytes.
        if sectors > u64::MAX >> 13 {
            return Err(OpenError::Misbehaves("the number of sectors"));
        }
        Ok(NamespaceFacts {
            sectors,
            sector_len: 1 << len_log2,
        })
    }
}

/// Printable characters, without the blanks behind them.
fn text(bytes: &[u8]) -> String {
    let printable = |&byte: &u8| {
        if byte.is_ascii_graphic() {
            char::from(byte)
        } else {
            ' '
        }
    };
    let text: String = bytes.iter().map(printable).collect();
    text.trim().to_owned()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// What a controller in this process answers.
#[cfg(any(test, feature = "simulated"))]
pub(super) mod answers {
    use super::IDENTIFY_LEN;

    /// What a good controller says.
    pub(in crate::nvme) fn controller() -> [u8; IDENTIFY_LEN] {
        let mut answer = [0; IDENTIFY_LEN];
        answer[4..24].copy_from_slice(b"S3R1AL\0\x07            ");
        answer[24..30].copy_from_slice(b"fake 1");
        answer[77] = 5;
        answer[512] = 0x66;
        answer[513] = 0x44;
        answer[516] = 1;
        answer[520] = 1 << 2;
        answer[525] = 1;
        answer
    }

    /// And a namespace.
    pub(in crate::nvme) fn namespace(sectors: u64, len_log2: u8) -> [u8; IDENTIFY_LEN] {
        let mut answer = [0; IDENTIFY_LEN];
        answer[..8].copy_from_slice(&sectors.to_le_bytes());
        answer[25] = 1;
        answer[26] = 1;
        answer[128 + 4 + 2] = len_log2;
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::answers::{controller, namespace};
    use super::*;

    #[test]
    fn answers_are_checked() {
        let facts = ControllerFacts::read(&controller()).expect("a good one");
        assert_eq!((&*facts.serial, &*facts.model), ("S3R1AL", "fake 1"));
        assert!(facts.has_volatile_cache && facts.can_discard);
        for (at, lie) in [(512, 0x77), (512, 0x55), (513, 0x33)] {
            let mut answer = controller();
            answer[at] = lie;
            assert!(ControllerFacts::read(&answer).is_err(), "{at}");
        }
        let facts = NamespaceFacts::read(&namespace(100, 12)).expect("a good one");
        assert_eq!(
            facts,
            NamespaceFacts {
                sectors: 100,
                sector_len: 4096
            }
        );
        let is_bad = |sectors, len_log2, at: usize, lie| {
            let mut answer = namespace(sectors, len_log2);
            answer[at] = lie;
            NamespaceFacts::read(&answer).is_err()
        };
        assert!(is_bad(0, 9, 0, 0), "not there");
        assert!(is_bad(1, 8, 1000, 0), "too short");
        assert!(is_bad(1, 13, 1000, 0), "too long");
        assert!(is_bad(1, 9, 132, 8), "metadata");
        assert!(is_bad(1, 9, 26, 2), "a format that is not there");
        assert!(is_bad(u64::MAX, 9, 1000, 0), "too many");
    }
}
