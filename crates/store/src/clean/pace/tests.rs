//! The pace against a simulated store: segments, bursts that fill them, and grace periods that last until every
//! worker has ended the burst that it is in.

use super::*;
use std::collections::VecDeque;

const SEGMENT_LEN: usize = 64 << 10;

/// Requests of a burst of the server at most.
const BURST: usize = 1024;

/// A store of which only the numbers are there.
struct Model {
    limits: Limits,
    paces: Vec<Pace>,
    free: usize,
    /// The length of the items in each sealed segment, oldest first.
    sealed: VecDeque<usize>,
    /// For each retired segment, when it retired.
    retired: VecDeque<u64>,
    epoch: u64,
    /// For each worker the epoch that it has announced, and what is left of its open segments.
    announced: Vec<u64>,
    open: Vec<usize>,
    open_for_moves: Vec<usize>,
    jobs: Vec<Option<Job>>,
    /// Of 100 items looked at so many stay, by how many reads are ignored.
    stays: [usize; 3],
    looked_at: usize,
    stored: usize,
    refused: usize,
    evicted: usize,
}

/// A segment under cleaning.
#[derive(Clone, Copy)]
struct Job {
    item_len: usize,
    left: usize,
}

/// What a turn's cleaning came to.
struct Turn {
    items: usize,
    bytes: usize,
    is_behind: bool,
}

impl Model {
    fn new(workers: usize, segments: usize, stays: [usize; 3]) -> Model {
        let limits = Limits {
            segment_len: SEGMENT_LEN,
            segments,
            reserve: 2 * workers + 2,
            workers,
            item_size_max: 1 << 20,
            ahead: 0,
        };
        Model {
            limits,
            paces: (0..workers).map(|_| Pace::new(limits)).collect(),
            free: segments,
            sealed: VecDeque::new(),
            retired: VecDeque::new(),
            epoch: 1,
            announced: vec![u64::MAX; workers],
            open: vec![0; workers],
            open_for_moves: vec![0; workers],
            jobs: vec![None; workers],
            stays,
            looked_at: 0,
            stored: 0,
            refused: 0,
            evicted: 0,
        }
    }

    /// All segments but what is kept free are full of items of `len`.
    fn fill(&mut self, len: usize) {
        let full = self.free - self.limits.reserve - self.limits.workers - 2;
        self.free -= full;
        self.sealed.extend(vec![len; full]);
    }

    /// Segments' worth of items of `len` that may go beyond what is stored.
    fn margin(&self, len: usize, burst: usize) -> usize {
        let workers = self.limits.workers;
        // Free segments, grace periods, what each worker has open, and what it was at.
        let segments =
            2 * workers + 2 + (2 * workers * burst * len).div_ceil(SEGMENT_LEN) + 3 * workers;
        segments * (SEGMENT_LEN / len)
    }

    fn room(&self) -> Room {
        Room {
            free: self.free,
            coming: self.retired.len(),
        }
    }

    fn announce(&mut self, worker: usize) {
        self.announced[worker] = self.epoch;
        while let Some(&retired) = self.retired.front()
            && self.announced.iter().all(|&seen| seen >= retired)
        {
            self.retired.pop_front();
            self.free += 1;
        }
    }

    /// A burst begins and stores `count` items of `len`, as many as find room.
    fn burst(&mut self, worker: usize, count: usize, len: usize) -> usize {
        self.announce(worker);
        for done in 0..count {
            if self.open[worker] < len {
                if self.free <= self.limits.reserve {
                    self.refused += count - done;
                    return done * len;
                }
                self.free -= 1;
                self.sealed.push_back(len);
                self.open[worker] = SEGMENT_LEN;
            }
            self.open[worker] -= len;
            self.stored += 1;
        }
        count * len
    }

    /// A burst ends, `stored` bytes having been stored in it, and its worker cleans.
    fn end(&mut self, worker: usize, stored: usize) -> Turn {
        self.announce(worker);
        let room = self.room();
        self.paces[worker].begin(stored, room);
        let (mut items, mut bytes) = (0, 0);
        while self.paces[worker].owes() && self.paces[worker].items_at_once(1) > 0 {
            let Some(mut job) = self.jobs[worker].or_else(|| self.pick()) else {
                break;
            };
            let moved = self.look_at_item(worker, job.item_len);
            self.paces[worker].note_items(1, job.item_len, moved);
            (items, bytes) = (items + 1, bytes + job.item_len);
            job.left -= 1;
            self.jobs[worker] = (job.left > 0).then_some(job);
            if job.left == 0 {
                self.epoch += 1;
                self.retired.push_back(self.epoch);
                self.announce(worker);
                let room = self.room();
                self.paces[worker].note_segment(room);
            }
        }
        let has_work = self.jobs[worker].is_some();
        let room = self.room();
        let is_behind = self.paces[worker].end(has_work, room);
        Turn {
            items,
            bytes,
            is_behind,
        }
    }

    fn pick(&mut self) -> Option<Job> {
        let item_len = self.sealed.pop_front()?;
        let left = SEGMENT_LEN / item_len;
        Some(Job { item_len, left })
    }

