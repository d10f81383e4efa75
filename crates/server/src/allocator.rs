//! Settings of the C library's allocator.
#![expect(unsafe_code, reason = "mallopt is a function of the C library")]

/// Makes all threads allocate from one arena.
///
/// Otherwise glibc reserves 64 MB of addresses for each thread at its first allocation. Under a
/// limit on addresses (`ulimit -v`) a thread that starts could take what another thread has just
/// seen to be free, and the other could not go on. Workers hardly allocate once they are warm, so
/// they do not contend.
///
/// Call it before there are other threads.
pub fn share() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it sets one number, before any other thread could be in the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
