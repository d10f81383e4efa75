//! The open loop: requests leave when they are due, whatever the server does meanwhile.
//!
//! A due request takes the connection that has been free the longest. If none is free, it waits,
//! and so do those behind it; the wait is part of its latency, which counts from when it was due.
//! So a stall of the server shows in the latency of every request that was due during it, not only
//! of the few that were in flight.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use coua_transport::{Source, Token};
use rustix::fd::{AsFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::clock::nanoseconds;
use super::engine::{Engine, Stretch};
use super::error::Error;
use super::link::NO_LINK;
use super::measured::Measured;
use super::schedule::{Pace, Schedule};

/// One thread's open loop over an [`Engine`]'s connections.
#[derive(Debug)]
pub(super) struct OpenLoop<'a> {
    engine: &'a mut Engine,
    /// Wakes the thread when the next request is due; the poller's own time-outs are in milliseconds.
    timer: OwnedFd,
    /// When the timer goes off, or has gone off.
    armed_for_ns: u64,
    /// Connections with room for a request, the one that has had it longest first.
    free: VecDeque<usize>,
    /// Whether a connection stands in `free`.
    is_free: Vec<bool>,
    /// Connections with requests that are written but not sent.
    written: Vec<usize>,
    ready: Vec<usize>,
    /// When a connection last became free after none was. Requests that were due before are late
    /// because of the server.
    freed_at_ns: u64,
}

impl<'a> OpenLoop<'a> {
    /// Waits shorter than this are spent spinning: waking up takes longer.
    const SPIN_NS: u64 = 50_000;

