//! What one thread asks a store for.

use std::time::{Duration, Instant};

use crate::workload::{Sampler, Values};

/// What is done with each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Look it up and copy its value.
    Get,
    /// Store it anew.
    Set,
}

/// How long keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeySizes {
    /// The longest key, 8 to 32 bytes; keys have all lengths from 8 on.
    pub(crate) most: usize,
}

impl KeySizes {
    /// Bytes that the longest key may take.
    pub(crate) const MAX: usize = 32;
    /// Bytes that a key takes in any case.
    pub(crate) const MIN: usize = 8;

    /// A buffer for [`write`](Self::write).
    pub(crate) fn buffer() -> [u8; Self::MAX] {
        [b'k'; Self::MAX]
    }

    /// Writes a key at the end of a buffer, and says where it begins.
    #[inline]
    pub(crate) fn write(self, number: u32, buffer: &mut [u8; Self::MAX]) -> usize {
        const FILLING: usize = KeySizes::MAX - KeySizes::MIN;
        // Eight letters, one for each four bits, without the divisions that digits would take: what
        // the benchmark itself does counts against all stores alike, and most against the fastest.
        let halves = u64::from(number) | u64::from(number) << 16;
        let quarters = halves & 0x0000_ffff_0000_ffff;
        let bytes = (quarters | quarters << 8) & 0x00ff_00ff_00ff_00ff;
        let nibbles = (bytes | bytes << 4) & 0x0f0f_0f0f_0f0f_0f0f;
        let letters = nibbles + 0x6161_6161_6161_6161;
        buffer[FILLING..].copy_from_slice(&letters.to_le_bytes());
        let lengths = self.most - Self::MIN + 1;
        let longer = ((number.wrapping_mul(0x85eb_ca6b) >> 16) as usize * lengths) >> 16;
        FILLING - longer
    }

    /// The mean length of a key.
    pub(crate) fn mean(self) -> usize {
        usize::midpoint(self.most, Self::MIN)
    }
}

/// The keys of one thread, for a time.
pub(crate) struct Work<'a> {
    /// How keys are written.
    pub(crate) keys: KeySizes,
    /// The value of each key.
    pub(crate) values: &'a Values,
    sampler: Sampler,
    deadline: Instant,
    /// Operations done.
    pub(crate) done: u64,
    /// Gets that found something, and sets that were taken.
    pub(crate) succeeded: u64,
    replies: Replies,
}

impl<'a> Work<'a> {
    /// Operations between two looks at the clock.
    const STRETCH: u64 = 4096;

    /// Work that ends `time` from now.
    pub(crate) fn new(
        keys: KeySizes,
        values: &'a Values,
        sampler: Sampler,
        time: Duration,
    ) -> Work<'a> {
        let deadline = Instant::now() + time;
        Work {
            keys,
            values,
            sampler,
            deadline,
            done: 0,
            succeeded: 0,
            replies: Replies::new(),
        }
    }

    /// The number of the next key.
    #[inline]
    pub(crate) fn next_key(&mut self) -> u32 {
        self.sampler.next().unwrap_or(0)
    }

    /// Copies a value to the replies.
    #[inline]
    pub(crate) fn reply(&mut self, value: &[u8]) {
        self.replies.append(value);
        self.succeeded += 1;
    }

    /// Counts `operations`; whether time is up. The clock is read now and then only.
    #[inline]
    pub(crate) fn over(&mut self, operations: u64) -> bool {
        self.done += operations;
        self.done % Self::STRETCH < operations && Instant::now() >= self.deadline
    }

    /// Takes key after key until time is up, for stores without bursts.
    pub(crate) fn one_by_one(&mut self, mut operate: impl FnMut(&mut Self, u32, &[u8])) {
        let mut buffer = KeySizes::buffer();
        loop {
            let number = self.next_key();
            let start = self.keys.write(number, &mut buffer);
            operate(self, number, &buffer[start..]);
            if self.over(1) {
                return;
            }
        }
    }
}

/// A buffer that is written round and round, as a connection's replies are.
struct Replies {
    buffer: Vec<u8>,
    at: usize,
}

impl Replies {
    const SIZE: usize = 64 << 10;

    fn new() -> Replies {
        Replies {
            buffer: vec![0; Self::SIZE],
            at: 0,
        }
    }

    #[inline]
    fn append(&mut self, value: &[u8]) {
        if self.at + value.len() > self.buffer.len() {
            self.at = 0;
        }
        let end = (self.at + value.len()).min(self.buffer.len());
        let room = &mut self.buffer[self.at..end];
        room.copy_from_slice(&value[..room.len()]);
        self.at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unlike_and_have_all_lengths() {
        let sizes = KeySizes { most: 32 };
        let mut buffer = KeySizes::buffer();
        let mut seen = std::collections::HashSet::new();
        let mut lengths = [0; 33];
        for number in 0..10_000 {
            let start = sizes.write(number, &mut buffer);
            lengths[32 - start] += 1;
            assert!(seen.insert(buffer[start..].to_vec()));
        }
        assert!(lengths[8..].iter().all(|&count| count > 250), "{lengths:?}");
        assert_eq!(KeySizes { most: 8 }.write(77, &mut buffer), 24);
    }

    #[test]
    fn work_ends_with_its_time() {
        let values = Values::new(4);
        let sampler = Sampler::new(crate::workload::Popularity::Uniform, 10, 1);
        let mut work = Work::new(
            KeySizes { most: 8 },
            &values,
            sampler,
            Duration::from_millis(5),
        );
        work.one_by_one(|work, _, key| {
            assert_eq!(key.len(), 8);
            work.reply(b"abcd");
        });
        assert!(work.done >= Work::STRETCH);
        assert_eq!(work.done, work.succeeded);
    }
}
