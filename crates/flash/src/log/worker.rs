//! One worker's handle to a volume: its queues, its reads under way, its open segment.

use std::ptr::NonNull;
use std::sync::Arc;

use coua_memory_errors::LossMark;

use crate::buffer::Buffer;
use crate::device::{Armed, Command, Completion, Failure, Queue, Rejection, Request, Transfer};

use super::layout::Location;
use super::memory::WorkerMemory;
use super::record::{self, Draft, Expected, Record};
use super::summary;
use super::volume::Volume;
use super::writer::{OpenSegment, WritingSegment, WrittenSegment};

/// Segments that are written at once: one while the next is gathered and one more, so that a slow device does not stop
/// a worker at once.
const WRITING_MAX: usize = 2;

/// Tokens of writes; those of reads are numbers of reads.
const WRITE: u64 = 1 << 63;
const NTH_WRITING: u32 = 32;

/// A read under way.
#[derive(Clone, Copy, Debug)]
struct Reading {
    token: u64,
    segment: u32,
    sequence: u64,
    address: u64,
    device: usize,
    sector: u64,
    /// Bytes of the sectors that are read.
    len: usize,
    /// When it was begun.
    mark: LossMark,
    /// Where the record begins in the buffer, and where what was read for it ends.
    from: usize,
    end: usize,
}

/// What came of asking for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStart {
    /// An [`Event::Read`] follows.
    UnderWay,
    /// There is no record: its segment was dropped, or its device is gone.
    Gone,
    /// No memory or no room in the queue: again after the next poll.
    Busy,
}

/// What came of asking for a record to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It will be there once an [`Event::Written`] names this filling of the segment. Until then it cannot be read.
    At {
        /// Where.
        location: Location,
        /// The filling.
        sequence: u64,
    },
    /// The volume is full: segments must be dropped first.
    VolumeFull,
    /// Segments are being written as quickly as the device can: again after the next poll.
    Busy,
    /// It is longer than a record may be.
    TooLong,
}

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// A read has ended.
    Read {
        /// The caller's.
        token: u64,
        /// The record, of whichever key it is.
        result: Result<Fetched, NoRecord>,
    },
    /// A segment's records can be read.
    Written(WrittenSegment),
    /// A segment could not be written: none of its records are there, or will be.
    Lost(WrittenSegment, Failure),
}

/// Why a read gave no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRecord {
    /// The device failed.
    Failed(Failure),
    /// What stands there is not the record: a write was torn, lost or misdirected, or the medium forgets.
    Damaged,
}

/// A record that was read and is whole.
#[derive(Debug)]
pub struct Fetched {
    buffer: Buffer,
    from: usize,
    len: usize,
    sequence: u64,
    /// Before it was seen to be whole.
    mark: LossMark,
}

impl Fetched {
    /// Whether the machine has lost a part of the memory that the record was read into since it was seen to be whole.
    /// It can be read again. To be asked after its bytes were used.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.buffer.is_lost_since(self.mark)
    }

    /// The filling of its segment.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Where its item begins, and how many bytes it has. They do not change while this is kept.
    pub fn item(&self) -> (NonNull<u8>, usize) {
        let from = self.from + record::HEADER_LEN;
        let end = self.from + self.len;
        assert!(
            from <= end && end <= self.buffer.len(),
            "a record lies in its buffer"
        );
        (self.buffer.at(from), end - from)
    }

    /// Its item's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.from + record::HEADER_LEN..self.from + self.len]
    }

    /// The hash of its key.
    pub fn hash(&self) -> u64 {
        record::hash_of(&self.buffer[self.from..self.from + self.len])
    }

    /// The item, if it is that of this key. A slot's tag is short: now and then it is another key's.
    pub fn of_key(&self, hash: u64, key: &[u8]) -> Option<Record<'_>> {
        record::of_key(&self.buffer[self.from..self.from + self.len], hash, key)
    }
}

/// What a worker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads that were begun.
    pub reads: u64,
    /// Bytes of them.
    pub bytes_read: u64,
    /// Records that were not what they should be.
    pub damaged: u64,
    /// Reads that failed.
    pub reads_failed: u64,
    /// Segments that were written.
    pub segments_written: u64,
    /// Segments that could not be.
    pub segments_lost: u64,
    /// Bytes of records and tombstones appended.
    pub bytes_appended: u64,
}

/// One worker's handle to a volume.
pub struct WorkerVolume {
    volume: Arc<Volume>,
    queues: Vec<Box<dyn Queue>>,
    transfer_lens_max: Vec<usize>,
    memory: WorkerMemory,
    reading: Vec<Option<Reading>>,
    free_reads: Vec<u32>,
    open: Option<OpenSegment>,
    writing: [Option<WritingSegment>; WRITING_MAX],
    completions: Vec<Completion>,
    counts: Counts,
}

