//! Finds the slots of a bucket that carry a tag.
//!
//! On x86-64 it uses four 16-byte loads and SSE2, which every such processor has: there is nothing
//! to choose at run time, so it is inlined into each lookup. On other processors it uses seven
//! loads.
//!
//! # Concurrency
//! Writers may store to the slots during a scan. A tag that is found is a hint: the caller loads
//! that slot again with Acquire before it relies on it. A tag that is *not* found is relied on: the
//! lookup goes on to the key's second bucket. So all loads of one scan come before all loads of the
//! next, and a reader that sees a slot empty because a move has cleared it also sees the copy that
//! the move made before. Without that a lookup may see the key gone from its first bucket and not
//! yet in its second, and miss it.
//!
//! - The portable scan loads each slot with Acquire, against the Release with which
//!   [`Bucket::put`] clears it.
//! - The vector loads are inline assembly, since a non-atomic load in Rust may not race. On x86
//!   that is enough (Intel SDM volume 3, "Memory Ordering"): loads are not reordered with other
//!   loads, and stores become visible in program order. This holds for the eight aligned bytes of
//!   each slot, even if a processor carries out a 16-byte load in two parts. The order in which one
//!   scan loads the slots of its bucket does not matter, since nothing moves within a bucket. The
//!   compiler keeps the order too: the assembly is not `pure` and may read any memory, so it stays
//!   between the Acquire load of the bucket's word before it and the Acquire fence after it, and
//!   two such blocks are not reordered.
#![cfg_attr(
    all(target_arch = "x86_64", not(loom), not(miri)),
    allow(
        unsafe_code,
        reason = "vector loads of slots that other threads store to"
    )
)]

use super::bucket::Bucket;
use crate::key::Tag;

/// Bit `i` is set where slot `i` of `bucket` carries `tag`.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline(always)]
pub(super) fn matches(bucket: &Bucket, tag: Tag) -> u32 {
    let (low, high): (u32, u32);
    // SAFETY: a bucket is 64 readable bytes aligned to 64; SSE2 is part of x86-64. The assembly
    // only reads, and what it reads may change meanwhile: see the module for the order of its
    // loads. The upper halves of eight words are gathered into two vectors, shifted down to their
    // tags and compared.
    unsafe {
        std::arch::asm!(
            "movd {tags}, {tag:e}",
            "pshufd {tags}, {tags}, 0",
            "movaps {a}, xmmword ptr [{bucket}]",
            "shufps {a}, xmmword ptr [{bucket} + 16], 0xdd",
            "movaps {b}, xmmword ptr [{bucket} + 32]",
            "shufps {b}, xmmword ptr [{bucket} + 48], 0xdd",
            "psrld {a}, 16",
            "psrld {b}, 16",
            "pcmpeqd {a}, {tags}",
            "pcmpeqd {b}, {tags}",
            "movmskps {low:e}, {a}",
            "movmskps {high:e}, {b}",
            bucket = in(reg) std::ptr::from_ref(bucket),
            tag = in(reg) u32::from(tag.0),
            tags = out(xmm_reg) _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            low = lateout(reg) low,
            high = lateout(reg) high,
            options(nostack, readonly, preserves_flags),
        );
    }
    // Lane 0 is the bucket's own word.
    (low | (high << 4)) >> 1
}

/// Bit `i` is set where slot `i` of `bucket` carries `tag`.
#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
#[inline(always)]
pub(super) fn matches(bucket: &Bucket, tag: Tag) -> u32 {
    portable(bucket, tag)
}

#[cfg(any(test, not(all(target_arch = "x86_64", not(loom), not(miri)))))]
#[inline(always)]
fn portable(bucket: &Bucket, tag: Tag) -> u32 {
    (0..super::SLOTS).fold(0, |mask, i| {
        mask | (u32::from(bucket.load(i).tag() == tag) << i)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::index::SLOTS;
    use crate::index::slot::{Location, Slot};

    #[test]
    #[cfg_attr(miri, ignore = "Miri has one way only: it runs no assembly")]
    fn every_way_finds_the_same_slots() {
        let bucket = Bucket::default();
        let mut seed = 1u64;
        for _ in 0..1000 {
            for i in 0..SLOTS {
                seed = seed
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                // Tags that differ in their top bit, in their lowest bit, or not at all.
                let tag = Tag([0, 1, 0x8000, 0x8001][(seed >> 62) as usize]);
                let slot = match seed >> 60 & 3 {
                    0 => Slot::EMPTY,
                    1 => Slot::ghost(tag, seed >> 20),
                    _ => Slot::item(tag, Location::of_offset((seed >> 33) as usize & !7), 64),
                };
                bucket.put(i, slot);
            }
            for tag in [0, 1, 0x8000, 0x8001, 7] {
                assert_eq!(matches(&bucket, Tag(tag)), portable(&bucket, Tag(tag)));
            }
        }
    }
}
