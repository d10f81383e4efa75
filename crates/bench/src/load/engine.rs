//! The event loop of one load thread.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use coua_transport::userspace::StackDriverCounters;
use coua_transport::{Events, Poller, Token};
use rustix::process::Pid;

use super::absence::Watch;
use super::clock::{Clock, nanoseconds};
use super::connection::Connection;
use super::datagrams::{Datagrams, Way};
use super::error::Error;
use super::link::{Link, NO_LINK};
use super::measured::Measured;
use super::own_datagrams::OwnDatagrams;
use super::own_stack::OwnStack;
use super::plan::Dialect;
use super::requests::Requests;
use crate::cpu;
use crate::target::Target;

/// The connections of one thread. Stretches of load follow one another on the same connections, so
/// a warm-up is a stretch whose measurement is dropped. In a closed loop there is no gap between
/// two stretches.
pub(crate) struct Engine {
    pub(super) poller: Poller,
    pub(super) links: Vec<Link>,
    pub(super) depth: usize,
    pub(super) clock: Clock,
    /// Tokens from the last wait: places of links, or [`NO_LINK`].
    pub(super) events: Vec<u64>,
    room: Events,
    /// The connections are on an own stack, which is polled.
    pub(super) has_stack: bool,
    /// That stack's datagrams, in the UDP dialect.
    datagrams: Option<Rc<OwnDatagrams>>,
    /// Time spent busy-waiting; on an own stack, time spent waiting in any way.
    waited_ns: u64,
    input: Vec<u8>,
    progress: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    heard_at_ns: u64,
    given_up_at_ns: u64,
    /// Finds out which side had no CPU when replies were slow (`--gaps`).
    watch: Option<Watch>,
    /// Time asleep since the last turn, for `watch`.
    asleep_ns: u64,
}

impl Engine {
    /// How many bytes are received at a time; a larger reply makes the buffer grow.
    const READ: usize = 256 << 10;
    /// After this time without a frame no acknowledgment is expected any more.
    const QUIET: Duration = Duration::from_millis(60);
    /// The longest time to wait for that.
    const SETTLING_MAX: Duration = Duration::from_secs(1);
    /// Nanoseconds between two checks for lost datagrams.
    const GIVE_UP_NS: u64 = 100_000_000;
    /// The poller's token for the datagrams of an own stack; the places of links are below it.
    const DATAGRAMS: u64 = NO_LINK - 1;

    /// Opens `connections` connections, each with its share of the keys. Sends nothing yet.
    pub(crate) fn connect(
        target: &Target,
        connections: usize,
        depth: usize,
        requests: &Requests,
    ) -> Result<Engine, Error> {
        let poller = Poller::new()?;
        let links = (0..connections).map(|index| {
            let share = requests.for_share(index, connections);
            Link::open(target, share, depth, |source| {
                poller.add_stream(source, Token(index as u64))
            })
        });
        let links = links.collect::<io::Result<Vec<Link>>>()?;
        Ok(Engine::new(poller, links, depth, false))
    }

    /// As [`connect`](Self::connect), over an own stack.
    pub(super) fn connect_by(
        stack: OwnStack,
        to: SocketAddr,
        connections: usize,
        depth: usize,
        requests: &Requests,
    ) -> Result<Engine, Error> {
        if requests.plan().dialect == Dialect::Udp {
            return Engine::open_ports(stack, to, connections, depth, requests);
        }
        let (poller, streams) = stack.connect(to, connections)?;
        let links = streams.into_iter().enumerate().map(|(index, stream)| {
            poller.add_stream(&stream, Token(index as u64))?;
            let share = requests.for_share(index, connections);
            Ok(Link::Stream(Connection::new(stream, share)))
        });
        let links = links.collect::<io::Result<Vec<Link>>>()?;
        Ok(Engine::new(poller, links, depth, true))
    }

    fn open_ports(
        stack: OwnStack,
        to: SocketAddr,
        connections: usize,
        depth: usize,
        requests: &Requests,
    ) -> Result<Engine, Error> {
        let (poller, datagrams, servers) = stack.open_ports(to, connections)?;
        poller.add_source(datagrams.source(), Token(Self::DATAGRAMS), false)?;
        let datagrams = Rc::new(datagrams);
        let links = servers.into_iter().enumerate().map(|(index, server)| {
            let way = Way::Own(datagrams.clone(), server);
            let share = requests.for_share(index, connections);
            Link::Datagrams(Datagrams::new(way, share, depth))
        });
        let links = links.collect();
        let mut engine = Engine::new(poller, links, depth, true);
        engine.datagrams = Some(datagrams);
        Ok(engine)
    }

    fn new(poller: Poller, links: Vec<Link>, depth: usize, has_stack: bool) -> Engine {
        Engine {
            poller,
            events: Vec::with_capacity(links.len() + 1),
            room: Events::new(),
            links,
            depth,
            clock: Clock::start(),
            has_stack,
            datagrams: None,
            waited_ns: 0,
            input: vec![0; Self::READ],
            progress: Arc::default(),
            stop: Arc::default(),
            heard_at_ns: 0,
            given_up_at_ns: 0,
            watch: None,
            asleep_ns: 0,
        }
    }