impl WorkerVolume {
    /// A handle with a queue for each device, in the order of the volume's devices, and the longest transfer of each.
    pub(super) fn new(
        volume: Arc<Volume>,
        queues: Vec<Box<dyn Queue>>,
        transfer_lens_max: Vec<usize>,
        mut memory: WorkerMemory,
    ) -> WorkerVolume {
        memory.is_pinned = !queues.iter().all(|queue| queue.follows_replaced_pages());
        let reads = memory.reads();
        let last = u32::try_from(reads).expect("reads under way");
        let room = queues.iter().map(|queue| queue.room()).sum();
        WorkerVolume {
            volume,
            queues,
            transfer_lens_max,
            memory,
            reading: vec![None; reads],
            free_reads: (0..last).rev().collect(),
            open: None,
            writing: [None, None],
            completions: Vec::with_capacity(room),
            counts: Counts::default(),
        }
    }

    /// What the workers share.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// What this worker has done.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Begins to read the record of a location, which `token` will name. It holds its segment until it ends.
    pub fn read(&mut self, location: Location, token: u64) -> ReadStart {
        let Some(&read) = self.free_reads.last() else {
            return ReadStart::Busy;
        };
        let Some((filling, offset)) = self.volume.hold(location) else {
            return ReadStart::Gone;
        };
        let started = self.read_held(
            location,
            token,
            filling.segment,
            filling.sequence,
            offset,
            read,
        );
        if started == ReadStart::UnderWay {
            self.free_reads.pop();
        } else {
            self.volume.let_go(filling.segment);
        }
        started
    }

    fn read_held(
        &mut self,
        location: Location,
        token: u64,
        segment: u32,
        sequence: u64,
        offset: usize,
        read: u32,
    ) -> ReadStart {
        let place = self.volume.place(segment);
        let sector_len = self.volume.layout.sector_lens[place.device];
        let end = (offset + location.class_len()).min(self.volume.segment_len());
        let first = offset - offset % sector_len;
        let len = end.next_multiple_of(sector_len) - first;
        let Some(buffer) = self.memory.take(len) else {
            return match self.memory.has(len) {
                true => ReadStart::Busy,
                false => ReadStart::Gone,
            };
        };
        let mark = buffer.loss_mark();
        let sector = (place.from + first as u64) / sector_len as u64;
        let command = Command::Read(Transfer {
            sector,
            len,
            buffer,
        });
        let request = Request {
            token: u64::from(read),
            command,
        };
        if let Err(rejected) = self.queues[place.device].push(request) {
            if let Some(buffer) = rejected.request.command.into_buffer() {
                self.memory.give_back(buffer);
            }
            return match rejected.why {
                Rejection::Full => ReadStart::Busy,
                Rejection::Removed => {
                    self.volume.device_is_gone(place.device);
                    ReadStart::Gone
                }
                Rejection::Refused => ReadStart::Gone,
            };
        }
        self.reading[read as usize] = Some(Reading {
            token,
            segment,
            sequence,
            address: location.address(),
            device: place.device,
            sector,
            len,
            mark,
            from: offset - first,
            end: end - first,
        });
        self.counts.reads += 1;
        self.counts.bytes_read += len as u64;
        ReadStart::UnderWay
    }

    /// Takes back what a read gave.
    pub fn give_back(&mut self, fetched: Fetched) {
        self.memory.give_back(fetched.buffer);
    }

    /// Copies an item to the end of the open segment, which is written once it is full.
    pub fn append(&mut self, draft: &Draft<'_>) -> Appended {
        let len = record::HEADER_LEN + draft.item.len();
        if len > self.volume.layout.record_len_max {
            return Appended::TooLong;
        }
        loop {
            if let Some(refused) = self.open_segment() {
                return refused;
            }
            let Some(open) = &mut self.open else {
                return Appended::Busy;
            };
            if let Some(location) = open.append(&self.volume, draft, len) {
                self.counts.bytes_appended += len as u64;
                let sequence = open.filling.sequence;
                return Appended::At { location, sequence };
            }
            if open.is_empty() {
                return Appended::TooLong;
            }
            if !self.seal() {
                return Appended::Busy;
            }
        }
    }

