//! Memory that the machine loses while devices read into it and write from it: what was read is right, and what could
//! not be written is said to be lost. Over a real file, by io_uring with registered (pinned) memory, and by threads.
//!
//! Pages are lost by `UFFDIO_POISON`. A kernel that cannot do that leaves the tests out, and they say so.
#![cfg(not(miri))]
#![allow(
    unsafe_code,
    clippy::print_stderr,
    reason = "poisons the test's own memory, and says what was left out"
)]

use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use coua_flash::files::{FileDevice, Options, Way};
use coua_flash::log::{
    Appended, Draft, Event, Location, ReadStart, Start, Volume, VolumeOptions, WorkerMemory,
    WorkerVolume,
};
use coua_flash::simulated::{Settings, SimulatedDevice};
use coua_flash::{BlockDevice, Failure, Region};
use coua_memory_errors::poison::by_userfaultfd;
use coua_memory_errors::{Events, events_seen, install, install_thread};

const PAGE: usize = 4096;
const SEGMENT: usize = 1 << 20;
const VOLUME: u64 = 64 << 20;

/// There is one list of losses in a process, so one test at a time has it.
fn events() -> std::sync::MutexGuard<'static, Option<Events>> {
    static EVENTS: Mutex<Option<Events>> = Mutex::new(None);
    let mut events = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if events.is_none() {
        *events = Some(install().expect("nothing is installed yet"));
    }
    events
}

/// Loses the page at an offset of a region. False where the kernel cannot.
fn lose(region: &Region, offset: usize) -> bool {
    let address = (region.address() + offset) / PAGE * PAGE;
    let page = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("an address");
    // SAFETY: the page lies in a watched region.
    match unsafe { by_userfaultfd(page, PAGE) } {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}");
            eprintln!("left out: this kernel has no UFFDIO_POISON");
            false
        }
    }
}

fn item(number: u64) -> Vec<u8> {
    let text = format!("{number}:");
    text.bytes()
        .cycle()
        .take(300 + usize::try_from(number % 3000).expect("short"))
        .collect()
}

struct Rig<'d> {
    worker: WorkerVolume,
    region: Arc<Region>,
    _device: &'d dyn BlockDevice,
    now_ns: u64,
    events: Vec<Event>,
}

