//! All of the simulated network, behind its lock.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use super::link::{Link, one_in};
use super::{Got, Manner, Moved, SourceId};
use crate::outcome::{Accepted, Received, Sent};
use crate::readiness::{Readiness, Token};

/// As many events as a wait reports at most.
const EVENTS_PER_WAIT: usize = 512;

/// The error that a process gets that has as many descriptors as it may.
const TOO_MANY_DESCRIPTORS: i32 = 24;

/// See [`super::Network`].
pub(super) struct State {
    rng: Xoshiro256PlusPlus,
    exhausted_one_in: u32,
    links: Vec<Link>,
    /// Connections with an end that is open.
    live: Vec<usize>,
    listeners: Vec<Waiting>,
    wakers: Vec<bool>,
    pollers: Vec<PollerState>,
    pub(super) moved: Moved,
}

/// Connections that wait to be accepted.
type Waiting = VecDeque<usize>;

#[derive(Default)]
struct PollerState {
    /// Connections with an edge that has not been told of.
    edges: VecDeque<usize>,
    /// Listeners and wakers.
    levels: Vec<(SourceId, Token)>,
}

impl State {
    pub(super) fn new(rng: Xoshiro256PlusPlus, exhausted_one_in: u32) -> State {
        State {
            rng,
            exhausted_one_in,
            links: Vec::new(),
            live: Vec::new(),
            listeners: Vec::new(),
            wakers: Vec::new(),
            pollers: Vec::new(),
            moved: Moved::default(),
        }
    }

    pub(super) fn add_listener(&mut self) -> usize {
        self.listeners.push(VecDeque::new());
        self.listeners.len() - 1
    }

    pub(super) fn add_waker(&mut self) -> usize {
        self.wakers.push(false);
        self.wakers.len() - 1
    }

    pub(super) fn add_poller(&mut self) -> usize {
        self.pollers.push(PollerState::default());
        self.pollers.len() - 1
    }

    pub(super) fn set_waker(&mut self, number: usize, awake: bool) {
        self.wakers[number] = awake;
    }

    pub(super) fn link(&mut self, number: usize) -> &mut Link {
        &mut self.links[number]
    }

    pub(super) fn connect(&mut self, manner: Manner) -> usize {
        let number = self.links.len();
        self.links.push(Link::new(manner));
        self.live.push(number);
        let listener = self.rng.random_range(0..self.listeners.len());
        self.listeners[listener].push_back(number);
        number
    }

    pub(super) fn connections(&self) -> usize {
        let is_open = |number: &&usize| self.links[**number].server_is_open;
        self.live.iter().filter(is_open).count()
    }

    pub(super) fn accept(&mut self, listener: usize) -> Accepted<usize> {
        if self.listeners[listener].is_empty() {
            return Accepted::Nothing;
        }
        if one_in(&mut self.rng, self.exhausted_one_in) {
            return Accepted::Exhausted(io::Error::from_raw_os_error(TOO_MANY_DESCRIPTORS));
        }
        self.listeners[listener]
            .pop_front()
            .map_or(Accepted::Nothing, Accepted::Stream)
    }

    pub(super) fn pass_time(&mut self) {
        for at in 0..self.live.len() {
            let number = self.live[at];
            if self.rng.random() {
                self.deliver(number);
            }
        }
        let links = &self.links;
        self.live.retain(|&number| {
            let link = &links[number];
            link.server_is_open || link.peer_is_open
        });
    }

    fn deliver(&mut self, number: usize) {
        if self.links[number].deliver(&mut self.rng) {
            self.note_edge(number);
        }
    }

