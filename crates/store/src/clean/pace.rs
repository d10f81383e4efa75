//! How much a worker cleans at the end of a turn.
//!
//! A worker owes the store a debt: bytes of items that it has to look at. Each turn adds to it in
//! measure with what the turn stored, the more so the fewer segments are free; looking at items pays
//! it off. As soon as enough segments are free there is no debt, so a worker never evicts more than was
//! stored, but for the segments that it keeps free. A turn pays so much at most, and the rest of the debt
//! waits for the next turn.
//!
//! Numbers go in and numbers come out: nothing here knows a store, a clock or a thread.
//!
//! # Invariants
//! - A segment that is retired counts as free, but for those that are about to be used up while their grace
//!   period lasts. Where a worker is stalled inside a burst, no grace period ends: the others then wait for
//!   it, and do not empty segment after segment.
//! - A turn looks at no more than [`ITEMS_MAX`] items, and at no more bytes than [`BYTES_LEAST`] or
//!   [`BYTES_FACTOR`] times what was stored.

/// Items that a turn looks at, at most. Each may cost a line of memory; together they take a quarter of a
/// millisecond.
pub(super) const ITEMS_MAX: usize = 4096;

/// Items that a turn looks at where nobody needs the space.
const ITEMS_AT_LEISURE: usize = 64;

/// Bytes that a turn looks at, at most: so many, or so many times what was stored since the last.
const BYTES_LEAST: usize = 512 << 10;
const BYTES_FACTOR: usize = 4;

/// Bytes that a turn moves before another segment is free to move to, as far as whole items allow: less than
/// is set aside for cleaning.
const MOVES_MAX: usize = 128 << 10;

/// Turns after which a burst that stored much is as good as forgotten.
const PEAK_TURNS: usize = 256;

/// Turns for which a worker that can store nothing hopes for a grace period to end at once.
const HOPE_TURNS: u32 = 256;

/// The part of memory that may be kept free for what bursts store: one sixteenth.
const FREE_SHARE: usize = 16;

/// What has been looked at when it is told how much of it stays: so much of a worker's share of memory, so many
/// bytes or so many items, whichever comes first.
const KEPT_SHARE: usize = 64;
const KEPT_MAX: usize = 16 << 20;
const KEPT_ITEMS: usize = 4 * ITEMS_MAX;

/// Samples in a row with room all the time after which one read less is asked for.
const CALM_SAMPLES: u32 = 64;

/// What does not change while the store runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of a segment.
    pub(super) segment_len: usize,
    /// Segments that there are.
    pub(super) segments: usize,
    /// Segments that only the cleaner may take.
    pub(super) reserve: usize,
    pub(super) workers: usize,
    /// Bytes of the largest item.
    pub(super) item_size_max: usize,
}

impl Limits {
    /// Segments that all workers together fill in a turn where each stores `bytes`; no more than may be kept
    /// free for that.
    fn bursts_of(&self, bytes: usize) -> usize {
        let bursts = (bytes * self.workers).div_ceil(self.segment_len);
        let largest_item = self.item_size_max.div_ceil(self.segment_len);
        bursts.min((self.segments / FREE_SHARE).max(largest_item))
    }
}

/// Segments that hold nothing, at one moment.
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
    /// Bytes of items that it still ought to look at.
    debt: usize,
    /// The most bytes that were lately stored in a turn.
    peak: usize,
    /// Segments that all workers together may fill in a turn, by what this one has filled lately.
    bursts: usize,
    /// Turns for which nothing could be stored until a grace period is over.
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

    /// Begins a turn's cleaning, `stored` bytes having been stored since the last.
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
            // From one and a half times what is stored, where segments begin to run low, to eight times
            // where none are left.
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

    /// Segments that are to be free or on their way to it: a few for each worker, and what every worker
    /// may store in a turn, or the largest item takes.
    fn wanted(&self) -> usize {
        self.limits.reserve + self.limits.workers + 2 + self.bursts
    }

    /// Segments that are free, or that will be when they are needed: what comes while all workers store
    /// another burst each may come too late for that.
    fn available(&self, room: Room) -> usize {
        room.free + room.coming.saturating_sub(self.bursts)
    }

    /// Whether space is wanted.
    pub(super) fn owes(&self) -> bool {
        self.debt > 0
    }

    /// Items that may be looked at now, `most` at most; none where the turn has done its share.
    pub(super) fn items_at_once(&self, most: usize) -> usize {
        if self.bytes == 0 || self.moves == 0 {
            0
        } else {
            self.items.min(most)
        }
    }

    /// Whether the turn may go on when it looks at so many bytes more and moves so many of them.
    pub(super) fn goes_beyond(&self, len: usize, moved: usize) -> bool {
        len < self.bytes && moved < self.moves
    }

    /// So many items of so many bytes together were looked at, and so many bytes of them were moved.
    pub(super) fn note_items(&mut self, count: usize, len: usize, moved: usize) {
        self.items = self.items.saturating_sub(count);
        self.bytes = self.bytes.saturating_sub(len);
        self.moves = self.moves.saturating_sub(moved);
        self.debt = self.debt.saturating_sub(len);
        self.kept.note(count, len, moved);
    }

    /// A segment has been emptied; `room` is what there is since.
    pub(super) fn note_segment(&mut self, room: Room) {
        if self.available(room) >= self.wanted() {
            self.debt = 0;
        }
        if 2 * room.free > self.limits.reserve {
            self.moves = MOVES_MAX;
        }
    }

    /// Ends a turn's cleaning. `has_work` says whether there is anything left to clean. True where the next turn
    /// should come soon, although nobody may have asked for anything by then.
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

/// How much of what is looked at stays, and how many reads it takes to stay.
#[derive(Default)]
struct KeptShare {
    sample: Sample,
    /// See [`Pace::reads_ignored`].
    ignored: u64,
    /// Samples in a row with room all the time.
    calm: u32,
}

/// What was looked at lately.
#[derive(Default)]
struct Sample {
    items: usize,
    bytes: usize,
    kept: usize,
    /// There was room meanwhile.
    had_room: bool,
    lacked_room: bool,
}

impl KeptShare {
    fn note(&mut self, items: usize, bytes: usize, kept: usize) {
        self.sample.items += items;
        self.sample.bytes += bytes;
        self.sample.kept += kept;
    }

    /// Where more than seven eighths stay, looking at eight times what is stored makes no room for it:
    /// then an item must have been read more often to stay. That ends slowly, since it is what makes
    /// the room.
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

#[cfg(test)]
mod tests;