    pub(super) fn new(engine: &'a mut Engine) -> Result<OpenLoop<'a>, Error> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)
            .map_err(io::Error::from)?;
        let source = Source::Kernel(timer.as_fd());
        engine.poller.add_stream(source, Token(NO_LINK))?;
        let count = engine.links.len();
        Ok(OpenLoop {
            timer,
            armed_for_ns: 0,
            free: VecDeque::with_capacity(count),
            is_free: vec![false; count],
            written: Vec::with_capacity(count),
            ready: Vec::with_capacity(count),
            freed_at_ns: 0,
            engine,
        })
    }

    /// Sends requests at a pace for a time, as one of `shares` threads; then waits for the replies
    /// that are outstanding.
    pub(super) fn run(
        &mut self,
        pace: &Pace,
        share: usize,
        shares: usize,
        time: Duration,
    ) -> Result<Measured, Error> {
        let mut measured = Measured::new();
        let stretch = Stretch::begin(self.engine, &mut measured);
        for index in 0..self.engine.links.len() {
            self.note_free(index);
        }
        let start_ns = self.engine.clock.now_ns();
        let end_ns = start_ns + nanoseconds(time);
        let mut schedule = Schedule::new(pace, share, shares, start_ns);
        loop {
            let now_ns = self.engine.clock.now_ns();
            self.ask(&mut schedule, now_ns.min(end_ns - 1), &mut measured)?;
            if now_ns >= end_ns {
                break;
            }
            let next_ns = schedule.next_ns().min(end_ns);
            self.rest(now_ns, next_ns, &mut measured)?;
        }
        stretch.end(self.engine, &mut measured);
        while schedule.next_ns() < end_ns {
            measured.unsent += 1;
            measured.record(end_ns - schedule.next_ns(), 1);
            schedule.advance();
        }
        self.engine.drain(&mut measured)?;
        Ok(measured)
    }

    /// Sends what is due, as long as connections are free.
    fn ask(
        &mut self,
        schedule: &mut Schedule,
        now_ns: u64,
        measured: &mut Measured,
    ) -> Result<(), Error> {
        while schedule.next_ns() <= now_ns {
            let Some(index) = self.free.pop_front() else {
                break;
            };
            self.is_free[index] = false;
            let due_ns = schedule.next_ns();
            if !self.engine.links[index].ask(due_ns) {
                // The place of its next datagram still waits for a reply, which makes it free again.
                continue;
            }
            let late_ns = now_ns.saturating_sub(due_ns.max(self.freed_at_ns));
            measured.late += u64::from(late_ns > nanoseconds(Measured::LATE));
            schedule.advance();
            self.written.push(index);
            self.note_free(index);
        }
        while let Some(index) = self.written.pop() {
            self.engine.links[index].send(self.engine.clock, measured)?;
        }
        Ok(())
    }

    fn note_free(&mut self, index: usize) {
        let room = self.engine.links[index].in_flight() < self.engine.depth;
        if room && !self.is_free[index] {
            self.is_free[index] = true;
            self.free.push_back(index);
        }
    }

    /// Receives until the next request is due and can be sent.
    fn rest(&mut self, now_ns: u64, next_ns: u64, measured: &mut Measured) -> Result<(), Error> {
        let wait_ns = next_ns.saturating_sub(now_ns);
        if self.free.is_empty() {
            self.engine.wait(Duration::from_millis(10))?;
        } else if wait_ns < Self::SPIN_NS {
            self.engine.wait(Duration::ZERO)?;
        } else {
            // A stack of our own polls its card before it sleeps, and comes by here each time.
            if self.armed_for_ns != next_ns {
                self.arm(wait_ns)?;
                self.armed_for_ns = next_ns;
            }
            self.engine.wait(Duration::from_secs(1))?;
        }
        self.receive(measured)
    }

    fn receive(&mut self, measured: &mut Measured) -> Result<(), Error> {
        let none_free = self.free.is_empty();
        let mut ready = std::mem::take(&mut self.ready);
        self.engine.serve(measured, |_, index, _| {
            ready.push(index);
            Ok(())
        })?;
        for index in ready.drain(..) {
            self.note_free(index);
        }
        self.ready = ready;
        if none_free && !self.free.is_empty() {
            self.freed_at_ns = self.engine.clock.now_ns();
        }
        Ok(())
    }

    fn arm(&self, wait_ns: u64) -> Result<(), Error> {
        let wait = Duration::from_nanos(wait_ns);
        let time = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: wait.subsec_nanos().into(),
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time).map_err(io::Error::from)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fake;
    use crate::load::requests::Requests;
    use crate::load::schedule::Arrivals;
    use crate::workload::{KeyFormat, Sampler, Values};

    const STALL: Duration = Duration::from_millis(100);

    /// Connections to a server that stands still for [`STALL`] before its 200th request.
    fn stalling() -> Engine {
        let target = fake::serve_slowly(|number| match number {
            200 => STALL,
            _ => Duration::ZERO,
        });
        let keys = KeyFormat::new(4, 4096).unwrap();
        let sampler = Sampler::Draws {
            random: rand::SeedableRng::seed_from_u64(1),
            range: 0..100,
            left: u64::MAX,
        };
        let requests = Requests::new(keys, Arc::new(Values::new(3)), sampler, 1, 0.0);
        Engine::connect(&target, 4, 1, &requests).unwrap()
    }

    fn above(measured: &Measured, limit: Duration) -> u64 {
        let all = measured.latency_ns.len();
        all - measured.latency_ns.count_between(0, nanoseconds(limit))
    }

    /// 200 requests are due during the stall. The bounds are those below which no machine can fall,
    /// however slow it is: the k-th of them waits (100 − k / 2) ms at least.
    #[test]
    fn an_open_loop_shows_a_stall_in_full() {
        let mut engine = stalling();
        let pace = Pace {
            rate: 2000.0,
            arrivals: Arrivals::Constant,
            seed: 1,
        };
        let time = Duration::from_millis(500);
        let mut open = OpenLoop::new(&mut engine).unwrap();
        let measured = open.run(&pace, 0, 1, time).unwrap();
        assert_eq!(
            measured.replies + measured.unsent,
            1000,
            "each due request is counted"
        );
        assert_eq!(measured.latency_ns.len(), 1000);
        for (limit, expected) in [(20, 160), (50, 100), (80, 40)] {
            let count = above(&measured, Duration::from_millis(limit));
            assert!(count >= expected * 9 / 10, "{count} above {limit} ms");
        }
        assert!(measured.latency_max() >= STALL * 99 / 100);
    }

    #[test]
    fn a_closed_loop_shows_a_stall_once_a_connection() {
        let measured = stalling().run(Duration::from_millis(500)).unwrap();
        assert!(measured.latency_max() >= STALL * 99 / 100);
        assert!(above(&measured, Duration::from_millis(50)) >= 4);
        assert!(measured.replies > 200, "{measured:?}");
    }

    /// The capacity of a server that takes 2 ms a request is 500 a second, and on a machine that
    /// wakes it up late somewhat less.
    #[test]
    fn a_rate_beyond_the_capacity_waits_without_bound() {
        let target = fake::serve_slowly(|_| Duration::from_millis(2));
        let keys = KeyFormat::new(4, 4096).unwrap();
        let requests = Requests::new(
            keys,
            Arc::new(Values::new(3)),
            Sampler::Sequence(0..4096),
            1,
            0.0,
        );
        let mut engine = Engine::connect(&target, 4, 1, &requests).unwrap();
        let pace = Pace {
            rate: 2000.0,
            arrivals: Arrivals::Poisson,
            seed: 1,
        };
        let mut open = OpenLoop::new(&mut engine).unwrap();
        let measured = open.run(&pace, 0, 1, Duration::from_millis(400)).unwrap();
        assert!(measured.unsent > 400, "{}", measured.unsent);
        // What is left at the end has waited for half of the time on average.
        assert!(measured.latency(0.9) > Duration::from_millis(150));
    }
}
