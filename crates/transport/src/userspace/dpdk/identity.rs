//! A thread's identity in DPDK, by which the pools find its cache of mbufs.

use coua_dpdk_sys as sys;

thread_local! {
    static IDENTITY: Identity = Identity::take();
}

struct Identity {
    is_ours: bool,
}

/// Gives the calling thread an identity, if it has none. It lasts until the thread ends.
///
/// DPDK has about 128 identities. A thread that gets none works as well, but takes each mbuf from
/// the shared pool instead of from a cache of its own.
pub(super) fn ensure() {
    IDENTITY.with(|_| {});
}

impl Identity {
    fn take() -> Identity {
        Identity {
            is_ours: sys::coua_thread_register() > 0,
        }
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        if self.is_ours {
            sys::coua_thread_unregister();
        }
    }
}
