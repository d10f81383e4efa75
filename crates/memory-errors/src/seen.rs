//! The counter that says whether memory was lost.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// How many times memory was lost, as other threads may ask at any time.
///
/// # Concurrency
/// Who has read zeros of a fresh page must find that the counter has moved. The handler counts
/// before it puts the page there. Two fences keep both orders:
///
/// ```text
///   handler                        reader
///   count += 1                     load of the page: zeros
///   fence(Release)                 fence(Acquire)
///   the page turns to zeros        load of the count: it has moved
/// ```
///
/// Without the first the page could show its zeros before the count; without the second the reader's
/// processor could have loaded the count before the page. On x86-64 neither is an instruction.
pub(crate) struct Seen(AtomicU64);

impl Seen {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Seen {
        Seen(AtomicU64::new(0))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Seen {
        Seen(AtomicU64::new(0))
    }

    /// To be called before the lost bytes turn to zeros.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// To be called after the bytes were read whose loss is to be noticed.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(not(loom))]
impl Seen {
    /// The half of the count that changes with each event, for the kernel's wait.
    pub(crate) fn word(&self) -> *const u32 {
        let word: *const u32 = self.0.as_ptr().cast();
        match cfg!(target_endian = "little") {
            true => word,
            false => word.wrapping_add(1),
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// The page is one atomic that turns from 7 to 0.
    fn zeros_are_told_of(load_count: fn(&Seen) -> u64) {
        loom::model(move || {
            let shared = Arc::new((Seen::new(), AtomicU64::new(7)));
            let handler = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    shared.0.count();
                    shared.1.store(0, Ordering::Relaxed);
                })
            };
            let is_zero = shared.1.load(Ordering::Relaxed) == 0;
            let count = load_count(&shared.0);
            assert!(!is_zero || count == 1, "zeros without a count");
            handler.join().expect("no panic");
        });
    }

    #[test]
    fn loom_zeros_are_never_seen_before_the_count() {
        zeros_are_told_of(Seen::load);
    }

    #[test]
    #[should_panic(expected = "zeros without a count")]
    fn loom_without_the_fence_they_are() {
        zeros_are_told_of(|seen| seen.0.load(Ordering::Relaxed));
    }
}
