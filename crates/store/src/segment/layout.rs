//! Where the parts of an item lie.
//!
//! ```text
//! byte 0        1        2                 4                 8
//!      +--------+--------+-----------------+-----------------+
//!      | key    | fields | value length    |     access      |
//!      | length |        | below 64 KiB    |  time and marks |
//!      +--------+--------+-----------------+-----------------+
//!      [expiry 4 or 8] [client flags 4] [long value length 4] [chunk count 4] [CAS 8]  as `fields` says
//!      key
//!      value, or, in a head, at the next multiple of 8: one location a chunk
//!      [1 to 4 tags of 8, at the next multiple of 8]
//!
//! fields  7       6        5       4       3       2       1        0
//!      +-------+-------+--------+-------+-------+-------+--------+--------+
//!      | expiry| tags  | key is |  CAS  | chunk | long  | client | expiry |
//!      | has 8 |       | binary |       | count | length| flags  |        |
//!      +-------+-------+--------+-------+-------+-------+--------+--------+
//!
//! access 31      30       29    28     27                                      0
//!        +-------+--------+-----+------+---------------------------------------+
//!        | CAS   | fetch- | won | stale|  last access, seconds since the store |
//!        | known | ed     |     |      |  was made                             |
//!        +-------+--------+-----+------+---------------------------------------+
//! ```
//! The expiry is a second since the epoch, 0 for never; in eight bytes an
//! [`Expiry`] with its milliseconds. An item that is stored without an expiry has no room for one: it
//! is rewritten when it is given one, and when it is given milliseconds for the first time. Values of
//! 64 KiB and more always have room for a second, and so have heads, so that no large value is copied
//! for that. The first of the tags says how many there are ([`TagWord`]).
//!
//! A value too large for one item is a head and chunks ("pieces" here, since they may lie in
//! different segments):
//!
//! ```text
//! byte 0        1        2       4             8         12      16            24
//!      +--------+--------+-------+-------------+---------+-------+-------------+------
//!      |   0    | PIECE  |   0   | data length |  index  |   0   | key's hash  | data
//!      +--------+--------+-------+-------------+---------+-------+-------------+------
//! ```
//! Items begin at multiples of 8. PIECE is the bit of a chunk count without that of an expiry, which
//! every head has.

use crate::index::slot::GRANULE;
use crate::tags::TagWord;
use crate::time::Expiry;

/// Bytes that every item has before its optional fields.
pub(super) const HEADER_LEN: usize = 8;
/// Where the access word is.
pub(super) const ACCESS_AT: usize = 4;
/// Where the expiry is in an item that has one. It is the first optional field, at a fixed offset,
/// since every lookup reads it.
pub(super) const EXPIRY_AT: usize = HEADER_LEN;
/// Where a piece's data begins.
pub(crate) const PIECE_HEADER_LEN: usize = 24;

// The bits of the optional fields are in the order of the fields.
pub(super) const EXPIRY: u8 = 1;
pub(super) const CLIENT_FLAGS: u8 = 2;
pub(super) const LONG: u8 = 4;
pub(super) const HEAD: u8 = 8;
pub(super) const CAS: u8 = 16;
pub(super) const KEY_IS_BINARY: u8 = 32;
pub(super) const TAGS: u8 = 64;
/// The expiry has eight bytes. Its bit counts as the lowest.
pub(super) const FINE: u8 = 128;
/// Marks a piece, together with [`EXPIRY`] unset.
pub(super) const PIECE: u8 = HEAD;

/// Values of at least this length need the long length field.
const LONG_FROM: usize = 1 << 16;

/// Marks in an item's access word.
pub(crate) mod mark {
    pub(crate) const STALE: u32 = 1 << 28;
    pub(crate) const WON: u32 = 1 << 29;
    pub(crate) const FETCHED: u32 = 1 << 30;
    pub(crate) const CAS_KNOWN: u32 = 1 << 31;
    /// Those that a client can tell.
    pub(crate) const CLIENTS: u32 = STALE | WON | CAS_KNOWN;
    /// The access time.
    pub(crate) const TIME: u32 = STALE - 1;
}

