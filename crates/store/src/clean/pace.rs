//! How much a worker cleans at the end of a turn.
//!
//! A worker has a debt: bytes of items that it still has to look at. Each turn adds to the debt in
//! proportion to what the turn stored, and by a larger factor the fewer segments are free; looking
//! at items pays it off. Once enough segments are free there is no debt, so a worker never evicts
//! more than was stored, apart from the segments that it keeps free. A turn pays only up to a
//! limit; the rest of the debt waits for the next turn.
//!
//! It only computes with numbers: it knows no store, clock or thread.
//!
//! # Invariants
//! - A retired segment counts as free, except for those that may be needed before their grace
//!   period ends. If a worker is stalled inside a burst, no grace period ends: the others then wait
//!   for it, and do not empty segment after segment.
//! - A turn looks at no more than [`ITEMS_MAX`] items, and at no more bytes than [`BYTES_LEAST`] or
//!   [`BYTES_FACTOR`] times what was stored.

/// Items that a turn looks at, at most. Each may cost a cache miss; together they take a quarter of
/// a millisecond.
pub(super) const ITEMS_MAX: usize = 4096;

/// Items that a turn looks at when the space is not needed.
const ITEMS_AT_LEISURE: usize = 64;

/// Bytes that a turn looks at, at most: this many, or a multiple of what was stored since the last
/// turn.
const BYTES_LEAST: usize = 512 << 10;
const BYTES_FACTOR: usize = 4;

/// Bytes that a turn moves before it has freed another segment to move to, as far as whole items
/// allow. It is less than what is reserved for cleaning.
const MOVES_MAX: usize = 128 << 10;

/// Turns after which a burst that stored much no longer counts.
const PEAK_TURNS: usize = 256;

/// Turns for which a worker that cannot store asks for the next turn soon, in case a grace period
/// ends.
const HOPE_TURNS: u32 = 256;

/// The part of memory that may be kept free for what bursts store: one sixteenth.
const FREE_SHARE: usize = 16;

/// How much stays of what was looked at is judged after this part of a worker's share of memory, or
/// this many bytes or items, whichever comes first.
const KEPT_SHARE: usize = 64;
const KEPT_MAX: usize = 16 << 20;
const KEPT_ITEMS: usize = 4 * ITEMS_MAX;

/// Samples in a row that always had room, after which one read less is required.
const CALM_SAMPLES: u32 = 64;

/// What a pace follows from. Only the number of segments changes while the store runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of a segment.
    pub(super) segment_len: usize,
    /// The number of segments.
    pub(super) segments: usize,
    /// Segments that only the cleaner may take.
    pub(super) reserve: usize,
    pub(super) workers: usize,
    /// Bytes of the largest item.
    pub(super) item_size_max: usize,
    /// Segments that are emptied ahead, since it takes a while until what is evicted is on flash.
    pub(super) ahead: usize,
}

impl Limits {
    /// Segments that all workers together fill in a turn in which each stores `bytes`, up to the
    /// number that may be kept free for that.
    fn bursts_of(&self, bytes: usize) -> usize {
        let bursts = (bytes * self.workers).div_ceil(self.segment_len);
        let largest_item = self.item_size_max.div_ceil(self.segment_len);
        bursts.min((self.segments / FREE_SHARE).max(largest_item))
    }
}

/// The empty segments at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Those that can be taken.
    pub(super) free: usize,
    /// Those that can be taken once their grace period is over.
    pub(super) coming: usize,
}

/// See the module.
pub(super) struct Pace {
    limits: Limits,
    /// Bytes of items that still have to be looked at.
    debt: usize,
    /// The most bytes stored in a recent turn.
    peak: usize,
    /// Segments that all workers together may fill in a turn, estimated from what this one has
    /// filled recently.
    bursts: usize,
    /// Turns in a row in which nothing could be stored until a grace period ends.
    full_turns: u32,
    kept: KeptShare,
    /// What is left of this turn's share.
    items: usize,
    bytes: usize,
    moves: usize,
}

impl Pace {
    pub(super) fn new(limits: Limits) -> Pace {
        Pace {
            limits,
            debt: 0,
            peak: 0,
            bursts: 0,
            full_turns: 0,
            kept: KeptShare::default(),
            items: 0,
            bytes: 0,
            moves: 0,
        }
    }

    /// Sets how many segments are emptied ahead of their use.
    pub(super) fn set_ahead(&mut self, segments: usize) {
        self.limits.ahead = segments;
    }

    /// Sets how many segments there may be: the limit of memory may have changed.
    pub(super) fn set_segments(&mut self, segments: usize) {
        self.limits.segments = segments;
    }

