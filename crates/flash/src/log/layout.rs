//! Where segments lie on devices, and what a location means.

use crate::device::Identity;

/// The unit in which records are placed.
pub(super) const GRANULE: usize = 32;

/// Bits of a location's address.
pub(super) const ADDRESS_BITS: u32 = 40;

/// How much is read for each length class: the first that the record fits into.
const CLASSES: [usize; 16] = [
    128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384, 32768, 65536, 98304,
    131_072,
];

/// The longest record, header and all. Longer items come in pieces.
pub const RECORD_LEN_MAX: usize = CLASSES[CLASSES.len() - 1];

/// Where a record is, and how much to read for it.
///
/// ```text
/// 43    40 39                    0
/// ┌───────┬───────────────────────┐
/// │ class │ address in 32 bytes   │
/// └───────┴───────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location(u64);

impl Location {
    /// Of a record of `len` bytes.
    ///
    /// # Panics
    /// Where the address or the length is too large.
    pub(super) fn new(address: u64, len: usize) -> Location {
        assert!(address < 1 << ADDRESS_BITS, "an address of 40 bits");
        let class = CLASSES.iter().position(|&class| len <= class);
        let class = class.expect("a record's length") as u64;
        Location(class << ADDRESS_BITS | address)
    }

    /// The 44 bits that an index keeps.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// What [`Location::to_bits`] gave. Any other bits make a location at which there is no record.
    pub fn from_bits(bits: u64) -> Location {
        Location(bits & ((1 << (ADDRESS_BITS + 4)) - 1))
    }

    /// The bits, and `more` in those of the address that are not in use by a volume whose addresses have so many bits.
    pub(super) fn with_more(self, address_bits: u32, more: u64) -> u64 {
        let spare = (1 << ADDRESS_BITS) - (1 << address_bits);
        self.0 & !spare | more << address_bits & spare
    }

    /// What [`Location::with_more`] was given.
    pub(super) fn apart(bits: u64, address_bits: u32) -> (Location, u64) {
        let spare = (1 << ADDRESS_BITS) - (1 << address_bits);
        (
            Location::from_bits(bits & !spare),
            (bits & spare) >> address_bits,
        )
    }

    /// In granules from the volume's beginning.
    pub(super) fn address(self) -> u64 {
        self.0 & ((1 << ADDRESS_BITS) - 1)
    }

    /// Bytes to read.
    pub(super) fn class_len(self) -> usize {
        CLASSES[(self.0 >> ADDRESS_BITS) as usize & 15]
    }
}

/// How a volume lies on its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) segment_len: usize,
    /// Of each device.
    pub(super) sector_lens: Vec<usize>,
    /// Segments of each device that are reserved for superblocks and table.
    pub(super) reserved: u64,
    /// Rows over which a set of devices takes turns: all of them, then those that are longer.
    tiers: Vec<Tier>,
    pub(super) segments: u32,
    /// The longest record that each device reads with one request.
    pub(super) record_len_max: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Tier {
    first_segment: u32,
    first_row: u64,
    devices: Vec<usize>,
}

/// A piece of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: usize,
    /// In bytes.
    pub(super) from: u64,
}

impl Layout {
    /// Over devices, at the beginning of each of which `reserved_len(all segments)` bytes are reserved. Nothing where
    /// one of them has no room for a segment.
    pub(super) fn new(
        segment_len: usize,
        devices: &[&Identity],
        reserved_len: impl FnOnce(u64) -> u64,
    ) -> Option<Layout> {
        let rows: Vec<u64> = devices
            .iter()
            .map(|it| it.len() / segment_len as u64)
            .collect();
        let all: u64 = rows.iter().sum();
        let reserved = reserved_len(all).div_ceil(segment_len as u64);
        let rows: Vec<u64> = rows
            .iter()
            .map(|&rows| rows.saturating_sub(reserved))
            .collect();
        if rows.is_empty() || rows.contains(&0) {
            return None;
        }
        let fits = |class: usize| {
            // It may begin and end within sectors.
            let spans = |it: &&&Identity| class + 2 * it.sector_len <= it.transfer_len_max;
            class < segment_len / 2 && devices.iter().all(|it| spans(&it))
        };
        let record_len_max = CLASSES.into_iter().rev().find(|&class| fits(class))?;
        // More could not be addressed.
        let granules = (segment_len / GRANULE) as u64;
        let most = u32::try_from((1 << ADDRESS_BITS) / granules).unwrap_or(u32::MAX);

        let mut ends: Vec<u64> = rows.clone();
        ends.sort_unstable();
        ends.dedup();
        let (mut tiers, mut first_row, mut segments) = (Vec::new(), 0, 0u64);
        for end in ends {
            let devices: Vec<usize> = (0..rows.len()).filter(|&it| rows[it] >= end).collect();
            let first_segment = u32::try_from(segments).ok().filter(|&it| it < most);
            let Some(first_segment) = first_segment else {
                break;
            };
            segments += (end - first_row) * devices.len() as u64;
            tiers.push(Tier {
                first_segment,
                first_row,
                devices,
            });
            first_row = end;
        }
        Some(Layout {
            segment_len,
            record_len_max,
            sector_lens: devices.iter().map(|it| it.sector_len).collect(),
            reserved,
            tiers,
            segments: u32::try_from(segments).unwrap_or(u32::MAX).min(most),
        })
    }

