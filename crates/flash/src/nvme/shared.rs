//! What a device and its queues have together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::binding::Binding;
use super::controller::Controller;
use crate::Region;

/// How an NVMe device is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmeOptions {
    /// Which namespace.
    pub namespace: u32,
    /// How many queues are asked of the controller: at least one for each worker, and one to open the volume with.
    pub queues: u16,
    /// After how many nanoseconds a command is aborted; after twice as many the controller is reset.
    pub timeout_ns: u64,
}

impl Default for NvmeOptions {
    fn default() -> NvmeOptions {
        NvmeOptions {
            namespace: 1,
            queues: 64,
            timeout_ns: 5_000_000_000,
        }
    }
}

/// What device and queues share. Dropped in this order: the controller is shut down, then the system has it back.
pub(super) struct Shared {
    pub(super) controller: Controller,
    pub(super) regions: Vec<Mapped>,
    pub(super) options: NvmeOptions,
    pub(super) can_discard: bool,
    pub(super) _binding: Option<Binding>,
}

/// A region, and what the device calls its beginning.
pub(super) struct Mapped {
    pub(super) region: Arc<Region>,
    pub(super) address: u64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let begin = Instant::now();
        self.controller.shut_down(&mut || {
            std::thread::sleep(Duration::from_millis(1));
            elapsed_ns(begin)
        });
    }
}

/// Nanoseconds since `begin`.
pub(super) fn elapsed_ns(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