/// What an item is made from.
#[derive(Clone, Copy)]
pub(crate) struct Draft<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) key_is_binary: bool,
    pub(crate) client_flags: u32,
    /// An explicit CAS, which does not follow from the item's place.
    pub(crate) cas: Option<u64>,
    /// `None` for an item without room for an expiry, which therefore never expires.
    pub(crate) expiry: Option<Expiry>,
    /// Whether the room for an expiry, if there is any, has eight bytes.
    pub(crate) fine: bool,
    /// At most [`TAGS_MAX`](crate::tags::TAGS_MAX).
    pub(crate) tags: &'a [TagWord],
    /// Marks and time of the access word.
    pub(crate) access: u32,
    pub(crate) value_len: usize,
    /// A head's number of chunks; `None` for an item that holds its value.
    pub(crate) chunks: Option<u32>,
}

/// Where an item's parts lie, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(super) fields: u8,
    pub(super) key_at: usize,
    pub(crate) body_at: usize,
    /// All bytes, a multiple of 8.
    pub(crate) total: usize,
}

impl Draft<'_> {
    #[inline]
    pub(crate) fn layout(&self) -> Layout {
        let mut fields = 0;
        if self.expiry.is_some() {
            fields |= EXPIRY;
        }
        if self.client_flags != 0 {
            fields |= CLIENT_FLAGS;
        }
        if self.value_len >= LONG_FROM {
            fields |= LONG | EXPIRY;
        }
        if self.cas.is_some() {
            fields |= CAS;
        }
        if self.key_is_binary {
            fields |= KEY_IS_BINARY;
        }
        if self.chunks.is_some() {
            fields |= HEAD | EXPIRY;
        }
        if self.fine && fields & EXPIRY != 0 {
            fields |= FINE;
        }
        if !self.tags.is_empty() {
            fields |= TAGS;
        }
        Layout::of(fields, self.key.len(), self.body_len(), self.tags.len())
    }

    /// Bytes of the value, or of a head's locations.
    #[inline]
    pub(super) fn body_len(&self) -> usize {
        self.chunks
            .map_or(self.value_len, |chunks| chunks as usize * 8)
    }
}

#[cfg(test)]
impl<'a> Draft<'a> {
    /// An item without optional fields.
    pub(super) fn plain(key: &'a [u8], value_len: usize) -> Draft<'a> {
        Draft {
            key,
            key_is_binary: false,
            client_flags: 0,
            cas: None,
            expiry: None,
            fine: false,
            tags: &[],
            access: 0,
            value_len,
            chunks: None,
        }
    }
}

impl Layout {
    #[inline]
    pub(super) fn of(fields: u8, key_len: usize, body_len: usize, tags: usize) -> Layout {
        let key_at = key_at(fields);
        let mut body_at = key_at + key_len;
        if fields & HEAD != 0 {
            body_at = aligned(body_at);
        }
        Layout {
            fields,
            key_at,
            body_at,
            total: aligned(body_at + body_len) + tags * size_of::<TagWord>(),
        }
    }
}

/// `len`, rounded up to a multiple of [`GRANULE`]. `next_multiple_of` would first check whether it
/// is one.
#[inline(always)]
const fn aligned(len: usize) -> usize {
    (len + (GRANULE - 1)) & !(GRANULE - 1)
}

/// Where the key begins, after the optional fields.
#[inline]
pub(super) fn key_at(fields: u8) -> usize {
    HEADER_LEN + usize::from(OPTIONAL_LEN[usize::from(fields)])
}

/// Where the optional field `field` begins, after those before it.
#[inline]
pub(super) fn field_at(fields: u8, field: u8) -> usize {
    key_at(fields & ((field - 1) | FINE))
}

/// Bytes of the optional fields, for each value of the field bits: every lookup needs it.
const OPTIONAL_LEN: [u8; 256] = {
    let mut table = [0; 256];
    let mut fields = 0;
    while fields < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let bits = fields as u8;
        let words = (bits & EXPIRY != 0) as u8
            + (bits & (EXPIRY | FINE) == EXPIRY | FINE) as u8
            + (bits & CLIENT_FLAGS != 0) as u8
            + (bits & LONG != 0) as u8
            + (bits & HEAD != 0) as u8
            + 2 * (bits & CAS != 0) as u8;
        table[fields] = 4 * words;
        fields += 1;
    }
    table
};

