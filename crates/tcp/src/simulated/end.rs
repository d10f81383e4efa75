//! A simulated card, at one end of a cable.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::card::Card;
use super::counters::CardCounters;
use super::faults::Faults;
use super::forwarding::Forwarding;
use super::offload::complete;
use super::state::{Destination, Shared};
use crate::nic::{BURST_LEN, Features, Frame, LINK_HEADER_LEN, Nic, Offload};

/// One end of a simulated cable. It vouches for no checksum.
///
/// Every promise of [`Nic`] is held to the letter: nothing leaves before `flush`, what is released
/// is gone, and a slot that is given for the first time holds the bytes of some earlier frame.
pub struct End {
    network: Shared,
    number: usize,
    card: Card,
    rng: Xoshiro256PlusPlus,
    burst: Vec<Vec<u8>>,
    slot: Box<[u8]>,
    slot_is_open: bool,
    is_full: bool,
    committed: Vec<Vec<u8>>,
}

/// Lays a network of these cards, and of a cable for each destination: see [`Shared::new`].
pub(super) fn lay(
    seed: u64,
    cards: &[Card],
    faults: Faults,
    leads_to: Vec<Destination>,
    forwarding: Option<Forwarding>,
) -> (Shared, Vec<End>) {
    let mut seeds = Xoshiro256PlusPlus::seed_from_u64(seed);
    let network = Shared::new(&mut seeds, cards, faults, leads_to, forwarding);
    let ends = cards.iter().enumerate().map(|(number, card)| {
        let rng = Xoshiro256PlusPlus::from_rng(&mut seeds);
        End::new(network.clone(), number, *card, rng)
    });
    let ends = ends.collect();
    (network, ends)
}

impl End {
    fn new(network: Shared, number: usize, card: Card, rng: Xoshiro256PlusPlus) -> End {
        End {
            network,
            number,
            card,
            rng,
            burst: Vec::with_capacity(BURST_LEN),
            slot: vec![0; slot_len(&card)].into_boxed_slice(),
            slot_is_open: false,
            is_full: false,
            committed: Vec::new(),
        }
    }

    /// What has happened so far.
    pub fn counters(&self) -> CardCounters {
        self.network.lock().cards[self.number].counters
    }

    /// Frames that have come and were not received.
    pub fn arrived(&self) -> usize {
        self.network.lock().cards[self.number].arrived.len()
    }

    #[cfg(test)]
    pub(super) fn spare_buffers(&self) -> usize {
        self.network.lock().spare_buffers()
    }
}

/// Bytes of a slot: for a packet, or for one that the card cuts.
fn slot_len(card: &Card) -> usize {
    const HEADERS_LEN_MAX: usize = 100;
    let longest = HEADERS_LEN_MAX + card.segmentation_len_max as usize;
    LINK_HEADER_LEN + longest.max(usize::from(card.mtu))
}

impl Nic for End {
    fn features(&self) -> Features {
        Features {
            mac: self.card.mac,
            mtu: self.card.mtu,
            fills_checksums: self.card.segmentation_len_max > 0,
            segmentation_len_max: self.card.segmentation_len_max,
        }
    }

    fn receive(&mut self) -> usize {
        self.release();
        self.is_full = false;
        let mut network = self.network.lock();
        let card = &mut network.cards[self.number];
        let count = card.arrived.len().min(BURST_LEN);
        self.burst.extend(card.arrived.drain(..count));
        card.counters.received += count as u64;
        count
    }

    fn frame(&self, at: usize) -> Frame<'_> {
        Frame {
            bytes: &self.burst[at],
            is_verified: false,
        }
    }

    fn release(&mut self) {
        let mut network = self.network.lock();
        for frame in self.burst.drain(..) {
            network.keep(frame);
        }
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        if !self.slot_is_open {
            let is_full = self.card.full > 0.0 && self.rng.random_bool(self.card.full.min(1.0));
            self.is_full |= is_full || self.committed.len() == self.card.send_len_max;
            if self.is_full {
                self.network.lock().cards[self.number].counters.refused += 1;
                return None;
            }
            self.slot_is_open = true;
        }
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize, offload: Offload) {
        assert!(self.slot_is_open, "a slot is open");
        if offload == Offload::None {
            let mut frame = self.network.lock().room();
            frame.extend_from_slice(&self.slot[..len]);
            self.committed.push(frame);
        } else {
            assert!(self.card.segmentation_len_max > 0, "nothing was promised");
            self.committed.extend(complete(&self.slot[..len], offload));
        }
        self.slot_is_open = false;
    }

    fn flush(&mut self) {
        self.is_full = false;
        let mut network = self.network.lock();
        network.cards[self.number].counters.sent += self.committed.len() as u64;
        for frame in self.committed.drain(..) {
            network.send(self.number, frame);
        }
    }
}
