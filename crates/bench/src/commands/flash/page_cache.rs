//! A file whose pages are taken out of the page cache all the time.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use rustix::fs::{Advice, fadvise, fdatasync};

/// Between two times. A page that was read is there for as long at most.
const EVERY: Duration = Duration::from_millis(20);

/// Takes pages out until it is dropped.
pub(super) struct Emptied {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Emptied {
    /// Begins with a file, all of which is written out first: a page that is not cannot go.
    pub(super) fn begin(path: &Path) -> anyhow::Result<Emptied> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        fdatasync(&file)?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(EVERY);
                // It begins to write what is not written yet, and takes out what is.
                let _ = fadvise(&file, 0, None, Advice::DontNeed);
            }
        });
        Ok(Emptied {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Emptied {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}
