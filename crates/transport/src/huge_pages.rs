//! Huge pages for tables that are gone through at random.
//!
//! With tens of thousands of connections nearly each segment is for one whose lines, and whose pages,
//! no cache of the processor has. Finding a page of 4 KiB then costs as much as the line itself, and in
//! a virtual machine a multiple of it.

#![expect(unsafe_code, reason = "madvise takes an address")]

use rustix::mm::{Advice, madvise};

/// Bytes below which huge pages are not asked for.
const LEN_MIN: usize = 2 << 20;

/// Bytes that an address given to the system must be a multiple of.
const PAGE_LEN: usize = 4096;

/// Asks the system for huge pages in `area` as far as it has not been touched, where it is long enough:
/// in all pages of it, since what the allocator has before it must not cost the first huge page.
/// Whether there are any is the system's affair; nothing else changes.
pub fn ask_for(area: *const [u8]) {
    let start = area.cast::<u8>();
    if area.len() < LEN_MIN {
        return;
    }
    let before = start.addr() % PAGE_LEN;
    let len = (before + area.len()).next_multiple_of(PAGE_LEN);
    let start = start.wrapping_sub(before).cast_mut();
    // SAFETY: the advice changes no contents and no rights of any page, whosever it is, and the kernel
    // refuses it where there is none.
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
