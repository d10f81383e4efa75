//! What an I/O costs of a processor, by each driver, interleaved: the whole process's time, the kernel's threads for it
//! left out. The own NVMe driver has a controller in this process, whose work is in its figure.
//!
//! `cargo run --release -p coua-flash --example io_cost -- FILE [READS] [ROUNDS] [DRIVER] [DEPTH]` makes a file of 64 MiB
//! and reads 4 KiB of it at random places, 32 at a time. `FILE` may be a block device too, which is only read. With a
//! `DRIVER` (`io_uring`, `threads`, `own`) it is alone: to count instructions, run it with two numbers of reads under
//! `valgrind --tool=callgrind --toggle-collect='*fake*Fake*store*' --collect-atstart=yes`, which leaves the controller's
//! work out, and divide the difference.
#![allow(clippy::print_stdout, reason = "it is what the program is for")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use coua_flash::files::{FileDevice, Options, Way};
use coua_flash::nvme::NvmeDevice;
use coua_flash::{BlockDevice, Command, Completion, Pool, Queue, Region, Request, Transfer};
use rustix::time::{ClockId, clock_gettime};

const FILE_LEN: u64 = 64 << 20;
const READ_LEN: usize = 4096;
const DEPTH: usize = 32;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .expect("usage: io_cost FILE [READS] [ROUNDS]");
    let mut number = |default| {
        arguments
            .next()
            .map_or(default, |it| it.parse().expect("a number"))
    };
    let (reads, rounds) = (number(100_000), number(5));
    let only = arguments.next();
    let depth = arguments.next();
    let depth = depth.map_or(DEPTH, |it| it.parse().expect("a number"));
    fill(Path::new(&path));
    let drivers = [
        ("io_uring", Driver::Files(Way::Best)),
        ("threads", Driver::Files(Way::Threads)),
        ("own", Driver::Own),
    ];
    let is_wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    let drivers: Vec<_> = drivers.iter().filter(|it| is_wanted(it.0)).collect();
    let mut figures = vec![Vec::new(); drivers.len()];
    for _ in 0..rounds {
        for ((_, driver), figures) in drivers.iter().zip(&mut figures) {
            figures.push(round(Path::new(&path), *driver, reads, depth));
        }
    }
    let mut medians: Vec<u64> = Vec::new();
    for ((name, _), figures) in drivers.iter().zip(&mut figures) {
        figures.sort_unstable();
        let median = figures[figures.len() / 2];
        medians.push(median.0);
        println!(
            "{name}: {} ns of CPU and {} ns a read (median of {rounds}), {:.2} of the first",
            median.0,
            median.1,
            median.0 as f64 / medians[0] as f64
        );
    }
}

/// How a read is done.
#[derive(Clone, Copy)]
enum Driver {
    Files(Way),
    Own,
}

/// Writes a file once: what was never written is read without the device.
fn fill(path: &Path) {
    if !path.starts_with("/dev") || path.starts_with("/dev/shm") {
        let bytes = vec![0x5a; usize::try_from(FILE_LEN).expect("a short file")];
        std::fs::write(path, bytes).expect("a file that can be written");
    }
}

/// Nanoseconds of the processor and of the clock, a read.
fn round(path: &Path, driver: Driver, reads: u64, depth: usize) -> (u64, u64) {
    let memory = Region::allocate(depth * READ_LEN);
    let regions = [Arc::clone(memory.region())];
    let device: Box<dyn BlockDevice> = match driver {
        Driver::Own => {
            let sectors = usize::try_from(FILE_LEN / 512).expect("a small disk");
            let device = NvmeDevice::simulated(sectors, 512, None, &regions);
            Box::new(device.expect("a device"))
        }
        Driver::Files(way) => {
            let is_block = path.starts_with("/dev") && !path.starts_with("/dev/shm");
            let options = Options {
                len: (!is_block).then_some(FILE_LEN),
                way,
            };
            Box::new(FileDevice::open(path, options, &regions).expect("a device"))
        }
    };
    let mut buffers = Pool::carve(memory, READ_LEN);
    let mut queue = device.queue(depth).expect("a queue");
    let sectors = device.identity().sectors - 8;
    // Once, so that everything is there.
    read(&mut *queue, &mut buffers, sectors, 1000.min(reads));
    let begin = (cpu_ns(), Instant::now());
    read(&mut *queue, &mut buffers, sectors, reads);
    let wall_ns = u64::try_from(begin.1.elapsed().as_nanos()).unwrap_or(u64::MAX);
    ((cpu_ns() - begin.0) / reads, wall_ns / reads)
}

fn read(queue: &mut dyn Queue, buffers: &mut Pool, sectors: u64, reads: u64) {
    let mut done: Vec<Completion> = Vec::with_capacity(DEPTH);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let (mut begun, mut ended) = (0, 0);
    while ended < reads {
        while begun < reads
            && let Some(buffer) = buffers.take()
        {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let sector = random % sectors / 8 * 8;
            let transfer = Transfer {
                sector,
                len: READ_LEN,
                buffer,
            };
            let request = Request {
                token: begun,
                command: Command::Read(transfer),
            };
            queue.push(request).expect("room for each buffer");
            begun += 1;
        }
        queue.submit(0);
        if queue.poll(0, &mut done) == 0 {
            wait(queue);
        }
        for it in done.drain(..) {
            it.result.expect("a read");
            buffers.give_back(it.buffer.expect("its memory"));
            ended += 1;
        }
    }
}

/// Sleeps, as a worker that has nothing else to do.
fn wait(queue: &mut dyn Queue) {
    use rustix::event::{PollFd, PollFlags, poll};
    if queue.arm() == coua_flash::Armed::Sleep
        && let Some(event) = queue.descriptor()
    {
        let _ = poll(&mut [PollFd::new(&event, PollFlags::IN)], None);
    }
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
