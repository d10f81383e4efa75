//! The file of a store, and a copy of it as a kill would leave it.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

/// Both are removed at the end.
pub(crate) struct Files {
    pub(crate) live: PathBuf,
    pub(crate) copy: PathBuf,
}

impl Files {
    pub(crate) fn new(name: &str) -> Files {
        let path = |kind| {
            PathBuf::from(format!(
                "/dev/shm/coua-{name}-{kind}-{}",
                std::process::id()
            ))
        };
        let files = Files {
            live: path("live"),
            copy: path("copy"),
        };
        for path in [&files.live, &files.copy] {
            let _ = std::fs::remove_file(path);
        }
        files
    }

    /// Copies the file as it is.
    pub(crate) fn copy(&self, buffer: &mut Vec<u8>) {
        let live = File::open(&self.live).unwrap();
        let mut options = File::options();
        let copy = options.create(true).truncate(false).write(true);
        let copy = copy.open(&self.copy).unwrap();
        buffer.resize(usize::try_from(live.metadata().unwrap().len()).unwrap(), 0);
        live.read_exact_at(buffer, 0).unwrap();
        // In the superblock: the file's number, by which a copy is told from it.
        buffer[80..88].copy_from_slice(&copy.metadata().unwrap().ino().to_ne_bytes());
        copy.write_all_at(buffer, 0).unwrap();
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [&self.live, &self.copy] {
            let _ = std::fs::remove_file(path);
        }
    }
}
