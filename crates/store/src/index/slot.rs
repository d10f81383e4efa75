//! One entry of the index: eight bytes that say where an item is and how often it is read.
//!
//! ```text
//! 63        48 47   46 45  44 43       40 39                                  0
//! +-----------+-------+------+-----------+-------------------------------------+
//! |    tag    | freq. | kind |   size    |   location, in granules of 8 bytes  |
//! +-----------+-------+------+-----------+-------------------------------------+
//!
//! kind 0  nothing: all zero is an empty slot; with a tag it is a ghost, and the
//!         low 40 bits are the sequence number of the segments when it died
//!      1  an item in memory
//!      2  an item on flash: size and location together are the record's place there
//!      3  nothing that is ever stored
//! size    how many cache lines the item spans, up to 15
//! ```

use crate::key::Tag;

const TAG_SHIFT: u32 = 48;
const FREQUENCY_SHIFT: u32 = 46;
const FREQUENCY_ONE: u64 = 1 << FREQUENCY_SHIFT;
const FREQUENCY_MASK: u64 = 3 << FREQUENCY_SHIFT;
const KIND_MASK: u64 = 3 << 44;
const KIND_MEMORY: u64 = 1 << 44;
const KIND_FLASH: u64 = 2 << 44;
const FLASH_MASK: u64 = KIND_MEMORY - 1;
const SIZE_SHIFT: u32 = 40;
const LOCATION_MASK: u64 = (1 << SIZE_SHIFT) - 1;

/// Bytes that one unit of a location stands for.
pub(crate) const GRANULE: usize = 8;

/// Where an item is: its offset in the arena, in granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Location(u64);

impl Location {
    /// The location at `offset` bytes, a multiple of [`GRANULE`].
    #[inline]
    pub(crate) fn of_offset(offset: usize) -> Location {
        debug_assert!(offset.is_multiple_of(GRANULE));
        Location((offset / GRANULE) as u64)
    }

    /// Nowhere in the arena.
    pub(crate) const NOWHERE: Location = Location(LOCATION_MASK);

    pub(crate) fn from_raw(raw: u64) -> Location {
        Location(raw & LOCATION_MASK)
    }

    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    /// Bytes from the arena's start.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a location is at most 40 bits of granules"
    )]
    pub(crate) fn offset(self) -> usize {
        self.0 as usize * GRANULE
    }
}

/// A slot's value. See the module for its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u64);

impl Slot {
    pub(crate) const EMPTY: Slot = Slot(0);

    /// A slot for an item in memory that has never been read.
    #[inline]
    pub(crate) fn item(tag: Tag, location: Location, item_len: usize) -> Slot {
        let lines = (location.offset() % 64 + item_len).div_ceil(64).min(15) as u64;
        Slot((u64::from(tag.0) << TAG_SHIFT) | KIND_MEMORY | (lines << SIZE_SHIFT) | location.0)
    }

    /// What an evicted item leaves behind; `stamp` is the segments' sequence number.
    pub(crate) fn ghost(tag: Tag, stamp: u64) -> Slot {
        Slot((u64::from(tag.0) << TAG_SHIFT) | (stamp & LOCATION_MASK).max(1))
    }

    #[inline]
    pub(crate) fn tag(self) -> Tag {
        Tag((self.0 >> TAG_SHIFT) as u16)
    }

    /// A slot for an item on flash; `place` is what `coua-flash` calls a location.
    pub(crate) fn flash(tag: Tag, place: u64) -> Slot {
        debug_assert!(place <= FLASH_MASK);
        Slot((u64::from(tag.0) << TAG_SHIFT) | KIND_FLASH | (place & FLASH_MASK))
    }

    /// Whether it names an item in memory: only then it has a location there.
    #[inline]
    pub(crate) fn is_in_memory(self) -> bool {
        // One bit, so that it is one instruction: kind 3 is never stored.
        self.0 & KIND_MEMORY != 0
    }

    /// Whether it is of a kind that is never stored: what another process has left may be.
    pub(crate) fn is_damaged(self) -> bool {
        self.0 & KIND_MASK == KIND_MASK
    }

