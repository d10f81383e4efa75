//! A device in virtual time: how long requests take, in which order they end and what goes wrong comes from a seed.
//!
//! Time is what callers say that it is. A request is carried out when its time has come: a write changes the medium, a
//! read sees it, and both complete then. Two runs with one seed and the same calls are the same.
//!
//! # Not here
//! Time spent by a processor: a simulated device costs none.

mod faults;
mod medium;
#[cfg(test)]
mod tests;

pub use faults::{Faults, Timing};

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::device::{
    Armed, BlockDevice, Command, Completion, Failure, Identity, OpenError, Queue, Rejected,
    Rejection, Request,
};
use crate::slots::InFlight;
use medium::Medium;

/// What a simulated device is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many sectors it has.
    pub sectors: u64,
    /// Their bytes.
    pub sector_len: usize,
    /// The longest transfer in bytes.
    pub transfer_len_max: usize,
    /// How many sectors that were written may be kept in a cache that is lost with the power; 0 for no such cache.
    pub cache_sectors: usize,
    /// How long requests take.
    pub timing: Timing,
    /// Whether it refuses memory of which pages were replaced, as a device does that has it pinned for good.
    pub pins_memory: bool,
    /// What goes wrong by chance.
    pub faults: Faults,
}

impl Default for Settings {
    /// 16 MiB without faults.
    fn default() -> Settings {
        Settings {
            sectors: 32768,
            sector_len: 512,
            transfer_len_max: 128 << 10,
            cache_sectors: 4096,
            timing: Timing::default(),
            pins_memory: false,
            faults: Faults::default(),
        }
    }
}

/// A simulated device. Clones are the same device.
#[derive(Clone)]
pub struct SimulatedDevice {
    identity: Identity,
    state: Arc<Mutex<State>>,
}

struct State {
    settings: Settings,
    medium: Medium,
    rng: Xoshiro256PlusPlus,
    under_way: Vec<UnderWay>,
    /// When each of the device's channels is free.
    channels_ns: Vec<u64>,
    is_removed: bool,
    /// Changes at each loss of power: queues of the time before are dead.
    power_cycle: u64,
    queues: u64,
    counts: Counts,
}

/// What has happened on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads that were carried out, whatever came of them.
    pub reads: u64,
    /// Writes, likewise.
    pub writes: u64,
    /// Bytes of both.
    pub bytes_read: u64,
    /// See `bytes_read`.
    pub bytes_written: u64,
    /// Flushes.
    pub flushes: u64,
    /// Doorbells: calls of `submit` with something to submit.
    pub doorbells: u64,
}

/// A request and when it ends.
struct UnderWay {
    end_ns: u64,
    queue: u64,
    request: Request,
    is_stuck: bool,
}