    /// Counts replies in `progress` during each stretch of load, and ends the stretch soon after
    /// `stop` is set.
    pub(super) fn attend(&mut self, progress: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
        self.progress = progress;
        self.stop = stop;
    }

    /// From now on, finds out which side had no CPU when replies were slow. It must be called on
    /// the load thread. `server` is the server's process, if it is on this machine.
    pub(super) fn watch(&mut self, server: Option<Pid>) -> io::Result<()> {
        self.watch = Some(Watch::new(server)?);
        Ok(())
    }

    /// Keeps all connections busy for `time`. Requests in flight at the end belong to the next
    /// stretch.
    pub(crate) fn run(&mut self, time: Duration) -> Result<Measured, Error> {
        let end_ns = self.clock.now_ns() + nanoseconds(time);
        self.drive(|now_ns, _| now_ns < end_ns)
    }

    /// Sends what is left of a workload that has an end, and waits for the replies.
    pub(crate) fn finish(&mut self) -> Result<Measured, Error> {
        self.drive(|_, busy| busy)
    }

    /// Waits for the replies to requests in flight, and sends nothing more. Call it before a pause
    /// between two stretches, or the pause would count as latency.
    pub(super) fn drain(&mut self, measured: &mut Measured) -> Result<(), Error> {
        while self.links.iter().any(|link| link.in_flight() > 0) {
            self.wait(Duration::from_millis(100))?;
            self.serve(measured, |_, _, _| Ok(()))?;
        }
        self.settle(Self::QUIET)
    }

    /// A closed loop. It continues while `more` returns true; `more` is called before each wait
    /// with the time and whether any request is in flight.
    fn drive(&mut self, more: impl Fn(u64, bool) -> bool) -> Result<Measured, Error> {
        let mut measured = Measured::new();
        let stretch = Stretch::begin(self, &mut measured);
        self.heard_at_ns = self.clock.now_ns();
        let mut is_busy = vec![false; self.links.len()];
        let mut busy = 0;
        for (index, is_busy) in is_busy.iter_mut().enumerate() {
            *is_busy = self.refill(index, &mut measured)?;
            busy += usize::from(*is_busy);
        }
        while more(self.clock.now_ns(), busy > 0) {
            self.wait(Duration::from_secs(1))?;
            // The next request is sent before the next reply is read. Otherwise the server would be
            // idle while the replies of a wake-up are read, and the load while the server answers.
            self.serve(&mut measured, |engine, index, measured| {
                busy -= usize::from(is_busy[index]);
                is_busy[index] = engine.refill(index, measured)?;
                busy += usize::from(is_busy[index]);
                Ok(())
            })?;
        }
        stretch.end(self, &mut measured);
        Ok(measured)
    }

    /// Sends as many requests as may be in flight. On a stream that is a burst, and the next burst
    /// follows when the last reply has arrived. Datagrams do not wait for a reply that may be lost.
    /// Returns whether any request is in flight then.
    fn refill(&mut self, index: usize, measured: &mut Measured) -> Result<bool, Error> {
        let link = &mut self.links[index];
        let in_flight = link.in_flight();
        let room = match link {
            Link::Stream(_) => in_flight == 0,
            Link::Datagrams(_) => in_flight < self.depth,
        };
        if room {
            let now_ns = self.clock.now_ns();
            for _ in in_flight..self.depth {
                if !link.ask(now_ns) {
                    break;
                }
            }
            link.send(self.clock, measured)?;
        }
        Ok(link.in_flight() > 0)
    }

    /// Waits until a connection is ready, the timer says so, or the time is over.
    pub(super) fn wait(&mut self, time: Duration) -> Result<(), Error> {
        self.events.clear();
        let is_awake = self.has_stack || time.is_zero();
        let begun_ns = match is_awake || self.watch.is_some() {
            true => self.clock.now_ns(),
            false => 0,
        };
        let slept = self.poller.slept();
        let ready = self.poller.wait(&mut self.room, time, || {})?;
        for event in ready {
            let link = usize::try_from(event.token.0).map(|index| self.links.get_mut(index));
            if let Ok(Some(link)) = link
                && event.end_of_stream
            {
                link.note_end();
            }
            self.events.push(event.token.0);
        }
        if self.datagrams.as_ref().is_some_and(|own| own.was_full()) {
            let links = self.links.iter().zip(0..);
            let unsent = links.filter(|(link, _)| link.has_unsent());
            self.events.extend(unsent.map(|(_, index)| index));
        }
        self.waited_ns += match is_awake && self.events.is_empty() {
            true => self.clock.now_ns() - begun_ns,
            false => nanoseconds(self.poller.slept() - slept),
        };
        if self.watch.is_some() {
            // The kernel's poller sleeps while it waits.
            self.asleep_ns += match is_awake {
                true => nanoseconds(self.poller.slept() - slept),
                false => self.clock.now_ns() - begun_ns,
            };
        }
        Ok(())
    }