    /// Begins a turn's cleaning; `stored` bytes have been stored since the last turn.
    pub(super) fn begin(&mut self, stored: usize, room: Room) {
        self.peak = stored.max(self.peak - self.peak.div_ceil(PEAK_TURNS));
        self.bursts = self.limits.bursts_of(self.peak);
        let reserve = self.limits.reserve;
        let (wanted, available) = (self.wanted(), self.available(room));
        self.full_turns = if room.free > reserve || room.coming == 0 {
            0
        } else {
            self.full_turns.saturating_add(1)
        };
        if available >= wanted {
            self.debt = 0;
        } else {
            // From one and a half times what is stored, when segments begin to run low, to eight
            // times when none are left.
            let missing = wanted - available.max(reserve);
            let halves = 3 + 13 * missing / (wanted - reserve);
            self.debt = self.debt.saturating_add(stored.saturating_mul(halves) / 2);
            if available <= reserve {
                self.debt = self.debt.max(BYTES_LEAST).max(self.peak);
            }
        }
        self.items = if self.debt > 0 {
            ITEMS_MAX
        } else {
            ITEMS_AT_LEISURE
        };
        self.bytes = BYTES_LEAST.max(self.peak.saturating_mul(BYTES_FACTOR));
        self.moves = MOVES_MAX;
    }

    /// Segments that should be free or in their grace period: a few for each worker, and room for
    /// what every worker may store in a turn, or for the largest item.
    fn wanted(&self) -> usize {
        self.limits.reserve + self.limits.workers + 2 + self.bursts + self.limits.ahead
    }

    /// Segments that are free, or will be when they are needed. Segments in their grace period may
    /// come too late for what all workers store in another burst each.
    fn available(&self, room: Room) -> usize {
        room.free + room.coming.saturating_sub(self.bursts)
    }

    /// Whether there is a debt.
    pub(super) fn owes(&self) -> bool {
        self.debt > 0
    }

    /// Items that may be looked at now, up to `most`; none if the turn has done its share.
    pub(super) fn items_at_once(&self, most: usize) -> usize {
        if self.bytes == 0 || self.moves == 0 {
            0
        } else {
            self.items.min(most)
        }
    }

    /// Whether the turn may continue after looking at `len` more bytes and moving `moved` of them.
    pub(super) fn goes_beyond(&self, len: usize, moved: usize) -> bool {
        len < self.bytes && moved < self.moves
    }

    /// Notes that `count` items of `len` bytes together were looked at, and that `moved` bytes were
    /// moved.
    pub(super) fn note_items(&mut self, count: usize, len: usize, moved: usize) {
        self.items = self.items.saturating_sub(count);
        self.bytes = self.bytes.saturating_sub(len);
        self.moves = self.moves.saturating_sub(moved);
        self.debt = self.debt.saturating_sub(len);
        self.kept.note(count, len, moved);
    }

    /// Notes that a segment has been emptied; `room` is the room since then.
    pub(super) fn note_segment(&mut self, room: Room) {
        if self.available(room) >= self.wanted() {
            self.debt = 0;
        }
        if 2 * room.free > self.limits.reserve {
            self.moves = MOVES_MAX;
        }
    }

    /// Ends a turn's cleaning. `has_work` says whether there is anything left to clean. True if the
    /// next turn should come soon, even if no request arrives.
    pub(super) fn end(&mut self, has_work: bool, room: Room) -> bool {
        let next_burst_fits = room.free >= self.limits.reserve + self.bursts;
        self.kept.judge(next_burst_fits, &self.limits);
        let hopes = (1..HOPE_TURNS).contains(&self.full_turns);
        if !has_work {
            self.debt = 0;
            return hopes;
        }
        let is_full = self.available(room) <= self.limits.reserve;
        is_full || hopes || self.debt > 0 && self.items_at_once(1) == 0
    }

    /// Reads since its frequency was last lowered that do not keep an item.
    pub(super) fn reads_ignored(&self) -> u64 {
        self.kept.ignored
    }
}

/// How much of what is looked at stays, and how many reads an item needs to stay.
#[derive(Default)]
struct KeptShare {
    sample: Sample,
    /// See [`Pace::reads_ignored`].
    ignored: u64,
    /// Samples in a row with room all the time.
    calm: u32,
}

/// What was looked at recently.
#[derive(Default)]
struct Sample {
    items: usize,
    bytes: usize,
    kept: usize,
    /// Whether there was room all the time.
    had_room: bool,
    lacked_room: bool,
}

impl KeptShare {
    fn note(&mut self, items: usize, bytes: usize, kept: usize) {
        self.sample.items += items;
        self.sample.bytes += bytes;
        self.sample.kept += kept;
    }

    /// If more than seven eighths stay, looking at eight times what is stored does not make enough
    /// room for it: then an item must have been read more often to stay. This ends slowly, since it
    /// is what makes the room.
    fn judge(&mut self, has_room: bool, limits: &Limits) {
        let sample = &mut self.sample;
        sample.had_room |= has_room;
        sample.lacked_room |= !has_room;
        let share = limits.segments * limits.segment_len / limits.workers / KEPT_SHARE;
        if sample.items < KEPT_ITEMS && sample.bytes < KEPT_MAX.min(share) {
            return;
        }
        if !sample.had_room && sample.kept > sample.bytes / 8 * 7 {
            self.ignored = (self.ignored + 1).min(2);
        }
        self.calm = if sample.lacked_room { 0 } else { self.calm + 1 };
        if self.calm == CALM_SAMPLES {
            self.ignored = self.ignored.saturating_sub(1);
            self.calm = 0;
        }
        self.sample = Sample::default();
    }
}

// Numbers alone, in turns too many for Miri.
#[cfg(all(test, not(miri), not(loom)))]
mod tests;
