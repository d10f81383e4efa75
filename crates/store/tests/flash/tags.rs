//! The table of tags stays as long as an item on flash may need it, also for the next process, and no longer.

use crate::name;
use crate::restart::Files;
use crate::rig::*;
use coua_store::*;

const TAGGED: usize = 300;

fn fill(rig: &mut Rig, numbers: std::ops::Range<usize>) {
    for n in numbers {
        rig.set(&name(n), &[1; 1000]);
    }
    rig.settle();
}

/// So much time that the table would be given back.
fn wait(rig: &mut Rig) {
    for _ in 0..60 {
        rig.now += 1000;
        rig.turn();
    }
}

fn on_flash(rig: &mut Rig) -> Vec<usize> {
    (0..TAGGED).filter(|&n| rig.is_on_flash(&name(n))).collect()
}

#[test]
fn the_table_of_tags_stays_for_what_is_on_flash() {
    let mut files = Files::new("tags");
    let mut rig = Rig::with(Devices::new(&[64], 29), files.config(), 31);
    for n in 0..TAGGED {
        let mut tags = NO_TAGS;
        tags[0] = Some(rig.store.tag(b"tag"));
        let put = Put {
            tags,
            ..Put::set(0, Expiry::NEVER)
        };
        let stored = rig.put(&name(n), &put, &[2; 1000]);
        assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
    }
    // All of memory is others' now.
    fill(&mut rig, TAGGED..30_000);
    wait(&mut rig);
    let there = on_flash(&mut rig);
    assert!(there.len() > TAGGED / 2, "{}", there.len());
    assert!(rig.store.stats().memory_tags > 0);
    // The next process knows too.
    files.copy();
    let Rig { devices, .. } = rig;
    let mut rig = Rig::with(devices, files.config(), 31);
    assert!(matches!(rig.store.start(), Start::Warm(_)));
    wait(&mut rig);
    assert!(rig.store.stats().memory_tags > 0);
    let found = |rig: &mut Rig, n: usize| rig.value(&name(n)).is_some();
    let alive = there.iter().filter(|&&n| found(&mut rig, n)).count();
    assert!(alive + 20 > there.len(), "{alive} of {}", there.len());
    // Until the last of them is dropped from there.
    let mut next = 30_000;
    while !on_flash(&mut rig).is_empty() {
        assert!(next < 400_000, "they stay on flash");
        assert!(rig.store.stats().memory_tags > 0);
        fill(&mut rig, next..next + 2_000);
        next += 2_000;
    }
    while rig.store.stats().memory_tags > 0 {
        assert!(next < 600_000, "the table stays");
        fill(&mut rig, next..next + 2_000);
        wait(&mut rig);
        next += 2_000;
    }
}
