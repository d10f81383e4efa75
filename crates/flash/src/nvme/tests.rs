//! The driver against a controller that lies, is silent, or goes.

use std::sync::Arc;

use super::device::NvmeDevice;
use super::fake::{Fake, Lie, Manners};
use super::shared::NvmeOptions;
use crate::device::{
    Armed, BlockDevice, Command, Completion, Failure, OpenError, Queue, Rejection, Request,
    Transfer,
};
use crate::{Buffer, Pool, Region};

const SECTORS: usize = 512;

/// Enough to go round the rings many times, but not for Miri.
const ROUNDS: u8 = if cfg!(miri) { 2 } else { 20 };

struct Bench {
    fake: Arc<Fake>,
    device: NvmeDevice,
    buffers: Pool,
    now_ns: u64,
}

fn try_open(fake: &Arc<Fake>, regions: &[Arc<Region>]) -> Result<NvmeDevice, OpenError> {
    let mut now_ns = 0;
    let options = NvmeOptions {
        timeout_ns: 1_000_000_000,
        ..NvmeOptions::default()
    };
    NvmeDevice::over(
        Arc::clone(fake) as Arc<_>,
        None,
        "fake",
        options,
        regions,
        &mut || {
            now_ns += 10_000_000;
            now_ns
        },
    )
}

impl Bench {
    fn new(sector_len: usize) -> Bench {
        let fake = Fake::new(SECTORS, sector_len, Manners::default());
        let memory = Region::allocate(40 * 16384);
        let device = try_open(&fake, &[Arc::clone(memory.region())]).expect("it comes up");
        Bench {
            fake,
            device,
            buffers: Pool::carve(memory, 16384),
            now_ns: 0,
        }
    }

    fn queue(&self, depth: usize) -> Box<dyn Queue> {
        self.device.queue(depth).expect("a queue")
    }

    fn transfer(&mut self, sector: u64, len: usize, byte: u8) -> Transfer {
        let mut buffer = self.buffers.take().expect("a buffer");
        buffer.fill(byte);
        Transfer {
            sector,
            len,
            buffer,
        }
    }

    /// In steps of 50 ms.
    fn finish(&mut self, queue: &mut dyn Queue) -> Vec<Completion> {
        let mut done = Vec::with_capacity(64);
        queue.submit(self.now_ns);
        for _ in 0..1000 {
            if queue.in_flight() == 0 {
                return done;
            }
            queue.poll(self.now_ns, &mut done);
            self.now_ns += 50_000_000;
        }
        panic!("requests that do not end");
    }

    fn run(&mut self, queue: &mut dyn Queue, command: Command) -> Completion {
        queue.push(Request { token: 3, command }).expect("room");
        self.finish(queue).remove(0)
    }

    fn give_back(&mut self, buffer: Option<Buffer>) {
        self.buffers.give_back(buffer.expect("memory comes back"));
    }

    fn write(
        &mut self,
        queue: &mut dyn Queue,
        sector: u64,
        len: usize,
        byte: u8,
    ) -> Result<(), Failure> {
        let command = Command::Write(self.transfer(sector, len, byte));
        let done = self.run(queue, command);
        self.give_back(done.buffer);
        done.result
    }

    fn read(&mut self, queue: &mut dyn Queue, sector: u64, len: usize) -> Result<u8, Failure> {
        let command = Command::Read(self.transfer(sector, len, 0xee));
        let done = self.run(queue, command);
        let buffer = done.buffer.expect("memory comes back");
        let byte = buffer[0];
        if done.result.is_ok() {
            assert!(buffer[..len].iter().all(|it| *it == byte));
            assert!(buffer[len..].iter().all(|it| *it == 0xee));
        }
        self.buffers.give_back(buffer);
        done.result.map(|()| byte)
    }

    /// Until a queue takes requests again.
    fn recover(&mut self, queue: &mut dyn Queue) {
        let mut none = Vec::with_capacity(1);
        for _ in 0..1000 {
            if queue.room() > 0 {
                return;
            }
            queue.poll(self.now_ns, &mut none);
            self.now_ns += 50_000_000;
        }
        panic!("a queue that does not come back");
    }
}

