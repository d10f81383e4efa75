//! What every driver must do.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use coua_flash::{
    Armed, BlockDevice, Buffer, Command, Completion, Failure, Pool, Queue, Region, Rejection,
    Request, Transfer,
};
use rustix::event::{PollFd, PollFlags, poll};

/// Long enough for every machine; none needs it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Memory for the suite, for drivers that want to know theirs beforehand: see [`run`].
pub(crate) fn memory() -> Buffer {
    Region::allocate(8 << 20)
}

/// Runs everything on a device of 8 MiB and more, whose content is lost. `memory` is what the driver has mapped.
pub(crate) fn run(device: &dyn BlockDevice, memory: Option<Buffer>) {
    let memory = memory.unwrap_or_else(memory_of_suite);
    let mut bench = Bench {
        device,
        sector_len: device.identity().sector_len,
        buffers: Pool::carve(memory, 256 << 10),
        clock: Instant::now(),
    };
    assert!(device.identity().len() >= 8 << 20, "the suite needs 8 MiB");
    bench.written_is_read();
    bench.each_completes_once_with_its_own_memory();
    bench.what_cannot_be_done_is_rejected_with_its_memory();
    bench.mixed_like_a_model();
    bench.flush_and_discard_leave_neighbours();
    bench.a_sleeper_is_woken();
    bench.a_queue_is_dropped_with_requests_under_way();
    bench.queues_are_independent();
}

fn memory_of_suite() -> Buffer {
    memory()
}

struct Bench<'d> {
    device: &'d dyn BlockDevice,
    sector_len: usize,
    buffers: Pool,
    clock: Instant,
}

/// A byte that tells its place and its version.
fn pattern(sector: u64, version: u8, at: usize) -> u8 {
    let mixed = sector.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (at as u64).wrapping_mul(31);
    (mixed >> 32) as u8 ^ mixed as u8 ^ version
}

