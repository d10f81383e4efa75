use super::*;
use crate::segment::layout::HEADER_LEN;
use crate::tags::{TAGS_MAX, TagWords};
use proptest::prelude::*;

/// A description of an item whose value is one byte repeated.
#[derive(Clone, Debug)]
struct Sketch {
    key: Vec<u8>,
    key_is_binary: bool,
    client_flags: u32,
    cas: Option<u64>,
    expiry: Option<u32>,
    fine: Option<u64>,
    tags: Vec<TagWord>,
    access: u32,
    value_len: usize,
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let lengths = prop_oneof![8 => 0..200usize, 1 => 65_530..65_540usize];
    let expiry = proptest::option::of(prop_oneof![Just(0), any::<u32>()]);
    let flags = prop_oneof![Just(0), any::<u32>()];
    let fine = proptest::option::of(1..u64::from(u32::MAX) * 1000);
    let tags = proptest::collection::vec(1..1u32 << 30, 0..=TAGS_MAX);
    (
        (
            proptest::collection::vec(any::<u8>(), 0..=250),
            any::<bool>(),
        ),
        (flags, proptest::option::of(any::<u64>()), expiry),
        (any::<u32>(), lengths, fine, tags),
    )
        .prop_map(|(key, words, (access, value_len, fine, tags))| Sketch {
            key: key.0,
            key_is_binary: key.1,
            client_flags: words.0,
            cas: words.1,
            expiry: words.2,
            fine,
            tags: TagWords::for_tests(&tags).to_vec(),
            access,
            value_len,
        })
}

impl Sketch {
    fn draft(&self) -> Draft<'_> {
        Draft {
            key: &self.key,
            key_is_binary: self.key_is_binary,
            client_flags: self.client_flags,
            cas: self.cas,
            expiry: match self.fine {
                Some(millis) => Some(Expiry::at_millis(millis)),
                None => self.expiry.map(|second| Expiry::at(UnixSeconds(second))),
            },
            fine: self.fine.is_some(),
            tags: &self.tags,
            access: self.access,
            value_len: self.value_len,
            chunks: None,
        }
    }

    fn fill(&self) -> u8 {
        self.access.to_ne_bytes()[0]
    }

    fn assert_is(&self, item: RawItem<'_>, cas: Option<u64>) {
        let draft = self.draft();
        assert_eq!(item.key(), draft.key);
        assert!(item.key_is(draft.key));
        assert_eq!(item.value(), vec![self.fill(); draft.value_len]);
        assert_eq!(item.client_flags(), draft.client_flags);
        assert_eq!(item.explicit_cas(), cas);
        assert_eq!(item.key_is_binary(), draft.key_is_binary);
        assert_eq!(item.expiry(), draft.expiry.unwrap_or(Expiry::NEVER));
        assert_eq!(item.access(), draft.access);
        assert!(item.tags().eq(draft.tags.iter().copied()));
        assert_eq!(item.has_tags(), !draft.tags.is_empty());
        assert!(!item.is_piece() && !item.is_head());
    }
}

/// The item at `offset`, which the caller has written.
fn item_at(memory: &Mapping, offset: usize) -> RawItem<'_> {
    // SAFETY: the memory is one test's alone, which has written an item there.
    unsafe { RawItem::new(memory, Location::of_offset(offset)) }
}

/// Space that belongs to the test that made the memory.
fn space_at(memory: &Mapping, offset: usize, len: usize) -> Space<'_> {
    // SAFETY: the memory is one test's alone, which looks at what it has written only afterwards.
    unsafe { Space::new(memory, Location::of_offset(offset), len) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 64 }))]

    /// Items that follow one another are read back as they were written. A copy with or without a
    /// CAS and with room for an expiry is otherwise the same.
    #[test]
    fn what_is_written_is_read(sketches in proptest::collection::vec(sketch(), 1..6), carries in any::<bool>(), makes_fine in any::<bool>()) {
        let memory = Mapping::reserve(2 << 20).unwrap();
        let mut end = 4096;
        for sketch in &sketches {
            let total = sketch.draft().layout().total;
            space_at(&memory, end, total).write_item(&sketch.draft()).fill(sketch.fill());
            end += total;
        }
        let mut at = 4096;
        for sketch in &sketches {
            let item = item_at(&memory, at);
            sketch.assert_is(item, sketch.cas);
            at += item.total_len();

            let mut draft = Draft { cas: carries.then_some(9), ..item.draft() };
            let has_room = sketch.expiry.or(sketch.fine.map(|_| 0)).is_some();
            prop_assert_eq!(draft.expiry.is_some(), has_room || sketch.value_len >= 1 << 16);
            draft.expiry.get_or_insert(Expiry::NEVER);
            draft.fine |= makes_fine;
            draft.tags = &sketch.tags;
            let copied = 1 << 20;
            let len = draft.layout().total;
            item.copy_to(&mut space_at(&memory, copied, len), &draft);
            let copy = item_at(&memory, copied);
            item.copy_changing(copy);
            sketch.assert_is(copy, draft.cas);
            prop_assert_eq!(copy.total_len(), len);
            prop_assert!(copy.takes_expiry(Expiry::at(UnixSeconds(5))));
            let fine = Expiry::at_millis(5_001);
            prop_assert_eq!(copy.takes_expiry(fine), draft.fine);
            if draft.fine {
                for expiry in [fine, Expiry::NEVER, Expiry::at(UnixSeconds(5)), fine] {
                    copy.set_expiry(expiry);
                    prop_assert_eq!(copy.expiry(), expiry);
                }
                prop_assert_eq!(copy.value(), item.value());
            }
        }
        prop_assert_eq!(at, end);
    }
}

