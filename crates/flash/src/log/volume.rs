//! What all workers know of a volume: the state of each segment, which is next and which is oldest.
//!
//! ```text
//! Free → Writing → Sealed → Dropped → Free
//!           └── abandoned ──────────────┘
//! ```
//! Segments are filled in turn: the sequence number's lower 40 bits count fillings, and the segment is what remains of
//! that number after division by the number of segments. Its upper 24 bits count how often the volume was opened.
//!
//! # Concurrency
//! A reader adds 1 to the word of a segment, and goes on only if the word said Sealed: so either the one who drops the
//! segment sees the hold, or the reader sees that it is dropped. The sequence is stored before the word says Sealed
//! (Release) and read after the hold (Acquire): a reader never takes the old sequence for the new content.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::layout::{ADDRESS_BITS, Layout, Location, Place};
use super::record;

/// Sequence numbers: how often the volume was opened, and the turn.
const TURN_BITS: u32 = 40;

/// A word: two bits of state, and how many reads hold the segment.
const STATE_SHIFT: u32 = 30;
const HOLDS: u32 = (1 << STATE_SHIFT) - 1;
const FREE: u32 = 0;
const WRITING: u32 = 1;
const SEALED: u32 = 2;
const DROPPED: u32 = 3;

/// A segment whose turn came so often and that was not filled holds nothing: it bounds how far turns are apart.
const ROUNDS_MAX: u64 = 4;

/// What is known of a segment, 24 bytes.
#[derive(Default)]
struct SegmentState {
    word: AtomicU32,
    expiry_max: AtomicU32,
    sequence: AtomicU64,
    order_max: AtomicU64,
}

/// What the table says of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SegmentTable {
    /// 0 where it holds nothing.
    pub(super) sequence: u64,
    /// No entry of it has a higher order.
    pub(super) order_max: u64,
    /// No record of it expires later.
    pub(super) expiry_max: u32,
}

struct Ring {
    next_turn: u64,
    /// No sealed segment has a lower turn.
    oldest_turn: u64,
    /// Dropped segments whose slots the caller has swept: free once no read holds them.
    swept: VecDeque<u32>,
}

/// A volume: what its workers share.
pub struct Volume {
    pub(super) layout: Layout,
    pub(super) id: u64,
    pub(super) start: u32,
    pub(super) keeps_tombstones: bool,
    pub(super) seed: u32,
    address_bits: u32,
    segments: Box<[SegmentState]>,
    ring: Mutex<Ring>,
    gone: Box<[AtomicBool]>,
}

/// Segments that nobody may read any more. Until [`Volume::release`] they are not filled anew.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "the segments are lost until they are released"]
pub struct Dropped {
    segments: Vec<u32>,
}

impl Dropped {
    /// Whether a location lies in one of them: its slot is to be unlinked.
    pub fn contains(&self, volume: &Volume, location: Location) -> bool {
        let resolved = volume.layout.resolve(location);
        resolved.is_some_and(|(segment, _)| self.segments.binary_search(&segment).is_ok())
    }

    /// Their numbers.
    pub fn segments(&self) -> &[u32] {
        &self.segments
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether there are none: then nothing has to be swept.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

/// A segment that is being filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filling {
    pub(super) segment: u32,
    pub(super) sequence: u64,
}

impl Volume {
    /// A volume with these segments. The turn begins behind the last of them, or at `next_turn`.
    pub(super) fn new(
        layout: Layout,
        id: u64,
        start: u32,
        keeps_tombstones: bool,
        table: &[SegmentTable],
        next_turn: u64,
    ) -> Volume {
        let count = u64::from(layout.segments);
        let segments: Box<[SegmentState]> = (0..count).map(|_| SegmentState::default()).collect();
        let turn_of = |sequence: u64| sequence & ((1 << TURN_BITS) - 1);
        let numbered = || (0..count).zip(&segments).zip(table);
        // What was directed elsewhere by mistake, or is a lie, is left out.
        let is_of = |segment: u64, entry: &SegmentTable| {
            entry.sequence != 0 && turn_of(entry.sequence) % count == segment
        };
        let known = numbered().filter(|((segment, _), entry)| is_of(*segment, entry));
        let newest = known.map(|(_, entry)| turn_of(entry.sequence) + 1).max();
        let newest = newest.unwrap_or(0).max(next_turn);
        // What was passed over so often will be so again, or was never there.
        let oldest_possible = newest.saturating_sub(ROUNDS_MAX * count);
        let mut oldest = newest;
        for ((segment, state), entry) in numbered() {
            let turn = turn_of(entry.sequence);
            if !is_of(segment, entry) || turn < oldest_possible {
                continue;
            }
            oldest = oldest.min(turn);
            state.word.store(SEALED << STATE_SHIFT, Ordering::Relaxed);
            state.sequence.store(entry.sequence, Ordering::Relaxed);
            state.order_max.store(entry.order_max, Ordering::Relaxed);
            state.expiry_max.store(entry.expiry_max, Ordering::Relaxed);
        }
        Volume {
            id,
            start,
            keeps_tombstones,
            seed: record::checksum_seed(id),
            ring: Mutex::new(Ring {
                next_turn: newest,
                oldest_turn: oldest,
                swept: VecDeque::with_capacity(segments.len()),
            }),
            gone: layout
                .sector_lens
                .iter()
                .map(|_| AtomicBool::new(false))
                .collect(),
            segments,
            address_bits: layout.address_bits(),
            layout,
        }
    }