#[test]
fn what_is_written_is_read_over_many_rounds_of_the_rings() {
    for sector_len in [512, 4096] {
        let mut bench = Bench::new(sector_len);
        let identity = bench.device.identity().clone();
        assert_eq!(
            (identity.sectors, identity.sector_len),
            (SECTORS as u64, sector_len)
        );
        assert_eq!(identity.transfer_len_max, 128 << 10);
        let mut queue = bench.queue(6);
        for round in 0..ROUNDS {
            for len in [sector_len, 4096, 8192, 12288, 16384] {
                assert_eq!(bench.write(&mut *queue, 5, len, round), Ok(()));
                assert_eq!(bench.read(&mut *queue, 5, len), Ok(round));
            }
        }
        for token in 0..6 {
            let command = Command::Read(bench.transfer(5, sector_len, 0));
            queue.push(Request { token, command }).expect("room");
        }
        let command = Command::Flush;
        let full = queue.push(Request { token: 9, command }).expect_err("full");
        assert_eq!(full.why, Rejection::Full);
        let mut tokens = Vec::new();
        for done in bench.finish(&mut *queue) {
            assert_eq!(done.result, Ok(()));
            tokens.push(done.token);
            bench.give_back(done.buffer);
        }
        tokens.sort_unstable();
        assert_eq!(tokens, [0, 1, 2, 3, 4, 5]);
        assert_eq!(bench.run(&mut *queue, Command::Flush).result, Ok(()));
        let discard = Command::Discard {
            sector: 5,
            sectors: 1,
        };
        assert_eq!(bench.run(&mut *queue, discard).result, Ok(()));
        assert_eq!(bench.read(&mut *queue, 5, sector_len), Ok(0));
        let transfer = Transfer {
            sector: 0,
            len: 4096,
            buffer: Region::allocate(4096),
        };
        let command = Command::Read(transfer);
        let rejected = queue
            .push(Request { token: 0, command })
            .expect_err("not mapped");
        assert_eq!(rejected.why, Rejection::Refused);
        assert_eq!(queue.arm(), Armed::Poll);
        assert_eq!(bench.fake.counts(), (0, 0));
    }
}

#[test]
fn an_error_of_the_medium_is_the_requests_own() {
    let mut bench = Bench::new(512);
    let mut queue = bench.queue(4);
    bench.fake.lie(Lie::Medium);
    assert_eq!(bench.read(&mut *queue, 0, 512), Err(Failure::Media));
    assert_eq!(bench.read(&mut *queue, 0, 512), Ok(0));
    assert_eq!(bench.fake.counts(), (0, 0));
}

#[test]
fn a_silent_command_is_aborted() {
    let mut bench = Bench::new(512);
    let mut queue = bench.queue(4);
    bench.fake.lie(Lie::Silent);
    assert_eq!(bench.read(&mut *queue, 0, 512), Err(Failure::TimedOut));
    assert_eq!(bench.fake.counts(), (0, 1), "aborted, without a reset");
    assert_eq!(bench.read(&mut *queue, 0, 512), Ok(0));
}

#[test]
fn a_device_that_lies_is_reset_and_believed_again() {
    let lies = [
        Lie::Dead,
        Lie::WrongId,
        Lie::ImpossibleId,
        Lie::WrongQueue,
        Lie::WrongHead,
        Lie::Fatal,
    ];
    // Miri takes a minute for each.
    for lie in lies.into_iter().take(if cfg!(miri) { 2 } else { 6 }) {
        let mut bench = Bench::new(512);
        let mut queue = bench.queue(4);
        let mut other = bench.queue(4);
        assert_eq!(bench.write(&mut *queue, 7, 512, 9), Ok(()));
        bench.fake.lie(lie);
        assert_eq!(
            bench.read(&mut *queue, 0, 512),
            Err(Failure::TimedOut),
            "{lie:?}"
        );
        bench.recover(&mut *queue);
        assert_eq!(bench.fake.counts().0, 1, "{lie:?}: one reset");
        assert_eq!(bench.read(&mut *queue, 7, 512), Ok(9), "{lie:?}");
        // The other worker's queue was taken with it, and comes back when its owner looks.
        bench.recover(&mut *other);
        assert_eq!(bench.read(&mut *other, 7, 512), Ok(9), "{lie:?}");
    }
}

#[test]
fn an_answer_that_comes_twice_ends_one_request() {
    let mut bench = Bench::new(512);
    let mut queue = bench.queue(4);
    bench.fake.lie(Lie::Twice);
    assert!(bench.read(&mut *queue, 0, 512).is_ok());
    bench.recover(&mut *queue);
    assert_eq!(bench.fake.counts().0, 1);
    assert_eq!(bench.read(&mut *queue, 0, 512), Ok(0));
}