    /// Whether it names an item on flash.
    #[inline]
    pub(crate) fn is_on_flash(self) -> bool {
        self.0 & KIND_MASK == KIND_FLASH
    }

    /// Whether it names an item, wherever that is.
    #[inline]
    pub(crate) fn is_taken(self) -> bool {
        !self.is_vacant()
    }

    /// Where the record of an item on flash is.
    pub(crate) fn flash_place(self) -> u64 {
        self.0 & FLASH_MASK
    }

    /// Empty or a ghost: room for an item.
    #[inline]
    pub(crate) fn is_vacant(self) -> bool {
        self.0 & KIND_MASK == 0
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn is_ghost(self) -> bool {
        self.is_vacant() && !self.is_empty()
    }

    /// The segments' sequence number at which a ghost's item was evicted.
    pub(crate) fn ghost_stamp(self) -> u64 {
        self.0 & LOCATION_MASK
    }

    #[inline]
    pub(crate) fn location(self) -> Location {
        Location(self.0 & LOCATION_MASK)
    }

    #[inline]
    pub(crate) fn lines(self) -> usize {
        ((self.0 >> SIZE_SHIFT) & 15) as usize
    }

    /// How often the item was read since its frequency was last lowered, 0 to 3.
    #[inline]
    pub(crate) fn frequency(self) -> u64 {
        (self.0 & FREQUENCY_MASK) >> FREQUENCY_SHIFT
    }

    #[inline]
    pub(crate) fn is_hottest(self) -> bool {
        self.0 & FREQUENCY_MASK == FREQUENCY_MASK
    }

    /// The slot after one more access. Not for a slot that [`Slot::is_hottest`].
    #[inline]
    pub(crate) fn warmer(self) -> Slot {
        Slot(self.0 + FREQUENCY_ONE)
    }

    #[inline]
    pub(crate) fn with_frequency(self, frequency: u64) -> Slot {
        Slot((self.0 & !FREQUENCY_MASK) | (frequency.min(3) << FREQUENCY_SHIFT))
    }

    /// Whether it is the same item at the same location, ignoring the frequency.
    #[inline]
    pub(crate) fn same_item(self, other: Slot) -> bool {
        (self.0 ^ other.0) & !FREQUENCY_MASK == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_touch_each_other() {
        let location = Location::of_offset(0x7f_1234_5678);
        let slot = Slot::item(Tag(0xabcd), location, 130);
        assert_eq!(slot.tag(), Tag(0xabcd));
        assert_eq!(slot.location(), location);
        assert_eq!(slot.lines(), 3);
        assert_eq!(slot.frequency(), 0);
        let warm = slot.warmer().warmer().warmer();
        assert!(warm.is_hottest() && warm.same_item(slot) && warm != slot);
        assert_eq!(warm.with_frequency(0), slot);
        assert_eq!(Slot::item(Tag(0), location, 1 << 20).lines(), 15);
    }

    #[test]
    fn a_place_on_flash_takes_all_bits_below_the_kind() {
        for place in [0, 1, (1 << 44) - 1] {
            let slot = Slot::flash(Tag(0xffff), place).with_frequency(2);
            assert!(slot.is_on_flash() && !slot.is_in_memory() && slot.is_taken());
            assert_eq!((slot.flash_place(), slot.frequency()), (place, 2));
            assert_eq!(slot.tag(), Tag(0xffff));
        }
        let location = Location::of_offset(64);
        let slot = Slot::item(Tag(1), location, 10);
        assert!(slot.is_in_memory() && !slot.is_on_flash() && slot.is_taken());
    }

    #[test]
    fn a_ghost_is_vacant_but_not_empty() {
        for stamp in [0, 1, 1 << 41] {
            let ghost = Slot::ghost(Tag(0), stamp);
            assert!(ghost.is_vacant() && ghost.is_ghost() && !ghost.is_taken());
        }
        assert!(Slot::EMPTY.is_vacant() && !Slot::EMPTY.is_ghost());
    }
}
