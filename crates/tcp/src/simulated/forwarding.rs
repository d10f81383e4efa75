//! What the switch has learned.

use std::collections::BTreeMap;

use super::counters::SwitchCounters;
use crate::nic::Mac;

/// Addresses that the switch remembers. To those beyond it floods.
const ADDRESSES_MAX: usize = 4096;

/// Which address is at which port.
#[derive(Default)]
pub(super) struct Forwarding {
    pub(super) counters: SwitchCounters,
    ports: BTreeMap<Mac, usize>,
}

impl Forwarding {
    /// Learns where the sender is, and says where the receiver is, if that is known.
    pub(super) fn port(&mut self, from: usize, frame: &[u8]) -> Option<usize> {
        let mac = |at: usize| {
            let bytes = frame.get(at..at + 6)?;
            bytes.try_into().ok().map(Mac)
        };
        if let Some(sender) = mac(6)
            && !sender.is_group()
            && (self.ports.len() < ADDRESSES_MAX || self.ports.contains_key(&sender))
        {
            self.ports.insert(sender, from);
        }
        let to = mac(0).and_then(|receiver| self.ports.get(&receiver).copied());
        match to {
            None => self.counters.flooded += 1,
            Some(to) if to == from => self.counters.filtered += 1,
            Some(_) => self.counters.forwarded += 1,
        }
        to
    }
}