    /// Drives an own stack until no frame has arrived for `quiet`, so that its last acknowledgments
    /// are sent: nothing drives it between two stretches. The kernel's stack does not need this.
    fn settle(&mut self, quiet: Duration) -> Result<(), Error> {
        let began = Instant::now();
        let mut heard_at = began;
        while self.has_stack && heard_at.elapsed() < quiet && began.elapsed() < Self::SETTLING_MAX {
            let before = self.poller.counters();
            drop(
                self.poller
                    .wait(&mut self.room, Duration::from_millis(1), || {})?,
            );
            let frames = |counters: Option<StackDriverCounters>| {
                counters.map(|counters| counters.stack.frames_received)
            };
            if frames(before) != frames(self.poller.counters()) {
                heard_at = Instant::now();
            }
        }
        Ok(())
    }

    /// Receives on the connections that are ready, and calls `then` after each. An error if a
    /// server with requests in flight is silent for too long.
    pub(super) fn serve(
        &mut self,
        measured: &mut Measured,
        mut then: impl FnMut(&mut Engine, usize, &mut Measured) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let now_ns = self.clock.now_ns();
        measured.tick(now_ns);
        if let Some(watch) = &mut self.watch {
            watch.turn(now_ns, std::mem::take(&mut self.asleep_ns));
        }
        for event in 0..self.events.len() {
            let data = self.events[event];
            if data == NO_LINK {
                continue;
            }
            self.heard_at_ns = now_ns;
            if data == Self::DATAGRAMS {
                self.serve_datagrams(measured, &mut then)?;
                continue;
            }
            let index = usize::try_from(data).expect("an index was registered");
            let link = &mut self.links[index];
            link.send(self.clock, measured)?;
            link.receive(&mut self.input, self.clock, measured)?;
            then(self, index, measured)?;
        }
        if let Some(watch) = &mut self.watch
            && let Some((latency_ns, replies)) = measured.take_slow()
        {
            watch.slow(now_ns, latency_ns, replies);
        }
        if now_ns - self.given_up_at_ns > Self::GIVE_UP_NS {
            self.given_up_at_ns = now_ns;
            self.look_round(now_ns, measured, then)?;
        }
        self.progress.store(measured.replies, Ordering::Relaxed);
        Ok(())
    }

    /// Handles the datagrams that an own stack has received in this turn, and calls `then` after
    /// each.
    fn serve_datagrams(
        &mut self,
        measured: &mut Measured,
        then: &mut impl FnMut(&mut Engine, usize, &mut Measured) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(datagrams) = self.datagrams.clone() else {
            return Ok(());
        };
        while let Some((len, index)) = datagrams.receive(&mut self.input) {
            self.links[index].hear(&self.input[..len], self.clock, measured)?;
            then(self, index, measured)?;
        }
        Ok(())
    }

    fn look_round(
        &mut self,
        now_ns: u64,
        measured: &mut Measured,
        mut then: impl FnMut(&mut Engine, usize, &mut Measured) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let mut waiting = false;
        for index in 0..self.links.len() {
            let link = &mut self.links[index];
            let before = link.in_flight();
            link.give_up(now_ns, measured);
            if link.in_flight() < before {
                then(self, index, measured)?;
            }
            waiting |= self.links[index].in_flight() > 0;
        }
        if !waiting {
            self.heard_at_ns = now_ns;
        }
        match now_ns - self.heard_at_ns > nanoseconds(Error::SILENCE) {
            true => Err(Error::Silent),
            false => Ok(()),
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut engine = f.debug_struct("Engine");
        engine
            .field("links", &self.links)
            .field("depth", &self.depth);
        engine.finish_non_exhaustive()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Closes the connections, so that the server learns that they have ended.
        self.links.clear();
        let _ = self.settle(Self::QUIET);
    }
}

/// The duration of a stretch, and how much of it was work.
#[derive(Debug)]
pub(super) struct Stretch {
    started: Instant,
    cpu_before: Duration,
    waited_ns: u64,
}

impl Stretch {
    /// Starts the stretch.
    pub(super) fn begin(engine: &Engine, measured: &mut Measured) -> Stretch {
        measured.begin_series(engine.clock.now_ns());
        if engine.watch.is_some() {
            measured.note_slow(Watch::SLOW);
        }
        Stretch {
            started: Instant::now(),
            cpu_before: cpu::of_this_thread(),
            waited_ns: engine.waited_ns,
        }
    }

    /// Ends the stretch.
    pub(super) fn end(&self, engine: &mut Engine, measured: &mut Measured) {
        measured.elapsed = self.started.elapsed();
        let used = match engine.has_stack {
            true => measured.elapsed,
            false => cpu::of_this_thread() - self.cpu_before,
        };
        let waited = Duration::from_nanos(engine.waited_ns - self.waited_ns);
        measured.client_cpu = used.saturating_sub(waited);
        measured.end_series();
        measured.absences = engine.watch.as_mut().map(Watch::take);
    }
}

#[cfg(test)]
mod tests;
