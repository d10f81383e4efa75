//! All parts of a simulated network, as its handles share them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::cable::{Cable, Passed};
use super::card::Card;
use super::counters::CardCounters;
use super::faults::Faults;
use super::forwarding::Forwarding;

/// What the handles of one network hold.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<State>>);

impl Shared {
    /// A network of these cards, and of a cable for each destination. The cable that begins at a
    /// card has its number.
    pub(super) fn new(
        seeds: &mut Xoshiro256PlusPlus,
        cards: &[Card],
        faults: Faults,
        leads_to: Vec<Destination>,
        forwarding: Option<Forwarding>,
    ) -> Shared {
        let card_state = |card: &Card| CardState {
            arrived: VecDeque::new(),
            counters: CardCounters::default(),
            receive_len_max: card.receive_len_max,
        };
        let cable = |_: &Destination| Cable::new(faults, Xoshiro256PlusPlus::from_rng(seeds));
        Shared(Arc::new(Mutex::new(State {
            cables: leads_to.iter().map(cable).collect(),
            cards: cards.iter().map(card_state).collect(),
            forwarding,
            leads_to,
            now_ns: 0,
            under_way: BinaryHeap::new(),
            serial: 0,
            spare: Vec::new(),
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A simulated network.
pub(super) struct State {
    pub(super) cables: Vec<Cable>,
    pub(super) cards: Vec<CardState>,
    pub(super) forwarding: Option<Forwarding>,
    /// Where each cable leads.
    leads_to: Vec<Destination>,
    now_ns: u64,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    serial: u64,
    spare: Vec<Vec<u8>>,
}

/// Where a cable ends.
#[derive(Clone, Copy)]
pub(super) enum Destination {
    /// At a card.
    End(usize),
    /// At a port of the switch.
    Port(usize),
}

/// A card and what has come to it.
pub(super) struct CardState {
    pub(super) arrived: VecDeque<Vec<u8>>,
    pub(super) counters: CardCounters,
    receive_len_max: usize,
}

/// A frame in a cable. The derived order is that of arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    at_ns: u64,
    /// Frames that arrive at the same time do so in the order in which they were sent.
    serial: u64,
    cable: usize,
    frame: Vec<u8>,
}

impl State {
    pub(super) fn now_us(&self) -> u64 {
        self.now_ns / 1000
    }

    pub(super) fn next_event_us(&self) -> Option<u64> {
        let Reverse(next) = self.under_way.peek()?;
        Some(next.at_ns.div_ceil(1000))
    }

    pub(super) fn advance_to(&mut self, now_us: u64) {
        let now_ns = now_us * 1000;
        assert!(now_ns >= self.now_ns, "time goes on");
        while self
            .under_way
            .peek()
            .is_some_and(|Reverse(next)| next.at_ns <= now_ns)
        {
            if let Some(Reverse(next)) = self.under_way.pop() {
                self.now_ns = self.now_ns.max(next.at_ns);
                self.arrive(next.cable, next.frame);
            }
        }
        self.now_ns = now_ns;
    }

    /// Hands a frame to a cable.
    pub(super) fn send(&mut self, cable: usize, frame: Vec<u8>) {
        let (spare, under_way, serial) = (&mut self.spare, &mut self.under_way, &mut self.serial);
        let room = || spare.pop().unwrap_or_default();
        let pass = |Passed { at_ns, frame }: Passed| {
            *serial += 1;
            under_way.push(Reverse(UnderWay {
                at_ns,
                serial: *serial,
                cable,
                frame,
            }));
        };
        let unused = self.cables[cable].take(self.now_ns, frame, room, pass);
        unused.into_iter().for_each(|frame| self.keep(frame));
    }

    fn arrive(&mut self, cable: usize, frame: Vec<u8>) {
        self.cables[cable].counters.arrived += 1;
        match self.leads_to[cable] {
            Destination::End(number) => {
                let card = &mut self.cards[number];
                if card.arrived.len() < card.receive_len_max {
                    card.arrived.push_back(frame);
                } else {
                    card.counters.overrun += 1;
                    self.keep(frame);
                }
            }
            Destination::Port(port) => self.forward(port, frame),
        }
    }

    /// Sends a frame on that came to a port of the switch.
    fn forward(&mut self, from: usize, frame: Vec<u8>) {
        let ports = self.cards.len();
        let to = match &mut self.forwarding {
            Some(forwarding) => forwarding.port(from, &frame),
            None => None,
        };
        // The cables that lead away from the switch come after those that lead to it.
        for port in (0..ports).filter(|&port| to.map_or(port != from, |to| port == to)) {
            if port != from {
                let mut copy = self.room();
                copy.extend_from_slice(&frame);
                self.send(ports + port, copy);
            }
        }
        self.keep(frame);
    }

    #[cfg(test)]
    pub(super) fn spare_buffers(&self) -> usize {
        self.spare.len()
    }

    /// An empty buffer.
    pub(super) fn room(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a buffer back that nothing needs.
    pub(super) fn keep(&mut self, mut frame: Vec<u8>) {
        frame.clear();
        self.spare.push(frame);
    }
}
