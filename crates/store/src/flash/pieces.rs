//! Values that are too long for a record: pieces in records of their own, and a head that says where they are.
//!
//! ```text
//! head: item header, fields, key │ piece length, 0 │ location, filling │ location, filling │ … │ tags
//! ```
//! A location and the filling of its segment name one record that was ever written, so a piece needs no name: it is the
//! value's bytes alone. Pieces are written before their head. They are not held: where the segment of one is dropped,
//! its head is a miss from then on.

use crate::index::slot::Slot;
use crate::key::KeyHash;
use crate::request::FlashPlace;
use crate::segment::layout::places_of;
use crate::store::tier::slot_of;
use coua_flash::log::{Fetched, Location, Volume};

/// Bytes of a piece's record at most: long enough for a device's own speed with a few under way, short enough for many
/// requests to share the memory for reads.
const RECORD_LEN: usize = 32 << 10;

/// Words of a head beside those of its pieces, and words of each piece.
const WORDS: usize = 2;

/// How many pieces are read at once for one value: twice as many are held at most.
pub const PIECES_AT_ONCE: usize = 4;

/// A value that lies on flash in pieces.
#[derive(Debug)]
pub struct FlashPieces {
    places: Vec<(FlashPlace, u64)>,
    piece_len: usize,
    value_len: usize,
}

/// Bytes of the value in each piece but the last.
pub(crate) fn piece_len(volume: &Volume) -> usize {
    let most = RECORD_LEN - Volume::RECORD_HEADER_LEN;
    volume.item_len_max().min(most) / 8 * 8
}

/// Words in the head of a value of so many pieces.
pub(crate) fn words_of(pieces: usize) -> usize {
    (pieces + 1) * WORDS
}

/// Whether every piece that a record names is there; so it is if the record is no head.
pub(crate) fn are_there(volume: &Volume, record: &[u8]) -> bool {
    pairs_of(record)
        .skip(1)
        .all(|(bits, filling)| volume.filling_of(Location::from_bits(bits)) == Some(filling))
}

fn pairs_of(record: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let mut words = places_of(record);
    std::iter::from_fn(move || Some((words.next()?, words.next()?)))
}

impl FlashPieces {
    /// The pieces of a value whose head is in `record`. `None` if one of them is gone, or the head is none.
    pub(crate) fn of(
        volume: &Volume,
        hash: KeyHash,
        record: &[u8],
        value_len: usize,
    ) -> Option<FlashPieces> {
        let (len, _) = pairs_of(record).next()?;
        let piece_len = usize::try_from(len).ok().filter(|&len| len > 0)?;
        let places = pairs_of(record).skip(1).map(|(bits, filling)| {
            let location = Location::from_bits(bits);
            let slot: Slot = slot_of(volume, hash, location);
            (FlashPlace { slot, hash }, filling)
        });
        let places: Vec<(FlashPlace, u64)> = places.collect();
        let is_whole = places.len() == value_len.div_ceil(piece_len) && are_there(volume, record);
        is_whole.then_some(FlashPieces {
            places,
            piece_len,
            value_len,
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Bytes of the value.
    pub fn value_len(&self) -> usize {
        self.value_len
    }

    /// Where in the value a piece begins.
    pub(crate) fn offset(&self, nth: usize) -> usize {
        nth * self.piece_len
    }

    /// Where a piece is read from. What fails there concerns the whole value.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn place(&self, nth: usize) -> FlashPlace {
        self.places[nth].0
    }

    /// The bytes of a piece, if that is what was read.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn data<'f>(&self, nth: usize, fetched: &'f Fetched) -> Option<&'f [u8]> {
        let (place, filling) = self.places[nth];
        let len = self.piece_len.min(self.value_len - nth * self.piece_len);
        let data = fetched.bytes();
        (fetched.sequence() == filling && fetched.hash() == place.hash.0 && data.len() == len)
            .then_some(data)
    }
}
