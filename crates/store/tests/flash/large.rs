//! Values in pieces: in memory they are longer than a quarter of a segment, which is 16 KiB here.

use crate::rig::*;
use crate::{fill, name};
use coua_flash::simulated::Faults;
use coua_store::*;

/// From what is one record though it is in pieces in memory, to what is many.
const LENS: [usize; 5] = [17_000, 60_000, 130_000, 200_000, 600_000];

fn large(n: usize, len: usize) -> Vec<u8> {
    let mut state = n as u64 + 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn len_of(n: usize) -> usize {
    LENS[n % LENS.len()] + n
}

fn key(n: usize) -> Vec<u8> {
    format!("large-{n}").into_bytes()
}

/// Stores so many, and then so much else that all go to flash.
fn with_large(seed: u64, count: usize) -> Rig {
    let mut rig = Rig::new(Devices::new(&[128], seed));
    for n in 0..count {
        rig.set(&key(n), &large(n, len_of(n)));
        rig.settle();
    }
    fill(&mut rig, 10_000);
    rig
}

fn on_flash(rig: &mut Rig, count: usize) -> Vec<usize> {
    (0..count).filter(|&n| rig.is_on_flash(&key(n))).collect()
}

#[test]
fn values_of_every_length_are_read_from_there() {
    let mut rig = with_large(41, 40);
    let there = on_flash(&mut rig, 40);
    for (at, _) in LENS.iter().enumerate() {
        let of_this = there.iter().filter(|&&n| n % LENS.len() == at).count();
        assert!(of_this >= 4, "{at}: {there:?} {:?}", rig.stats());
    }
    for &n in &there {
        let value = rig.value(&key(n));
        assert!(value.as_deref() == Some(&large(n, len_of(n))), "{n}");
    }
    assert_eq!((rig.stats().damaged, rig.stats().failed), (0, 0));
    // The second read may bring them back.
    for &n in &there {
        let value = rig.value(&key(n));
        assert!(value.is_none() || value == Some(large(n, len_of(n))), "{n}");
    }
}

#[test]
fn operations_find_them_in_memory() {
    let mut rig = with_large(42, 40);
    let there = on_flash(&mut rig, 40);
    let shown = Access {
        bump: false,
        cas: true,
    };
    let mut kept = 0;
    for &n in &there {
        let Ok(cas) = rig.get(&key(n), shown, |item| item.cas()) else {
            continue;
        };
        let mut value = large(n, len_of(n));
        match n % 3 {
            0 => {
                let append = Put {
                    mode: Mode::Append,
                    ..Put::set(0, Expiry::NEVER)
                };
                let stored = rig.put(&key(n), &append, b"behind");
                assert!(matches!(stored, Stored::Stored { .. }), "{n}: {stored:?}");
                value.extend_from_slice(b"behind");
            }
            1 => {
                let compare = |compare| Put {
                    mode: Mode::Cas,
                    compare,
                    ..Put::set(0, Expiry::NEVER)
                };
                assert_eq!(rig.put(&key(n), &compare(cas + 1), b"x"), Stored::Exists);
                assert_eq!(rig.get(&key(n), shown, |item| item.cas()), Ok(cas));
                assert_eq!(rig.value(&key(n)), Some(value));
                let stored = rig.put(&key(n), &compare(cas), b"x");
                assert!(matches!(stored, Stored::Stored { .. }), "{n}: {stored:?}");
                value = b"x".to_vec();
            }
            _ => {
                let later = Expiry::at(UnixSeconds(2_000_000));
                let touched = rig.run(&key(n), |burst, key| {
                    match burst.touch(key, later, Access::default()) {
                        Ok(item) => Ok(Some(item.value_len())),
                        Err(Untouched::Miss(Miss::OnFlash(place))) => Err(Again::OnFlash(place)),
                        Err(Untouched::Refused(Refused::Wait)) => Err(Again::Wait),
                        Err(_) => Ok(None),
                    }
                });
                assert_eq!(touched, Some(value.len()), "{n}");
                assert_eq!(rig.get(&key(n), shown, |item| item.cas()), Ok(cas));
            }
        }
        assert!(!rig.is_on_flash(&key(n)), "{n}");
        assert!(rig.value(&key(n)) == Some(value), "{n}");
        kept += 1;
    }
    assert!(kept > 20, "{kept}");
    assert_eq!(rig.store.stats().memory_held, 0);
}

#[test]
fn a_piece_whose_neighbours_are_lost_is_a_miss() {
    let mut rig = with_large(43, 40);
    rig.devices.devices[0].set_faults(Faults {
        read_errors: 0.1,
        ..Faults::default()
    });
    let (mut found, mut lost) = (0, 0);
    for n in on_flash(&mut rig, 40) {
        match rig.value(&key(n)) {
            Some(value) => {
                assert!(value == large(n, len_of(n)), "{n}");
                found += 1;
            }
            None => {
                assert!(!rig.is_on_flash(&key(n)), "{n}");
                lost += 1;
            }
        }
    }
    assert!(found > 3 && lost > 3, "{found} {lost}");
}

#[test]
fn they_go_with_the_oldest_and_never_in_part() {
    let mut rig = Rig::new(Devices::new(&[24], 44));
    let mut there = 0;
    for n in 0..400 {
        let len = len_of(n);
        rig.set(&key(n), &large(n, len));
        rig.set(
            &name(n),
            b"short, but long enough to go to flash with its key and all of its header",
        );
        rig.settle();
        let earlier = n * 7 % (n + 1);
        if let Some(value) = rig.value(&key(earlier)) {
            assert!(value == large(earlier, len_of(earlier)), "{earlier}");
            there += 1;
        }
    }
    let stats = rig.stats();
    assert!(stats.dropped > 50 && there > 50, "{there} {stats:?}");
}
