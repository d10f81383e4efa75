//! Where the parts of an item lie.
//!
//! ```text
//! byte 0        1        2                 4                 8                 12
//!      +--------+--------+-----------------+-----------------+-----------------+
//!      | key    | fields | value length    |     expiry      |     access      |
//!      | length |        | below 64 KiB    |     seconds     |  time and marks |
//!      +--------+--------+-----------------+-----------------+-----------------+
//!      [client flags 4] [long value length 4] [chunk count 4] [CAS 8]  as `fields` says
//!      key
//!      value, or, in a head, at the next multiple of 8: one location a chunk
//!
//! access 31      30       29    28     27                                      0
//!        +-------+--------+-----+------+---------------------------------------+
//!        | CAS   | fetch- | won | stale|  last access, seconds since the store |
//!        | known | ed     |     |      |  was made                             |
//!        +-------+--------+-----+------+---------------------------------------+
//! ```
//! A value too large for one item is a head and chunks ("pieces" here, since they may lie in
//! different segments):
//!
//! ```text
//! byte 0        1        2       4             8         12      16            24
//!      +--------+--------+-------+-------------+---------+-------+-------------+------
//!      |   0    | PIECE  |   0   | data length |  index  |   0   | key's hash  | data
//!      +--------+--------+-------+-------------+---------+-------+-------------+------
//! ```
//! Items begin at multiples of 8. The field bits 64 and 128 are free, for milliseconds of the
//! expiry and for a namespace's generation.

use crate::time::Expiry;

pub(super) const HEADER_LEN: usize = 12;
/// Where a piece's data begins.
pub(crate) const PIECE_HEADER_LEN: usize = 24;

pub(super) const CLIENT_FLAGS: u8 = 1;
pub(super) const LONG: u8 = 2;
pub(super) const CAS: u8 = 4;
pub(super) const KEY_IS_BINARY: u8 = 8;
pub(super) const HEAD: u8 = 16;
pub(super) const PIECE: u8 = 32;

/// Values from this length on need the long length field.
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
    /// A CAS that does not follow from the item's place.
    pub(crate) cas: Option<u64>,
    pub(crate) expiry: Expiry,
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
        if self.client_flags != 0 {
            fields |= CLIENT_FLAGS;
        }
        if self.value_len >= LONG_FROM {
            fields |= LONG;
        }
        if self.cas.is_some() {
            fields |= CAS;
        }
        if self.key_is_binary {
            fields |= KEY_IS_BINARY;
        }
        if self.chunks.is_some() {
            fields |= HEAD;
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
    /// An item with no optional fields.
    pub(super) fn plain(key: &'a [u8], value_len: usize) -> Draft<'a> {
        Draft {
            key,
            key_is_binary: false,
            client_flags: 0,
            cas: None,
            expiry: Expiry::NEVER,
            access: 0,
            value_len,
            chunks: None,
        }
    }
}

impl Layout {
    #[inline]
    pub(super) fn of(fields: u8, key_len: usize, body_len: usize) -> Layout {
        let key_at = HEADER_LEN + optional_len(fields);
        let mut body_at = key_at + key_len;
        if fields & HEAD != 0 {
            body_at = body_at.next_multiple_of(8);
        }
        Layout {
            fields,
            key_at,
            body_at,
            total: (body_at + body_len).next_multiple_of(8),
        }
    }
}

#[inline]
pub(super) fn optional_len(fields: u8) -> usize {
    usize::from(OPTIONAL_LEN[usize::from(fields)])
}

/// Bytes of the optional fields, for each value of the field bits: every lookup asks.
const OPTIONAL_LEN: [u8; 256] = {
    let mut table = [0; 256];
    let mut fields = 0;
    while fields < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let bits = fields as u8;
        let words = (bits & CLIENT_FLAGS != 0) as u8
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
    (PIECE_HEADER_LEN + data_len).next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(key: &[u8], value_len: usize) -> usize {
        Draft::plain(key, value_len).layout().total
    }

    #[test]
    fn a_small_item_costs_its_bytes_and_twelve() {
        assert_eq!(total(b"0123456789", 10), 32);
        assert_eq!(total(b"0123456789", 100), 128);
        assert_eq!(total(b"k", 0), 16);
    }
}
