//! What goes wrong by chance, and how long what goes well takes.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use crate::device::Command;

/// The probability of each fault, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// A read fails.
    pub read_errors: f64,
    /// A read gives what stands elsewhere.
    pub misdirected_reads: f64,
    /// A write fails, after some sectors.
    pub write_errors: f64,
    /// A write is acknowledged and did not happen.
    pub lost_writes: f64,
    /// A write is acknowledged, and some of its sectors are as before.
    pub torn_writes: f64,
    /// A write is acknowledged and went elsewhere.
    pub misdirected_writes: f64,
    /// A flush is acknowledged and did not happen.
    pub lost_flushes: f64,
    /// A request gets no answer in time.
    pub timeouts: f64,
}

impl Faults {
    /// Whether a fault happens this time.
    pub(super) fn hits(&self, probability: f64, rng: &mut Xoshiro256PlusPlus) -> bool {
        probability > 0.0 && rng.random_bool(probability.min(1.0))
    }
}

/// How long requests take, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A read of one sector.
    pub read_ns: u64,
    /// A write of one sector.
    pub write_ns: u64,
    /// Each further sector.
    pub sector_ns: u64,
    /// A flush.
    pub flush_ns: u64,
    /// At most so much is added, by chance: requests overtake one another.
    pub jitter_ns: u64,
    /// How many requests are carried out at once.
    pub channels: usize,
    /// What a request takes that gets no answer.
    pub timeout_ns: u64,
}

impl Default for Timing {
    /// A fast NVMe device.
    fn default() -> Timing {
        Timing {
            read_ns: 70_000,
            write_ns: 15_000,
            sector_ns: 200,
            flush_ns: 500_000,
            jitter_ns: 30_000,
            channels: 32,
            timeout_ns: 1_000_000_000,
        }
    }
}

impl Timing {
    /// How long a channel is busy with a command.
    pub(super) fn service_ns(&self, command: &Command, sector_len: usize) -> u64 {
        let further = |len: usize| (len / sector_len).saturating_sub(1) as u64 * self.sector_ns;
        match command {
            Command::Read(transfer) => self.read_ns + further(transfer.len),
            Command::Write(transfer) => self.write_ns + further(transfer.len),
            Command::Flush => self.flush_ns,
            Command::Discard { .. } => self.write_ns,
        }
    }
}