#[test]
fn an_expiry_is_changed_where_there_is_room_for_one() {
    let memory = Mapping::reserve(2 << 20).unwrap();
    let later = Expiry::at(UnixSeconds(78));
    let mortal = Draft {
        expiry: Some(Expiry::at(UnixSeconds(77))),
        ..Draft::plain(b"key", 3)
    };
    space_at(&memory, 64, mortal.layout().total)
        .write_item(&mortal)
        .fill(b'v');
    let item = item_at(&memory, 64);
    for expiry in [later, Expiry::NEVER, later] {
        assert!(item.takes_expiry(expiry));
        item.set_expiry(expiry);
        assert_eq!((item.expiry(), item.expiry_field()), (expiry, Some(expiry)));
    }
    // Its key is where the other item has its expiry.
    let immortal = Draft::plain(b"\x05\0\0\0key", 3);
    space_at(&memory, 128, immortal.layout().total)
        .write_item(&immortal)
        .fill(b'v');
    let item = item_at(&memory, 128);
    assert_eq!(immortal.layout().key_at, HEADER_LEN);
    item.set_expiry(Expiry::NEVER);
    assert_eq!((item.expiry(), item.expiry_field()), (Expiry::NEVER, None));
    assert!(item.takes_expiry(Expiry::NEVER) && !item.takes_expiry(later));
    assert_eq!((item.key(), item.value()), (immortal.key, &b"vvv"[..]));
}

#[test]
#[should_panic(expected = "no room for an expiry")]
fn an_item_without_room_takes_no_expiry() {
    let memory = Mapping::reserve(2 << 20).unwrap();
    let draft = Draft::plain(b"key", 3);
    space_at(&memory, 64, draft.layout().total).write_item(&draft);
    item_at(&memory, 64).set_expiry(Expiry::at(UnixSeconds(77)));
}

#[test]
fn heads_and_pieces_are_read_as_written() {
    let memory = Mapping::reserve(2 << 20).unwrap();
    let head = Draft {
        chunks: Some(3),
        ..Draft::plain(b"large", 200_000)
    };
    let mut space = space_at(&memory, 64, head.layout().total);
    let table = space.write_item(&head);
    for (i, entry) in table.chunks_exact_mut(8).enumerate() {
        entry.copy_from_slice(&(i as u64 + 5).to_ne_bytes());
    }
    let item = item_at(&memory, 64);
    let chunks: Vec<_> = item
        .chunks()
        .iter()
        .map(|c| c.load(Ordering::Relaxed))
        .collect();
    assert_eq!(chunks, [5, 6, 7]);
    assert_eq!(item.value_len(), 200_000);
    assert!(item.takes_expiry(Expiry::at(UnixSeconds(77))));

    space_at(&memory, 8192, piece_len(100))
        .write_piece(42, 2, 100)
        .fill(b'p');
    let piece = item_at(&memory, 8192);
    assert!(piece.is_piece());
    assert_eq!(
        (
            piece.piece_hash(),
            piece.piece_index(),
            piece.piece_data_len()
        ),
        (42, 2, 100)
    );
    assert_eq!(piece.piece_data(), [b'p'; 100]);
    assert_eq!(piece.total_len(), piece_len(100));
    let data = piece.piece_data();
    piece.copy_piece_to(&mut space_at(&memory, 16384, piece_len(100)), data);
    let copy = item_at(&memory, 16384);
    assert_eq!(
        (copy.piece_index(), copy.piece_data()),
        (2, piece.piece_data())
    );
}
