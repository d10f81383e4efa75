//! The file that holds an arena, so that another process can take it over.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What kind of file system the file is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Memory in pages of the normal size.
    Tmpfs,
    /// Memory of huge pages.
    Hugetlb,
    /// A persistent one: on a disk, or on persistent memory.
    Other,
}

/// Why a file cannot be used for an arena.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// Another process uses it.
    #[error("another process uses it")]
    InUse,
    /// A directory, a device or the like.
    #[error("it is no ordinary file")]
    NotAFile,
    /// Another user could write to it, and so to this process's memory.
    #[error("others may write to it: it must be this user's or root's, with access bits like 600")]
    OfOthers,
    /// A symbolic link could lead to a file that another user has chosen.
    #[error("it is a symbolic link; name the file itself")]
    Link,
    /// There is not enough space.
    #[error("its file system has room for {has} bytes, and {wants} are wanted")]
    NoSpace {
        /// Bytes that are available.
        has: u64,
        /// Bytes that are needed.
        wants: u64,
    },
    /// The system refused.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// A file that this process has locked, until the last view of it is dropped.
#[derive(Clone)]
pub(crate) struct ArenaFile {
    file: Arc<File>,
    kind: FileKind,
}

/// How long the process before may take to end.
const LOCK_WAIT: Duration = Duration::from_secs(2);

const TMPFS: i64 = 0x0102_1994;
const HUGETLBFS: i64 = 0x9584_58f6;

impl ArenaFile {
    /// Opens the file, or makes it, and locks it.
    pub(crate) fn open(path: &Path) -> Result<ArenaFile, FileError> {
        use rustix::fs::{FlockOperation, flock, fstatfs};

        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)
            .map_err(|error| match rustix::io::Errno::from_io_error(&error) {
                Some(rustix::io::Errno::LOOP) => FileError::Link,
                _ => error.into(),
            })?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(FileError::NotAFile);
        }
        let owners = [rustix::process::geteuid().as_raw(), 0];
        if !owners.contains(&metadata.uid()) || metadata.mode() & 0o022 != 0 {
            return Err(FileError::OfOthers);
        }
        let began = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                // A process that was killed has the lock until the last of its threads has ended.
                Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < LOCK_WAIT => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(FileError::InUse),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        let kind = match fstatfs(&file).map_err(io::Error::from)?.f_type {
            TMPFS => FileKind::Tmpfs,
            HUGETLBFS => FileKind::Hugetlb,
            _ => FileKind::Other,
        };
        Ok(ArenaFile {
            file: Arc::new(file),
            kind,
        })
    }

    pub(crate) fn kind(&self) -> FileKind {
        self.kind
    }

    /// Whether the file system maps its storage itself, without copies in memory (DAX).
    #[cfg(not(any(miri, loom)))]
    pub(crate) fn is_dax(&self) -> bool {
        use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};

        let asked = StatxFlags::BASIC_STATS;
        statx(&self.file, "", AtFlags::EMPTY_PATH, asked)
            .is_ok_and(|said| said.stx_attributes.contains(StatxAttributes::DAX))
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// The file's number in its file system.
    pub(crate) fn number(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.ino())
    }

    /// Bytes that are available in the file's file system; `None` if it knows no limit.
    pub(crate) fn room(&self) -> Option<u64> {
        let system = rustix::fs::fstatvfs(&self.file).ok()?;
        // If there is no limit, the file system reports no blocks.
        (system.f_blocks > 0).then_some(system.f_bavail * system.f_frsize)
    }

    /// Makes the file `len` zeros, of which `wants` are going to be used at first.
    pub(crate) fn empty(&self, len: u64, wants: u64) -> Result<(), FileError> {
        self.file.set_len(0)?;
        if let Some(has) = self.room()
            && has < wants
        {
            return Err(FileError::NoSpace { has, wants });
        }
        self.file.set_len(len)?;
        Ok(())
    }
}

/// Identifies this boot of the machine; 0 if that is not possible.
pub(crate) fn boot_number() -> u64 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = id.chars().filter(char::is_ascii_hexdigit).take(16);
    u64::from_str_radix(&digits.collect::<String>(), 16).unwrap_or(0)
}