/// All bytes of a piece of `data_len`.
pub(crate) fn piece_len(data_len: usize) -> usize {
    aligned(PIECE_HEADER_LEN + data_len)
}

/// The first bytes of an item, enough to contain all that determines its length, but for its tags.
pub(crate) const LEN_AT_MOST: usize = 32;

/// Whether an item with these fields is a piece.
#[inline]
pub(super) fn is_piece(fields: u8) -> bool {
    fields & (PIECE | EXPIRY) == PIECE
}

/// The length of the item or piece that begins with these bytes. `tags` is called with the place of
/// its tags, if it has any, and returns their number.
fn total_len_of(
    header: &[u8; LEN_AT_MOST],
    tags: impl FnOnce(usize) -> Option<usize>,
) -> Option<usize> {
    let word = |at: usize| {
        let bytes = header[at..].first_chunk().copied();
        u32::from_ne_bytes(bytes.unwrap_or_default()) as usize
    };
    let fields = header[1];
    if is_piece(fields) {
        return Some(piece_len(word(4)));
    }
    let body_len = if fields & HEAD != 0 {
        word(field_at(fields, HEAD)) * 8
    } else if fields & LONG != 0 {
        word(field_at(fields, LONG))
    } else {
        usize::from(u16::from_ne_bytes([header[2], header[3]]))
    };
    let len = Layout::of(fields, usize::from(header[0]), body_len, 0).total;
    if fields & TAGS == 0 {
        return Some(len);
    }
    Some(len + tags(len)? * size_of::<TagWord>())
}

/// Whether these bytes are one whole item, or the head of one whose pieces lie on flash: [`places_of`] are theirs.
pub(crate) fn is_record(bytes: &[u8]) -> bool {
    if bytes.len() < HEADER_LEN || is_piece(bytes[1]) {
        return false;
    }
    let mut header = [0; LEN_AT_MOST];
    let there = LEN_AT_MOST.min(bytes.len());
    header[..there].copy_from_slice(&bytes[..there]);
    let tags = |at: usize| {
        let low = bytes.get(at..)?.first_chunk()?;
        Some(TagWord::count(u32::from_ne_bytes(*low)))
    };
    total_len_of(&header, tags) == Some(bytes.len())
}

/// The words that a head on flash has in the place of its pieces' locations; none for any other record.
pub(crate) fn places_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let fields = bytes.get(1).copied().unwrap_or(0);
    let is_head = fields & HEAD != 0 && is_record(bytes);
    let body = is_head.then(|| {
        let at = field_at(fields, HEAD);
        let count = bytes[at..].first_chunk().copied().unwrap_or_default();
        let len = u32::from_ne_bytes(count) as usize * 8;
        let layout = Layout::of(fields, usize::from(bytes[0]), len, 0);
        &bytes[layout.body_at..layout.body_at + len]
    });
    let words = body.unwrap_or_default().as_chunks::<8>().0;
    words.iter().map(|word| u64::from_ne_bytes(*word))
}

/// The marks of an item that mean something to a client, and its expiry: what may have changed since it was
/// copied. `bytes` begin with a whole item.
pub(crate) fn changing(bytes: &[u8]) -> (u32, Expiry) {
    let word = |at: usize| bytes[at..].first_chunk().copied().unwrap_or_default();
    let marks = u32::from_ne_bytes(word(ACCESS_AT)) & mark::CLIENTS;
    let fields = bytes[1];
    let expiry = if fields & EXPIRY == 0 {
        Expiry::NEVER
    } else if fields & FINE == 0 {
        Expiry::of_coarse(u32::from_ne_bytes(word(EXPIRY_AT)))
    } else {
        let fine = bytes[EXPIRY_AT..].first_chunk().copied();
        Expiry::of_fine(u64::from_ne_bytes(fine.unwrap_or_default()))
    };
    (marks, expiry)
}

