//! A file that is opened, and what it demands of transfers.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, flock, ioctl_blksszget};

use super::probe_buffer;
use crate::device::{Failure, OpenError};

/// An open file or block device, locked for this process.
pub(super) struct Target {
    pub(super) file: File,
    pub(super) len: u64,
    pub(super) sector_len: usize,
    pub(super) is_block: bool,
    /// Whether transfers go round the page cache, or why not.
    pub(super) direct: Result<(), io::ErrorKind>,
}

/// What a discard does to a file and to a block device: afterwards the sectors read as zeros.
pub(super) const DISCARD: FallocateFlags =
    FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

impl Target {
    /// Opens it, creates it where it is a file with a length, and finds out what it can do.
    pub(super) fn open(path: &Path, len: Option<u64>) -> Result<Target, OpenError> {
        let is_block = std::fs::metadata(path).is_ok_and(|it| it.file_type().is_block_device());
        // Of a block device, this refuses one that is mounted or held.
        let exclusive = if is_block { libc::O_EXCL } else { 0 };
        let with = |flags: i32| {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(true)
                .custom_flags(flags | exclusive);
            // Only a regular file is made, and only where a length says how long.
            let creates = len.is_some() && !is_block;
            options.create(creates).truncate(false).mode(0o600);
            options.open(path)
        };
        let (file, direct) = match with(libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                let file = with(0).map_err(OpenError::at("open"))?;
                (file, Err(error.kind()))
            }
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(OpenError::InUse);
            }
            other => (other.map_err(OpenError::at("open"))?, Ok(())),
        };
        lock(&file)?;
        let kind = file.metadata().map_err(OpenError::at("stat"))?.file_type();
        if kind.is_block_device() {
            let has = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(OpenError::at("seek"))?;
            if len.is_some_and(|len| len > has) {
                return Err(OpenError::TooSmall);
            }
            let sector_len = ioctl_blksszget(&file).map_err(OpenError::at("BLKSSZGET"))?;
            let sector_len = usize::try_from(sector_len).map_err(|_| OpenError::SectorLen)?;
            if !(512..=4096).contains(&sector_len) || !sector_len.is_power_of_two() {
                return Err(OpenError::SectorLen);
            }
            let len = len.unwrap_or(has);
            return Ok(Target {
                file,
                len,
                sector_len,
                is_block: true,
                direct,
            });
        }
        if !kind.is_file() {
            return Err(OpenError::WrongKind);
        }
        let has = file.metadata().map_err(OpenError::at("stat"))?.len();
        let len = len.unwrap_or(has);
        if len > has {
            reserve(&file, len)?;
        }
        let sector_len = sector_len(&file, len)?;
        Ok(Target {
            file,
            len,
            sector_len,
            is_block: false,
            direct,
        })
    }

    /// What a failure comes to. Requests to a disk that was pulled out fail as if its medium had errors; but the
    /// kernel then knows of no sectors of it.
    pub(super) fn judged(&self, failure: Failure) -> Failure {
        let is_gone = || {
            matches!(
                rustix::fs::seek(&self.file, SeekFrom::End(0)),
                Ok(0) | Err(_)
            )
        };
        match failure {
            Failure::Media if self.is_block && is_gone() => Failure::Removed,
            other => other,
        }
    }
}

/// Makes a file so long, with its space taken where the file system can: a full disk shows here, not at a write.
fn reserve(file: &File, len: u64) -> Result<(), OpenError> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(len).map_err(OpenError::at("ftruncate")),
        other => other.map_err(OpenError::at("fallocate")),
    }
}

/// How long a file may still be locked by rings of a process that has ended, which the kernel takes down after it.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Takes the file for this process.
fn lock(file: &File) -> Result<(), OpenError> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Err(_) => return Err(OpenError::InUse),
        }
    }
}

/// The shortest transfer that a regular file takes: that of the device below it, which no call tells on every kernel.
fn sector_len(file: &File, len: u64) -> Result<usize, OpenError> {
    let mut buffer = probe_buffer();
    if len < buffer.len() as u64 {
        return Err(OpenError::TooSmall);
    }
    for sector_len in [512, 1024, 2048] {
        let read = file.read_at(
            &mut buffer[..sector_len],
            len - len % 4096 - sector_len as u64,
        );
        match read {
            Ok(_) => return Ok(sector_len),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => {
                return Err(OpenError::System {
                    what: "read",
                    error,
                });
            }
        }
    }
    Ok(4096)
}