    /// Which volume it is: the number that it was made with.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// No filling that begins from now on has a lower sequence number, and every one that has begun has.
    pub fn next_sequence(&self) -> u64 {
        u64::from(self.start) << TURN_BITS | self.next_turn()
    }

    /// How many bits of 44 are left over by a location here.
    pub fn spare_bits(&self) -> u32 {
        ADDRESS_BITS - self.address_bits
    }

    /// The 44 bits of a location, with the lowest [`Volume::spare_bits`] of `more` in those that it leaves over.
    pub fn joined(&self, location: Location, more: u64) -> u64 {
        location.with_more(self.address_bits, more)
    }

    /// What [`Volume::joined`] was given.
    pub fn apart(&self, bits: u64) -> (Location, u64) {
        Location::apart(bits, self.address_bits)
    }

    /// The segment in which a location lies, if the volume has it.
    pub fn segment_of(&self, location: Location) -> Option<u32> {
        self.layout.resolve(location).map(|(segment, _)| segment)
    }

    /// The filling that a read of a location would be of now; nothing where there is nothing to read.
    pub fn filling_of(&self, location: Location) -> Option<u64> {
        let state = self.state(self.segment_of(location)?);
        // Read before and after: the segment may be dropped and filled anew meanwhile.
        let sequence = state.sequence.load(Ordering::Acquire);
        let is_sealed = state.word.load(Ordering::Acquire) >> STATE_SHIFT == SEALED;
        (is_sealed && state.sequence.load(Ordering::Relaxed) == sequence).then_some(sequence)
    }

    /// No record of the segment in which a location lies has a higher order.
    pub fn order_max_of(&self, location: Location) -> u64 {
        let segment = self.segment_of(location);
        segment.map_or(0, |segment| {
            self.state(segment).order_max.load(Ordering::Relaxed)
        })
    }

    /// Holds a sealed segment, as a read does: until [`Volume::let_go`] it is not filled anew, though it may be
    /// dropped. False where it does not have that filling any more.
    pub fn hold_filling(&self, segment: u32, sequence: u64) -> bool {
        let state = self.state(segment);
        let before = state.word.fetch_add(1, Ordering::AcqRel);
        let is_same =
            before >> STATE_SHIFT == SEALED && state.sequence.load(Ordering::Relaxed) == sequence;
        if !is_same {
            self.let_go(segment);
        }
        is_same
    }

    /// Whether a segment that the caller holds was not dropped so far. Whoever drops it later sees what the caller
    /// has done before.
    pub fn is_sealed_still(&self, segment: u32) -> bool {
        let word = self.state(segment).word.fetch_add(0, Ordering::AcqRel);
        word >> STATE_SHIFT == SEALED
    }

    /// Segments that can be filled before the oldest that is not free has its turn: a quick, low estimate.
    pub fn room(&self) -> u32 {
        let ring = self.ring();
        let filled = ring.next_turn.saturating_sub(ring.oldest_turn);
        let filled = u32::try_from(filled).unwrap_or(u32::MAX);
        self.layout.segments.saturating_sub(filled)
    }

    /// How many segments it has.
    pub fn segments(&self) -> u32 {
        self.layout.segments
    }

    /// The bytes of a segment.
    pub fn segment_len(&self) -> usize {
        self.layout.segment_len
    }

    /// The longest item that a record takes here: longer ones come in pieces.
    pub fn item_len_max(&self) -> usize {
        self.layout.record_len_max - record::HEADER_LEN
    }