impl<'d> Rig<'d> {
    fn new(device: &'d dyn BlockDevice, memory: coua_flash::Buffer) -> Rig<'d> {
        let mut now_ns = 0;
        let mut clock = || {
            now_ns += 20_000;
            now_ns
        };
        let options = VolumeOptions {
            segment_len: SEGMENT,
            keeps_tombstones: false,
        };
        let opened = Volume::open(&[device], options, Start::Fresh, 1, &mut clock);
        let volume = opened.expect("it opens").volume;
        let region = Arc::clone(memory.region());
        let memory = WorkerMemory::carve(memory, &volume, 3);
        Rig {
            worker: volume.worker(&[device], 64, memory).expect("a queue"),
            region,
            _device: device,
            now_ns,
            events: Vec::with_capacity(64),
        }
    }

    /// What happens next.
    fn next(&mut self) -> Event {
        for _ in 0..10_000_000 {
            self.now_ns += 20_000;
            self.worker.submit(self.now_ns);
            self.worker.poll(self.now_ns, &mut self.events);
            if !self.events.is_empty() {
                return self.events.remove(0);
            }
            std::thread::yield_now();
        }
        panic!("nothing ever happens");
    }

    fn append(&mut self, numbers: std::ops::Range<u64>) -> Vec<(u64, Location)> {
        let append = |number: u64| {
            let item = item(number);
            let draft = Draft {
                hash: number,
                cas: 1,
                expiry: u32::MAX,
                item: &item,
                key: 0..2,
            };
            match self.worker.append(&draft) {
                Appended::At { location, .. } => (number, location),
                other => panic!("{other:?}"),
            }
        };
        numbers.map(append).collect()
    }

    /// Whether the segment that was sealed is there.
    fn is_written(&mut self) -> bool {
        match self.next() {
            Event::Written(written) => {
                self.worker.reuse(written);
                true
            }
            Event::Lost(written, Failure::MemoryLost) => {
                assert!(written.is_lost());
                self.worker.reuse(written);
                false
            }
            other => panic!("{other:?}"),
        }
    }

    fn begin_read(&mut self, (number, location): (u64, Location)) {
        let started = self.worker.read(location, number);
        assert_eq!(started, ReadStart::UnderWay);
        self.worker.submit(self.now_ns);
    }

    /// Ends a read; the item must be the right one.
    fn end_read(&mut self) {
        let Event::Read { token, result } = self.next() else {
            panic!("only a read is under way");
        };
        let fetched = result.unwrap_or_else(|why| panic!("read {token}: {why:?}"));
        let right = item(token);
        let record = fetched.of_key(token, &right[..2]).expect("its key");
        assert!(record.item == right && !fetched.is_lost(), "a wrong item");
        self.worker.give_back(fetched);
    }
}

/// The pages of the two buffers that the next short reads use.
fn pages_of_next_reads(region: &Region) -> impl Iterator<Item = usize> {
    (1..=6).map(|nth| region.len() - nth * PAGE)
}

/// Loses pages under reads and writes of a device.
fn live(device: &dyn BlockDevice, memory: coua_flash::Buffer, events: &mut Events) {
    let mut rig = Rig::new(device, memory);
    let region = Arc::clone(&rig.region);
    let first = rig.append(0..200);
    rig.worker.seal();
    assert!(rig.is_written());
    for &read in &first {
        rig.begin_read(read);
        rig.end_read();
    }
    if !lose(&region, region.len() - PAGE) {
        return;
    }
    // Before, while and after the device writes there; the device may have pinned what was there before.
    for (round, &read) in first.iter().enumerate().take(60) {
        let pages: Vec<usize> = pages_of_next_reads(&region).collect();
        if round % 3 == 0 {
            pages.iter().for_each(|&page| assert!(lose(&region, page)));
        }
        rig.begin_read(read);
        if round % 3 == 1 {
            pages.iter().for_each(|&page| assert!(lose(&region, page)));
        }
        rig.end_read();
        let _ = events.take();
    }
    // A record that was read is lost while it is held.
    rig.begin_read(first[7]);
    let Event::Read { result, .. } = rig.next() else {
        panic!("only a read is under way");
    };
    let fetched = result.expect("it was written");
    assert!(!fetched.is_lost());
    let (at, _) = fetched.item();
    assert!(lose(&region, at.as_ptr().addr() - region.address()));
    // Whoever looks meets it.
    let right = item(7);
    let is_same = fetched
        .of_key(7, &right[..2])
        .is_some_and(|it| it.item == right);
    assert!(!is_same && fetched.is_lost());
    rig.worker.give_back(fetched);

    // In a segment that is gathered, and in one that is being written.
    let before = rig.worker.counts();
    let mut lost = 0;
    for round in 0..9 {
        let records = rig.append(1000..1200);
        // The segment's memory is one of three.
        let pages = (0..3).map(|nth| nth * SEGMENT + (round * 7919) % 200_000);
        let pages: Vec<usize> = pages.collect();
        if round % 3 == 0 {
            pages.iter().for_each(|&page| assert!(lose(&region, page)));
        }
        rig.worker.seal();
        rig.worker.submit(rig.now_ns);
        if round % 3 == 1 {
            pages.iter().for_each(|&page| assert!(lose(&region, page)));
        }
        // A pinning device's memory runs out in this test, no other's.
        if !rig.is_written() {
            lost += 1;
            let _ = events.take();
            continue;
        }
        for &read in records.iter().step_by(17) {
            rig.begin_read(read);
            rig.end_read();
        }
    }
    assert!(lost >= 3, "{lost}");
    let counts = rig.worker.counts();
    assert!(
        counts.segments_written > before.segments_written,
        "{counts:?}"
    );
    assert_eq!((counts.damaged, counts.reads_failed), (0, 0), "{counts:?}");
    for &read in &first {
        rig.begin_read(read);
        rig.end_read();
    }
    let _ = events.take();
}

fn file(way: Way) {
    let _stack = install_thread().expect("there is memory");
    let mut events = events();
    let events = events.as_mut().expect("the list");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("flash-lost-{way:?}-{}", std::process::id()));
    let memory = Region::watched(5 << 20);
    let options = Options {
        len: Some(VOLUME),
        way,
    };
    let regions = [Arc::clone(memory.region())];
    let device = FileDevice::open(&path, options, &regions).expect("a file");
    eprintln!("{way:?}: by {}", device.identity().driver);
    live(&device, memory, events);
    let _ = std::fs::remove_file(&path);
}

#[test]
fn memory_is_lost_under_io_uring() {
    file(Way::Best);
}

#[test]
fn memory_is_lost_under_threads() {
    file(Way::Threads);
}

#[test]
fn memory_is_lost_under_a_device_that_pins_it_for_good() {
    let _stack = install_thread().expect("there is memory");
    let mut events = events();
    let events = events.as_mut().expect("the list");
    let settings = Settings {
        sectors: VOLUME / 512,
        transfer_len_max: 256 << 10,
        pins_memory: true,
        ..Settings::default()
    };
    let device = SimulatedDevice::new(settings, 1);
    let memory = Region::watched(5 << 20);
    let mut rig = Rig::new(&device, memory);
    let region = Arc::clone(&rig.region);
    let first = rig.append(0..200);
    rig.worker.seal();
    assert!(rig.is_written());
    if !lose(&region, region.len() - PAGE) {
        return;
    }
    // The memory of reads becomes less and less.
    let seen = events_seen();
    for (round, &read) in first.iter().enumerate().take(60) {
        rig.begin_read(read);
        for nth in 4 * round + 1..=4 * round + 12 {
            assert!(lose(&region, region.len() - nth * PAGE));
        }
        rig.end_read();
        let _ = events.take();
    }
    assert!(events_seen() > seen + 60);
    // All memory of segments: nothing is written any more, and reads go on.
    for nth in 0..3 {
        assert!(lose(&region, nth * SEGMENT));
    }
    for _ in 0..3 {
        if let Appended::At { .. } = rig.worker.append(&Draft {
            hash: 1,
            cas: 1,
            expiry: u32::MAX,
            item: &item(1),
            key: 0..2,
        }) {
            rig.worker.seal();
            assert!(!rig.is_written());
        }
    }
    let appended = rig.worker.append(&Draft {
        hash: 1,
        cas: 1,
        expiry: u32::MAX,
        item: &item(1),
        key: 0..2,
    });
    assert_eq!(appended, Appended::Busy);
    for &read in &first {
        rig.begin_read(read);
        rig.end_read();
    }
    let counts = rig.worker.counts();
    assert_eq!((counts.damaged, counts.reads_failed), (0, 0), "{counts:?}");
}