impl SimulatedDevice {
    /// A device of zeros.
    ///
    /// # Panics
    /// Where the settings make no device.
    pub fn new(settings: Settings, seed: u64) -> SimulatedDevice {
        assert!(
            settings.sector_len.is_power_of_two() && settings.sectors > 0,
            "a device has sectors"
        );
        assert!(settings.timing.channels > 0, "a device has a channel");
        let identity = Identity {
            name: format!("simulated device {seed}"),
            driver: "simulated".to_owned(),
            sectors: settings.sectors,
            sector_len: settings.sector_len,
            transfer_len_max: settings.transfer_len_max,
            has_volatile_cache: settings.cache_sectors > 0,
        };
        let medium = Medium::new(
            settings.sectors,
            settings.sector_len,
            settings.cache_sectors,
        );
        let state = State {
            medium,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            under_way: Vec::new(),
            channels_ns: vec![0; settings.timing.channels],
            is_removed: false,
            power_cycle: 0,
            queues: 0,
            counts: Counts::default(),
            settings,
        };
        SimulatedDevice {
            identity,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Another device, as this one is now. What is under way has not happened there: so it is found by the process after
    /// one that died at this moment.
    pub fn fork(&self) -> SimulatedDevice {
        let state = self.state();
        let fork = State {
            settings: state.settings.clone(),
            medium: state.medium.clone(),
            rng: state.rng.clone(),
            under_way: Vec::new(),
            channels_ns: state.channels_ns.clone(),
            is_removed: state.is_removed,
            power_cycle: state.power_cycle,
            queues: state.queues,
            counts: state.counts,
        };
        SimulatedDevice {
            identity: self.identity.clone(),
            state: Arc::new(Mutex::new(fork)),
        }
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state().settings.faults = faults;
    }

    /// How long requests take from now on: a device that throttles itself is one with a longer timing.
    pub fn set_timing(&self, timing: Timing) {
        let mut state = self.state();
        state.channels_ns = vec![0; timing.channels.max(1)];
        state.settings.timing = timing;
    }

    /// Makes sectors unreadable until they are written.
    pub fn spoil(&self, sector: u64, sectors: u64) {
        self.state().medium.spoil(sector, sectors);
    }

    /// Changes a bit that is at rest, as no checksum of a device notices.
    pub fn flip_bit(&self, sector: u64, bit: usize) {
        self.state().medium.flip_bit(sector, bit);
    }

    /// Takes the device away: everything under way and everything after fails.
    pub fn remove(&self) {
        self.state().is_removed = true;
    }

    /// Puts it back, as it was. Queues from before stay dead.
    pub fn put_back(&self) {
        let mut state = self.state();
        state.is_removed = false;
        state.power_cycle += 1;
    }

    /// Cuts the power and restores it: of what was not flushed, and of writes under way, each sector is either as it
    /// was or as it should become. Queues from before are dead.
    pub fn cut_power(&self) {
        let mut state = self.state();
        let state = &mut *state;
        for it in &state.under_way {
            if let Command::Write(transfer) = &it.request.command {
                let bytes = &transfer.buffer[..transfer.len];
                state.medium.write(transfer.sector, bytes, &mut state.rng);
            }
        }
        state.medium.cut_power(&mut state.rng);
        state.power_cycle += 1;
    }

    /// When the next request ends, where one is under way.
    pub fn next_end_ns(&self) -> Option<u64> {
        let state = self.state();
        state.under_way.iter().map(|it| it.end_ns).min()
    }

    /// What has happened.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BlockDevice for SimulatedDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, OpenError> {
        let mut state = self.state();
        if state.is_removed {
            return Err(OpenError::Removed);
        }
        state.queues += 1;
        Ok(Box::new(SimulatedQueue {
            number: state.queues,
            power_cycle: state.power_cycle,
            identity: self.identity.clone(),
            state: Arc::clone(&self.state),
            depth,
            staged: VecDeque::with_capacity(depth),
            in_flight: 0,
        }))
    }
}

struct SimulatedQueue {
    number: u64,
    power_cycle: u64,
    identity: Identity,
    state: Arc<Mutex<State>>,
    depth: usize,
    staged: VecDeque<Request>,
    in_flight: usize,
}

impl SimulatedQueue {
    /// Whether the device has other pages of a request's memory than the process.
    fn has_lost(&self, request: &Request) -> bool {
        let buffer = match &request.command {
            Command::Read(transfer) | Command::Write(transfer) => &transfer.buffer,
            Command::Flush | Command::Discard { .. } => return false,
        };
        buffer.has_replaced_pages() && !self.follows_replaced_pages()
    }
}

impl Queue for SimulatedQueue {
    fn room(&self) -> usize {
        self.depth - self.in_flight
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn push(&mut self, request: Request) -> Result<(), Rejected> {
        let why = if self.room() == 0 {
            Rejection::Full
        } else if lock(&self.state).is_dead(self.power_cycle) {
            Rejection::Removed
        } else if !self.identity.allows(&request.command) || self.has_lost(&request) {
            Rejection::Refused
        } else {
            self.in_flight += 1;
            self.staged.push_back(request);
            return Ok(());
        };
        Err(Rejected { request, why })
    }

    fn follows_replaced_pages(&self) -> bool {
        !lock(&self.state).settings.pins_memory
    }

    fn submit(&mut self, now_ns: u64) {
        if self.staged.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        state.counts.doorbells += 1;
        for request in self.staged.drain(..) {
            state.begin(self.number, request, now_ns);
        }
    }

    fn poll(&mut self, now_ns: u64, into: &mut Vec<Completion>) -> usize {
        let mut state = lock(&self.state);
        let before = into.len();
        let is_dead = state.is_dead(self.power_cycle);
        while is_dead && into.len() < into.capacity() {
            let Some(request) = self.staged.pop_front() else {
                break;
            };
            let request = InFlight::of(request.token, request.command);
            into.push(request.completed(Err(Failure::Removed)));
        }
        while into.len() < into.capacity() {
            let Some(next) = state.next_of(self.number, now_ns, is_dead) else {
                break;
            };
            into.push(if is_dead {
                let request = InFlight::of(next.request.token, next.request.command);
                request.completed(Err(Failure::Removed))
            } else {
                state.end(next)
            });
        }
        let count = into.len() - before;
        self.in_flight -= count;
        count
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&mut self) -> Armed {
        Armed::Poll
    }
}

impl Drop for SimulatedQueue {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        // What is under way is carried out as if its completion were seen.
        while let Some(next) = state.next_of(self.number, u64::MAX, false) {
            if !state.is_dead(self.power_cycle) {
                state.end(next);
            }
        }
    }
}

impl State {
    fn is_dead(&self, power_cycle: u64) -> bool {
        self.is_removed || self.power_cycle != power_cycle
    }

