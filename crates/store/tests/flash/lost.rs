//! The store with flash while the machine loses pages: of items on their way to flash, of the memory that flash is read
//! into and written from, and of the index that says what is on flash.
//!
//! Pages are lost by `UFFDIO_POISON`. A kernel that cannot do that leaves the tests out, and they say so.
#![allow(
    unsafe_code,
    clippy::cast_possible_truncation,
    reason = "poisons memory that the test lends; small numbers"
)]

use super::rig::*;
use super::{name, value};
use crate::losses::{NOW, beside_mender, events, is_possible, random};
use coua_memory_errors::install_thread;
use coua_memory_errors::poison::by_userfaultfd;
use coua_store::*;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const KEYS: usize = 16_000;
const PAGE: usize = 4096;

fn config() -> Config {
    Config {
        memory: 8 * MIB,
        seed: Some(7),
        survives_memory_errors: true,
        ..Config::default()
    }
}

fn can_poison() -> bool {
    let store = Store::new(config(), NOW).expect("there is memory");
    let is_possible = is_possible(&mut store.worker(0));
    if !is_possible {
        #[expect(clippy::print_stderr, reason = "what is left out is told")]
        {
            eprintln!("left out: this kernel has no UFFDIO_POISON");
        }
    }
    is_possible
}

/// Loses a page of the memory that the volume reads into and writes from.
fn lose_of_flash(rig: &Rig, offset: usize) {
    let address = (rig.region.address() + offset) / PAGE * PAGE;
    let page = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("an address");
    // SAFETY: the page lies in a watched region.
    unsafe { by_userfaultfd(page, PAGE) }.expect("it was possible before");
}

/// Loses a page of the store's.
fn lose(rig: &mut Rig, n: usize, target: PoisonTarget) -> bool {
    let (now, name) = (rig.time(), name(n));
    let burst = rig.worker.burst(now);
    let key = burst.key(&name);
    let lost = burst.poison(&key, target, PoisonMeans::Userfault);
    lost.expect("it was possible before").is_some()
}

/// Whether a lookup finds the item, in memory or on flash.
fn is_there(rig: &mut Rig, n: usize) -> bool {
    let (now, name) = (rig.time(), name(n));
    let burst = rig.worker.burst(now);
    let unseen = Access {
        bump: false,
        cas: false,
    };
    let found = burst.get(&burst.key(&name), unseen);
    matches!(found, Ok(_) | Err(Miss::OnFlash(_)))
}

/// What a life loses.
#[derive(Clone, Copy, PartialEq)]
enum Loses {
    /// Pages of staging and read buffers.
    Buffers,
    /// Pages of items, many of which are on their way to flash.
    Items,
    /// Pages of the index.
    Index,
    All,
}