    /// Whether so many records of at most `len` bytes, header and all, can be appended before anything has to be written:
    /// for items in several records, of which all are needed. The volume may be full all the same.
    pub fn has_room_for(&self, records: usize, len: usize) -> bool {
        let segment_len = self.volume.segment_len();
        let open = self.open.as_ref().map_or(0, |open| open.room_for(len));
        let fresh = summary::records_in(segment_len, len);
        let idle = self.writing.iter().filter(|it| it.is_none()).count();
        let seals = idle + usize::from(self.open.is_none());
        records <= open + fresh * self.memory.segments.len().min(seals)
    }

    /// Whether there is ever room for so many at once.
    pub fn can_hold(&self, records: usize, len: usize) -> bool {
        records <= WRITING_MAX * summary::records_in(self.volume.segment_len(), len)
    }

    /// Says that what has this hash and a lower order is no more. Where the answer is `At`, its location is of no
    /// meaning. Only a volume that keeps tombstones has a use for them.
    pub fn append_tombstone(&mut self, hash: u64, order: u64) -> Appended {
        loop {
            if let Some(refused) = self.open_segment() {
                return refused;
            }
            let Some(open) = &mut self.open else {
                return Appended::Busy;
            };
            if open.append_tombstone(hash, order) {
                self.counts.bytes_appended += summary::ENTRY_LEN as u64;
                let sequence = open.filling.sequence;
                let location = self.volume.layout.locate(open.filling.segment, 0, 0);
                return Appended::At { location, sequence };
            }
            if !self.seal() {
                return Appended::Busy;
            }
        }
    }

    /// Opens a segment where none is open; else why that cannot be.
    fn open_segment(&mut self) -> Option<Appended> {
        if self.open.is_some() {
            return None;
        }
        let Some(buffer) = self.memory.segments.pop() else {
            return Some(Appended::Busy);
        };
        let Some(filling) = self.volume.begin() else {
            self.memory.give_back_segment(buffer);
            return Some(Appended::VolumeFull);
        };
        self.open = Some(OpenSegment::new(filling, buffer));
        None
    }

    /// Has the open segment written although it is not full. False where others must be written first.
    pub fn seal(&mut self) -> bool {
        let Some(place) = self.writing.iter_mut().find(|it| it.is_none()) else {
            return false;
        };
        if let Some(open) = self.open.take() {
            let device = self.volume.place(open.filling.segment).device;
            *place = Some(open.finish(&self.volume, self.transfer_lens_max[device]));
        }
        true
    }

    /// Whether anything is under way that a poll could end.
    pub fn is_busy(&self) -> bool {
        self.free_reads.len() < self.reading.len() || self.writing.iter().any(Option::is_some)
    }

    /// Tells the devices of everything that was begun: one doorbell each.
    pub fn submit(&mut self, now_ns: u64) {
        for (nth, writing) in (0..).zip(&mut self.writing) {
            if let Some(writing) = writing {
                let queue = &mut *self.queues[writing.device];
                writing.push(queue, WRITE | nth << NTH_WRITING);
            }
        }
        for queue in &mut self.queues {
            queue.submit(now_ns);
        }
    }

    /// Appends what has happened to `events`, for which it does not allocate if there is room.
    pub fn poll(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        for device in 0..self.queues.len() {
            self.queues[device].poll(now_ns, &mut self.completions);
            let mut completions = std::mem::take(&mut self.completions);
            for done in completions.drain(..) {
                if done.result == Err(Failure::Removed) {
                    self.volume.device_is_gone(device);
                }
                if done.token & WRITE == 0 {
                    events.extend(self.end_read(done));
                } else {
                    self.end_piece(done);
                }
            }
            self.completions = completions;
        }
        for nth in 0..WRITING_MAX {
            if self.writing[nth]
                .as_ref()
                .is_some_and(WritingSegment::is_done)
                && let Some(writing) = self.writing[nth].take()
            {
                events.push(self.end_writing(writing));
            }
        }
        // The next pieces need no turn of their own.
        self.submit(now_ns);
    }

