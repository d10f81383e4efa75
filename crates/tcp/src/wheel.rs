//! A timer wheel: one timer for each connection.
//!
//! It is hierarchical (Varghese and Lauck, 1987, scheme 7): level 0 has a slot for each of the next
//! 64 ticks, level 1 one for each 64 ticks, and so on. A timer goes to the level of the highest
//! digit in which its tick differs from the present one, and moves down when that digit is reached.
//! Setting, cancelling and firing a timer cost the same however many there are.
//!
//! The timers of a slot are stored in chunks of one cache line each, so that those that fire
//! together can be prefetched together. With a linked list the cache misses would follow one
//! another.

use coua_cpu::prefetch;

use crate::time::Instant;

/// Microseconds of a tick, as a power of two: about a millisecond.
const TICK_BITS: u32 = 10;

/// Slots of a level, as a power of two.
const SLOT_BITS: u32 = 6;

const SLOTS: usize = 1 << SLOT_BITS;

/// With six levels the farthest timer is two years away.
const LEVELS: usize = 6;

/// One list for each slot, level by level,
const LISTS: usize = LEVELS * SLOTS + 1;

/// and one for timers that have fired and were not yet returned.
const DUE: u16 = 6 << SLOT_BITS;

const _: () = assert!(DUE as usize == LISTS - 1);

/// The list of a timer that is not set.
const NOWHERE: u16 = u16::MAX;

const NONE: u32 = u32::MAX;

/// Timers of a chunk.
const CHUNK_LEN: usize = 14;