    pub(super) fn receive(&mut self, number: usize, spaces: &mut [IoSliceMut<'_>]) -> Received {
        let received = self.links[number].receive(spaces);
        if let Received::Bytes(count) = received {
            self.moved.received += count as u64;
        }
        // More may arrive in the moment behind.
        if one_in(&mut self.rng, 4) {
            self.deliver(number);
        }
        received
    }

    pub(super) fn send(&mut self, number: usize, pieces: &[IoSlice<'_>]) -> Sent {
        let link = &mut self.links[number];
        let peer_was_open = link.peer_is_open;
        let sent = link.send(pieces, &mut self.rng);
        if let Sent::Bytes(count) = sent {
            self.moved.sent += count as u64;
        }
        if !peer_was_open {
            self.note_edge(number);
        }
        sent
    }

    pub(super) fn peer_receive(&mut self, number: usize, into: &mut Vec<u8>, most: usize) -> Got {
        let link = &mut self.links[number];
        let (count, edge) = link.peer_receive(into, most);
        let is_over = link.is_over_for_peer();
        if edge {
            self.note_edge(number);
        }
        match count {
            0 if is_over => Got::Ended,
            0 => Got::Nothing,
            count => Got::Bytes(count),
        }
    }

    pub(super) fn reset(&mut self, number: usize) {
        self.links[number].reset(&mut self.rng);
        self.note_edge(number);
    }

    pub(super) fn peer_close(&mut self, number: usize) {
        if !self.links[number].peer_is_open {
            return;
        }
        if self.links[number].unread_by_peer() > 0 {
            self.reset(number);
        }
        let link = &mut self.links[number];
        link.peer_is_open = false;
        link.peer_end();
    }

    /// Something has happened to the server's end that its poller is to tell of.
    fn note_edge(&mut self, number: usize) {
        let link = &mut self.links[number];
        if let Some((poller, _)) = link.watch
            && !link.is_listed
        {
            link.is_listed = true;
            self.pollers[poller].edges.push_back(number);
        }
    }

    pub(super) fn add(&mut self, poller: usize, source: SourceId, token: Token) -> io::Result<()> {
        if let SourceId::Stream(number) = source {
            let link = &mut self.links[number];
            if link.watch.is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            link.watch = Some((poller, token));
            link.is_listed = false;
            // What is so already is an edge too.
            self.note_edge(number);
            return Ok(());
        }
        let levels = &mut self.pollers[poller].levels;
        if levels.iter().any(|(other, _)| *other == source) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        levels.push((source, token));
        Ok(())
    }

    pub(super) fn remove(&mut self, poller: usize, source: SourceId) -> io::Result<()> {
        if let SourceId::Stream(number) = source {
            let watch = self.links[number].watch.take();
            return watch.map(drop).ok_or(io::ErrorKind::NotFound.into());
        }
        let levels = &mut self.pollers[poller].levels;
        let at = levels.iter().position(|(other, _)| *other == source);
        let at = at.ok_or(io::ErrorKind::NotFound)?;
        levels.remove(at);
        Ok(())
    }

    pub(super) fn is_ready(&self, poller: usize) -> bool {
        let poller = &self.pollers[poller];
        !poller.edges.is_empty()
            || poller
                .levels
                .iter()
                .any(|(source, _)| self.level_is_ready(*source))
    }

    fn level_is_ready(&self, source: SourceId) -> bool {
        match source {
            SourceId::Stream(_) => false,
            SourceId::Listener(number) => !self.listeners[number].is_empty(),
            SourceId::Waker(number) => self.wakers[number],
        }
    }

    pub(super) fn wait(&mut self, poller: usize, report: &mut Vec<Readiness>) {
        report.clear();
        let most = match one_in(&mut self.rng, 4) {
            true => self.rng.random_range(1..8),
            false => EVENTS_PER_WAIT,
        };
        for at in 0..self.pollers[poller].levels.len() {
            let (source, token) = self.pollers[poller].levels[at];
            // A listener that several wait for need not be told to all of them at once.
            if self.level_is_ready(source) && !one_in(&mut self.rng, 4) {
                report.push(Readiness {
                    token,
                    readable: true,
                    writable: false,
                    end_of_stream: false,
                });
            }
        }
        while report.len() < most
            && let Some(number) = self.pollers[poller].edges.pop_front()
        {
            let link = &mut self.links[number];
            link.is_listed = false;
            if let Some((watching, token)) = link.watch
                && watching == poller
            {
                report.extend(link.readiness(token));
            }
        }
    }
}