/// Where the items end in a segment of which `handed_out` bytes were handed out. Each place was
/// handed out after all headers before it had been written. `read` copies bytes of the segment. The
/// last item counts if the header found in its place has exactly the length of the place: that is
/// so if it was written.
pub(crate) fn end_of_items(handed_out: usize, read: impl Fn(usize, &mut [u8])) -> usize {
    let mut end = 0;
    while end < handed_out {
        let mut header = [0; LEN_AT_MOST];
        let there = LEN_AT_MOST.min(handed_out - end);
        read(end, &mut header[..there]);
        let left = handed_out - end;
        let tags = |at: usize| {
            let mut low = [0; 4];
            let is_inside = at.checked_add(low.len()).is_some_and(|to| to <= left);
            is_inside.then(|| {
                read(end + at, &mut low);
                TagWord::count(u32::from_ne_bytes(low))
            })
        };
        match total_len_of(&header, tags) {
            Some(len) if len <= left => end += len,
            _ => break,
        }
    }
    end
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn total(key: &[u8], value_len: usize) -> usize {
        Draft::plain(key, value_len).layout().total
    }

    #[test]
    fn a_small_item_costs_its_bytes_and_eight() {
        assert_eq!(total(b"0123456789", 10), 32);
        assert_eq!(total(b"0123456789", 100), 120);
        assert_eq!(total(b"k", 0), 16);
    }

    #[test]
    fn an_expiry_and_client_flags_cost_four_bytes_each() {
        let plain = Draft::plain(b"0123456789", 102);
        let mortal = Draft {
            expiry: Some(Expiry::NEVER),
            ..plain
        };
        let flagged = Draft {
            client_flags: 1,
            ..mortal
        };
        let bodies = [plain, mortal, flagged].map(|draft| draft.layout().body_at);
        assert_eq!(bodies, [18, 22, 26]);
    }

    #[test]
    fn a_tag_costs_eight_bytes_and_milliseconds_four_more() {
        let plain = Draft::plain(b"0123456789", 102);
        let words = [TagWord::default(); 4];
        let tagged = (0..=4).map(|count| Draft {
            tags: &words[..count],
            ..plain
        });
        let totals: Vec<usize> = tagged.map(|draft| draft.layout().total).collect();
        assert_eq!(totals, [120, 128, 136, 144, 152]);
        let fine = Draft {
            expiry: Some(Expiry::at_millis(1)),
            fine: true,
            ..plain
        };
        assert_eq!(fine.layout().body_at, 26);
        let no_room = Draft {
            fine: true,
            ..plain
        };
        assert_eq!(no_room.layout(), plain.layout());
    }

    #[test]
    fn no_item_looks_like_a_piece() {
        let words = [TagWord::default()];
        for chunks in [None, Some(2)] {
            for value_len in [0, LONG_FROM] {
                for tags in [&[][..], &words] {
                    let draft = Draft {
                        chunks,
                        tags,
                        fine: true,
                        ..Draft::plain(b"k", value_len)
                    };
                    assert!(!is_piece(draft.layout().fields));
                }
            }
        }
        assert!(is_piece(PIECE));
    }

    #[test]
    fn great_values_always_have_room_for_an_expiry() {
        let plain = Draft::plain(b"k", LONG_FROM - 1);
        let long = Draft::plain(b"k", LONG_FROM);
        let head = Draft {
            chunks: Some(1),
            ..plain
        };
        let rooms = [plain, long, head].map(|draft| draft.layout().fields & EXPIRY != 0);
        assert_eq!(rooms, [false, true, true]);
    }

    /// The order of bits is the order of fields, so fields do not overlap.
    #[test]
    fn optional_fields_follow_one_another() {
        for fields in 0..=u8::MAX {
            let lens = [
                (EXPIRY, if fields & FINE == 0 { 4 } else { 8 }),
                (CLIENT_FLAGS, 4),
                (LONG, 4),
                (HEAD, 4),
                (CAS, 8),
            ];
            let mut at = HEADER_LEN;
            for (field, len) in lens {
                if fields & field != 0 {
                    assert_eq!(field_at(fields, field), at, "{fields:#b}");
                    at += len;
                }
            }
            assert_eq!(key_at(fields), at);
        }
    }
}
