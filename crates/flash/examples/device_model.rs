//! How long a read takes on a device of stated latency, by the own NVMe driver, by io_uring, and by read(2): in real time,
//! one read after the other, the three interleaved.
//!
//! `cargo run --release -p coua-flash --example device_model -- FILE [BASE_US] [MB_A_SECOND] [READS] [ROUNDS]`
//!
//! The device takes BASE_US and the time for the bytes at MB_A_SECOND. For the own driver, a controller in this process
//! answers that late: a thread that never sleeps plays it, so two processors must be free. The kernel has no such
//! device here. So there the path is walked by a read of 512 bytes of FILE, which should lie in memory (`/dev/shm`, where
//! no driver of a disk costs anything), and the device's time is a sleep by the kernel's timer of high resolution: an
//! interrupt and a waking, as a device's end makes them. What the kernel's block layer and its NVMe driver cost, and the
//! pages of longer reads, are left out: that favours the kernel.
#![allow(clippy::print_stdout, reason = "it is what the program is for")]

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coua_flash::files::{FileDevice, Options, Way};
use coua_flash::nvme::{Latency, NvmeDevice};
use coua_flash::{BlockDevice, Buffer, Command, Completion, Queue, Region, Request, Transfer};

const FILE_LEN: usize = 4 << 20;
const SECTOR: usize = 512;
/// The kernel's path is walked with so much.
const SHORT: usize = 512;
/// Up to the longest record.
const LENS: [usize; 6] = [1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next();
    let path = path.expect("usage: device_model FILE [BASE_US] [MB_A_SECOND] [READS] [ROUNDS]");
    let mut number = |default: u64| {
        arguments
            .next()
            .map_or(default, |it| it.parse().expect("a number"))
    };
    let (base_us, mb_a_second) = (number(25), number(2000));
    let (reads, rounds) = (number(300), number(9));
    let latency = Latency {
        base_ns: base_us * 1000,
        ns_per_kib: 1_024_000 / mb_a_second,
    };
    std::fs::write(&path, vec![0x5a; FILE_LEN]).expect("a file that can be written");
    // Otherwise the kernel is up to 50 us late with a sleep on purpose.
    std::fs::write("/proc/self/timerslack_ns", "1").expect("timers of high resolution");
    println!("A read takes the device {base_us} us, and its bytes at {mb_a_second} MB/s.\n");
    println!(
        "| bytes | device, us | own, us | io_uring, us | read(2), us | own / io_uring | own / read(2) |"
    );
    println!("|------:|---:|---:|---:|---:|---:|---:|");
    for len in LENS {
        let mut all = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..rounds {
            all[0].push(own(latency, len, reads));
            all[1].push(by_io_uring(Path::new(&path), latency, len, reads));
            all[2].push(by_read(Path::new(&path), latency, len, reads));
        }
        let [own, ring, read] = all.map(|mut of| {
            of.sort_by(f64::total_cmp);
            of[of.len() / 2]
        });
        println!(
            "| {len} | {:.1} | {own:.1} | {ring:.1} | {read:.1} | {:.2} | {:.2} |",
            latency.of(len) as f64 / 1e3,
            own / ring,
            own / read
        );
    }
    let _ = std::fs::remove_file(&path);
}

/// The median of the times of some reads, in microseconds.
fn timed(reads: u64, mut read: impl FnMut()) -> f64 {
    for _ in 0..20 {
        read();
    }
    let mut times: Vec<Duration> = (0..reads)
        .map(|_| {
            let begin = Instant::now();
            read();
            begin.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// Reads once through a queue; `wait` is what the kernel's device takes.
fn read_by(
    queue: &mut dyn Queue,
    held: &mut Option<Buffer>,
    done: &mut Vec<Completion>,
    len: usize,
    wait: Duration,
) {
    let buffer = held.take().expect("one read at a time");
    let transfer = Transfer {
        sector: 0,
        len,
        buffer,
    };
    let command = Command::Read(transfer);
    queue.push(Request { token: 0, command }).expect("room");
    queue.submit(0);
    if !wait.is_zero() {
        std::thread::sleep(wait);
    }
    while queue.poll(0, done) == 0 {}
    let ended = done.pop().expect("one");
    ended.result.expect("a read");
    *held = ended.buffer;
}

fn own(latency: Latency, len: usize, reads: u64) -> f64 {
    let memory = Region::allocate(len);
    let regions = [Arc::clone(memory.region())];
    let device = NvmeDevice::simulated(FILE_LEN / SECTOR, SECTOR, Some(latency), &regions);
    let device = device.expect("a device");
    let mut queue = device.queue(1).expect("a queue");
    let (mut held, mut done) = (Some(memory), Vec::with_capacity(1));
    timed(reads, || {
        read_by(&mut *queue, &mut held, &mut done, len, Duration::ZERO);
    })
}

fn by_io_uring(path: &Path, latency: Latency, len: usize, reads: u64) -> f64 {
    let memory = Region::allocate(4096);
    let options = Options {
        len: Some(FILE_LEN as u64),
        way: Way::Best,
    };
    let device = FileDevice::open(path, options, &[Arc::clone(memory.region())]);
    let device = device.expect("a device");
    let mut queue = device.queue(1).expect("a queue");
    let (mut held, mut done) = (Some(memory), Vec::with_capacity(1));
    let wait = Duration::from_nanos(latency.of(len));
    let short = device.identity().sector_len.max(SHORT);
    timed(reads, || {
        read_by(&mut *queue, &mut held, &mut done, short, wait);
    })
}

fn by_read(path: &Path, latency: Latency, len: usize, reads: u64) -> f64 {
    let direct = |flags| {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags).open(path)
    };
    let file = direct(libc::O_DIRECT).or_else(|_| direct(0));
    let file = file.expect("the file is there");
    let mut buffer = Region::allocate(4096);
    let wait = Duration::from_nanos(latency.of(len));
    timed(reads, || {
        file.read_exact_at(&mut buffer[..], 0).expect("a read");
        std::thread::sleep(wait);
    })
}
