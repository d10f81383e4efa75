//! The controller's registers, by their names in the specification.

use super::hardware::Hardware;
use crate::device::OpenError;

/// Capabilities, 64 bits.
const CAP: usize = 0x00;
/// Controller configuration.
pub(super) const CC: usize = 0x14;
/// Controller status.
pub(super) const CSTS: usize = 0x1c;
/// Lengths of the admin queues.
pub(super) const AQA: usize = 0x24;
/// Addresses of the admin queues, 64 bits each.
pub(super) const ASQ: usize = 0x28;
pub(super) const ACQ: usize = 0x30;
/// The first doorbell.
const DOORBELLS: usize = 0x1000;

/// Of CSTS.
pub(super) const READY: u32 = 1;
pub(super) const FATAL: u32 = 1 << 1;
pub(super) const SHUTDOWN: u32 = 3 << 2;
pub(super) const SHUTDOWN_DONE: u32 = 2 << 2;
/// What a device that is gone reads as.
pub(super) const GONE: u32 = u32::MAX;

/// Of CC: enabled, with the NVM command set, pages of 4 KiB, entries of 64 and 16 bytes.
pub(super) const ENABLE: u32 = 1 | 6 << 16 | 4 << 20;
/// Of CC: a shutdown in order.
pub(super) const SHUT_DOWN: u32 = 1 << 14;

/// What CAP says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capabilities {
    /// The most entries of a queue.
    pub(super) entries_max: usize,
    /// How long it may take to become ready or not ready.
    pub(super) ready_ns: u64,
    /// Bytes from doorbell to doorbell.
    stride: usize,
}

impl Capabilities {
    /// Reads and checks them.
    ///
    /// # Errors
    /// Where the controller is gone, or cannot do what the driver needs.
    pub(super) fn read(hardware: &dyn Hardware) -> Result<Capabilities, OpenError> {
        let (low, high) = (hardware.load(CAP), hardware.load(CAP + 4));
        if low == GONE && high == GONE {
            return Err(OpenError::Removed);
        }
        let has_nvm_commands = high >> 5 & 1 != 0;
        let page_log2_min = 12 + (high >> 16 & 15);
        if !has_nvm_commands || page_log2_min != 12 {
            return Err(OpenError::Misbehaves(
                "no NVM commands, or no pages of 4 KiB",
            ));
        }
        let entries_max = (low & 0xffff) as usize + 1;
        if entries_max < 2 {
            return Err(OpenError::Misbehaves("queues without room"));
        }
        // In halves of a second; 0 says nothing.
        let ready_ns = u64::from((low >> 24).max(1)) * 500_000_000;
        Ok(Capabilities {
            entries_max,
            ready_ns,
            stride: 4 << (high & 15),
        })
    }

    /// Where a queue's submission doorbell is; its completion doorbell is behind it.
    pub(super) fn doorbells(&self, queue: u16) -> (usize, usize) {
        let submission = DOORBELLS + 2 * usize::from(queue) * self.stride;
        (submission, submission + self.stride)
    }

    /// How many queues beside the admin queue have doorbells in so many bytes of registers.
    pub(super) fn queues_max(&self, registers_len: usize) -> usize {
        (registers_len.saturating_sub(DOORBELLS) / (2 * self.stride)).saturating_sub(1)
    }
}
