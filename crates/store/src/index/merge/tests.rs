//! Merges of sub-tables that have no room for one another's slots.

use super::*;
use crate::index::slot::Location;
use crate::index::{Bucket, Directory, Inserted};
use crate::key::Tag;
use crate::memory::{Doubled, Mapping, Slice};

/// An index of two sub-tables that a split has made.
fn index() -> Index {
    let mapping = Mapping::reserve(2 << 20).unwrap();
    let words = Doubled::new(&mapping, (0, 4096), 2);
    let buckets: Slice<Bucket> = Slice::new(&mapping, 0, (1 << 20) / 64);
    let index = Index::new(Directory::new(words, 0), buckets);
    index.adopt_first_tables(|| TableId(1));
    let mut split = index.split(KeyHash(0), TableId(2)).unwrap();
    assert!(index.migrate(&mut split, TABLE_BUCKETS));
    index
}

fn hash(tag: u16) -> KeyHash {
    KeyHash(u64::from(tag) << 48 | 300)
}

fn slot(tag: u16) -> Slot {
    Slot::item(
        Tag(tag),
        Location::of_offset(usize::from(tag) * 64 + 64),
        64,
    )
}

/// Tags of keys of the same two buckets, of either half.
fn colliding(upper: bool) -> impl Iterator<Item = u16> {
    let other = alternate(0, Tag(1));
    (0..=u16::MAX).filter(move |&tag| alternate(0, Tag(tag)) == other && (tag >> 15 == 1) == upper)
}

/// Fills the two buckets in both sub-tables.
fn fill(index: &Index) -> Vec<u16> {
    let tags: Vec<u16> = [false, true]
        .into_iter()
        .flat_map(|upper| colliding(upper).take(2 * SLOTS))
        .collect();
    for &tag in &tags {
        assert_eq!(index.lock(hash(tag)).insert(slot(tag)), Inserted::Free);
    }
    tags
}

fn stand(index: &Index, tags: &[u16]) -> usize {
    let is_there = |&&tag: &&u16| {
        let found = index.find(hash(tag), |found| found == slot(tag));
        found.is_some()
    };
    tags.iter().filter(is_there).count()
}

/// A merge that has moved what there is room for.
fn stuck(index: &Index) -> Merge {
    let mut merge = index.begin_merge(0).0.unwrap();
    for _ in 0..3 {
        assert_eq!(index.drain(&mut merge, TABLE_BUCKETS), Drained::NoRoom);
    }
    merge
}

#[test]
fn what_finds_no_room_is_given_up_and_the_merge_ends() {
    let index = index();
    let tags = fill(&index);
    let mut merge = stuck(&index);
    assert_eq!(stand(&index, &tags), tags.len());
    let gone = index.give_up_left(&merge);
    assert_eq!(gone.len(), 2 * SLOTS);
    assert_eq!(stand(&index, &tags), tags.len() - gone.len());
    for gone in gone {
        let _ = gone.into_slot();
    }
    assert_eq!(index.drain(&mut merge, TABLE_BUCKETS), Drained::Wholly);
    assert_eq!(index.settle_merge(&merge), Some(TableId(2)));
    assert_eq!(stand(&index, &tags), 2 * SLOTS);
}

#[test]
fn a_merge_goes_on_when_there_is_room() {
    let index = index();
    let tags = fill(&index);
    let mut merge = stuck(&index);
    for &tag in &tags[..2 * SLOTS] {
        let place = index.find(hash(tag), |found| found == slot(tag)).unwrap();
        let gone = place.lock().unwrap().replace(Slot::EMPTY);
        let _ = gone.into_slot();
    }
    assert_eq!(index.drain(&mut merge, TABLE_BUCKETS), Drained::Wholly);
    assert_eq!(stand(&index, &tags[2 * SLOTS..]), 2 * SLOTS);
}

/// The next process finds two sub-tables, with all that was there.
#[test]
fn a_takeover_undoes_a_merge_without_room() {
    let index = index();
    let tags = fill(&index);
    let merge = stuck(&index);
    // One of them was already where it goes when the process died.
    assert!(index.items_in(merge.entry.other(), 300) > 0);
    let contents = index.take_over(|table| table.0 < 3, |_| true).unwrap();
    assert_eq!(contents.tables, [TableId(1), TableId(2)]);
    assert_eq!(contents.items, tags.len() as u64);
    assert_eq!(stand(&index, &tags), tags.len());
    // The same once more, and with a merge that was begun and not drained.
    index.begin_merge(0).0.unwrap();
    let contents = index.take_over(|table| table.0 < 3, |_| true).unwrap();
    assert_eq!(contents.items, tags.len() as u64);
    assert_eq!(stand(&index, &tags), tags.len());
}
