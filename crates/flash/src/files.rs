//! Files and block devices, through the kernel.
//!
//! io_uring with O_DIRECT where the kernel has it: memory and file are registered once, a burst is one system call, and
//! completions are read from shared memory. Where io_uring is refused, as the seccomp profiles of containers do, threads
//! read and write in its place. [`Identity::driver`] says which it is, and why it is not the better one.
//!
//! # Not here
//! NVMe commands through the kernel: see the module of NVMe.

mod target;
mod threads;
mod uring;

use std::path::Path;
use std::sync::Arc;

use crate::device::{BlockDevice, Identity, OpenError, Queue};
use crate::ring::Setup;
use crate::{Buffer, Region};
use target::Target;

/// How a file is to be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// io_uring where it works, else threads.
    #[default]
    Best,
    /// io_uring whose completions are polled at the device, where the device can; else as `Best`. Such a queue has no
    /// descriptor to wait for.
    Polled,
    /// Threads.
    Threads,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How long a regular file is made; it is created where there is none. A block device is used whole where this is
    /// `None`, and must be so long else.
    pub len: Option<u64>,
    /// How it is reached.
    pub way: Way,
}

/// The longest transfer: what every kernel takes in one request, and long enough that its cost does not count.
const TRANSFER_LEN_MAX: usize = 1 << 20;

/// A regular file or a block device.
pub struct FileDevice {
    identity: Identity,
    target: Arc<Target>,
    regions: Vec<Arc<Region>>,
    ring: Option<Setup>,
}

impl FileDevice {
    /// Opens a file or a block device for this process alone. `regions` is the memory that most transfers will use: it
    /// is registered with the kernel, which must then look it up no more; other memory works too.
    ///
    /// # Errors
    /// Where it cannot be opened, is of another kind or too small, or another process has it.
    pub fn open(
        path: &Path,
        options: Options,
        regions: &[Arc<Region>],
    ) -> Result<FileDevice, OpenError> {
        let target = Target::open(path, options.len)?;
        let sector_len = target.sector_len;
        let mut identity = Identity {
            name: path.display().to_string(),
            driver: String::new(),
            sectors: target.len / sector_len as u64,
            sector_len,
            transfer_len_max: TRANSFER_LEN_MAX,
            // The kernel does not say what a file lies on.
            has_volatile_cache: true,
        };
        if identity.sectors == 0 {
            return Err(OpenError::TooSmall);
        }
        let target = Arc::new(target);
        let (ring, driver) = match options.way {
            Way::Threads => (None, "threads".to_owned()),
            Way::Best => probed(uring::probe(&target, regions, false)),
            Way::Polled => match uring::probe(&target, regions, true) {
                Ok((setup, said)) => (Some(setup), said),
                Err(why) => {
                    let (ring, driver) = probed(uring::probe(&target, regions, false));
                    (ring, format!("{driver}; not polled: {why}"))
                }
            },
        };
        identity.driver = match target.direct {
            Ok(()) => driver,
            Err(why) => format!("{driver}; through the page cache: O_DIRECT: {why}"),
        };
        Ok(FileDevice {
            identity,
            target,
            regions: regions.to_vec(),
            ring,
        })
    }
}

fn probed(result: Result<(Setup, String), std::io::Error>) -> (Option<Setup>, String) {
    match result {
        Ok((setup, said)) => (Some(setup), said),
        Err(why) => (None, format!("threads; no io_uring: {why}")),
    }
}

impl BlockDevice for FileDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, OpenError> {
        let identity = self.identity.clone();
        let target = Arc::clone(&self.target);
        match &self.ring {
            Some(setup) => {
                let queue = uring::open(setup, identity, target, &self.regions, depth)
                    .map_err(OpenError::at("io_uring"))?;
                Ok(Box::new(queue))
            }
            None => {
                let queue = threads::ThreadsQueue::open(identity, target, depth)
                    .map_err(OpenError::at("a thread"))?;
                Ok(Box::new(queue))
            }
        }
    }
}

/// Memory for a probe of a target.
fn probe_buffer() -> Buffer {
    Region::allocate(4096)
}
