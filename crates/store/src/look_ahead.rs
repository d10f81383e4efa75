//! What a look-ahead has seen of a key; see [`Burst::prefetch`](crate::Burst::prefetch).

use crate::index::Hint;

/// What a look-ahead has seen. It counts in the burst in which it was seen: afterwards the memory of
/// the index that it names may be used for something else. Debug builds check that.
#[derive(Clone, Copy)]
pub struct Ahead {
    step: LookAheadStep,
    burst: BurstNumber,
}

#[derive(Clone, Copy)]
pub(crate) enum LookAheadStep {
    /// No item with the key's tag was seen, or nothing was looked at.
    Nothing,
    /// The first bucket is being prefetched.
    First(usize),
    /// The first bucket has no item with the tag; the second bucket is being prefetched.
    Second(usize),
    /// What is likely the key's item.
    Seen(Hint),
}

/// Tells bursts apart in debug builds, and takes no room in others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BurstNumber(#[cfg(debug_assertions)] u64);

impl Ahead {
    /// Nothing was seen.
    pub const NONE: Ahead = Ahead {
        step: LookAheadStep::Nothing,
        burst: BurstNumber::NONE,
    };

    /// What was seen in a burst.
    #[inline(always)]
    pub(crate) fn new(step: LookAheadStep, burst: BurstNumber) -> Ahead {
        Ahead { step, burst }
    }

    /// What was seen, for use in a burst.
    #[inline(always)]
    pub(crate) fn seen_in(self, burst: BurstNumber) -> LookAheadStep {
        debug_assert!(
            matches!(self.step, LookAheadStep::Nothing) || self.burst == burst,
            "what was seen in another burst"
        );
        self.step
    }
}

impl BurstNumber {
    const NONE: BurstNumber = BurstNumber(
        #[cfg(debug_assertions)]
        0,
    );

    /// That of a worker's next burst.
    #[inline(always)]
    pub(crate) fn next(self, worker: usize) -> BurstNumber {
        let _ = worker;
        BurstNumber(
            #[cfg(debug_assertions)]
            ((self.0 + 1) & ((1 << 48) - 1) | (worker as u64) << 48),
        )
    }
}
