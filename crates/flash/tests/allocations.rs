//! Reads and appends allocate nothing once everything is warm, by each driver of files.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use coua_flash::Region;
use coua_flash::files::{FileDevice, Options, Way};
use coua_flash::log::{
    Appended, Draft, Event, Location, ReadStart, Start, Volume, VolumeOptions, WorkerMemory,
    WorkerVolume,
};

struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn count() {
    if COUNTS.load(Ordering::Relaxed) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: all calls go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often it is counted; one count has to be zero. A queue's four threads allocate when they start, and the test
/// harness's own when it begins to wait; the kernel may let each come late. Either happens once, so some counts may see
/// it. What allocates at work is in all.
const WINDOWS: usize = 9;

/// Rounds a count: all of them together fill no segment.
const ROUNDS: usize = 3;

const ITEM: &[u8] = b"keyvalue";

fn draft(hash: u64) -> Draft<'static> {
    Draft {
        hash,
        cas: 1,
        expiry: u32::MAX,
        item: ITEM,
        key: 0..3,
    }
}

/// Reads all of `locations`, and appends as many records.
fn round(worker: &mut WorkerVolume, locations: &[(u64, Location)], events: &mut Vec<Event>) {
    let (mut next, mut ended) = (0, 0);
    while ended < locations.len() {
        while let Some((_, location)) = locations.get(next) {
            match worker.read(*location, next as u64) {
                ReadStart::UnderWay => next += 1,
                ReadStart::Busy => break,
                ReadStart::Gone => panic!("it was written"),
            }
            let appended = worker.append(&draft(1));
            assert!(matches!(appended, Appended::At { .. }), "{appended:?}");
        }
        worker.submit(0);
        worker.poll(0, events);
        for event in events.drain(..) {
            let Event::Read { token, result } = event else {
                panic!("only reads end here");
            };
            let fetched = result.expect("it was written");
            let (hash, _) = locations[usize::try_from(token).expect("an index")];
            assert!(fetched.of_key(hash, b"key").is_some());
            worker.give_back(fetched);
            ended += 1;
        }
    }
}

#[test]
fn warm_reads_and_appends_allocate_nothing() {
    for way in [Way::Best, Way::Threads] {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = folder.join(format!("flash-allocations-{}", std::process::id()));
        let memory = Region::allocate(6 << 20);
        let regions = [Arc::clone(memory.region())];
        let options = Options {
            len: Some(8 << 20),
            way,
        };
        let device = FileDevice::open(&path, options, &regions).expect("a file");
        let mut now_ns = 0;
        let mut clock = || {
            now_ns += 1;
            now_ns
        };
        let layout = VolumeOptions::for_len(8 << 20);
        let opened = Volume::open(&[&device], layout, Start::Fresh, 1, &mut clock);
        let volume = opened.expect("it opens").volume;
        let memory = WorkerMemory::carve(memory, &volume, 3);
        let mut worker = volume.worker(&[&device], 32, memory).expect("a queue");
        let mut locations = Vec::new();
        for hash in 0..100 {
            let Appended::At { location, .. } = worker.append(&draft(hash)) else {
                panic!("an empty volume takes an item");
            };
            locations.push((hash, location));
        }
        worker.seal();
        let mut events = Vec::with_capacity(64);
        while events.is_empty() {
            worker.submit(0);
            worker.poll(0, &mut events);
        }
        for event in events.drain(..) {
            match event {
                Event::Written(written) => worker.reuse(written),
                other => panic!("{other:?}"),
            }
        }
        round(&mut worker, &locations, &mut events);
        let allocations = (0..WINDOWS).map(|_| {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            COUNTS.store(true, Ordering::Relaxed);
            for _ in 0..ROUNDS {
                round(&mut worker, &locations, &mut events);
            }
            COUNTS.store(false, Ordering::Relaxed);
            ALLOCATIONS.load(Ordering::Relaxed) - before
        });
        let fewest = allocations.min();
        let _ = std::fs::remove_file(&path);
        assert_eq!(fewest, Some(0), "{way:?}");
    }
}