    /// Decides when a request ends.
    fn begin(&mut self, queue: u64, request: Request, now_ns: u64) {
        let timing = &self.settings.timing;
        let service_ns = timing.service_ns(&request.command, self.settings.sector_len);
        let channel = self.channels_ns.iter_mut().min().expect("a channel");
        let begin_ns = now_ns.max(*channel);
        *channel = begin_ns + service_ns;
        let jitter_ns = self.rng.random_range(0..=timing.jitter_ns);
        let is_stuck = self
            .settings
            .faults
            .hits(self.settings.faults.timeouts, &mut self.rng);
        let timeout_ns = if is_stuck { timing.timeout_ns } else { 0 };
        self.under_way.push(UnderWay {
            end_ns: begin_ns + service_ns + jitter_ns + timeout_ns,
            queue,
            request,
            is_stuck,
        });
    }

    /// The request of a queue that ends first, by now or in any case.
    fn next_of(&mut self, queue: u64, now_ns: u64, anyway: bool) -> Option<UnderWay> {
        let of_queue = self.under_way.iter().enumerate();
        let of_queue =
            of_queue.filter(|(_, it)| it.queue == queue && (anyway || it.end_ns <= now_ns));
        let (index, _) = of_queue.min_by_key(|(_, it)| it.end_ns)?;
        Some(self.under_way.swap_remove(index))
    }

    /// Carries a request out.
    fn end(&mut self, it: UnderWay) -> Completion {
        let UnderWay {
            mut request,
            is_stuck,
            ..
        } = it;
        let result = if is_stuck && self.rng.random_bool(0.5) {
            Err(Failure::TimedOut)
        } else {
            let carried_out = self.carry_out(&mut request.command);
            if is_stuck {
                Err(Failure::TimedOut)
            } else {
                carried_out
            }
        };
        InFlight::of(request.token, request.command).completed(result)
    }

    fn carry_out(&mut self, command: &mut Command) -> Result<(), Failure> {
        let faults = self.settings.faults;
        match command {
            Command::Read(transfer) => {
                self.counts.reads += 1;
                self.counts.bytes_read += transfer.len as u64;
                if faults.hits(faults.read_errors, &mut self.rng) {
                    return Err(Failure::Media);
                }
                let sector = if faults.hits(faults.misdirected_reads, &mut self.rng) {
                    self.elsewhere(transfer.len)
                } else {
                    transfer.sector
                };
                if self.settings.pins_memory {
                    // It would write to the lost page.
                    transfer.buffer.look();
                    if transfer.buffer.has_replaced_pages() {
                        return Ok(());
                    }
                }
                let into = &mut transfer.buffer[..transfer.len];
                self.medium.read(sector, into).ok_or(Failure::Media)
            }
            Command::Write(transfer) => {
                self.counts.writes += 1;
                self.counts.bytes_written += transfer.len as u64;
                let bytes = &transfer.buffer[..transfer.len];
                if faults.hits(faults.write_errors, &mut self.rng) {
                    // Some of it may have been written.
                    self.medium
                        .write_torn(transfer.sector, bytes, &mut self.rng);
                    return Err(Failure::Media);
                }
                if faults.hits(faults.lost_writes, &mut self.rng) {
                    return Ok(());
                }
                if faults.hits(faults.torn_writes, &mut self.rng) {
                    self.medium
                        .write_torn(transfer.sector, bytes, &mut self.rng);
                    return Ok(());
                }
                let sector = if faults.hits(faults.misdirected_writes, &mut self.rng) {
                    self.elsewhere(transfer.len)
                } else {
                    transfer.sector
                };
                self.medium.write(sector, bytes, &mut self.rng);
                Ok(())
            }
            Command::Flush => {
                self.counts.flushes += 1;
                if !faults.hits(faults.lost_flushes, &mut self.rng) {
                    self.medium.flush();
                }
                Ok(())
            }
            Command::Discard { sector, sectors } => {
                self.medium.discard(*sector, *sectors, &mut self.rng);
                Ok(())
            }
        }
    }

    /// Where a transfer of `len` bytes goes by mistake.
    fn elsewhere(&mut self, len: usize) -> u64 {
        let sectors = (len / self.settings.sector_len) as u64;
        let last = self.settings.sectors.saturating_sub(sectors);
        self.rng.random_range(0..=last)
    }
}