impl Bench<'_> {
    fn queue(&self, depth: usize) -> Box<dyn Queue> {
        self.device.queue(depth).expect("a queue")
    }

    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn fill(&self, buffer: &mut [u8], sector: u64, version: u8) {
        for (sector, bytes) in (sector..).zip(buffer.chunks_mut(self.sector_len)) {
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = pattern(sector, version, at);
            }
        }
    }

    fn is_filled(&self, buffer: &[u8], sector: u64, version: u8) -> bool {
        let mut sectors = (sector..).zip(buffer.chunks(self.sector_len));
        sectors.all(|(sector, bytes)| {
            let mut bytes = bytes.iter().enumerate();
            bytes.all(|(at, &byte)| byte == pattern(sector, version, at))
        })
    }

    fn write(&mut self, sector: u64, sectors: usize, version: u8) -> Command {
        let mut buffer = self.buffers.take().expect("a buffer");
        let len = sectors * self.sector_len;
        self.fill(&mut buffer[..len], sector, version);
        Command::Write(Transfer {
            sector,
            len,
            buffer,
        })
    }

    fn read(&mut self, sector: u64, sectors: usize) -> Command {
        let mut buffer = self.buffers.take().expect("a buffer");
        buffer.fill(0xa5);
        let len = sectors * self.sector_len;
        Command::Read(Transfer {
            sector,
            len,
            buffer,
        })
    }

    /// Submits, and waits for everything under way.
    fn finish(&self, queue: &mut dyn Queue) -> Vec<Completion> {
        let mut done = Vec::with_capacity(1024);
        queue.submit(self.now_ns());
        while queue.in_flight() > 0 {
            assert!(self.clock.elapsed() < PATIENCE, "requests do not complete");
            if queue.poll(self.now_ns(), &mut done) == 0 {
                std::thread::yield_now();
            }
        }
        done
    }

    fn one(&mut self, queue: &mut dyn Queue, command: Command) -> Completion {
        queue.push(Request { token: 77, command }).expect("room");
        let mut done = self.finish(queue);
        assert_eq!((done.len(), done[0].token), (1, 77));
        done.remove(0)
    }

    fn give_back(&mut self, done: Completion) {
        if let Some(buffer) = done.buffer {
            self.buffers.give_back(buffer);
        }
    }

    fn write_now(&mut self, queue: &mut dyn Queue, sector: u64, sectors: usize, version: u8) {
        let command = self.write(sector, sectors, version);
        let done = self.one(queue, command);
        assert_eq!(done.result, Ok(()), "a write of {sectors} at {sector}");
        self.give_back(done);
    }

    fn assert_read(&mut self, queue: &mut dyn Queue, sector: u64, sectors: usize, version: u8) {
        let command = self.read(sector, sectors);
        let done = self.one(queue, command);
        assert_eq!(done.result, Ok(()), "a read of {sectors} at {sector}");
        let buffer = done.buffer.as_ref().expect("a read has memory");
        let len = sectors * self.sector_len;
        assert!(
            self.is_filled(&buffer[..len], sector, version),
            "{sectors} sectors at {sector} are version {version}"
        );
        assert!(
            buffer[len..].iter().all(|&byte| byte == 0xa5),
            "nothing is touched behind the transfer"
        );
        self.give_back(done);
    }

    fn written_is_read(&mut self) {
        let mut queue = self.queue(4);
        let identity = self.device.identity();
        let last = identity.sectors;
        let longest = identity.transfer_len_max.min(256 << 10) / self.sector_len;
        for (version, sectors) in (1..).zip([1, 2, 3, 8, 9, 16, longest / 2 + 1, longest]) {
            for sector in [0, 7, last / 2, last - sectors as u64] {
                self.write_now(&mut *queue, sector, sectors, version);
                self.assert_read(&mut *queue, sector, sectors, version);
            }
        }
    }

    fn each_completes_once_with_its_own_memory(&mut self) {
        let mut queue = self.queue(24);
        assert!(queue.room() >= 24);
        for round in 0..20u8 {
            let mut addresses = HashMap::new();
            for token in 0..24u64 {
                let command = if round % 2 == 0 {
                    self.write(token * 4, 4, round)
                } else {
                    self.read(token * 4, 4)
                };
                if let Command::Read(transfer) | Command::Write(transfer) = &command {
                    addresses.insert(token, transfer.buffer.as_ptr().addr());
                }
                queue.push(Request { token, command }).expect("room");
            }
            for done in self.finish(&mut *queue) {
                assert_eq!(done.result, Ok(()));
                let buffer = done.buffer.as_ref().expect("memory");
                let address = addresses.remove(&done.token);
                assert_eq!(address, Some(buffer.as_ptr().addr()), "once, and its own");
                let version = round - round % 2;
                let bytes = &buffer[..4 * self.sector_len];
                assert!(self.is_filled(bytes, done.token * 4, version));
                self.give_back(done);
            }
            assert!(addresses.is_empty());
        }
    }

    fn what_cannot_be_done_is_rejected_with_its_memory(&mut self) {
        let mut queue = self.queue(2);
        let identity = self.device.identity().clone();
        let len = self.sector_len;
        let too_long = identity.transfer_len_max + len;
        for (sector, len) in [
            (0, 0),
            (0, 1),
            (0, len + 1),
            (0, too_long),
            (identity.sectors, len),
            (identity.sectors - 1, 2 * len),
            (u64::MAX, len),
        ] {
            let mut buffer = Region::allocate(too_long);
            for is_read in [false, true] {
                let transfer = Transfer {
                    sector,
                    len,
                    buffer,
                };
                let command = if is_read {
                    Command::Read(transfer)
                } else {
                    Command::Write(transfer)
                };
                let rejected = queue.push(Request { token: 0, command });
                let rejected = rejected.expect_err("it cannot be done");
                assert_eq!(rejected.why, Rejection::Refused, "{len} bytes at {sector}");
                buffer = rejected.request.command.into_buffer().expect("memory");
            }
        }
        let mut shifted = Region::allocate(8192).split_off(1);
        let rest = shifted.split_off(len);
        let command = Command::Read(Transfer {
            sector: 0,
            len,
            buffer: shifted,
        });
        let rejected = queue.push(Request { token: 0, command });
        assert_eq!(rejected.expect_err("not aligned").why, Rejection::Refused);
        drop(rest);
        let command = Command::Discard {
            sector: identity.sectors,
            sectors: 1,
        };
        let rejected = queue.push(Request { token: 0, command });
        assert_eq!(rejected.expect_err("outside").why, Rejection::Refused);
        assert_eq!(queue.in_flight(), 0);

        while queue.room() > 0 {
            let command = self.read(0, 1);
            queue.push(Request { token: 0, command }).expect("room");
        }
        let command = self.read(0, 1);
        let rejected = queue.push(Request { token: 0, command }).expect_err("full");
        assert_eq!(rejected.why, Rejection::Full);
        let buffer = rejected.request.command.into_buffer().expect("memory");
        self.buffers.give_back(buffer);
        for done in self.finish(&mut *queue) {
            self.give_back(done);
        }
    }

    /// Writes and reads of random places, many under way, none of which overlap.
    fn mixed_like_a_model(&mut self) {
        const PLACES: u64 = 64;
        const SECTORS: u64 = 5;
        let mut queue = self.queue(16);
        let mut versions = vec![0u8; PLACES as usize];
        for place in 0..PLACES {
            self.write_now(&mut *queue, place * SECTORS, SECTORS as usize, 0);
        }
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut busy = HashMap::new();
        let mut done = Vec::with_capacity(16);
        for _ in 0..800 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let place = random % PLACES;
            if queue.room() > 0 && !busy.contains_key(&place) {
                let is_write = random >> 32 & 1 == 0;
                let at = place as usize;
                let command = if is_write {
                    versions[at] = versions[at].wrapping_add(1);
                    self.write(place * SECTORS, SECTORS as usize, versions[at])
                } else {
                    self.read(place * SECTORS, SECTORS as usize)
                };
                busy.insert(place, is_write);
                queue
                    .push(Request {
                        token: place,
                        command,
                    })
                    .expect("room");
            }
            if random >> 40 & 3 == 0 {
                queue.submit(self.now_ns());
            }
            if queue.room() < 8 {
                queue.submit(self.now_ns());
                queue.poll(self.now_ns(), &mut done);
            }
            self.check_model(&mut done, &mut busy, &versions, SECTORS);
        }
        let mut rest = self.finish(&mut *queue);
        self.check_model(&mut rest, &mut busy, &versions, SECTORS);
        assert!(busy.is_empty());
    }

    fn check_model(
        &mut self,
        done: &mut Vec<Completion>,
        busy: &mut HashMap<u64, bool>,
        versions: &[u8],
        sectors: u64,
    ) {
        for it in done.drain(..) {
            assert_eq!(it.result, Ok(()));
            assert!(busy.remove(&it.token).is_some());
            let buffer = it.buffer.as_ref().expect("memory");
            let bytes = &buffer[..sectors as usize * self.sector_len];
            let version = versions[it.token as usize];
            assert!(self.is_filled(bytes, it.token * sectors, version));
            self.give_back(it);
        }
    }

    fn flush_and_discard_leave_neighbours(&mut self) {
        let mut queue = self.queue(4);
        let per_4096 = 4096 / self.sector_len as u64;
        let sectors = per_4096 as usize;
        for page in 8..11 {
            self.write_now(&mut *queue, page * per_4096, sectors, 5);
        }
        let flushed = self.one(&mut *queue, Command::Flush);
        assert_eq!(flushed.result, Ok(()));
        assert!(flushed.buffer.is_none());
        let discard = Command::Discard {
            sector: 9 * per_4096,
            sectors: per_4096,
        };
        let discarded = self.one(&mut *queue, discard).result;
        assert!(
            matches!(discarded, Ok(()) | Err(Failure::Refused)),
            "{discarded:?}"
        );
        for page in [8, 10] {
            self.assert_read(&mut *queue, page * per_4096, sectors, 5);
        }
        self.write_now(&mut *queue, 9 * per_4096, sectors, 6);
        self.assert_read(&mut *queue, 9 * per_4096, sectors, 6);
    }

    /// A worker that sleeps on the descriptor is woken for each completion, also when it armed after the request was
    /// done already.
    fn a_sleeper_is_woken(&mut self) {
        let mut queue = self.queue(4);
        for round in 0..50u64 {
            let command = self.read(round, 1);
            queue
                .push(Request {
                    token: round,
                    command,
                })
                .expect("room");
            queue.submit(self.now_ns());
            if round % 5 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            let mut done = Vec::with_capacity(4);
            while done.is_empty() {
                assert!(self.clock.elapsed() < PATIENCE, "nobody is woken");
                match queue.arm() {
                    Armed::Sleep => {
                        let event = queue.descriptor().expect("what else would wake it");
                        let mut event = [PollFd::new(&event, PollFlags::IN)];
                        let second = rustix::time::Timespec {
                            tv_sec: 30,
                            tv_nsec: 0,
                        };
                        let woken = poll(&mut event, Some(&second)).expect("poll");
                        assert_eq!(woken, 1, "a completion without a signal");
                    }
                    Armed::Ready | Armed::Poll => std::thread::yield_now(),
                }
                queue.poll(self.now_ns(), &mut done);
            }
            let done = done.remove(0);
            assert_eq!((done.token, done.result), (round, Ok(())));
            self.give_back(done);
        }
    }

    fn a_queue_is_dropped_with_requests_under_way(&mut self) {
        for _ in 0..10 {
            let mut queue = self.queue(16);
            for token in 0..12 {
                let sectors = 16 * 1024 / self.sector_len;
                let transfer = Transfer {
                    sector: token * sectors as u64,
                    len: 16 * 1024,
                    // Memory that is freed if the queue thinks that it may.
                    buffer: Region::allocate(16 * 1024),
                };
                let request = Request {
                    token,
                    command: Command::Read(transfer),
                };
                match queue.push(request) {
                    // Memory that the driver has not mapped.
                    Err(rejected) => assert_eq!(rejected.why, Rejection::Refused),
                    Ok(()) => queue.submit(self.now_ns()),
                }
            }
        }
        let mut queue = self.queue(4);
        self.write_now(&mut *queue, 3, 2, 8);
        self.assert_read(&mut *queue, 3, 2, 8);
    }

    fn queues_are_independent(&mut self) {
        let mut first = self.queue(8);
        let mut second = self.queue(8);
        std::thread::scope(|scope| {
            let device = self.device;
            let sector_len = self.sector_len;
            let other = self.buffers.take().expect("a buffer");
            let clock = self.clock;
            let thread = scope.spawn(move || {
                let mut bench = Bench {
                    device,
                    sector_len,
                    buffers: Pool::carve(other, 16 * sector_len),
                    clock,
                };
                for round in 0..100 {
                    bench.write_now(&mut *second, 1000 + round, 3, round as u8);
                    bench.assert_read(&mut *second, 1000 + round, 3, round as u8);
                }
            });
            for round in 0..100 {
                self.write_now(&mut *first, 100 + round, 3, round as u8);
                self.assert_read(&mut *first, 100 + round, 3, round as u8);
            }
            thread.join().expect("the other worker");
        });
    }
}