    /// Bytes beside the item in a record.
    pub const RECORD_HEADER_LEN: usize = record::HEADER_LEN;

    /// How many segments can be filled before some must be dropped. Another worker may be quicker.
    pub fn free_segments(&self) -> u32 {
        let is_free = |it: &&SegmentState| it.word.load(Ordering::Relaxed) >> STATE_SHIFT == FREE;
        let free = self.segments.iter().filter(is_free).count();
        u32::try_from(free).unwrap_or(u32::MAX) + self.swept_count()
    }

    fn swept_count(&self) -> u32 {
        u32::try_from(self.ring().swept.len()).unwrap_or(u32::MAX)
    }

    /// The filling of each segment, for whoever keeps an index over a restart: an index is worth something only
    /// together with what it believes of the segments. 0 where a segment holds nothing.
    pub fn sequences(&self) -> impl Iterator<Item = u64> {
        (0..self.layout.segments).map(|segment| self.sequence_of(segment))
    }

    /// The filling of one segment; 0 where it holds nothing.
    pub fn sequence_of(&self, segment: u32) -> u64 {
        let state = self.state(segment);
        match state.word.load(Ordering::Acquire) >> STATE_SHIFT == SEALED {
            true => state.sequence.load(Ordering::Relaxed),
            false => 0,
        }
    }

    /// Drops up to `count` of the oldest segments. The caller then unlinks every slot with a location in them, and
    /// gives them to [`Volume::release`].
    pub fn drop_oldest(&self, count: usize) -> Dropped {
        let mut ring = self.ring();
        let mut segments = Vec::with_capacity(count.min(self.segments.len()));
        while segments.len() < count && ring.oldest_turn < ring.next_turn {
            let segment = self.segment_of_turn(ring.oldest_turn);
            let state = self.state(segment);
            let turn = state.sequence.load(Ordering::Relaxed) & ((1 << TURN_BITS) - 1);
            if turn == ring.oldest_turn {
                match state.word.load(Ordering::Acquire) >> STATE_SHIFT {
                    SEALED => {
                        state.change(SEALED, DROPPED);
                        segments.push(segment);
                    }
                    // An older one than those that are sealed is still being written: it is dropped later.
                    WRITING => break,
                    _ => {}
                }
            }
            ring.oldest_turn += 1;
        }
        segments.sort_unstable();
        Dropped { segments }
    }

    /// Drops every segment of which the filling began before that of `sequence`, as after a flush.
    pub fn drop_before(&self, sequence: u64) -> Dropped {
        let _ring = self.ring();
        let mut segments = Vec::new();
        for (segment, state) in (0..).zip(&self.segments) {
            let is_sealed = state.word.load(Ordering::Acquire) >> STATE_SHIFT == SEALED;
            if is_sealed && state.sequence.load(Ordering::Relaxed) < sequence {
                state.change(SEALED, DROPPED);
                segments.push(segment);
            }
        }
        Dropped { segments }
    }

    /// Drops what has expired altogether by `now`, wherever it is in the ring; nothing of it is read.
    pub fn drop_expired(&self, now: u32) -> Dropped {
        let _ring = self.ring();
        let mut segments = Vec::new();
        for (segment, state) in (0..).zip(&self.segments) {
            let is_sealed = state.word.load(Ordering::Acquire) >> STATE_SHIFT == SEALED;
            if is_sealed && state.expiry_max.load(Ordering::Relaxed) <= now {
                state.change(SEALED, DROPPED);
                segments.push(segment);
            }
        }
        Dropped { segments }
    }

    /// Drops everything on a device, as after it has failed.
    pub fn drop_device(&self, device: usize) -> Dropped {
        let _ring = self.ring();
        let mut segments = Vec::new();
        for (segment, state) in (0..).zip(&self.segments) {
            let is_sealed = state.word.load(Ordering::Acquire) >> STATE_SHIFT == SEALED;
            if is_sealed && self.layout.place(segment).device == device {
                state.change(SEALED, DROPPED);
                segments.push(segment);
            }
        }
        Dropped { segments }
    }

    /// Segments in which no slot points any more: they are filled anew once no read holds them.
    pub fn release(&self, dropped: Dropped) {
        self.ring().swept.extend(dropped.segments);
    }

