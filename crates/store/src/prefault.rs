//! Memory ahead of use: a thread of its own touches pages before workers need them.
//!
//! The kernel takes half a second and more to supply a gigabyte. A worker that met a fresh page in
//! a request would wait for its part of that.

use crate::memory::{Mapping, Pages};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// How far ahead of what has been given out memory is supplied.
const AHEAD: usize = 128 << 20;

/// How much is supplied in one system call.
const STEP: usize = 8 << 20;

/// The thread, stopped when dropped.
pub(crate) struct Prefault {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Prefault {
    /// Starts the thread, for the first `len` bytes. Without it memory is supplied on first touch.
    pub(crate) fn start(mapping: Arc<Mapping>, len: usize, pages: &Arc<Pages>) -> Option<Prefault> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, given) = (Arc::clone(&stop), Arc::clone(pages));
        let thread = thread::Builder::new()
            .name("coua-prefault".into())
            .spawn(move || run(&mapping, len, &given, &stopped))
            .ok()?;
        pages.wake_when_touched(thread.thread().clone());
        Some(Prefault {
            stop,
            thread: Some(thread),
        })
    }
}

fn run(mapping: &Mapping, len: usize, pages: &Pages, stop: &AtomicBool) {
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) && done < len {
        let limit = len.min(pages.limit() * pages.page_len());
        let goal = (pages.touched_bytes() + AHEAD).min(limit);
        if done >= limit {
            // A new limit wakes this thread.
            pages.set_wake_at(usize::MAX);
            if pages.limit() * pages.page_len() <= done {
                thread::park();
            }
            continue;
        }
        if done >= goal {
            // Until half of what is ahead is used up.
            pages.set_wake_at(goal - AHEAD / 2);
            if pages.touched_bytes() < goal - AHEAD / 2 {
                thread::park();
            }
            continue;
        }
        let step = STEP.min(len - done);
        // Kernels before 5.14 refuse. The memory then comes on first touch.
        if mapping.populate(done, step).is_err() {
            break;
        }
        done += step;
    }
    pages.set_wake_at(usize::MAX);
}

impl Drop for Prefault {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
