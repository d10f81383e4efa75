//! Tells the system in which nodes the arena's memory is to lie.
#![allow(unsafe_code, reason = "mbind and get_mempolicy take addresses")]

use super::mapping::Mapping;
use std::ops::Range;

/// Whether whoever started the process has chosen where its memory lies, as `numactl` does.
#[cfg(not(any(miri, loom)))]
pub(super) fn is_chosen() -> bool {
    let mut mode: libc::c_int = libc::MPOL_DEFAULT;
    let null = std::ptr::null_mut::<libc::c_ulong>();
    // SAFETY: the kernel writes one number to a number of ours, and no mask is asked for.
    let asked = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            null,
            0_usize,
            0_usize,
            0,
        )
    };
    asked == 0 && mode != libc::MPOL_DEFAULT
}

/// The core that the calling thread is on.
#[cfg(not(any(miri, loom)))]
pub(super) fn current_core() -> usize {
    rustix::thread::sched_getcpu()
}

#[cfg(any(miri, loom))]
pub(super) fn is_chosen() -> bool {
    true
}

#[cfg(any(miri, loom))]
pub(super) fn current_core() -> usize {
    0
}

/// Where memory is to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// In turns in all these nodes.
    Interleaved,
    /// In this node, as long as it has any.
    Preferred,
}

impl Mapping {
    /// Asks for memory of these nodes, by their numbers, for a range. Memory that is there already stays
    /// where it is. Where a node has no more, or the system refuses, memory comes from elsewhere.
    #[cfg(not(any(miri, loom)))]
    pub(super) fn bind(&self, bytes: Range<usize>, policy: Policy, nodes: &[u32]) {
        const BITS: usize = libc::c_ulong::BITS as usize;
        assert!(bytes.start < bytes.end && bytes.end <= self.len());
        let mode = match policy {
            Policy::Interleaved => libc::MPOL_INTERLEAVE,
            Policy::Preferred => libc::MPOL_PREFERRED,
        };
        let last = nodes.iter().max().copied().unwrap_or(0) as usize;
        let mut mask = vec![0 as libc::c_ulong; last / BITS + 1];
        for &node in nodes {
            mask[node as usize / BITS] |= 1 << (node as usize % BITS);
        }
        // SAFETY: the range is inside the mapping, and a policy changes no byte. The kernel reads the
        // mask, which is as long as the number of bits says.
        let _ = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.at(bytes.start).as_ptr(),
                bytes.len(),
                mode,
                mask.as_ptr(),
                mask.len() * BITS + 1,
                0,
            )
        };
    }

    #[cfg(any(miri, loom))]
    #[expect(clippy::unused_self, reason = "no system calls")]
    pub(super) fn bind(&self, _: Range<usize>, _: Policy, _: &[u32]) {}
}