/// One timer for each id; ids count from 0.
///
/// # Invariants
/// - `timers[id]` says in which list and chunk `id` is, and where in the chunk.
/// - All chunks of a list but the first are full, and none is empty.
pub(crate) struct Wheel {
    now: u64,
    /// For each level, a bit for each slot with timers.
    occupied: [u64; LEVELS],
    /// The first chunk of each list.
    lists: [u32; LISTS],
    chunks: Vec<Chunk>,
    free_chunk: u32,
    timers: Vec<Timer>,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Chunk {
    ids: [u32; CHUNK_LEN],
    len: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct Timer {
    /// The tick in which it fires.
    tick: u64,
    chunk: u32,
    list: u16,
    at: u16,
}

impl Wheel {
    /// The memory of the timers' records.
    pub(crate) fn memory(&self) -> *const [u8] {
        let len = self.timers.capacity() * size_of::<Timer>();
        std::ptr::slice_from_raw_parts(self.timers.as_ptr().cast(), len)
    }

    /// A wheel that starts at `now` and holds `capacity` timers without another allocation.
    pub(crate) fn new(now: Instant, capacity: usize) -> Wheel {
        Wheel {
            now: now.micros() >> TICK_BITS,
            occupied: [0; LEVELS],
            lists: [NONE; LISTS],
            // Each list has at most one chunk that is not full.
            chunks: Vec::with_capacity(capacity / CHUNK_LEN + LISTS),
            free_chunk: NONE,
            timers: Vec::with_capacity(capacity),
        }
    }

    /// Sets the timer of `id` to fire at the end of the tick that contains `at`, and not before.
    pub(crate) fn set(&mut self, id: u32, at: Instant) {
        let index = id as usize;
        if self.timers.len() <= index {
            let timer = Timer {
                tick: 0,
                chunk: NONE,
                list: NOWHERE,
                at: 0,
            };
            self.timers.resize(index + 1, timer);
        }
        self.cancel(id);
        let farthest = self.now + (1 << (SLOT_BITS * 6 - 1));
        self.timers[index].tick = ((at.micros() >> TICK_BITS) + 1).clamp(self.now + 1, farthest);
        self.insert(id);
    }

    /// Cancels the timer of `id`.
    pub(crate) fn cancel(&mut self, id: u32) {
        let Some(&Timer {
            chunk, list, at, ..
        }) = self.timers.get(id as usize)
        else {
            return;
        };
        if list == NOWHERE {
            return;
        }
        self.timers[id as usize].list = NOWHERE;
        // The last id of the first chunk takes its place.
        let first = self.lists[usize::from(list)];
        let Chunk { ids, len, next } = &mut self.chunks[first as usize];
        *len -= 1;
        let (last, is_empty, next) = (ids[*len as usize], *len == 0, *next);
        if last != id {
            self.chunks[chunk as usize].ids[usize::from(at)] = last;
            let moved = &mut self.timers[last as usize];
            (moved.chunk, moved.at) = (chunk, at);
        }
        if is_empty {
            self.give_chunk(first);
            self.lists[usize::from(list)] = next;
            if next == NONE && list != DUE {
                self.occupied[usize::from(list) / SLOTS] &= !(1 << (usize::from(list) % SLOTS));
            }
        }
    }

    /// Turns the wheel to `now`; [`Wheel::pop_due`] returns the timers that have fired.
    pub(crate) fn turn_to(&mut self, now: Instant) {
        let target = now.micros() >> TICK_BITS;
        while let Some((level, slot, tick)) = self.next_slot()
            && tick <= target
        {
            self.now = tick;
            let list = &mut self.lists[level * SLOTS + slot];
            let mut number = std::mem::replace(list, NONE);
            self.occupied[level] &= !(1 << slot);
            while number != NONE {
                let chunk = self.chunks[number as usize];
                self.give_chunk(number);
                number = chunk.next;
                if let Some(next) = self.chunks.get(number as usize) {
                    prefetch(next);
                }
                let ids = &chunk.ids[..chunk.len as usize];
                for &id in ids {
                    prefetch(&self.timers[id as usize]);
                }
                for &id in ids {
                    match self.timers[id as usize].tick <= tick {
                        true => self.push(id, DUE),
                        false => self.insert(id),
                    }
                }
            }
        }
        self.now = self.now.max(target);
    }

    /// An id whose timer has fired; the timer is no longer set.
    #[inline]
    pub(crate) fn pop_due(&mut self) -> Option<u32> {
        let chunk = self.chunks.get(self.lists[usize::from(DUE)] as usize)?;
        let id = chunk.ids[chunk.len as usize - 1];
        self.cancel(id);
        Some(id)
    }

    /// When the wheel must be turned next: at the first timer or before.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.lists[usize::from(DUE)] != NONE {
            return Some(Instant::from_micros(self.now << TICK_BITS));
        }
        let (_, _, tick) = self.next_slot()?;
        Some(Instant::from_micros(tick << TICK_BITS))
    }