    /// How many bits the largest address has.
    pub(super) fn address_bits(&self) -> u32 {
        let granules = u64::from(self.segments) * (self.segment_len / GRANULE) as u64;
        (granules - 1)
            .checked_ilog2()
            .map_or(0, |highest| highest + 1)
    }

    /// Where a segment lies.
    pub(super) fn place(&self, segment: u32) -> Place {
        let after = self
            .tiers
            .partition_point(|tier| tier.first_segment <= segment);
        let tier = &self.tiers[after - 1];
        let nth = u64::from(segment - tier.first_segment);
        let width = tier.devices.len() as u64;
        let row = self.reserved + tier.first_row + nth / width;
        Place {
            device: tier.devices[whole(nth % width)],
            from: row * self.segment_len as u64,
        }
    }

    /// The segment of a location and the offset in it, where the volume has such.
    pub(super) fn resolve(&self, location: Location) -> Option<(u32, usize)> {
        let granules = (self.segment_len / GRANULE) as u64;
        let segment = u32::try_from(location.address() / granules).ok()?;
        let offset = whole(location.address() % granules) * GRANULE;
        (segment < self.segments).then_some((segment, offset))
    }

    /// The location of a record.
    pub(super) fn locate(&self, segment: u32, offset: usize, len: usize) -> Location {
        let granules = (self.segment_len / GRANULE) as u64;
        Location::new(
            u64::from(segment) * granules + (offset / GRANULE) as u64,
            len,
        )
    }
}

/// What is less than a length of memory.
fn whole(value: u64) -> usize {
    usize::try_from(value).expect("less than a length of memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(mib: u64) -> Identity {
        Identity {
            name: String::new(),
            driver: String::new(),
            sectors: mib << 11,
            sector_len: 512,
            transfer_len_max: 1 << 20,
            has_volatile_cache: false,
        }
    }

    fn layout_of(devices: &[&Identity]) -> Option<Layout> {
        Layout::new(1 << 20, devices, |segments| 8192 + 24 * segments)
    }

    #[test]
    fn each_segment_has_a_place_of_its_own_and_neighbours_are_on_different_devices() {
        let devices = [device(10), device(4), device(7)];
        let layout = layout_of(&devices.each_ref()).expect("room");
        assert_eq!((layout.segments, layout.reserved), (9 + 3 + 6, 1));
        let places: Vec<Place> = (0..18).map(|segment| layout.place(segment)).collect();
        for (at, place) in places.iter().enumerate() {
            let end = place.from + (1 << 20);
            assert!(end <= devices[place.device].len(), "{place:?}");
            assert!(!places[..at].contains(place));
            // While there is another device that is long enough.
            if at > 0 && at < 15 {
                assert_ne!(place.device, places[at - 1].device, "{at}");
            }
        }
    }

    #[test]
    fn locations_come_back_from_bits_and_lie_inside() {
        let devices = [device(4)];
        let layout = layout_of(&devices.each_ref()).expect("room");
        for (segment, offset, len) in [(0, 0, 1), (2, 32, 128), (1, (1 << 20) - 4096, 4096)] {
            let location = layout.locate(segment, offset, len);
            assert_eq!(Location::from_bits(location.to_bits()), location);
            assert_eq!(layout.resolve(location), Some((segment, offset)));
            assert!(location.class_len() >= len);
        }
        assert_eq!(layout.resolve(Location::from_bits(u64::MAX)), None);
        assert_eq!(layout.resolve(layout.locate(3, 0, 1)), None);
        assert!(layout_of(&[&device(1)]).is_none());
        assert!(layout_of(&[]).is_none());
    }

    #[test]
    fn what_an_address_leaves_over_takes_other_bits() {
        for (mib, bits) in [(4, 17), (64 << 20, 40)] {
            let layout = layout_of(&[&device(mib)]).expect("room");
            assert_eq!(layout.address_bits(), bits);
            let last = layout.locate(layout.segments - 1, (1 << 20) - 32, 32);
            for more in [0, 1, u64::MAX] {
                let both = last.with_more(bits, more);
                let kept = more & ((1 << (40 - bits)) - 1);
                assert_eq!(Location::apart(both, bits), (last, kept));
            }
        }
    }

    #[test]
    fn no_more_segments_than_addresses() {
        let device = device(64 << 20);
        let layout = layout_of(&[&device]).expect("room");
        let last = layout.locate(layout.segments - 1, (1 << 20) - 32, 32);
        assert_eq!(last.address(), (1 << 40) - 1);
    }
}
