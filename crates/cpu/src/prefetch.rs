//! Prefetching: hints to the processor that a line of memory will soon be needed.
//!
//! With gigabytes of items, most of what a request touches is in no cache. A hot path hints at the
//! lines ahead and does something else meanwhile, and memory fetches many lines at a time. A hint
//! changes nothing but the time that later reads and writes take. Where the processor has no such
//! instruction, the functions do nothing.
#![allow(
    clippy::pointers_in_nomem_asm_block,
    reason = "the instructions read nothing"
)]
#![cfg_attr(
    all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)),
    expect(
        unsafe_code,
        reason = "the instructions have no safe form on every supported compiler"
    )
)]

/// Bytes of a cache line.
const LINE_LEN: usize = 64;

/// Executes one prefetch instruction on an address, by processor.
macro_rules! hint {
    ($address:expr, $x86:literal, $aarch64:literal) => {{
        let address: *const u8 = $address;
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: prefetching reads nothing and faults on no address. PREFETCHW is a no-op where the
        // processor lacks it.
        unsafe {
            core::arch::asm!($x86, in(reg) address, options(nostack, nomem, preserves_flags));
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: prefetching reads nothing and faults on no address.
        unsafe {
            core::arch::asm!($aarch64, in(reg) address, options(nostack, nomem, preserves_flags));
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        let _ = address;
    }};
}

/// Prefetches the line in which `target` begins.
#[inline(always)]
pub fn prefetch<T>(target: &T) {
    prefetch_at(core::ptr::from_ref(target).cast());
}

/// As [`prefetch`], for a line that will be written.
#[inline(always)]
pub fn prefetch_for_write<T>(target: &T) {
    prefetch_write_at(core::ptr::from_ref(target).cast());
}

/// As [`prefetch`], by address. Any address is allowed, mapped or not.
#[inline(always)]
pub fn prefetch_at(address: *const u8) {
    hint!(address, "prefetcht0 [{}]", "prfm pldl1keep, [{}]");
}

/// As [`prefetch_for_write`], by address. Any address is allowed, mapped or not.
#[inline(always)]
pub fn prefetch_write_at(address: *const u8) {
    hint!(address, "prefetchw [{}]", "prfm pstl1keep, [{}]");
}

/// As [`prefetch_at`], for `lines` lines from the address on; the first one in any case. One line and
/// two take no branch: most items have one or two, and no branch predictor can tell which.
#[inline(always)]
pub fn prefetch_lines(address: *const u8, lines: usize) {
    prefetch_at(address);
    prefetch_at(address.wrapping_add(usize::from(lines > 1) * LINE_LEN));
    for line in 2..lines {
        prefetch_at(address.wrapping_add(line * LINE_LEN));
    }
}