    /// The first slot with timers, and the tick in which it is reached. The timers of a level are
    /// all before those of the next.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        let slot = self.occupied[level].trailing_zeros();
        let shift = SLOT_BITS * u32::try_from(level).expect("few levels");
        let above = (self.now >> shift) & !(SLOTS as u64 - 1);
        Some((level, slot as usize, (above | u64::from(slot)) << shift))
    }

    fn insert(&mut self, id: u32) {
        let tick = self.timers[id as usize].tick;
        let differs = (tick ^ self.now) | 1;
        let level = (63 - differs.leading_zeros()) / SLOT_BITS;
        let slot = (tick >> (SLOT_BITS * level)) & (SLOTS as u64 - 1);
        self.occupied[level as usize] |= 1 << slot;
        let list = u64::from(level) * SLOTS as u64 + slot;
        self.push(id, u16::try_from(list).expect("the farthest is in reach"));
    }

    fn push(&mut self, id: u32, list: u16) {
        let first = self.lists[usize::from(list)];
        let number = match self.chunks.get(first as usize) {
            Some(chunk) if (chunk.len as usize) < CHUNK_LEN => first,
            _ => self.take_chunk(first),
        };
        self.lists[usize::from(list)] = number;
        let chunk = &mut self.chunks[number as usize];
        let at = u16::try_from(chunk.len).expect("few to a chunk");
        chunk.ids[usize::from(at)] = id;
        chunk.len += 1;
        let timer = &mut self.timers[id as usize];
        (timer.chunk, timer.list, timer.at) = (number, list, at);
    }

    /// An empty chunk before another one.
    fn take_chunk(&mut self, next: u32) -> u32 {
        let empty = Chunk {
            ids: [NONE; CHUNK_LEN],
            len: 0,
            next,
        };
        let number = self.free_chunk;
        if let Some(chunk) = self.chunks.get_mut(number as usize) {
            self.free_chunk = std::mem::replace(chunk, empty).next;
            return number;
        }
        self.chunks.push(empty);
        u32::try_from(self.chunks.len() - 1).expect("fewer than timers")
    }

    fn give_chunk(&mut self, number: u32) {
        self.chunks[number as usize].next = self.free_chunk;
        self.free_chunk = number;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const fn millis(millis: u64) -> Instant {
        Instant::from_micros(millis * 1000)
    }

    fn fired(wheel: &mut Wheel) -> Vec<u32> {
        let mut fired: Vec<u32> = std::iter::from_fn(|| wheel.pop_due()).collect();
        fired.sort_unstable();
        fired
    }

    #[test]
    fn timers_fire_once_and_not_before_their_time() {
        let mut wheel = Wheel::new(millis(1000), 4);
        assert_eq!(wheel.deadline(), None);
        wheel.set(0, millis(1005));
        wheel.set(1, millis(3000));
        wheel.set(2, millis(10_000_000));
        wheel.set(3, millis(1005));
        wheel.cancel(3);
        wheel.turn_to(millis(1004));
        assert_eq!(fired(&mut wheel), []);
        assert!(
            wheel
                .deadline()
                .is_some_and(|at| at > millis(1004) && at <= millis(1007))
        );
        wheel.turn_to(millis(1007));
        assert_eq!(fired(&mut wheel), [0]);
        wheel.turn_to(millis(20_000_000));
        assert_eq!(fired(&mut wheel), [1, 2]);
        assert_eq!(wheel.deadline(), None);
    }

    #[test]
    fn one_that_is_due_can_be_cancelled() {
        let mut wheel = Wheel::new(millis(0), 4);
        for id in 0..3 {
            wheel.set(id, millis(5));
        }
        wheel.turn_to(millis(10));
        wheel.cancel(1);
        wheel.set(2, millis(50));
        assert_eq!(fired(&mut wheel), [0]);
        wheel.turn_to(millis(60));
        assert_eq!(fired(&mut wheel), [2]);
    }

    proptest! {
        /// Against a sorted map.
        #[test]
        fn it_fires_what_a_map_fires(
            steps in proptest::collection::vec((0u8..3, 0u32..20, 0u32..36, any::<u32>()), 1..200),
        ) {
            let mut wheel = Wheel::new(Instant::from_micros(0), 0);
            let mut map: BTreeMap<u32, u64> = BTreeMap::new();
            let mut now = 0;
            for (what, id, bits, number) in steps {
                let time = u64::from(number) & ((1u64 << bits.min(32)) - 1);
                match what {
                    0 => {
                        let at = now + (time << bits.saturating_sub(32));
                        wheel.set(id, Instant::from_micros(at));
                        map.insert(id, (at >> TICK_BITS) + 1);
                    }
                    1 => {
                        wheel.cancel(id);
                        map.remove(&id);
                    }
                    _ => {
                        let deadline = wheel.deadline();
                        let first = map.values().min();
                        prop_assert_eq!(deadline.is_some(), first.is_some());
                        if let (Some(deadline), Some(first)) = (deadline, first) {
                            prop_assert!(deadline.micros() >> TICK_BITS <= *first);
                        }
                        now += time;
                        wheel.turn_to(Instant::from_micros(now));
                        let tick = now >> TICK_BITS;
                        let due: Vec<u32> = map
                            .iter()
                            .filter_map(|(&id, &at)| (at <= tick).then_some(id))
                            .collect();
                        map.retain(|_, at| *at > tick);
                        prop_assert_eq!(fired(&mut wheel), due);
                    }
                }
            }
        }
    }
}
