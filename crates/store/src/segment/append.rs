//! Appends to segments, and derives CASs from places in them.

use super::log::Log;
use super::open::OpenSegment;
use super::space::Space;
use crate::index::slot::{GRANULE, Location};
use crate::memory::{PageEntry, PageState, Purpose};
use crate::sync::Ordering;
use crate::time::UnixSeconds;
use coua_cpu::prefetch_write_at;

/// Bits of a CAS below the segment's sequence number: granules of the largest segment.
const PLACE_BITS: u32 = 18;

/// How far beyond the end of an open segment cache lines are prefetched for writing: a few large
/// items.
const AHEAD_LEN: usize = 4 << 10;

/// Bytes of a cache line.
const LINE_LEN: usize = 64;

impl Log {
    /// The CAS of an item at `location` that does not carry an explicit one: its place in the log.
    #[inline]
    pub(crate) fn cas_of(&self, location: Location) -> u64 {
        self.cas_in(&self.entry_of(location), location)
    }

    /// As [`Log::cas_of`], with the entry of the location's page.
    #[inline]
    pub(crate) fn cas_in(&self, entry: &PageEntry, location: Location) -> u64 {
        let within = (location.offset() & (self.segment_len - 1)) / GRANULE;
        (entry.sequence() << PLACE_BITS) | within as u64
    }

    /// `len` bytes at the end of the worker's open segment, or of a new one; `None` if no page is
    /// available, or `len` is more than a segment's length.
    #[inline]
    pub(crate) fn append(
        &self,
        open: &mut OpenSegment,
        len: usize,
        purpose: Purpose,
    ) -> Option<Space<'_>> {
        debug_assert!(len.is_multiple_of(GRANULE));
        if open.segment.is_none()
            || open.used + len > self.segment_len
            || open.sequence < self.flushed_below()
        {
            self.open_next(open, len, purpose)?;
        }
        let segment = open.segment?;
        let location = Location::of_offset((segment as usize * self.segment_len) + open.used);
        self.ask_ahead(location, len, self.segment_len - open.used);
        open.used += len;
        self.open_records[open.record].note(open.used);
        #[expect(unsafe_code, reason = "hands out segment memory")]
        // SAFETY: the segment is the worker's, and each byte of it is handed out once in its life.
        Some(unsafe { Space::new(&self.mapping, location, len) })
    }

    /// Prefetches the lines that are [`AHEAD_LEN`] bytes beyond an item of `len`, for writing. None
    /// of them is in a cache, and a core that stores into many such lines waits for each. `room` is
    /// the number of bytes from the item to the end of the segment.
    #[inline]
    fn ask_ahead(&self, item: Location, len: usize, room: usize) {
        let from = item.offset();
        let start = self.mapping.at(from).as_ptr();
        let mut line = (from + AHEAD_LEN + LINE_LEN - 1) & !(LINE_LEN - 1);
        let end = from + (AHEAD_LEN + len.min(AHEAD_LEN)).min(room);
        while line < end {
            prefetch_write_at(start.wrapping_add(line - from));
            line += LINE_LEN;
        }
    }

    /// The lowest CAS that the next appended item will have by its place.
    #[inline]
    pub(crate) fn next_cas(&self, open: &OpenSegment) -> u64 {
        match open.segment {
            Some(_) => (open.sequence << PLACE_BITS) | (open.used / GRANULE) as u64,
            None => self.superblock().sequences.next.load(Ordering::Relaxed) << PLACE_BITS,
        }
    }

    /// A CAS above `above` for the next appended item, to be written explicitly, and never given to
    /// another item. `None` if the item's place gives it a CAS above. Nothing follows the highest
    /// CAS, which only a client can have chosen: then the item's place decides again.
    #[inline]
    pub(crate) fn cas_after(&self, open: &mut OpenSegment, above: u64) -> Option<u64> {
        if self.next_cas(open) > above {
            return None;
        }
        self.explicit_cas_after(open, above)
    }

    #[cold]
    fn explicit_cas_after(&self, open: &mut OpenSegment, above: u64) -> Option<u64> {
        // Numbers for this segment alone, one for each place in it, so that none is given twice.
        let place = (open.used / GRANULE) as u64;
        if (open.cas_sequence << PLACE_BITS) | place <= above {
            open.cas_sequence = self.superblock().draw();
        }
        let cas = (open.cas_sequence << PLACE_BITS) | place;
        if cas > above {
            Some(cas)
        } else {
            // A client has chosen a CAS that the log will never reach.
            above.checked_add(1)
        }
    }

    /// Bytes that fit into the open segment without opening another.
    pub(crate) fn room(&self, open: &OpenSegment) -> usize {
        if open.segment.is_some() {
            self.segment_len - open.used
        } else {
            0
        }
    }

    #[cold]
    fn open_next(&self, open: &mut OpenSegment, len: usize, purpose: Purpose) -> Option<()> {
        // A copy of an item is a little longer where it carries its CAS.
        if len > self.segment_len {
            return None;
        }
        let next = self.pages.take(purpose)?;
        self.seal(open);
        self.dead.reset(next);
        // Acquire: a worker that opens a segment that a flush does not kill sees the flush.
        let sequence = self.superblock().draw();
        self.superblock().count_opened();
        let now = UnixSeconds(self.superblock().state.now.load(Ordering::Relaxed));
        self.entry(next).open(open.queue, sequence, now);
        self.open_records[open.record].begin(next);
        *open = OpenSegment {
            queue: open.queue,
            record: open.record,
            segment: Some(next),
            used: 0,
            sequence,
            cas_sequence: 0,
        };
        Some(())
    }

    /// Seals an open segment, if there is one.
    pub(crate) fn seal(&self, open: &mut OpenSegment) {
        let Some(segment) = open.segment.take() else {
            return;
        };
        let entry = self.entry(segment);
        entry.set_used(open.used);
        let mut queues = self.queues();
        queues.push(open.queue, segment);
        entry.set_state(PageState::Sealed);
        drop(queues);
        self.open_records[open.record].clear();
    }

    /// Publishes how full an open segment is.
    pub(crate) fn publish_used(&self, open: &OpenSegment) {
        if let Some(segment) = open.segment {
            self.entry(segment).show_used(open.used);
        }
    }

    /// Seals an open segment older than `below`: its items are dead, and new ones must not be.
    pub(crate) fn seal_older(&self, open: &mut OpenSegment, below: u64) {
        if open
            .segment
            .is_some_and(|segment| self.entry(segment).sequence() < below)
        {
            self.seal(open);
        }
    }
}
