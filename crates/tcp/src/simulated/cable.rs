//! One direction of a cable: what becomes of a frame in it.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt};

use super::counters::CableCounters;
use super::faults::Faults;

const ETHERNET_LEN: usize = 14;
const ARP: [u8; 2] = [0x08, 0x06];
const IPV4: [u8; 2] = [0x08, 0x00];
const VLAN: [u8; 2] = [0x81, 0x00];
/// Bits in a row that change at most: the most that the Internet checksum always notices.
const DAMAGE_BITS: usize = 15;
const GARBAGE_LEN_MAX: usize = 1514;

/// One direction of a cable.
pub(super) struct Cable {
    pub(super) faults: Faults,
    pub(super) counters: CableCounters,
    rng: Xoshiro256PlusPlus,
    /// When the last frame that was taken will have left.
    free_ns: u64,
    /// When the last frame that keeps the order arrives.
    last_ns: u64,
    down_until_ns: u64,
}

/// A frame that goes on, and when it arrives.
pub(super) struct Passed {
    pub(super) at_ns: u64,
    pub(super) frame: Vec<u8>,
}

impl Cable {
    pub(super) fn new(faults: Faults, rng: Xoshiro256PlusPlus) -> Cable {
        Cable {
            faults,
            counters: CableCounters::default(),
            rng,
            free_ns: 0,
            last_ns: 0,
            down_until_ns: 0,
        }
    }

    /// Takes everything that is sent until then.
    pub(super) fn cut(&mut self, until_ns: u64) {
        self.down_until_ns = until_ns;
    }

    /// Takes a frame in. `room` gives empty buffers, `pass` gets what will arrive.
    ///
    /// The frame comes back where it is not to arrive, for its buffer.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        mut frame: Vec<u8>,
        mut room: impl FnMut() -> Vec<u8>,
        mut pass: impl FnMut(Passed),
    ) -> Option<Vec<u8>> {
        self.counters.sent += 1;
        if self.is_down(now_ns) {
            self.counters.down += 1;
            return Some(frame);
        }
        if frame.len() > self.faults.frame_len_max {
            self.counters.too_long += 1;
            return Some(frame);
        }
        let Some(left_ns) = self.transmit(now_ns, frame.len()) else {
            self.counters.queue_full += 1;
            return Some(frame);
        };
        if self.chance(self.faults.garbage) {
            self.counters.garbage += 1;
            let mut garbage = room();
            self.fill_garbage(&frame, &mut garbage);
            let at_ns = self.arrival(left_ns);
            pass(Passed {
                at_ns,
                frame: garbage,
            });
        }
        if self.chance(self.faults.duplication) {
            self.counters.duplicated += 1;
            let mut copy = room();
            copy.extend_from_slice(&frame);
            if self.spoil(&mut copy) {
                let at_ns = self.arrival(left_ns);
                pass(Passed { at_ns, frame: copy });
            }
        }
        if self.chance(self.faults.loss) {
            self.counters.lost += 1;
            return Some(frame);
        }
        if !self.spoil(&mut frame) {
            return Some(frame);
        }
        let at_ns = self.arrival(left_ns);
        pass(Passed { at_ns, frame });
        None
    }

    fn is_down(&mut self, now_ns: u64) -> bool {
        if now_ns >= self.down_until_ns && self.chance(self.faults.outage) {
            self.counters.outages += 1;
            let down_us = self.rng.random_range(0..=self.faults.outage_us);
            // This frame is lost even where it takes no time.
            self.down_until_ns = now_ns + (down_us * 1000).max(1);
        }
        now_ns < self.down_until_ns
    }

    /// When a frame that is sent now has left, or nothing where the queue is full.
    fn transmit(&mut self, now_ns: u64, len: usize) -> Option<u64> {
        let rate = u128::from(self.faults.rate);
        if rate == 0 {
            return Some(now_ns);
        }
        let wait_ns = self.free_ns.saturating_sub(now_ns);
        let queue_len = u128::from(wait_ns) * rate / 8_000_000_000;
        let len = len as u128;
        if queue_len + len > u128::from(self.faults.queue_len_max) {
            return None;
        }
        let takes_ns = (len * 8_000_000_000).div_ceil(rate);
        self.free_ns = now_ns + wait_ns + u64::try_from(takes_ns).unwrap_or(u64::MAX / 4);
        Some(self.free_ns)
    }

    /// When a frame arrives that left at that time.
    fn arrival(&mut self, left_ns: u64) -> u64 {
        if self.chance(self.faults.haste) {
            self.counters.reordered += 1;
            return left_ns;
        }
        let jitter_us = self.rng.random_range(0..=self.faults.jitter_us);
        let due_ns = left_ns + (self.faults.delay_us + jitter_us) * 1000;
        let in_order_ns = due_ns.max(self.last_ns);
        if self.chance(self.faults.reordering) {
            self.counters.reordered += 1;
            return in_order_ns + self.rng.random_range(0..=self.faults.reordering_us * 1000);
        }
        self.last_ns = in_order_ns;
        in_order_ns
    }

    /// Damages a frame or cuts it short, by chance. False where it is lost by that.
    fn spoil(&mut self, frame: &mut Vec<u8>) -> bool {
        if self.chance(self.faults.corruption) {
            let link_len = link_header_len(frame);
            if frame.len() <= link_len || frame[link_len - 2..link_len] == ARP {
                self.counters.lost += 1;
                return false;
            }
            self.counters.corrupted += 1;
            self.damage(&mut frame[link_len..]);
        }
        if self.chance(self.faults.truncation) && frame.len() > ETHERNET_LEN {
            self.counters.truncated += 1;
            frame.truncate(self.rng.random_range(ETHERNET_LEN..frame.len()));
        }
        true
    }

    /// Changes a bit, and by chance others of the 14 behind it.
    fn damage(&mut self, bytes: &mut [u8]) {
        let first = self.rng.random_range(0..bytes.len() * 8);
        let end = (first + DAMAGE_BITS).min(bytes.len() * 8);
        for bit in first..end {
            if bit == first || self.rng.random() {
                bytes[bit / 8] ^= 0x80 >> (bit % 8);
            }
        }
    }

    fn fill_garbage(&mut self, model: &[u8], garbage: &mut Vec<u8>) {
        garbage.extend_from_slice(&model[..ETHERNET_LEN.min(model.len())]);
        let len = self.rng.random_range(ETHERNET_LEN..=GARBAGE_LEN_MAX);
        let random = garbage.len();
        garbage.resize(len.max(random), 0);
        self.rng.fill_bytes(&mut garbage[random..]);
        // What looks like ARP has no checksum that it would fail by.
        if garbage.len() >= ETHERNET_LEN && [ARP, VLAN].contains(&[garbage[12], garbage[13]]) {
            garbage[12..14].copy_from_slice(&IPV4);
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        // Nothing is drawn for what never happens, so that it changes no run.
        probability > 0.0 && self.rng.random_bool(probability.min(1.0))
    }
}

/// Bytes before the IP packet: the Ethernet header and its tags.
fn link_header_len(frame: &[u8]) -> usize {
    let mut len = ETHERNET_LEN;
    while frame.len() > len + 4 && frame[len - 2..len] == VLAN {
        len += 4;
    }
    len.min(frame.len()).max(2)
}
