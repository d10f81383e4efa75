//! Many threads read one region while its pages die.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use coua_memory_errors::{events_seen, install_thread};

use crate::alone::alone;
use crate::memory::{Kind, Memory};
use crate::scenarios::{installed, memory, poison};

const READERS: usize = 4;

/// Stops the readers, of a test that fails too.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A sequence of numbers from a seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from(mixed >> 33).expect("31 bits") % bound
    }
}

/// Reads until it is told to stop: the old bytes or zeros, and zeros only where the count has moved.
/// Half of what it reads is on the page that dies next.
fn read(memory: &Memory, dying: &AtomicUsize, stop: &AtomicBool, seed: u64) {
    let _stack = install_thread().expect("there is memory");
    let page_size = memory.kind().page_size();
    let mut numbers = Numbers(seed);
    while !stop.load(Ordering::Relaxed) {
        let page = match numbers.below(2) {
            0 => dying.load(Ordering::Relaxed),
            _ => numbers.below(memory.pages()),
        };
        let word = memory.word(page * page_size + numbers.below(page_size / 8) * 8);
        if word == 0 {
            assert!(events_seen() > 0, "zeros that nobody has counted");
        } else {
            assert_eq!(word, u64::from_ne_bytes([Memory::filling(page); 8]));
        }
    }
}

/// Each page dies `rounds` times, in any order, and is written again when its loss was told. A page
/// that is replaced twice for one death would be told of twice, and lose what was written.
fn pages_die_under_readers(kind: Kind, pages: usize, rounds: usize) {
    let (mut events, _stack) = installed();
    let memory = memory(kind, pages);
    let (dying, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut numbers = Numbers(7);
    std::thread::scope(|scope| {
        for seed in 0..READERS {
            let (memory, dying, stop) = (&memory, &dying, &stop);
            scope.spawn(move || read(memory, dying, stop, seed as u64));
        }
        let _stop = Stop(&stop);
        for round in 0..rounds {
            let mut left: BTreeSet<usize> = (0..pages).collect();
            while !left.is_empty() {
                let some = numbers.below(left.len());
                let page = *left.iter().nth(some).expect("it is in the set");
                left.remove(&page);
                dying.store(page, Ordering::Relaxed);
                poison(Memory::poison_by_userfaultfd, &memory, page);
                // A reader may have been first.
                memory.byte(page * kind.page_size());
                let deaths = (round * pages + pages - left.len()) as u64;
                assert_eq!(events_seen(), deaths);
                let taken = events.take();
                let addresses: Vec<usize> = taken.lost.iter().map(|lost| lost.address).collect();
                assert_eq!(addresses, [memory.address(page)]);
                memory.fill(page);
            }
        }
    });
    assert_eq!(events_seen(), (rounds * pages) as u64);
    assert!(events.take().lost.is_empty());
    for page in 0..pages {
        assert!(memory.page_is(page, Memory::filling(page)), "page {page}");
    }
}

alone!(small_pages_die, || pages_die_under_readers(
    Kind::Small,
    256,
    8
));
alone!(pages_of_a_file_die, || pages_die_under_readers(
    Kind::Memfd,
    256,
    8
));
alone!(huge_pages_die, || pages_die_under_readers(
    Kind::Hugetlb,
    4,
    16
));

alone!(all_pages_die_at_once, || {
    let (mut events, _stack) = installed();
    let memory = memory(Kind::Small, 100);
    for page in 0..memory.pages() {
        poison(Memory::poison_by_userfaultfd, &memory, page);
    }
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let _stack = install_thread().expect("there is memory");
                for page in 0..memory.pages() {
                    assert_eq!(memory.byte(page * 4096), 0);
                }
            });
        }
    });
    let taken = events.take();
    let addresses: BTreeSet<usize> = taken.lost.iter().map(|lost| lost.address).collect();
    assert_eq!(addresses.len(), memory.pages());
    assert_eq!(taken.lost.len(), memory.pages());
});
