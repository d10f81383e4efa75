//! Where the parts of an item lie.
//!
//! ```text
//! byte 0        1        2                 4                 8
//!      +--------+--------+-----------------+-----------------+
//!      | key    | fields | value length    |     access      |
//!      | length |        | below 64 KiB    |  time and marks |
//!      +--------+--------+-----------------+-----------------+
//!      [expiry 4] [client flags 4] [long value length 4] [chunk count 4] [CAS 8]  as `fields` says
//!      key
//!      value, or, in a head, at the next multiple of 8: one location a chunk
//!
//! fields  7       6        5       4       3       2       1        0
//!      +------+-------+--------+-------+-------+-------+--------+--------+
//!      | free | piece | key is |  CAS  | chunk | long  | client | expiry |
//!      |      |       | binary |       | count | length| flags  |        |
//!      +------+-------+--------+-------+-------+-------+--------+--------+
//!
//! access 31      30       29    28     27                                      0
//!        +-------+--------+-----+------+---------------------------------------+
//!        | CAS   | fetch- | won | stale|  last access, seconds since the store |
//!        | known | ed     |     |      |  was made                             |
//!        +-------+--------+-----+------+---------------------------------------+
//! ```
//! The expiry is a second since the epoch, 0 for never. An item that is stored without an expiry
//! has no room for one: it is rewritten when it is given one. Values of 64 KiB and more always have
//! the room, and so have heads, so that no large value is copied for that.
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
//! Items begin at multiples of 8. One field bit is free, for milliseconds of the expiry or for a
//! namespace's generation.

use crate::index::slot::GRANULE;
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
pub(super) const PIECE: u8 = 64;

/// Values of at least this length need the long length field.
const LONG_FROM: usize = 1 << 16;

/// Marks in an item's access word.
pub(crate) mod mark {
    pub(crate) const STALE: u32 = 1 << 28;
    pub(crate) const WON: u32 = 1 << 29;
    pub(crate) const FETCHED: u32 = 1 << 30;
    pub(crate) const CAS_KNOWN: u32 = 1 << 31;
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
        Layout::of(fields, self.key.len(), self.body_len())
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
            access: 0,
            value_len,
            chunks: None,
        }
    }
}

impl Layout {
    #[inline]
    pub(super) fn of(fields: u8, key_len: usize, body_len: usize) -> Layout {
        let key_at = key_at(fields);
        let mut body_at = key_at + key_len;
        if fields & HEAD != 0 {
            body_at = aligned(body_at);
        }
        Layout {
            fields,
            key_at,
            body_at,
            total: aligned(body_at + body_len),
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
    key_at(fields & (field - 1))
}

/// Bytes of the optional fields, for each value of the field bits: every lookup needs it.
const OPTIONAL_LEN: [u8; 256] = {
    let mut table = [0; 256];
    let mut fields = 0;
    while fields < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let bits = fields as u8;
        let words = (bits & EXPIRY != 0) as u8
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

/// The first bytes of an item, enough to contain all that determines its length.
pub(crate) const LEN_AT_MOST: usize = 32;

/// The length of the item or piece that begins with these bytes.
fn total_len_of(header: &[u8; LEN_AT_MOST]) -> usize {
    let word = |at: usize| {
        let bytes = header[at..].first_chunk().copied();
        u32::from_ne_bytes(bytes.unwrap_or_default()) as usize
    };
    let fields = header[1];
    if fields & PIECE != 0 {
        return piece_len(word(4));
    }
    let body_len = if fields & HEAD != 0 {
        word(field_at(fields, HEAD)) * 8
    } else if fields & LONG != 0 {
        word(field_at(fields, LONG))
    } else {
        usize::from(u16::from_ne_bytes([header[2], header[3]]))
    };
    Layout::of(fields, usize::from(header[0]), body_len).total
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
        let len = total_len_of(&header);
        if len > handed_out - end {
            break;
        }
        end += len;
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
        let lens = [
            (EXPIRY, 4),
            (CLIENT_FLAGS, 4),
            (LONG, 4),
            (HEAD, 4),
            (CAS, 8),
        ];
        for fields in 0..=u8::MAX {
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
