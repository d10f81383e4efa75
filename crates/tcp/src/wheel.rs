//! A timer wheel: when to look at which connection next.
//!
//! Hierarchical, as Varghese and Lauck have it (1987, scheme 7): level 0 has a slot for each of the
//! next 64 ticks, level 1 for each of the next 64 times 64, and so on. A timer goes to the level of
//! the highest digit in which its tick differs from now's, and comes down a level when that digit
//! is reached. Setting, cancelling and firing cost the same however many there are.

use crate::time::Instant;

/// Microseconds of a tick, as a power of two: about a millisecond.
const TICK_BITS: u32 = 10;

/// Slots of a level, as a power of two.
const SLOT_BITS: u32 = 6;

const SLOTS: usize = 1 << SLOT_BITS;

/// With six levels the farthest timer is two years away.
const LEVELS: usize = 6;

const NONE: u32 = u32::MAX;

/// One timer for each of a number of things that are numbered from 0.
pub(crate) struct Wheel {
    now: u64,
    /// For each level, a bit for each slot with timers.
    occupied: [u64; LEVELS],
    heads: [[u32; SLOTS]; LEVELS],
    links: Vec<Link>,
    /// Timers that have fired and were not yet told.
    due: u32,
}

#[derive(Clone, Copy)]
struct Link {
    next: u32,
    prev: u32,
    /// The tick in which it fires.
    tick: u64,
    place: Place,
}

/// Where a timer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    Slot { level: u8, slot: u8 },
    Due,
}

impl Wheel {
    /// Where the links of all timers lie.
    pub(crate) fn memory(&self) -> *const [u8] {
        let len = self.links.capacity() * size_of::<Link>();
        std::ptr::slice_from_raw_parts(self.links.as_ptr().cast(), len)
    }

    /// A wheel that begins to turn at `now`, with room for `capacity` timers without another
    /// allocation.
    pub(crate) fn new(now: Instant, capacity: usize) -> Wheel {
        Wheel {
            now: now.micros() >> TICK_BITS,
            occupied: [0; LEVELS],
            heads: [[NONE; SLOTS]; LEVELS],
            links: Vec::with_capacity(capacity),
            due: NONE,
        }
    }

    /// Has the timer of `id` fire at the end of the tick in which `at` is, and not before.
    pub(crate) fn set(&mut self, id: u32, at: Instant) {
        let index = id as usize;
        if self.links.len() <= index {
            let link = Link {
                next: NONE,
                prev: NONE,
                tick: 0,
                place: Place::Nowhere,
            };
            self.links.resize(index + 1, link);
        }
        self.cancel(id);
        let farthest = self.now + (1 << (SLOT_BITS * 6 - 1));
        self.links[index].tick = ((at.micros() >> TICK_BITS) + 1).clamp(self.now + 1, farthest);
        self.insert(id);
    }

    /// Takes the timer of `id` back.
    pub(crate) fn cancel(&mut self, id: u32) {
        let Some(&Link {
            next, prev, place, ..
        }) = self.links.get(id as usize)
        else {
            return;
        };
        if place == Place::Nowhere {
            return;
        }
        if next != NONE {
            self.links[next as usize].prev = prev;
        }
        if prev != NONE {
            self.links[prev as usize].next = next;
        } else {
            *self.head(place) = next;
            if let Place::Slot { level, slot } = place
                && next == NONE
            {
                self.occupied[usize::from(level)] &= !(1 << slot);
            }
        }
        self.links[id as usize].place = Place::Nowhere;
    }

    /// Turns the wheel to `now`; [`Wheel::pop_due`] tells what has fired.
    pub(crate) fn turn_to(&mut self, now: Instant) {
        let target = now.micros() >> TICK_BITS;
        while let Some((level, slot, tick)) = self.next_slot()
            && tick <= target
        {
            self.now = tick;
            let place = Place::Slot {
                level: u8::try_from(level).expect("few levels"),
                slot: u8::try_from(slot).expect("few slots"),
            };
            let mut id = std::mem::replace(self.head(place), NONE);
            self.occupied[level] &= !(1 << slot);
            while id != NONE {
                let next = self.links[id as usize].next;
                if self.links[id as usize].tick <= tick {
                    self.push(id, Place::Due);
                } else {
                    self.insert(id);
                }
                id = next;
            }
        }
        self.now = self.now.max(target);
    }

    /// One whose timer has fired; it is set no more.
    #[inline]
    pub(crate) fn pop_due(&mut self) -> Option<u32> {
        let id = self.due;
        if id == NONE {
            return None;
        }
        self.cancel(id);
        Some(id)
    }

    /// When the wheel must be turned next: not after the first timer.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.due != NONE {
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
        let tick = self.links[id as usize].tick;
        let differs = (tick ^ self.now) | 1;
        let level = (63 - differs.leading_zeros()) / SLOT_BITS;
        let slot = (tick >> (SLOT_BITS * level)) & (SLOTS as u64 - 1);
        self.occupied[level as usize] |= 1 << slot;
        let place = Place::Slot {
            level: u8::try_from(level).expect("the farthest is in reach"),
            slot: u8::try_from(slot).expect("few slots"),
        };
        self.push(id, place);
    }

    fn push(&mut self, id: u32, place: Place) {
        let head = std::mem::replace(self.head(place), id);
        if head != NONE {
            self.links[head as usize].prev = id;
        }
        let link = &mut self.links[id as usize];
        (link.next, link.prev, link.place) = (head, NONE, place);
    }

    fn head(&mut self, place: Place) -> &mut u32 {
        match place {
            Place::Slot { level, slot } => &mut self.heads[usize::from(level)][usize::from(slot)],
            Place::Due | Place::Nowhere => &mut self.due,
        }
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
