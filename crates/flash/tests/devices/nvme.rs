//! NVMe in a virtual machine, by every driver: `cargo xtask test lab` runs it there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use coua_flash::files::Way;
use coua_flash::nvme::{NvmeDevice, NvmeOptions, PassthroughDevice};
use coua_flash::{BlockDevice, Command, OpenError, Pool, Queue, Rejection, Request, Transfer};

use crate::{files, suite};

const BLOCK: &str = "/dev/nvme0n1";
const PASSTHROUGH: &str = "/dev/ng0n1";

#[test]
fn the_block_device() {
    for way in [Way::Threads, Way::Best, Way::Polled] {
        files::run(Path::new(BLOCK), None, way);
    }
}

#[test]
fn commands_through_the_kernel() {
    for is_polled in [false, true] {
        let memory = suite::memory();
        let regions = [Arc::clone(memory.region())];
        let device = PassthroughDevice::open(Path::new(PASSTHROUGH), is_polled, &regions);
        let device = device.expect("it opens");
        println!("{}: {}", device.identity().name, device.identity().driver);
        assert!(matches!(
            PassthroughDevice::open(Path::new(PASSTHROUGH), false, &[]).err(),
            Some(OpenError::InUse)
        ));
        suite::run(&device, Some(memory));
        drop(device);
        let device = PassthroughDevice::open(Path::new(PASSTHROUGH), is_polled, &[]);
        suite::run(&device.expect("again, without memory"), None);
    }
    assert!(matches!(
        PassthroughDevice::open(Path::new(BLOCK), false, &[]).err(),
        Some(OpenError::WrongKind)
    ));
}

/// The PCI address of the first controller, whichever driver it has.
fn controller() -> String {
    let devices = std::fs::read_dir("/sys/bus/pci/devices").expect("PCI devices");
    let is_nvme = |path: &PathBuf| {
        let class = std::fs::read_to_string(path.join("class"));
        class.is_ok_and(|class| class.trim() == "0x010802")
    };
    let mut found = devices.flatten().map(|entry| entry.path()).filter(is_nvme);
    let path = found.next().expect("an NVMe controller");
    path.file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned()
}

/// Waits until the kernel's driver has its device again.
fn wait_for_the_kernel() {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !Path::new(BLOCK).exists() {
        assert!(
            Instant::now() < deadline,
            "the kernel's driver has its device again"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_driver_of_our_own() {
    let address = controller();
    for round in 0..3 {
        let memory = suite::memory();
        let regions = [Arc::clone(memory.region())];
        let begin = Instant::now();
        let device = NvmeDevice::open(&address, NvmeOptions::default(), &regions);
        let device = device.expect("it comes up");
        println!(
            "{}: {}, after {:?}",
            device.identity().name,
            device.identity().driver,
            begin.elapsed()
        );
        assert!(!Path::new(BLOCK).exists());
        let is_signalled = |queue: &dyn Queue| queue.descriptor().is_some();
        assert!(is_signalled(&*device.queue(4).expect("a queue")));
        suite::run(&device, Some(memory));
        if round == 1 {
            let memory = suite::memory();
            let mut queue = device.queue(4).expect("a queue");
            let transfer = Transfer {
                sector: 0,
                len: 4096,
                buffer: memory,
            };
            let request = Request {
                token: 0,
                command: Command::Read(transfer),
            };
            let rejected = queue.push(request).expect_err("memory that is not mapped");
            assert_eq!(rejected.why, Rejection::Refused);
        }
        drop(device);
        wait_for_the_kernel();
    }
    // What the kernel reads is what was written; and the kernel's driver works.
    files::run(Path::new(BLOCK), None, Way::Best);
}

/// Runs as a process of its own: takes the device, and is killed.
#[test]
fn a_process_that_is_killed() {
    if std::env::var_os("COUA_TAKES_NVME").is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "nvme::a_process_that_is_killed", "--nocapture"])
            .env("COUA_TAKES_NVME", "1")
            .spawn()
            .expect("a process");
        let deadline = Instant::now() + Duration::from_secs(60);
        while Path::new(BLOCK).exists() {
            assert!(Instant::now() < deadline, "it takes the device");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(500));
        child.kill().expect("killed");
        child.wait().expect("ended");
        return wait_for_the_kernel();
    }
    let memory = suite::memory();
    let regions = [Arc::clone(memory.region())];
    let device = NvmeDevice::open(&controller(), NvmeOptions::default(), &regions);
    let device = device.expect("it comes up");
    let mut buffers = Pool::carve(memory, 128 << 10);
    let mut queue = device.queue(32).expect("a queue");
    let mut done = Vec::with_capacity(32);
    // Until it is killed, but not for ever.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(30) {
        while let Some(buffer) = buffers.take() {
            let transfer = Transfer {
                sector: 0,
                len: 65536,
                buffer,
            };
            let request = Request {
                token: 0,
                command: Command::Write(transfer),
            };
            if let Err(rejected) = queue.push(request) {
                let buffer = rejected.request.command.into_buffer();
                buffers.give_back(buffer.expect("its memory"));
                break;
            }
        }
        queue.submit(0);
        queue.poll(0, &mut done);
        done.drain(..)
            .filter_map(|it| it.buffer)
            .for_each(|it| buffers.give_back(it));
    }
    panic!("nobody killed it");
}

