use super::*;

#[test]
fn what_is_written_is_read() {
    let memory = Mapping::reserve(2 << 20).unwrap();
    let key = [b'k'; 250];
    for flags in [0, 7] {
        for cas in [None, Some(0x0123_4567_89ab_cdef)] {
            for value_len in [0, 1, 65_535, 65_536, 70_001] {
                let draft = Draft {
                    client_flags: flags,
                    cas,
                    key_is_binary: flags == 7,
                    expiry: Expiry::at(UnixSeconds(77)),
                    access: mark::WON | 5,
                    ..Draft::plain(&key, value_len)
                };
                let location = Location::of_offset(4096);
                let total = draft.layout().total;
                // SAFETY: the memory is this test's alone.
                let mut space = unsafe { Space::new(&memory, location, total) };
                space.write_item(&draft).fill(b'v');
                // SAFETY: just written, used for nothing else.
                let item = unsafe { RawItem::new(&memory, location) };
                assert_eq!(item.key(), key);
                assert_eq!(item.value(), vec![b'v'; value_len]);
                assert_eq!(item.client_flags(), flags);
                assert_eq!(item.explicit_cas(), cas);
                assert_eq!(item.key_is_binary(), flags == 7);
                assert_eq!(item.expiry(), Expiry::at(UnixSeconds(77)));
                assert_eq!(item.access(), mark::WON | 5);
                assert_eq!(item.total_len(), total);
                // A copy that carries another CAS is else the same.
                let to = Location::of_offset(1 << 20);
                let len = item.len_with_cas(true);
                // SAFETY: as above.
                let mut space = unsafe { Space::new(&memory, to, len) };
                item.copy_to(&mut space, Some(9));
                // SAFETY: as above.
                let copy = unsafe { RawItem::new(&memory, to) };
                item.copy_changing(copy);
                assert_eq!((copy.explicit_cas(), copy.total_len()), (Some(9), len));
                assert_eq!((copy.key(), copy.value()), (item.key(), item.value()));
                assert_eq!(
                    (copy.access(), copy.expiry()),
                    (item.access(), item.expiry())
                );
            }
        }
    }
}

#[test]
fn heads_and_pieces_are_read_as_written() {
    let memory = Mapping::reserve(2 << 20).unwrap();
    let head = Draft {
        chunks: Some(3),
        ..Draft::plain(b"large", 200_000)
    };
    // SAFETY: the memory is this test's alone.
    let mut space = unsafe { Space::new(&memory, Location::of_offset(64), head.layout().total) };
    let table = space.write_item(&head);
    for (i, entry) in table.chunks_exact_mut(8).enumerate() {
        entry.copy_from_slice(&(i as u64 + 5).to_ne_bytes());
    }
    // SAFETY: just written.
    let item = unsafe { RawItem::new(&memory, Location::of_offset(64)) };
    let chunks: Vec<_> = item
        .chunks()
        .iter()
        .map(|c| c.load(Ordering::Relaxed))
        .collect();
    assert_eq!(chunks, [5, 6, 7]);
    assert_eq!(item.value_len(), 200_000);

    // SAFETY: as above.
    let mut space = unsafe { Space::new(&memory, Location::of_offset(8192), piece_len(100)) };
    space.write_piece(42, 2, 100).fill(b'p');
    // SAFETY: just written.
    let piece = unsafe { RawItem::new(&memory, Location::of_offset(8192)) };
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
    let to = Location::of_offset(16384);
    // SAFETY: as above.
    let mut space = unsafe { Space::new(&memory, to, piece_len(100)) };
    piece.copy_to(&mut space, None);
    // SAFETY: just written.
    let copy = unsafe { RawItem::new(&memory, to) };
    assert_eq!(
        (copy.piece_index(), copy.piece_data()),
        (2, piece.piece_data())
    );
}
