//! The one owner of `-m`: a range of memory, cut into pages of one size, and who has which.
//!
//! A page becomes a segment of items, sixteen or more sub-tables of the index, or is lent to the
//! server for connection buffers. The range's first pages hold the segment table and the
//! directory. Everything in it is found by offset, never by address, so that a later process can
//! map it elsewhere.

#[cfg(not(loom))]
pub(crate) mod mapping;
#[cfg(not(loom))]
mod pages;

#[cfg(not(loom))]
pub use mapping::HugePages;
#[cfg(not(loom))]
pub(crate) use mapping::{Mapping, Slice};
#[cfg(not(loom))]
pub use pages::Page;
#[cfg(not(loom))]
pub(crate) use pages::{PageId, Pages, Purpose};

/// Under loom the index lives on the heap, since loom's atomics are not plain bytes.
#[cfg(loom)]
pub(crate) type Slice<T> = Box<[T]>;

/// Asks the processor to fetch the line of `target`; changes nothing else.
#[inline(always)]
pub(crate) fn prefetch<T>(target: &T) {
    prefetch_at(std::ptr::from_ref(target).cast());
}

/// Asks for the line of `target` for writing.
#[inline(always)]
pub(crate) fn prefetch_for_write<T>(target: &T) {
    prefetch_write_at(std::ptr::from_ref(target).cast());
}

/// As [`prefetch`], by address. Any address will do.
#[inline(always)]
#[cfg_attr(
    all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)),
    expect(
        unsafe_code,
        reason = "the instruction has no safe form on every supported compiler"
    )
)]
pub(crate) fn prefetch_at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: prefetching reads nothing and faults on no address.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: prefetching reads nothing and faults on no address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// As [`prefetch_for_write`], by address. Any address will do.
#[inline(always)]
#[cfg_attr(
    all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)),
    expect(
        unsafe_code,
        reason = "the instruction has no safe form on every supported compiler"
    )
)]
pub(crate) fn prefetch_write_at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: prefetching reads nothing and faults on no address. PREFETCHW is a no-op where the
    // processor lacks it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: prefetching reads nothing and faults on no address.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