    fn end_read(&mut self, done: Completion) -> Option<Event> {
        let read = u32::try_from(done.token).ok()?;
        let reading = self.reading.get_mut(read as usize)?.take()?;
        if done.result.is_err()
            && let Some(buffer) = &done.buffer
        {
            // Perhaps the device has met a page that is lost.
            buffer.look();
        }
        let mark = done.buffer.as_ref().map(Buffer::loss_mark);
        let expected = Expected {
            seed: self.volume.seed,
            sequence: reading.sequence,
            address: reading.address,
        };
        let failed = done.result.map_err(NoRecord::Failed);
        let verified = failed.and_then(|()| {
            let bytes = done.buffer.as_deref().unwrap_or_default();
            let bytes = bytes.get(reading.from..reading.end).unwrap_or_default();
            record::verified_len(bytes, &expected).ok_or(NoRecord::Damaged)
        });
        let mut buffer = done.buffer;
        if verified.is_err()
            && let Some(lost) = buffer.take_if(|buffer| buffer.is_lost_since(reading.mark))
        {
            // What is on the device is as good as before.
            match self.read_again(read, reading, lost) {
                Ok(()) => return None,
                Err(left) => buffer = left,
            }
        }
        self.free_reads.push(read);
        self.volume.let_go(reading.segment);
        let result = match verified {
            Ok(len) => Ok(Fetched {
                buffer: buffer?,
                from: reading.from,
                len,
                sequence: reading.sequence,
                mark: mark?,
            }),
            Err(why) => {
                match why {
                    NoRecord::Failed(_) => self.counts.reads_failed += 1,
                    NoRecord::Damaged => self.counts.damaged += 1,
                }
                buffer.into_iter().for_each(|it| self.memory.give_back(it));
                Err(why)
            }
        };
        Some(Event::Read {
            token: reading.token,
            result,
        })
    }

    /// Reads once more what came into memory that was lost meanwhile.
    ///
    /// # Errors
    /// With the memory, if that cannot be.
    fn read_again(
        &mut self,
        read: u32,
        reading: Reading,
        lost: Buffer,
    ) -> Result<(), Option<Buffer>> {
        self.memory.give_back(lost);
        let buffer = self.memory.take(reading.len).ok_or(None)?;
        let mark = buffer.loss_mark();
        let (sector, len) = (reading.sector, reading.len);
        let command = Command::Read(Transfer {
            sector,
            len,
            buffer,
        });
        let token = u64::from(read);
        let pushed = self.queues[reading.device].push(Request { token, command });
        pushed.map_err(|rejected| rejected.request.command.into_buffer())?;
        self.reading[read as usize] = Some(Reading { mark, ..reading });
        self.counts.reads += 1;
        self.counts.bytes_read += len as u64;
        Ok(())
    }

    fn end_piece(&mut self, done: Completion) {
        let nth_writing = (done.token & !WRITE) >> NTH_WRITING;
        let nth_piece = done.token & ((1 << NTH_WRITING) - 1);
        let place = usize::try_from(nth_writing).ok();
        let writing = place.and_then(|place| self.writing.get_mut(place)?.as_mut());
        if let (Some(writing), Ok(nth)) = (writing, usize::try_from(nth_piece)) {
            writing.completed(nth, done.buffer, done.result);
        }
    }

    fn end_writing(&mut self, writing: WritingSegment) -> Event {
        let (filling, device) = (writing.filling, writing.device);
        let (order_max, expiry_max) = (writing.order_max, writing.expiry_max);
        let (written, result) = writing.end();
        match result {
            Ok(()) => {
                self.volume.seal(filling, order_max, expiry_max);
                self.counts.segments_written += 1;
                Event::Written(written)
            }
            Err(failure) => {
                if failure == Failure::Removed {
                    self.volume.device_is_gone(device);
                }
                self.volume.abandon(filling);
                self.counts.segments_lost += 1;
                Event::Lost(written, failure)
            }
        }
    }

    /// The filling that takes what is appended, if there is one.
    pub fn open_filling(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.filling.sequence)
    }

    /// Whether segments are being written.
    pub fn is_writing(&self) -> bool {
        self.writing.iter().any(Option::is_some)
    }

    /// Takes the memory of a segment back.
    pub fn reuse(&mut self, written: WrittenSegment) {
        self.memory.give_back_segment(written.buffer);
    }

    /// Before a worker sleeps: whether it may, by what its queues say. Their descriptors are
    /// [`WorkerVolume::descriptors`].
    pub fn arm(&mut self) -> Armed {
        let mut all = Armed::Sleep;
        for queue in self.queues.iter_mut().filter(|queue| queue.in_flight() > 0) {
            match queue.arm() {
                Armed::Ready => return Armed::Ready,
                Armed::Poll => all = Armed::Poll,
                Armed::Sleep => {}
            }
        }
        all
    }

    /// What to wait for.
    pub fn descriptors(&self) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        self.queues.iter().filter_map(|queue| queue.descriptor())
    }
}

impl Drop for WorkerVolume {
    /// Its open segment is lost, its reads let go of theirs after the devices have: queues are dropped first.
    fn drop(&mut self) {
        self.queues.clear();
        for reading in self.reading.iter().flatten() {
            self.volume.let_go(reading.segment);
        }
        if let Some(open) = &self.open {
            self.volume.abandon(open.filling);
        }
        for writing in self.writing.iter().flatten() {
            self.volume.abandon(writing.filling);
        }
    }
}