    /// Devices that are gone, by their number. Their items are misses.
    pub fn gone_devices(&self) -> impl Iterator<Item = usize> {
        let numbered = self.gone.iter().enumerate();
        numbered.filter_map(|(device, gone)| gone.load(Ordering::Relaxed).then_some(device))
    }

    pub(super) fn device_is_gone(&self, device: usize) {
        self.gone[device].store(true, Ordering::Relaxed);
    }

    /// Takes the next free segment in turn. Nothing where that is not free: some must be dropped, or others finish
    /// first.
    pub(super) fn begin(&self) -> Option<Filling> {
        let mut ring = self.ring();
        let ring = &mut *ring;
        ring.swept
            .retain(|&segment| !self.state(segment).free_if_not_held());
        for _ in 0..self.segments.len() {
            let turn = ring.next_turn;
            let segment = self.segment_of_turn(turn);
            let state = self.state(segment);
            if self.gone[self.layout.place(segment).device].load(Ordering::Relaxed) {
                ring.next_turn += 1;
                continue;
            }
            if state.word.load(Ordering::Acquire) >> STATE_SHIFT != FREE {
                return None;
            }
            ring.next_turn += 1;
            let sequence = u64::from(self.start) << TURN_BITS | turn;
            // A reader of the time before looks at the word first, which does not say Sealed.
            state.sequence.store(sequence, Ordering::Relaxed);
            state.change(FREE, WRITING);
            return Some(Filling { segment, sequence });
        }
        None
    }

    /// A segment is whole on its device.
    pub(super) fn seal(&self, filling: Filling, order_max: u64, expiry_max: u32) {
        let state = self.state(filling.segment);
        state.order_max.store(order_max, Ordering::Relaxed);
        state.expiry_max.store(expiry_max, Ordering::Relaxed);
        state.change(WRITING, SEALED);
    }

    /// A segment could not be written: it is tried again when its turn comes.
    pub(super) fn abandon(&self, filling: Filling) {
        self.state(filling.segment).change(WRITING, FREE);
    }

    /// Holds the segment of a location for a read: its filling, and where the record lies in it. [`Volume::let_go`]
    /// ends that.
    pub(super) fn hold(&self, location: Location) -> Option<(Filling, usize)> {
        let (segment, offset) = self.layout.resolve(location)?;
        let state = self.state(segment);
        let before = state.word.fetch_add(1, Ordering::Acquire);
        if before >> STATE_SHIFT != SEALED {
            state.word.fetch_sub(1, Ordering::Release);
            return None;
        }
        let sequence = state.sequence.load(Ordering::Relaxed);
        Some((Filling { segment, sequence }, offset))
    }

    /// Ends a hold.
    pub fn let_go(&self, segment: u32) {
        self.state(segment).word.fetch_sub(1, Ordering::Release);
    }

    pub(super) fn place(&self, segment: u32) -> Place {
        self.layout.place(segment)
    }

    /// All segments, for the table.
    pub(super) fn table(&self) -> Vec<SegmentTable> {
        let sequences = self.sequences().zip(&self.segments);
        let entries = sequences.map(|(sequence, state)| SegmentTable {
            sequence,
            order_max: state.order_max.load(Ordering::Relaxed),
            expiry_max: state.expiry_max.load(Ordering::Relaxed),
        });
        entries.collect()
    }

    pub(super) fn next_turn(&self) -> u64 {
        self.ring().next_turn
    }

    fn segment_of_turn(&self, turn: u64) -> u32 {
        let segment = turn % u64::from(self.layout.segments);
        u32::try_from(segment).expect("below the number of segments")
    }

    fn state(&self, segment: u32) -> &SegmentState {
        &self.segments[segment as usize]
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SegmentState {
    /// Changes the state and leaves the holds.
    fn change(&self, from: u32, to: u32) {
        let difference = (from ^ to) << STATE_SHIFT;
        let before = self.word.fetch_xor(difference, Ordering::AcqRel);
        assert_eq!(
            before >> STATE_SHIFT,
            from,
            "a segment's states follow one another"
        );
    }

    /// Whether a dropped segment became free.
    fn free_if_not_held(&self) -> bool {
        let free = FREE << STATE_SHIFT;
        let dropped = DROPPED << STATE_SHIFT;
        // Acquire: what reads did comes before the segment is written.
        let freed = self
            .word
            .compare_exchange(dropped, free, Ordering::AcqRel, Ordering::Relaxed);
        debug_assert!(freed.is_ok() || freed.is_err_and(|word| word & HOLDS > 0));
        freed.is_ok()
    }
}
