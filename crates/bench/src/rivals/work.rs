//! What one thread asks a store for.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use coua_transport::huge_pages;

use crate::workload::{Sampler, Values};

/// One key to ask for.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    buffer: [u8; KeySizes::MAX],
    start: u32,
    /// The key's number, which decides its value.
    pub(crate) number: u32,
}

impl Request {
    /// The key.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.buffer[self.start as usize..]
    }
}

/// Requests that are drawn and written before time is measured, as a client would have done. What
/// the benchmark itself does for a key slows all stores alike, and weighs most on the fastest.
pub(crate) struct Requests(Vec<Request>);

impl Requests {
    /// How many requests are drawn; after that they repeat.
    const COUNT: usize = 1 << 21;

    /// Draws the numbers from a sampler.
    pub(crate) fn draw(sizes: KeySizes, sampler: &mut Sampler) -> Requests {
        let request = |number| {
            let mut buffer = KeySizes::buffer();
            let start = sizes.write(number, &mut buffer);
            Request {
                buffer,
                start: u32::try_from(start).expect("it lies in the buffer"),
                number,
            }
        };
        let numbers = std::iter::from_fn(|| sampler.next());
        let mut requests: Vec<Request> = Vec::with_capacity(Self::COUNT);
        let room = requests.spare_capacity_mut();
        huge_pages::ask_for(std::ptr::slice_from_raw_parts(
            room.as_ptr().cast(),
            size_of_val(room),
        ));
        requests.extend(numbers.take(Self::COUNT).map(request));
        assert_eq!(requests.len(), Self::COUNT, "the sampler has no end");
        Requests(requests)
    }
}

/// What is done with each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// Look up a key and copy its value
    Get,
    /// Store a new value for a key
    Set,
}

/// How long keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeySizes {
    /// The longest key, 8 to 32 bytes; keys have all lengths from 8 on.
    pub(crate) most: usize,
}

impl KeySizes {
    /// Bytes of the longest key that is possible.
    pub(crate) const MAX: usize = 32;
    /// Bytes of the shortest key.
    pub(crate) const MIN: usize = 8;

    /// A buffer for [`write`](Self::write).
    pub(crate) fn buffer() -> [u8; Self::MAX] {
        [b'k'; Self::MAX]
    }

    /// Writes a key at the end of a buffer, and says where it begins.
    #[inline]
    pub(crate) fn write(self, number: u32, buffer: &mut [u8; Self::MAX]) -> usize {
        const FILLING: usize = KeySizes::MAX - KeySizes::MIN;
        // Eight letters, one for each four bits.
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

/// The requests of one thread, for a time.
pub(crate) struct Work<'a> {
    /// The value of each key.
    pub(crate) values: &'a Values,
    requests: &'a [Request],
    at: usize,
    deadline: Instant,
    /// Operations done.
    pub(crate) done: u64,
    /// Gets that found something, or sets that were accepted.
    pub(crate) succeeded: u64,
    replies: Replies,
}

impl<'a> Work<'a> {
    /// Operations between two reads of the clock.
    const STRETCH: u64 = 4096;

    /// The work of one of `threads` threads, which ends `time` from now. Each begins at another
    /// request.
    pub(crate) fn new(
        requests: &'a Requests,
        values: &'a Values,
        thread: usize,
        threads: usize,
        time: Duration,
    ) -> Work<'a> {
        Work {
            values,
            requests: &requests.0,
            at: Requests::COUNT / threads * thread,
            deadline: Instant::now() + time,
            done: 0,
            succeeded: 0,
            replies: Replies::new(),
        }
    }

    /// The next `B` requests.
    #[inline]
    pub(crate) fn next<const B: usize>(&mut self) -> &'a [Request; B] {
        const { assert!(Requests::COUNT.is_multiple_of(B)) };
        let (requests, _) = self.requests[self.at..]
            .split_first_chunk()
            .unwrap_or_else(|| {
                // A thread may begin where no whole burst fits in before the end.
                self.at = 0;
                self.requests.split_first_chunk().expect("there are more")
            });
        self.at += B;
        requests
    }

    /// Copies a value to the replies.
    #[inline]
    pub(crate) fn reply(&mut self, value: &[u8]) {
        self.replies.append(value);
        self.succeeded += 1;
    }

    /// Counts `operations`, and returns whether time is up. It reads the clock only now and then.
    #[inline]
    pub(crate) fn over(&mut self, operations: u64) -> bool {
        self.done += operations;
        self.done % Self::STRETCH < operations && Instant::now() >= self.deadline
    }

    /// Takes request after request until time is up, for stores without bursts.
    pub(crate) fn one_by_one(&mut self, mut operate: impl FnMut(&mut Self, &Request)) {
        loop {
            let [request] = self.next();
            operate(self, request);
            if self.over(1) {
                return;
            }
        }
    }
}

/// A ring of bytes to copy replies into, as into a connection's buffer.
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
        let mut sampler = Sampler::new(crate::workload::Popularity::Uniform, 10, 1);
        let requests = Requests::draw(KeySizes { most: 8 }, &mut sampler);
        let time = Duration::from_millis(5);
        let mut work = Work::new(&requests, &values, 1, 2, time);
        work.one_by_one(|work, request| {
            assert_eq!(request.key().len(), 8);
            work.reply(b"abcd");
        });
        assert!(work.done >= Work::STRETCH);
        assert_eq!(work.done, work.succeeded);
    }
}
