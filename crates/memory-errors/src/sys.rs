//! Small questions to the kernel, all of which a signal handler may ask.
#![allow(unsafe_code, reason = "the C library's functions take addresses")]

/// Lets another thread run.
pub(crate) fn give_up_core() {
    // SAFETY: takes nothing and changes no memory.
    unsafe { libc::sched_yield() };
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to room for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // Both are positive, and 2^64 nanoseconds are 584 years.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// What the last call of this thread failed with.
pub(crate) fn errno() -> i32 {
    // SAFETY: takes nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the C library gives each thread a place of its own.
    unsafe { *place }
}

/// Puts back what a thread had before its handler began.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: takes nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the C library gives each thread a place of its own.
    unsafe { *place = errno };
}

/// Ends all waits for a change of a word.
pub(crate) fn wake_all(word: *const u32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel looks for those who wait at the address, and changes no memory.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, i32::MAX) };
}

/// Waits until a word is no longer `value`, or for `at_most`; it may end early.
pub(crate) fn wait_while(word: *const u32, value: u32, at_most: std::time::Duration) {
    let at_most = libc::timespec {
        tv_sec: libc::time_t::try_from(at_most.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let at_most = &raw const at_most;
    // SAFETY: the kernel reads the word, which all callers have in a static, and the time.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, value, at_most) };
}

/// Has the kernel tell of errors before anybody touches them. It is a property of the calling
/// thread, and of those that it starts from now on.
pub(crate) fn ask_for_early_reports() -> std::io::Result<()> {
    let (set, early) = (libc::PR_MCE_KILL_SET, libc::PR_MCE_KILL_EARLY);
    // SAFETY: takes numbers and changes no memory.
    let result = unsafe { libc::prctl(libc::PR_MCE_KILL, set, early, 0, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}
