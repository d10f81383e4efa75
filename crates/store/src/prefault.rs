//! Memory ahead of use: a thread of its own has the system supply pages before workers need them.
//!
//! The kernel takes half a second and more to supply a gigabyte. A worker that met a fresh page in
//! a request would wait for its part of that. First come the pages that are in use when the process
//! begins, then free pages, as many as [`AHEAD`] ahead of what workers take. Pages that a lower limit
//! has taken out of use are supplied again once the limit is raised.

use crate::memory::{Mapping, Pages};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// How many bytes of free pages have memory.
const AHEAD: usize = 128 << 20;

/// How much is supplied in one system call.
const STEP: usize = 8 << 20;

/// The thread, stopped when dropped.
pub(crate) struct Prefault {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Prefault {
    /// Starts the thread. Without it memory is supplied on first touch. If the memory in use is
    /// locked, the thread `locks` what comes into use later, all of it.
    pub(crate) fn start(
        mapping: Arc<Mapping>,
        pages: &Arc<Pages>,
        locks: bool,
    ) -> Option<Prefault> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, given) = (Arc::clone(&stop), Arc::clone(pages));
        let thread = thread::Builder::new()
            .name("coua-prefault".into())
            .spawn(move || run(&mapping, &given, locks, &stopped))
            .ok()?;
        let ahead = if locks { usize::MAX } else { AHEAD };
        pages.set_supplier(thread.thread().clone(), ahead);
        // It may have found that it is not the supplier yet.
        thread.thread().unpark();
        Some(Prefault {
            stop,
            thread: Some(thread),
        })
    }
}

fn run(mapping: &Mapping, pages: &Pages, locks: bool, stop: &AtomicBool) {
    let is_stopped = || stop.load(Ordering::Relaxed);
    // Kernels before 5.14 refuse, and so does a limit of what may be locked. The memory then comes
    // on first touch.
    let supply = |(offset, len)| match locks {
        true => mapping.lock(offset, len).is_ok(),
        false => mapping.populate(offset, len).is_ok(),
    };
    let may_be_refused = mapping.may_be_refused();
    // What is locked has memory.
    let mut in_use = pages.in_use(STEP).take_while(|_| !locks && !is_stopped());
    let mut works = in_use.all(|next| supply(pages.bytes_of(&next)) || may_be_refused);
    while works && !is_stopped() {
        match pages.to_supply(STEP) {
            Some(next) if may_be_refused && pages.supply(&next).is_err() => pages.refuse_bare(),
            Some(next) => works = supply(pages.bytes_of(&next)),
            None => thread::park(),
        }
    }
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
