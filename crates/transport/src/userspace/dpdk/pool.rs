//! A pool of mbufs.
#![expect(unsafe_code, reason = "makes and frees DPDK's pools")]

use std::ffi::CString;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use coua_dpdk_sys as sys;

/// How many pools have been made.
static SERIAL: AtomicU32 = AtomicU32::new(0);

/// Mbufs of one size in huge pages. Any thread may take mbufs and return them.
pub(super) struct Pool {
    pool: NonNull<sys::Mempool>,
}

// SAFETY: DPDK's pools are made for several threads; a thread with an identity has its own cache.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Makes a pool of `count` mbufs with `room_len` bytes for a frame, on NUMA node `node`, or
    /// anywhere if it is negative.
    pub(super) fn create(
        count: u32,
        cache_len: u32,
        room_len: u16,
        numa_node: i32,
    ) -> io::Result<Pool> {
        // A pool that could not be freed keeps its name.
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("coua-{serial}"))?;
        let buffer_len = room_len
            .checked_add(sys::HEADROOM)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let mut failed = 0;
        // SAFETY: the name is a C string, which DPDK copies.
        let pool = unsafe {
            sys::coua_pool_create(
                name.as_ptr(),
                count,
                cache_len,
                buffer_len,
                numa_node,
                &mut failed,
            )
        };
        match NonNull::new(pool) {
            Some(pool) => Ok(Pool { pool }),
            None => Err(io::Error::from_raw_os_error(-failed)),
        }
    }

    /// For calls that need the pointer.
    pub(super) fn as_ptr(&self) -> *mut sys::Mempool {
        self.pool.as_ptr()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // If a driver has kept mbufs beyond its end, the memory is not freed.
        // SAFETY: the pool is alive, and when all mbufs are in it nobody else has one.
        unsafe { sys::coua_pool_free_if_full(self.pool.as_ptr()) };
    }
}
