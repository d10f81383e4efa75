//! Regular files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coua_flash::files::{FileDevice, Options, Way};
use coua_flash::{BlockDevice, OpenError};

use crate::suite;

/// A path for a file that is removed at the end. Beside the test program: `/tmp` may be memory, which is no device.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        Scratch(folder.join(format!("flash-{name}-{}", std::process::id())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs the suite, with and without memory that is registered. Gives what the driver says of itself.
pub(crate) fn run(path: &Path, len: Option<u64>, way: Way) -> String {
    let options = Options { len, way };
    let memory = suite::memory();
    let device = FileDevice::open(path, options, &[Arc::clone(memory.region())]);
    let device = device.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let driver = device.identity().driver.clone();
    println!("{}: {driver}", path.display());
    suite::run(&device, Some(memory));
    drop(device);
    let device = FileDevice::open(path, options, &[]).expect("again, without memory");
    suite::run(&device, None);
    driver
}

#[test]
fn a_file_through_threads() {
    let file = Scratch::new("threads");
    let driver = run(file.path(), Some(8 << 20), Way::Threads);
    assert!(driver.starts_with("threads"), "{driver}");
}

#[test]
fn a_file_through_io_uring() {
    let file = Scratch::new("uring");
    let driver = run(file.path(), Some(8 << 20), Way::Best);
    // Where the kernel refuses io_uring threads have passed the suite.
    let has_ring = io_uring::IoUring::new(2).is_ok();
    assert_eq!(driver.starts_with("io_uring"), has_ring, "{driver}");
}

#[test]
fn a_file_that_shall_be_polled() {
    let file = Scratch::new("polled");
    let driver = run(file.path(), Some(8 << 20), Way::Polled);
    assert!(
        driver.contains("polled"),
        "it is polled, or it says why not: {driver}"
    );
}

#[test]
fn what_is_no_device_is_refused() {
    let open = |path: &Path, len| {
        let options = Options {
            len,
            way: Way::Best,
        };
        FileDevice::open(path, options, &[]).map(|it| it.identity().len())
    };
    assert!(matches!(
        open(Path::new("/dev/null"), None),
        Err(OpenError::WrongKind | OpenError::System { .. })
    ));
    assert!(matches!(
        open(Path::new("/nowhere/at/all"), Some(1 << 20)),
        Err(OpenError::System { what: "open", .. })
    ));
    let file = Scratch::new("small");
    assert!(matches!(
        open(file.path(), None),
        Err(OpenError::System { what: "open", .. })
    ));
    assert!(matches!(
        open(file.path(), Some(100)),
        Err(OpenError::TooSmall)
    ));
    assert!(matches!(open(file.path(), Some(1 << 20)), Ok(len) if len == 1 << 20));
}

#[test]
fn a_file_has_one_user() {
    let file = Scratch::new("locked");
    let options = Options {
        len: Some(1 << 20),
        way: Way::Threads,
    };
    let first = FileDevice::open(file.path(), options, &[]).expect("the first");
    let second = FileDevice::open(file.path(), options, &[]);
    assert!(matches!(second.err(), Some(OpenError::InUse)));
    drop(first);
    FileDevice::open(file.path(), options, &[]).expect("it is free again");
}

#[test]
fn a_file_that_shrank_fails_and_gives_its_memory_back() {
    use coua_flash::{Command, Failure, Region, Request, Transfer};
    let file = Scratch::new("shrank");
    for way in [Way::Threads, Way::Best] {
        let options = Options {
            len: Some(1 << 20),
            way,
        };
        let device = FileDevice::open(file.path(), options, &[]).expect("a file");
        let other = fs::OpenOptions::new().write(true).open(file.path());
        other.and_then(|it| it.set_len(4096)).expect("made shorter");
        let mut queue = device.queue(1).expect("a queue");
        let transfer = Transfer {
            sector: 100,
            len: 4096,
            buffer: Region::allocate(4096),
        };
        let request = Request {
            token: 1,
            command: Command::Read(transfer),
        };
        queue.push(request).expect("room");
        queue.submit(0);
        let mut done = Vec::with_capacity(1);
        while queue.poll(0, &mut done) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(done[0].result, Err(Failure::Media), "{way:?}");
        assert!(done[0].buffer.is_some());
    }
}
