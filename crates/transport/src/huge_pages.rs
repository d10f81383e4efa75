//! Huge pages for large tables that are accessed at random.
//!
//! With tens of thousands of connections, nearly each segment is for a connection that is in none
//! of the processor's caches, and whose page is not in the TLB. Finding a page of 4 KiB then costs
//! as much as the cache line itself, and several times as much in a virtual machine.

#![expect(unsafe_code, reason = "madvise takes an address")]

use rustix::mm::{Advice, madvise};

/// Huge pages are not asked for below this many bytes.
const LEN_MIN: usize = 2 << 20;

/// An address given to the system must be a multiple of this, in bytes.
const PAGE_LEN: usize = 4096;

/// Asks the system for huge pages in `area`, if it is long enough, for the parts that have not been
/// touched. This includes the pages that `area` shares with its neighbours: what the allocator
/// keeps before it must not cost the first huge page. Whether there are any is up to the system;
/// nothing else changes.
pub fn ask_for(area: *const [u8]) {
    let start = area.cast::<u8>();
    if area.len() < LEN_MIN {
        return;
    }
    let before = start.addr() % PAGE_LEN;
    let len = (before + area.len()).next_multiple_of(PAGE_LEN);
    let start = start.wrapping_sub(before).cast_mut();
    // SAFETY: the advice changes neither the contents nor the rights of any page, whoever owns it,
    // and the kernel refuses it where there is none.
    let _ = unsafe { madvise(start.cast(), len, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_area_its_contents_stay() {
        for len in [0, 1, 100, 4096, 8 << 20] {
            let mut bytes: Vec<u8> = Vec::with_capacity(len);
            ask_for(std::ptr::slice_from_raw_parts(
                bytes.as_ptr(),
                bytes.capacity(),
            ));
            bytes.resize(len, 7);
            ask_for(&raw const bytes[len.min(3)..]);
            assert!(bytes.iter().all(|&byte| byte == 7));
        }
    }
}