#[test]
fn what_is_in_use_is_not_taken() {
    let mounted = std::process::Command::new("sh")
        .args(["-c", "mkfs.ext4 -q -F /dev/nvme0n1 && mkdir -p /tmp/mounted && mount /dev/nvme0n1 /tmp/mounted"])
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("left out: nothing can be mounted");
        return;
    }
    let taken = NvmeDevice::open(&controller(), NvmeOptions::default(), &[]);
    let unmounted = std::process::Command::new("umount")
        .arg("/tmp/mounted")
        .status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    assert!(matches!(taken.err(), Some(OpenError::InUse)));
    assert!(Path::new(BLOCK).exists());
    assert!(NvmeDevice::open("no/such/device", NvmeOptions::default(), &[]).is_err());
}

/// What a machine does to its devices from outside, where the lab can be asked; else it is left out, in words.
fn from_outside(command: &str) -> bool {
    let done = std::process::Command::new("lab-hmp").arg(command).output();
    let (is_well, said) = match done {
        Err(error) => (false, error.to_string()),
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stdout).into_owned();
            (
                done.status.success(),
                said + &String::from_utf8_lossy(&done.stderr),
            )
        }
    };
    let is_done = is_well && !said.to_lowercase().contains("error");
    if !is_done {
        println!("left out: lab-hmp {command}: {said}");
    }
    is_done
}

/// A device that is throttled is slower, and nothing else.
#[test]
fn a_device_that_is_throttled() {
    if !from_outside("block_set_io_throttle nvme0 0 0 0 300 0 0") {
        return;
    }
    let memory = suite::memory();
    let regions = [Arc::clone(memory.region())];
    let device = NvmeDevice::open(&controller(), NvmeOptions::default(), &regions);
    let device = device.expect("it comes up");
    let mut buffers = Pool::carve(memory, 4096);
    let mut queue = device.queue(64).expect("a queue");
    let mut done = Vec::with_capacity(64);
    let begin = Instant::now();
    let mut ended = 0;
    for sector in 0..300 {
        let buffer = buffers.take().expect("a buffer");
        let len = device.identity().sector_len;
        let transfer = Transfer {
            sector,
            len,
            buffer,
        };
        let mut request = Request {
            token: sector,
            command: Command::Read(transfer),
        };
        while let Err(rejected) = queue.push(request) {
            assert_eq!(rejected.why, Rejection::Full);
            request = rejected.request;
            let now_ns = begin.elapsed().as_nanos() as u64;
            queue.submit(now_ns);
            queue.poll(now_ns, &mut done);
        }
        ended += done.drain(..).filter(|it| it.result == Ok(())).count();
    }
    while queue.in_flight() > 0 {
        let now_ns = begin.elapsed().as_nanos() as u64;
        queue.submit(now_ns);
        queue.poll(now_ns, &mut done);
        ended += done.drain(..).filter(|it| it.result == Ok(())).count();
    }
    assert_eq!(ended, 300);
    assert!(from_outside("block_set_io_throttle nvme0 0 0 0 0 0 0"));
    drop((queue, device));
    wait_for_the_kernel();
}

/// The last test of a machine, which has no disk any more after it.
#[test]
fn zz_a_device_that_is_pulled_out() {
    let memory = suite::memory();
    let regions = [Arc::clone(memory.region())];
    let device = NvmeDevice::open(&controller(), NvmeOptions::default(), &regions);
    let device = device.expect("it comes up");
    let mut buffers = Pool::carve(memory, 64 << 10);
    let mut queue = device.queue(32).expect("a queue");
    if !from_outside("device_del ctrl0") {
        return;
    }
    let (begin, mut done) = (Instant::now(), Vec::with_capacity(32));
    loop {
        assert!(begin.elapsed() < Duration::from_secs(120), "nobody notices");
        let now_ns = begin.elapsed().as_nanos() as u64;
        if let Some(buffer) = buffers.take() {
            let transfer = Transfer {
                sector: 0,
                len: 4096,
                buffer,
            };
            let request = Request {
                token: 0,
                command: Command::Read(transfer),
            };
            if let Err(rejected) = queue.push(request) {
                let buffer = rejected.request.command.into_buffer();
                buffers.give_back(buffer.expect("its memory"));
                if rejected.why == Rejection::Removed {
                    break;
                }
            }
        }
        queue.submit(now_ns);
        queue.poll(now_ns, &mut done);
        done.drain(..)
            .filter_map(|it| it.buffer)
            .for_each(|it| buffers.give_back(it));
    }
    while queue.in_flight() > 0 {
        queue.poll(begin.elapsed().as_nanos() as u64, &mut done);
        done.drain(..)
            .filter_map(|it| it.buffer)
            .for_each(|it| buffers.give_back(it));
    }
    assert!(device.queue(1).is_err());
    println!("gone after {:?}", begin.elapsed());
}