/// Lives on random operations and losses against a map. Returns how many items were missing at the end, and how many
/// pages were lost.
fn live(loses: Loses, pins_memory: bool) -> (usize, usize) {
    let _stack = install_thread().expect("there is memory");
    let mut events = events();
    let mut devices = Devices::new(&[64], 5);
    if pins_memory {
        devices = Devices::pinning(&[64], 5);
    }
    let rig = Rig::with(devices, config(), 11);
    let store = Arc::clone(&rig.store);
    // A page of the index names hundreds of items.
    let rarity = if loses == Loses::Index { 4000 } else { 150 };
    let (counted, lost) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
    beside_mender(&store, &mut events, move |told| {
        // Here, so that nobody waits for its worker should the test fail.
        let mut rig = rig;
        let (mut seed, mut missing, mut poisoned) = (9, 0, 0);
        // The version of each key that is there.
        let mut map: HashMap<usize, usize> = HashMap::new();
        for step in 0..60_000_usize {
            let n = random(&mut seed, KEYS as u64) as usize;
            match random(&mut seed, 10) {
                0..=4 => {
                    rig.set(&name(n), &value(n, step));
                    map.insert(n, step);
                }
                5 => {
                    let (deleted, was) = (rig.delete(&name(n)), map.remove(&n));
                    assert!(deleted != Deleted::Done || was.is_some(), "key {n} rose");
                }
                6 => {
                    let touched = rig.run(&name(n), |burst, key| {
                        match burst.touch(
                            key,
                            Expiry::at(UnixSeconds(2_000_000)),
                            Access::default(),
                        ) {
                            Err(Untouched::Miss(Miss::OnFlash(place))) => {
                                Err(Again::OnFlash(place))
                            }
                            Err(Untouched::Refused(Refused::Wait)) => Err(Again::Wait),
                            other => Ok(other.is_ok()),
                        }
                    });
                    assert!(!touched || map.contains_key(&n), "key {n} rose");
                }
                _ => match (rig.value(&name(n)), map.get(&n)) {
                    (Some(got), Some(&version)) => {
                        assert!(got == value(n, version), "key {n} is wrong");
                    }
                    (Some(_), None) => panic!("key {n} rose"),
                    (None, Some(_)) => {
                        map.remove(&n);
                        missing += 1;
                    }
                    (None, None) => {}
                },
            }
            if step > 20_000 && random(&mut seed, rarity) == 0 {
                let kind = match loses {
                    Loses::All if step % 25 > 0 => random(&mut seed, 2),
                    Loses::All => 2,
                    Loses::Buffers => 0,
                    Loses::Items => 1,
                    Loses::Index => 2,
                };
                poisoned += 1;
                match kind {
                    0 => {
                        let len = rig.region.len();
                        // The half of the losses is where reads go next.
                        let offset = match random(&mut seed, 2) {
                            0 | 1 if pins_memory && poisoned > 1 => {
                                len - 1 - random(&mut seed, 60 * PAGE as u64) as usize
                            }
                            0 => len - 1 - random(&mut seed, 6 * PAGE as u64) as usize,
                            _ => random(&mut seed, 3 * MIB as u64) as usize,
                        };
                        lose_of_flash(&rig, offset);
                    }
                    1 => poisoned -= usize::from(!lose(&mut rig, n, PoisonTarget::Item)),
                    _ => assert!(lose(&mut rig, n, PoisonTarget::Bucket)),
                }
            }
        }
        rig.settle();
        for (&n, &version) in &map {
            match rig.value(&name(n)) {
                Some(got) => assert!(got == value(n, version), "key {n} is wrong"),
                None => missing += 1,
            }
        }
        let told = told.losses.load(SeqCst);
        let evicted = rig.store.stats().totals.evicted;
        assert!(told > 3, "{told}");
        if loses == Loses::Buffers && !pins_memory {
            // A filling that is begun anew makes memory short: then what there is no time to copy is evicted.
            assert!(missing as u64 <= evicted + 30, "{missing} {evicted}");
            assert!(evicted < 500, "{evicted}");
        }
        let stats = rig.stats();
        assert_eq!((stats.damaged, stats.failed), (0, 0), "{stats:?}");
        assert!(stats.hits > 1000 && stats.written > 3000, "{stats:?}");
        if loses == Loses::Buffers && !pins_memory {
            assert!(stats.segments_lost > 1, "{stats:?}");
        }
        // Counts agree with what is there, but for what an estimate counts, and for tags of other keys on flash.
        rig.settle();
        let there = (0..KEYS).filter(|&n| is_there(&mut rig, n)).count();
        let items = rig.store.stats().items;
        let most = if loses == Loses::Buffers { 30 } else { 600 };
        assert!(items.abs_diff(there as u64) <= most, "{items} {there}");
        counted.store(missing, SeqCst);
        lost.store(poisoned, SeqCst);
    });
    (counted.load(SeqCst), lost.load(SeqCst))
}

#[test]
fn nothing_is_lost_with_buffers_of_flash_but_what_is_evicted_meanwhile() {
    if can_poison() {
        let (missing, poisoned) = live(Loses::Buffers, false);
        assert!(poisoned > 200 && missing < 500, "{missing} {poisoned}");
    }
}

#[test]
fn a_device_that_pins_lost_memory_is_given_none_of_it() {
    if can_poison() {
        let (_, poisoned) = live(Loses::Buffers, true);
        assert!(poisoned > 200, "{poisoned}");
    }
}

#[test]
fn items_on_their_way_to_flash_may_be_lost() {
    if can_poison() {
        let (missing, poisoned) = live(Loses::Items, false);
        // A page has some four of these items.
        assert!(missing < 500 + 12 * poisoned, "{missing} {poisoned}");
    }
}

#[test]
fn pages_of_the_index_that_name_what_is_on_flash_may_be_lost() {
    if can_poison() {
        let (missing, poisoned) = live(Loses::Index, false);
        assert!(
            missing > 60 && missing < 64 * 7 * poisoned,
            "{missing} {poisoned}"
        );
    }
}

#[test]
fn all_of_it_may_be_lost_together() {
    if can_poison() {
        live(Loses::All, false);
    }
}