    /// Returns the bytes moved.
    fn look_at_item(&mut self, worker: usize, len: usize) -> usize {
        self.looked_at += 1;
        let ignored = usize::try_from(self.paces[worker].reads_ignored()).unwrap();
        // Evenly spread, as a prime's multiples are.
        let stays = self.looked_at * 37 % 100 < self.stays[ignored];
        if stays && self.open_for_moves[worker] < len && self.free > 0 {
            self.free -= 1;
            self.sealed.push_back(len);
            self.open_for_moves[worker] = SEGMENT_LEN;
        }
        if stays && self.open_for_moves[worker] >= len {
            self.open_for_moves[worker] -= len;
            len
        } else {
            self.evicted += 1;
            0
        }
    }

    /// A turn of each worker but those from `stalled` on.
    fn turn(&mut self, stalled: usize, count: usize, len: usize) {
        // All are in a burst at once.
        let stored: Vec<usize> = (0..stalled).map(|w| self.burst(w, count, len)).collect();
        for (worker, stored) in stored.into_iter().enumerate() {
            self.end(worker, stored);
        }
    }
}

#[test]
fn however_long_a_worker_stalls_no_more_is_evicted_than_stored() {
    for stays in [[0; 3], [50; 3], [100, 50, 0], [100, 100, 50]] {
        for workers in [2, 4, 16] {
            for stall in [1, 10, 1000, 10_000] {
                for (count, len) in [(1, 64), (BURST, 64), (16, 1024), (100, 8192)] {
                    let mut model = Model::new(workers, 2048, stays);
                    model.fill(len);
                    let margin = model.margin(len, count);
                    // The last one is in a burst all the time.
                    model.announce(workers - 1);
                    for _ in 0..stall {
                        model.turn(workers - 1, count, len);
                    }
                    assert!(
                        model.evicted <= model.stored + margin,
                        "{} for {}: {workers} workers, {stall} turns, {count} of {len} bytes",
                        model.evicted,
                        model.stored
                    );
                    // It goes on, and so do the others.
                    for _ in 0..512 {
                        model.turn(workers, 1, len);
                    }
                    model.refused = 0;
                    for _ in 0..128 {
                        model.turn(workers, 1, len);
                    }
                    assert!(
                        model.refused <= 128 * workers / 8,
                        "{} wait: {workers} workers, {stall} turns, {count} of {len} bytes, {stays:?}",
                        model.refused
                    );
                }
            }
        }
    }
}

#[test]
fn the_largest_bursts_find_room() {
    for workers in [1, 2, 8] {
        for len in [24, 64, 128, 512, 1024] {
            let mut model = Model::new(workers, 4096, [0; 3]);
            model.fill(len);
            for _ in 0..16 {
                // Until it is known how much a burst stores.
                model.turn(workers, BURST, len);
            }
            model.refused = 0;
            for _ in 0..2000 {
                model.turn(workers, BURST, len);
            }
            assert_eq!(model.refused, 0, "{workers} workers, {len} bytes");
        }
    }
}

/// Large values over many small items: a turn looks at a bounded number, and the rest of the debt waits.
#[test]
fn a_turn_is_bounded_and_the_debt_is_carried_over() {
    let (large, small) = (16 << 10, 24);
    let mut model = Model::new(1, 2048, [0; 3]);
    model.fill(small);
    let mut turns = 0;
    while model.stored < 10_000 {
        let stored = model.burst(0, 64, large);
        let mut turn = model.end(0, stored);
        assert!(turn.items <= ITEMS_MAX);
        assert!(turn.bytes <= BYTES_FACTOR * 64 * large + large);
        // Nobody asks for anything, and still it comes to an end of its debt.
        while turn.is_behind {
            turn = model.end(0, 0);
            assert!(turn.items <= ITEMS_MAX);
            turns += 1;
            assert!(turns < 100_000, "it never gets there");
        }
        assert!(model.free > model.limits.reserve, "nobody can store");
    }
    assert!(
        turns > 1000,
        "the small items were looked at in {turns} turns"
    );
    assert!(
        model.paces[0].debt == 0,
        "{} bytes of debt",
        model.paces[0].debt
    );
}

#[test]
fn with_room_enough_nothing_is_looked_at() {
    let mut model = Model::new(2, 2048, [0; 3]);
    model.sealed.extend([64; 100]);
    for _ in 0..100 {
        model.turn(2, 16, 64);
    }
    assert_eq!((model.looked_at, model.evicted), (0, 0));
}

#[test]
fn where_all_was_read_lately_more_reads_are_asked_for() {
    let mut model = Model::new(1, 1024, [100, 30, 0]);
    model.fill(64);
    for _ in 0..200 {
        model.turn(1, BURST, 64);
    }
    assert_eq!(model.paces[0].reads_ignored(), 1);
    model.refused = 0;
    for _ in 0..200 {
        model.turn(1, BURST, 64);
    }
    assert_eq!(model.refused, 0, "there is room, since less stays");
    // Nothing is read any more.
    model.stays = [0; 3];
    for _ in 0..4000 {
        model.turn(1, BURST, 64);
    }
    assert_eq!(model.paces[0].reads_ignored(), 0);
}

/// Where nobody can store until a grace period is over, the next turn comes soon; but not for ever.
#[test]
fn a_worker_hopes_for_the_end_of_a_grace_period_for_a_while() {
    let mut model = Model::new(2, 1024, [0; 3]);
    model.fill(64);
    model.announce(1);
    for _ in 0..100 {
        model.turn(1, BURST, 64);
    }
    assert!(model.refused > 0 && model.end(0, 0).is_behind);
    for _ in 0..HOPE_TURNS {
        model.end(0, 0);
    }
    assert!(!model.end(0, 0).is_behind, "a core for nothing");
}
