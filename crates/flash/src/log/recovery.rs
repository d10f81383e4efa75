//! Records found again without an index: only in a volume that was closed and that keeps tombstones.
//!
//! Each segment's summary says which versions of which keys it holds and what is no more. Of two entries of one key the
//! one with the higher order is newer. A segment whose summary is lost may have held something newer than any entry
//! below its highest order, which the table knows: entries up to that are not the newest for certain, and are left out.

use crate::device::{BlockDevice, Failure};

use super::error::VolumeError;
use super::layout::Location;
use super::summary::{self, ENTRY_LEN, Entry, TRAILER_LEN, Trailer};
use super::volume::{SegmentTable, Volume};
use super::waiting::{Clock, Waiting};

/// What a segment says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveredEntry {
    /// The full hash of the key.
    pub hash: u64,
    /// Of two entries of one hash the one with the higher order counts.
    pub order: u64,
    /// Where the record is; nothing where it says that the key is no more.
    pub location: Option<Location>,
}

/// How a recovery went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Segments with a whole summary.
    pub segments: usize,
    /// Segments without: nothing of them is there.
    pub lost_segments: usize,
    /// Entries up to this order were left out.
    pub unprovable_up_to: u64,
}

impl Volume {
    /// Reports the entries of all segments, in no order. The caller keeps, of each hash, the one with the highest order,
    /// and drops it where that is a tombstone. Nothing may be appended before this.
    ///
    /// # Errors
    /// Where the volume cannot prove anything, or a device fails while it is read for the second time: then what was
    /// reported is worth nothing.
    pub fn recover(
        &self,
        devices: &[&dyn BlockDevice],
        clock: Clock<'_>,
        report: &mut dyn FnMut(RecoveredEntry),
    ) -> Result<Recovered, VolumeError> {
        if !self.keeps_tombstones {
            return Err(VolumeError::NotProvable);
        }
        let mut ends = Vec::with_capacity(devices.len());
        for device in devices {
            ends.push(Waiting::new(*device)?);
        }
        let table = self.table();
        let filled = || {
            (0..self.segments())
                .zip(&table)
                .filter(|(_, entry)| entry.sequence != 0)
        };
        let mut recovered = Recovered::default();
        let mut whole = Vec::new();
        let mut segment_tail = Vec::new();
        for (segment, entry) in filled() {
            let end = &mut ends[self.place(segment).device];
            match self.summary(end, segment, entry, &mut segment_tail, clock) {
                Some(_) => whole.push((segment, entry)),
                None => {
                    recovered.lost_segments += 1;
                    recovered.unprovable_up_to = recovered.unprovable_up_to.max(entry.order_max);
                }
            }
        }
        recovered.segments = whole.len();
        for (segment, entry) in whole {
            let end = &mut ends[self.place(segment).device];
            let summary = self.summary(end, segment, entry, &mut segment_tail, clock);
            let Some(trailer) = summary else {
                return Err(end.error(Failure::Media));
            };
            for nth in 0..trailer.entries as usize {
                let Entry {
                    hash,
                    order,
                    offset,
                    len,
                } = summary::entry(&segment_tail, nth);
                if order <= recovered.unprovable_up_to {
                    continue;
                }
                let location =
                    (len > 0).then(|| self.layout.locate(segment, offset as usize, len as usize));
                report(RecoveredEntry {
                    hash,
                    order,
                    location,
                });
            }
        }
        Ok(recovered)
    }

    /// Reads a segment's summary to the end of `into`; nothing where it is not whole, or that of another filling.
    fn summary(
        &self,
        end: &mut Waiting,
        segment: u32,
        entry: &SegmentTable,
        into: &mut Vec<u8>,
        clock: Clock<'_>,
    ) -> Option<Trailer> {
        let segment_len = self.segment_len();
        let place = self.place(segment);
        let sector_len = end.sector_len;
        let tail_from = place.from + (segment_len - sector_len) as u64;
        let trailer = end.read(tail_from, sector_len, clock, |tail| {
            summary::verified_trailer(tail, segment_len)
        });
        let trailer = trailer.ok().flatten()?;
        let is_of_filling = trailer.volume == self.id
            && trailer.segment == segment
            && trailer.sequence == entry.sequence;
        if !is_of_filling {
            return None;
        }
        let summary_len = TRAILER_LEN + trailer.entries as usize * ENTRY_LEN;
        let len = summary_len.next_multiple_of(sector_len);
        into.clear();
        let mut at = segment_len - len;
        while at < segment_len {
            let piece = end.transfer_len_max.min(segment_len - at);
            let read = end.read(place.from + at as u64, piece, clock, |bytes| {
                into.extend_from_slice(bytes);
            });
            read.ok()?;
            at += piece;
        }
        summary::entries_are_whole(into, &trailer).then_some(trailer)
    }
}
