//! Sectors: what is durable, and in front of it a cache that a loss of power empties.

use std::collections::{BTreeSet, VecDeque};

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

/// The sectors of a device.
#[derive(Clone)]
pub(super) struct Medium {
    sector_len: usize,
    durable: Vec<u8>,
    /// Sectors that were written and not flushed, in their order.
    cache: VecDeque<(u64, Box<[u8]>)>,
    cache_sectors: usize,
    /// Sectors that cannot be read.
    spoilt: BTreeSet<u64>,
}

impl Medium {
    /// Zeros.
    pub(super) fn new(sectors: u64, sector_len: usize, cache_sectors: usize) -> Medium {
        let sectors = usize::try_from(sectors).expect("a device that fits into memory");
        Medium {
            sector_len,
            durable: vec![0; sectors * sector_len],
            cache: VecDeque::new(),
            cache_sectors,
            spoilt: BTreeSet::new(),
        }
    }

    /// What reads see, or nothing where a sector is spoilt.
    pub(super) fn read(&self, sector: u64, into: &mut [u8]) -> Option<()> {
        let sectors = (into.len() / self.sector_len) as u64;
        if self.spoilt.range(sector..sector + sectors).next().is_some() {
            return None;
        }
        let from = self.place(sector);
        into.copy_from_slice(&self.durable[from..from + into.len()]);
        for (at, bytes) in &self.cache {
            if (sector..sector + sectors).contains(at) {
                let offset = self.place(*at) - from;
                into[offset..offset + self.sector_len].copy_from_slice(bytes);
            }
        }
        Some(())
    }

    /// Writes whole sectors. The oldest of the cache become durable where it is full.
    pub(super) fn write(&mut self, sector: u64, bytes: &[u8], rng: &mut Xoshiro256PlusPlus) {
        for (at, bytes) in (sector..).zip(bytes.chunks(self.sector_len)) {
            self.spoilt.remove(&at);
            self.cache.push_back((at, bytes.into()));
        }
        // A device writes back in an order of its own.
        while self.cache.len() > self.cache_sectors {
            let index = rng.random_range(0..self.cache.len().min(16));
            self.write_back(index);
        }
    }

    /// Writes some of the sectors.
    pub(super) fn write_torn(&mut self, sector: u64, bytes: &[u8], rng: &mut Xoshiro256PlusPlus) {
        let sector_len = self.sector_len;
        let sectors = bytes.len() / sector_len;
        // Either the beginning, or here and there.
        let kept = rng.random_range(0..=sectors);
        let is_prefix = rng.random_bool(0.5);
        for (index, (at, bytes)) in (sector..).zip(bytes.chunks(sector_len)).enumerate() {
            let is_kept = if is_prefix {
                index < kept
            } else {
                rng.random_bool(0.5)
            };
            if is_kept {
                self.write(at, bytes, rng);
            }
        }
    }

    /// Makes everything durable.
    pub(super) fn flush(&mut self) {
        while !self.cache.is_empty() {
            self.write_back(0);
        }
    }

    /// Forgets the cache, of which each sector may have become durable by itself.
    pub(super) fn cut_power(&mut self, rng: &mut Xoshiro256PlusPlus) {
        while !self.cache.is_empty() {
            if rng.random_bool(0.5) {
                self.write_back(0);
            } else {
                self.cache.pop_front();
            }
        }
    }

    /// Sectors of which nobody knows what they read as.
    pub(super) fn discard(&mut self, sector: u64, sectors: u64, rng: &mut Xoshiro256PlusPlus) {
        for at in sector..sector + sectors {
            if rng.random_bool(0.5) {
                let zeros = vec![0; self.sector_len];
                self.write(at, &zeros, rng);
            }
        }
    }

    /// Makes sectors unreadable.
    pub(super) fn spoil(&mut self, sector: u64, sectors: u64) {
        self.spoilt.extend(sector..sector + sectors);
    }

    /// Changes one bit.
    pub(super) fn flip_bit(&mut self, sector: u64, bit: usize) {
        self.flush();
        let at = self.place(sector) + bit / 8 % self.sector_len;
        self.durable[at] ^= 1 << (bit % 8);
    }

    /// A later write of the same sector that is durable already stays: what is older goes first.
    fn write_back(&mut self, index: usize) {
        let Some(&(sector, _)) = self.cache.get(index) else {
            return;
        };
        let oldest = self.cache.iter().position(|(at, _)| *at == sector);
        if let Some((sector, bytes)) = self.cache.remove(oldest.unwrap_or(index)) {
            let from = self.place(sector);
            self.durable[from..from + self.sector_len].copy_from_slice(&bytes);
        }
    }

    fn place(&self, sector: u64) -> usize {
        usize::try_from(sector).expect("a sector of the device") * self.sector_len
    }
}