#[test]
fn a_device_that_goes_ends_everything_and_gives_memory_back() {
    for is_pulled in [true, false] {
        let mut bench = Bench::new(512);
        let mut queue = bench.queue(4);
        bench.fake.lie(Lie::Silent);
        let command = Command::Write(bench.transfer(0, 512, 1));
        queue.push(Request { token: 1, command }).expect("room");
        queue.submit(bench.now_ns);
        if is_pulled {
            bench.fake.remove();
        } else {
            bench.fake.want_back();
        }
        let done = bench.finish(&mut *queue).remove(0);
        assert_eq!(done.result, Err(Failure::Removed));
        bench.give_back(done.buffer);
        let command = Command::Flush;
        let rejected = queue.push(Request { token: 2, command }).expect_err("gone");
        assert_eq!(rejected.why, Rejection::Removed);
        assert!(matches!(
            bench.device.queue(4).err(),
            Some(OpenError::Removed)
        ));
    }
}

#[test]
#[cfg_attr(miri, ignore = "it leaks memory, which is what it shows")]
fn what_may_still_be_written_to_is_never_given_back() {
    let mut bench = Bench::new(512);
    let mut queue = bench.queue(4);
    bench.fake.behave(Manners {
        never_stops: true,
        cannot_be_reset: true,
        ..Manners::default()
    });
    bench.fake.lie(Lie::Dead);
    let command = Command::Read(bench.transfer(0, 512, 1));
    let done = bench.run(&mut *queue, command);
    assert_eq!(done.result, Err(Failure::Removed));
    assert!(done.buffer.is_none());
}

#[test]
fn a_device_that_does_not_stop_is_reset_from_outside() {
    let mut bench = Bench::new(512);
    let mut queue = bench.queue(4);
    bench.fake.behave(Manners {
        never_stops: true,
        ..Manners::default()
    });
    bench.fake.lie(Lie::Dead);
    assert_eq!(bench.read(&mut *queue, 0, 512), Err(Failure::TimedOut));
    bench.recover(&mut *queue);
    assert_eq!(bench.read(&mut *queue, 0, 512), Ok(0));
}

#[test]
fn bad_devices_are_refused_in_bounded_time() {
    let open = |manners| {
        let fake = Fake::new(SECTORS, 512, manners);
        try_open(&fake, &[]).and_then(|device| device.queue(4).map(drop))
    };
    let never_ready = open(Manners {
        never_ready: true,
        ..Manners::default()
    });
    assert!(matches!(
        never_ready,
        Err(OpenError::TimedOut | OpenError::Removed)
    ));
    let bad_identity = open(Manners {
        bad_identity: true,
        ..Manners::default()
    });
    assert!(matches!(
        bad_identity,
        Err(OpenError::Misbehaves(_) | OpenError::SectorLen)
    ));
    let no_queues = open(Manners {
        refuses_queues: true,
        ..Manners::default()
    });
    assert!(matches!(no_queues, Err(OpenError::Misbehaves(_))));
    let fake = Fake::new(SECTORS, 512, Manners::default());
    fake.remove();
    assert!(matches!(
        try_open(&fake, &[]).err(),
        Some(OpenError::Removed)
    ));
    assert!(open(Manners::default()).is_ok());
}

#[test]
fn queues_are_given_back_and_bounded() {
    let bench = Bench::new(512);
    let first = bench.queue(4);
    for _ in 0..ROUNDS {
        let second = bench.queue(63);
        assert_eq!(second.room(), 63);
        // The controller grants two.
        assert!(matches!(
            bench.device.queue(4).err(),
            Some(OpenError::System { .. })
        ));
        drop(second);
    }
    drop(first);
}

/// A controller that takes its time answers, and not before its time.
#[test]
#[cfg_attr(miri, ignore = "a thread that is not waited for")]
fn commands_take_as_long_as_they_should() {
    let latency = super::Latency {
        base_ns: 2_000_000,
        ns_per_kib: 0,
    };
    let memory = Region::allocate(16384);
    let regions = [Arc::clone(memory.region())];
    let device = NvmeDevice::simulated(SECTORS, 512, Some(latency), &regions);
    let device = device.expect("it comes up");
    let mut queue = device.queue(4).expect("a queue");
    let begin = std::time::Instant::now();
    let transfer = Transfer {
        sector: 8,
        len: 4096,
        buffer: memory,
    };
    let command = Command::Read(transfer);
    queue.push(Request { token: 7, command }).expect("room");
    queue.submit(0);
    let mut done = Vec::with_capacity(1);
    while queue.poll(0, &mut done) == 0 {
        assert!(begin.elapsed().as_secs() < 60, "it answers");
    }
    assert_eq!((done[0].token, done[0].result), (7, Ok(())));
    assert!(begin.elapsed().as_nanos() >= u128::from(latency.base_ns));
}
