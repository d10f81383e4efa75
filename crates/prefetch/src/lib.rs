//! Hints to the processor that a line of memory will soon be needed.
//!
//! A server that keeps gigabytes finds most of what it touches in none of the caches. It names the
//! lines ahead, does something else meanwhile, and memory fetches many of them at a time. A hint
//! changes nothing but the time that later reads and writes take; where there is no such
//! instruction it does nothing.

/// Asks for the line in which `target` begins.
#[inline(always)]
pub fn prefetch<T>(target: &T) {
    prefetch_at(std::ptr::from_ref(target).cast());
}

/// As [`prefetch`], for writing.
#[inline(always)]
pub fn prefetch_for_write<T>(target: &T) {
    prefetch_write_at(std::ptr::from_ref(target).cast());
}

/// As [`prefetch`], by address. Any address will do.
#[inline(always)]
#[allow(
    clippy::pointers_in_nomem_asm_block,
    reason = "the instructions read nothing"
)]
#[cfg_attr(
    all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)),
    expect(
        unsafe_code,
        reason = "the instruction has no safe form on every supported compiler"
    )
)]
pub fn prefetch_at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: prefetching reads nothing and faults on no address.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) address, options(nostack, nomem, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: prefetching reads nothing and faults on no address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, nomem, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// As [`prefetch_for_write`], by address. Any address will do.
#[inline(always)]
#[allow(
    clippy::pointers_in_nomem_asm_block,
    reason = "the instructions read nothing"
)]
#[cfg_attr(
    all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)),
    expect(
        unsafe_code,
        reason = "the instruction has no safe form on every supported compiler"
    )
)]
pub fn prefetch_write_at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: prefetching reads nothing and faults on no address. PREFETCHW is a no-op where the
    // processor lacks it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, nomem, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: prefetching reads nothing and faults on no address.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, nomem, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
