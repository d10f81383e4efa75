//! What the C library's allocator is told.
#![expect(unsafe_code, reason = "mallopt is a function of the C library")]

/// Has all threads take memory from one place.
///
/// Else glibc reserves 64 MB of addresses for each thread when that first allocates. Under a limit on
/// them (`ulimit -v`) a thread that begins could take what another has just seen to be there, and that
/// one could not go on. Workers hardly allocate once they are warm, so they do not meet there.
///
/// To be called before there are threads.
pub fn share() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it sets one number, before anybody else could be in the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
