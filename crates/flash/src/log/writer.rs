//! A segment on its way to a device: gathered in memory, written in sequence, its summary last.
//!
//! ```text
//! ├── pieces of records ──┤   (nothing)   ├── pieces of the summary ──┤
//! ```

use crate::buffer::Buffer;
use crate::device::{Command, Failure, Queue, Request, Transfer};

use coua_memory_errors::LossMark;

use super::layout::{GRANULE, Location};
use super::record::{self, Draft, Expected};
use super::summary::{self, Entry, Trailer};
use super::volume::{Filling, Volume};

/// The longest piece: long enough for a device's own speed, short enough that reads are not kept waiting behind it.
const PIECE_LEN_MAX: usize = 256 << 10;

/// How many pieces of a segment are under way at once.
const PIECES_UNDER_WAY: usize = 4;

/// A segment that takes records.
pub(super) struct OpenSegment {
    pub(super) filling: Filling,
    buffer: Buffer,
    /// When it was begun: what is lost since is not written.
    mark: LossMark,
    data_end: usize,
    entries: usize,
    order_max: u64,
    expiry_max: u32,
}

impl OpenSegment {
    pub(super) fn new(filling: Filling, buffer: Buffer) -> OpenSegment {
        OpenSegment {
            filling,
            mark: buffer.loss_mark(),
            buffer,
            data_end: 0,
            entries: 0,
            order_max: 0,
            expiry_max: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// How many more records of `len` bytes there is room for.
    pub(super) fn room_for(&self, len: usize) -> usize {
        let len_left = self.buffer.len() - self.data_end;
        let taken = self.entries * summary::ENTRY_LEN;
        summary::records_in(len_left.saturating_sub(taken), len)
    }

    /// Appends a record of `len` bytes where there is room.
    pub(super) fn append(
        &mut self,
        volume: &Volume,
        draft: &Draft<'_>,
        len: usize,
    ) -> Option<Location> {
        if !summary::has_room(self.buffer.len(), self.data_end, self.entries, len) {
            return None;
        }
        let location = volume
            .layout
            .locate(self.filling.segment, self.data_end, len);
        let expected = Expected {
            seed: volume.seed,
            sequence: self.filling.sequence,
            address: location.address(),
        };
        record::write(&mut self.buffer[self.data_end..], draft, &expected);
        self.enter(draft.hash, draft.cas, len);
        self.data_end += len.next_multiple_of(GRANULE);
        self.expiry_max = self.expiry_max.max(draft.expiry);
        Some(location)
    }

    /// Says that what has a hash and a lower order is no more. False where there is no room.
    pub(super) fn append_tombstone(&mut self, hash: u64, order: u64) -> bool {
        if !summary::has_room(self.buffer.len(), self.data_end, self.entries, 0) {
            return false;
        }
        self.enter(hash, order, 0);
        // It counts as long as what it speaks of may be there.
        self.expiry_max = u32::MAX;
        true
    }

    fn enter(&mut self, hash: u64, order: u64, len: usize) {
        let whole = |value: usize| u32::try_from(value).expect("a segment is short");
        let (offset, len) = (whole(self.data_end), whole(len));
        let entry = Entry {
            hash,
            order,
            offset,
            len,
        };
        summary::write_entry(&mut self.buffer, self.entries, &entry);
        self.entries += 1;
        self.order_max = self.order_max.max(order);
    }

    /// Ends it: what is written from here on.
    pub(super) fn finish(mut self, volume: &Volume, transfer_len_max: usize) -> WritingSegment {
        let trailer = Trailer {
            volume: volume.id,
            sequence: self.filling.sequence,
            segment: self.filling.segment,
            entries: u32::try_from(self.entries).expect("a segment is short"),
            order_max: self.order_max,
            expiry_max: self.expiry_max,
        };
        summary::write_trailer(&mut self.buffer, &trailer);
        let place = volume.place(self.filling.segment);
        let sector_len = volume.layout.sector_lens[place.device];
        let segment_len = self.buffer.len();
        let summary_from = summary::entries_from(segment_len, self.entries);
        let summary_from = summary_from - summary_from % sector_len;
        let data_end = self.data_end.next_multiple_of(sector_len).min(summary_from);
        // What stood in the buffer before does not belong to this segment.
        let gap_end = summary::entries_from(segment_len, self.entries);
        self.buffer[self.data_end..gap_end].fill(0);

        let piece_len = PIECE_LEN_MAX.min(transfer_len_max);
        let mut pieces = Vec::with_capacity(segment_len / piece_len + 4);
        let mut rest = self.buffer;
        let mut at = 0;
        for (end, part) in [
            (data_end, Part::Records),
            (summary_from, Part::Gap),
            (segment_len, Part::Summary),
        ] {
            while at < end {
                let len = if part == Part::Gap {
                    end - at
                } else {
                    piece_len.min(end - at)
                };
                let behind = rest.split_off(len);
                let buffer = std::mem::replace(&mut rest, behind);
                pieces.push(Piece {
                    at,
                    part,
                    len,
                    buffer: Some(buffer),
                });
                at += len;
            }
        }
        WritingSegment {
            filling: self.filling,
            mark: self.mark,
            device: place.device,
            first_sector: place.from / sector_len as u64,
            sector_len,
            order_max: self.order_max,
            expiry_max: self.expiry_max,
            entries: self.entries,
            pieces,
            next: 0,
            under_way: 0,
            failure: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Records,
    /// Between both: not written.
    Gap,
    Summary,
}

struct Piece {
    at: usize,
    len: usize,
    part: Part,
    buffer: Option<Buffer>,
}

impl Piece {
    fn is_lost_since(&self, mark: LossMark) -> bool {
        let buffer = self.buffer.as_ref();
        buffer.is_some_and(|buffer| buffer.is_lost_since(mark))
    }
}

/// A segment that is being written.
pub(super) struct WritingSegment {
    pub(super) filling: Filling,
    mark: LossMark,
    pub(super) device: usize,
    first_sector: u64,
    sector_len: usize,
    pub(super) order_max: u64,
    pub(super) expiry_max: u32,
    entries: usize,
    pieces: Vec<Piece>,
    next: usize,
    under_way: usize,
    failure: Option<Failure>,
}

impl WritingSegment {
    /// Pushes pieces as long as it is their turn; `token` is the first one's, the others follow it.
    pub(super) fn push(&mut self, queue: &mut dyn Queue, token: u64) {
        while self.failure.is_none() && self.under_way < PIECES_UNDER_WAY {
            let Some(piece) = self.pieces.get_mut(self.next) else {
                return;
            };
            if piece.part == Part::Gap {
                self.next += 1;
                continue;
            }
            // Records first: a summary without its records would be a promise that is not kept.
            let is_first_of_summary = piece.part == Part::Summary
                && self.pieces[..self.next]
                    .iter()
                    .all(|it| it.part != Part::Summary);
            if is_first_of_summary && self.under_way > 0 {
                return;
            }
            // A summary would promise what was lost before it was written, too.
            let first = if is_first_of_summary { 0 } else { self.next };
            let mut due = self.pieces[first..=self.next].iter();
            if due.any(|piece| piece.is_lost_since(self.mark)) {
                self.failure = Some(Failure::MemoryLost);
                return;
            }
            let piece = &mut self.pieces[self.next];
            let Some(buffer) = piece.buffer.take() else {
                return;
            };
            let sector = self.first_sector + (piece.at / self.sector_len) as u64;
            let transfer = Transfer {
                sector,
                len: piece.len,
                buffer,
            };
            let command = Command::Write(transfer);
            let token = token + self.next as u64;
            match queue.push(Request { token, command }) {
                Ok(()) => {
                    self.next += 1;
                    self.under_way += 1;
                }
                Err(rejected) => {
                    piece.buffer = rejected.request.command.into_buffer();
                    match rejected.why {
                        crate::Rejection::Full => {}
                        crate::Rejection::Refused => self.failure = Some(Failure::Refused),
                        crate::Rejection::Removed => self.failure = Some(Failure::Removed),
                    }
                    return;
                }
            }
        }
    }

    /// The `nth` piece has ended.
    pub(super) fn completed(
        &mut self,
        nth: usize,
        buffer: Option<Buffer>,
        result: Result<(), Failure>,
    ) {
        self.under_way -= 1;
        if let (Err(_), Some(buffer)) = (result, &buffer) {
            // Perhaps the device has met a page that is lost.
            buffer.look();
        }
        if let Some(piece) = self.pieces.get_mut(nth) {
            piece.buffer = buffer;
            if piece.is_lost_since(self.mark) {
                self.failure.get_or_insert(Failure::MemoryLost);
            }
        }
        if let Err(failure) = result {
            self.failure.get_or_insert(failure);
        }
    }

    /// Whether nothing more happens to it.
    pub(super) fn is_done(&self) -> bool {
        self.under_way == 0 && (self.failure.is_some() || self.next == self.pieces.len())
    }

    /// What came of it.
    pub(super) fn end(self) -> (WrittenSegment, Result<(), Failure>) {
        let mut parts = self.pieces.into_iter().filter_map(|piece| piece.buffer);
        let mut buffer = parts.next().expect("a segment has pieces");
        for part in parts {
            let joined = buffer.join(part);
            assert!(joined.is_ok(), "the pieces of a segment follow one another");
        }
        let written = WrittenSegment {
            sequence: self.filling.sequence,
            segment: self.filling.segment,
            entries: self.entries,
            mark: self.mark,
            buffer,
        };
        let lost = written.is_lost().then_some(Failure::MemoryLost);
        (written, self.failure.or(lost).map_or(Ok(()), Err))
    }
}

/// A segment whose writing has ended, with its memory.
pub struct WrittenSegment {
    /// Its filling.
    pub sequence: u64,
    /// Its number.
    pub segment: u32,
    entries: usize,
    mark: LossMark,
    pub(super) buffer: Buffer,
}

impl WrittenSegment {
    /// Whether the machine has lost a part of its memory since it was begun: not all of its records can be told any
    /// more. To be asked after they were.
    pub fn is_lost(&self) -> bool {
        self.buffer.is_lost_since(self.mark)
    }

    /// The hash and the location of each record, in the order in which they were appended.
    pub fn records(&self, volume: &Volume) -> impl Iterator<Item = (u64, Location)> {
        self.records_from(volume, 0)
            .map(|(hash, location, _)| (hash, location))
    }

    /// The hash, the location and the item of each record from the `first` on, in the order in which they were
    /// appended. Tombstones count as records here, but are not shown.
    pub fn records_from(
        &self,
        volume: &Volume,
        first: usize,
    ) -> impl Iterator<Item = (u64, Location, &[u8])> {
        let entries = (first..self.entries).map(|nth| summary::entry(&self.buffer, nth));
        let records = entries.filter(|entry| entry.len > 0);
        records.map(move |entry| {
            let (offset, len) = (entry.offset as usize, entry.len as usize);
            let location = volume.layout.locate(self.segment, offset, len);
            let item = &self.buffer[offset + record::HEADER_LEN..offset + len];
            (entry.hash, location, item)
        })
    }
}

impl std::fmt::Debug for WrittenSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "WrittenSegment({}, {} entries)",
            self.sequence, self.entries
        )
    }
}
