//! Huge pages for a test, given back afterwards.

use std::fs::{self, File};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};

const SETTING: &str = "/proc/sys/vm/nr_hugepages";

/// The system's huge pages, for one test at a time among all processes.
pub(crate) struct HugePages {
    before: u64,
    _lock: File,
}

impl HugePages {
    /// Enough for two processes of 64 MiB.
    pub(crate) fn for_two() -> HugePages {
        let pages = HugePages::take();
        pages.set(pages.before.max(128));
        let now = count();
        assert!(
            now >= 128,
            "the test needs 128 huge pages of 2 MiB and there are {now}: the memory is too full or too \
             scattered"
        );
        pages
    }

    /// As few as can be, `count` or what others hold.
    pub(crate) fn only(count: u64) -> HugePages {
        let pages = HugePages::take();
        pages.set(count);
        pages
    }

    fn take() -> HugePages {
        let path: PathBuf = std::env::temp_dir().join("coua-huge-pages.lock");
        let lock = File::create(path).expect("a file in the folder for temporary ones");
        flock(&lock, FlockOperation::LockExclusive).expect("a lock on it");
        HugePages {
            before: count(),
            _lock: lock,
        }
    }

    fn set(&self, count: u64) {
        fs::write(SETTING, count.to_string())
            .expect("the test sets /proc/sys/vm/nr_hugepages: run it as root");
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(SETTING, self.before.to_string());
    }
}

/// How many there are.
pub(crate) fn count() -> u64 {
    let text = fs::read_to_string(SETTING).expect("a kernel with huge pages");
    text.trim().parse().expect("a number")
}
