//! A simulated card, at one end of a cable.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use super::counters::CardCounters;
use super::offload::complete;
use super::state::Shared;
use crate::nic::{BURST_LEN, Features, Frame, LINK_HEADER_LEN, Mac, Nic, Offload};

/// What a simulated card is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Its own address.
    pub mac: Mac,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
    /// Frames that it keeps until they are received; what comes beyond is dropped.
    pub receive_len_max: usize,
    /// Frames that it takes until they are flushed.
    pub send_len_max: usize,
    /// The probability that a call of `slot` finds it full although it is not. It is so until the
    /// next `flush` or `receive`.
    pub full: f64,
    /// Bytes of payload that it cuts into segments itself; where it does, it computes checksums too. 0
    /// where it does neither.
    pub segmentation_len_max: u32,
}

impl Card {
    /// A card with that address, the MTU of Ethernet, and room for a thousand frames each way.
    pub const fn new(mac: Mac) -> Card {
        Card {
            mac,
            mtu: 1500,
            receive_len_max: 1024,
            send_len_max: 1024,
            full: 0.0,
            segmentation_len_max: 0,
        }
    }
}

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

impl End {
    pub(super) fn new(network: Shared, number: usize, card: Card, rng: Xoshiro256PlusPlus) -> End {
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
