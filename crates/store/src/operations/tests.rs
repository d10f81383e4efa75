//! Keys that collide in all their hash bits. No client can choose them, but they can occur.

use crate::key::{Key, KeyHash};
use crate::{Access, Config, Delete, Deleted, Expiry, Put, Refused, Store, Stored, UnixSeconds};
use std::sync::Arc;

const NOW: UnixSeconds = UnixSeconds(1_000_000);

fn store(evict: bool) -> Arc<Store> {
    let config = Config {
        memory: if cfg!(miri) { 8 << 20 } else { 64 << 20 },
        index_bits: cfg!(miri).then_some(0),
        evict,
        seed: Some(3),
        ..Config::default()
    };
    Store::new(config, NOW).unwrap()
}

/// A key that the store believes to have the hash `hash`. Memory must not run so full that the
/// cleaner looks it up by its real hash.
fn colliding(bytes: &[u8], hash: u64) -> Key<'_> {
    Key {
        bytes,
        hash: KeyHash(hash),
    }
}

#[test]
#[cfg_attr(miri, ignore = "splits sub-tables as often as they may")]
fn the_least_used_of_keys_that_collide_gives_way() {
    let store = store(true);
    let mut worker = store.worker(0);
    let mut burst = worker.burst(NOW);
    let hash = 0xdead_beef_0123_4567;
    let names: Vec<[u8; 4]> = (0..1000u32).map(u32::to_le_bytes).collect();
    for (i, name) in names.iter().enumerate() {
        let stored = burst.store(&colliding(name, hash), &Put::set(0, Expiry::NEVER), name);
        assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
        // The first is read again and again, so it is never the least used.
        for name in [&names[0], &names[i]] {
            let item = burst.get(&colliding(name, hash), Access::default());
            assert_eq!(item.unwrap().as_slice(), Some(&name[..]));
        }
    }
    let found = names
        .iter()
        .filter(|name| {
            burst
                .get(&colliding(&name[..], hash), Access::default())
                .is_ok()
        })
        .count();
    assert_eq!(found, 14, "two buckets of seven");
    let stats = store.stats();
    assert_eq!(
        (stats.items, stats.totals.evicted_index_full),
        (14, 1000 - 14)
    );
    // The sub-table split as far as it may, and no further.
    assert!(stats.totals.splits <= 7, "{stats:?}");
    for name in &names {
        burst.delete(&colliding(name, hash), &Delete::default());
    }
    assert_eq!(store.stats().items, 0);
}

#[test]
#[cfg_attr(miri, ignore = "splits sub-tables as often as they may")]
fn with_evictions_off_keys_that_find_no_place_are_refused() {
    let store = store(false);
    let mut worker = store.worker(0);
    let mut burst = worker.burst(NOW);
    let names: Vec<[u8; 4]> = (0..20u32).map(u32::to_le_bytes).collect();
    for (i, name) in names.iter().enumerate() {
        let stored = burst.store(&colliding(name, 77), &Put::set(0, Expiry::NEVER), name);
        if i < 14 {
            assert!(matches!(stored, Stored::Stored { .. }), "{i}: {stored:?}");
        } else {
            assert_eq!(stored, Stored::Refused(Refused::OutOfMemory), "{i}");
        }
    }
    for name in &names[..14] {
        assert_eq!(
            burst.delete(&colliding(name, 77), &Delete::default()),
            Deleted::Done
        );
    }
}

/// Keys of one bucket and different tags displace each other until their sub-table has to split.
#[test]
fn keys_of_one_bucket_spread_over_the_sub_table() {
    let store = store(true);
    let mut worker = store.worker(0);
    let mut burst = worker.burst(NOW);
    let names: Vec<[u8; 4]> = (0..if cfg!(miri) { 20 } else { 200u32 })
        .map(u32::to_le_bytes)
        .collect();
    let hash = |i: usize| (i as u64 * 331) << 48 | 5;
    for (i, name) in names.iter().enumerate() {
        let stored = burst.store(&colliding(name, hash(i)), &Put::set(0, Expiry::NEVER), name);
        assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
    }
    for (i, name) in names.iter().enumerate() {
        let item = burst.get(&colliding(name, hash(i)), Access::default());
        assert_eq!(item.unwrap().as_slice(), Some(&name[..]), "{i}");
    }
    assert_eq!(store.stats().totals.evicted, 0);
}
