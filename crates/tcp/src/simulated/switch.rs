//! A switch that learns who is where.

use super::card::Card;
use super::counters::{CableCounters, SwitchCounters};
use super::end::{End, lay};
use super::faults::Faults;
use super::forwarding::Forwarding;
use super::state::{Destination, Shared};

/// Any number of ends, each with a cable to the same switch.
///
/// A frame to an address that a frame has come from goes to that port alone, any other to all ports
/// but its own. It is sent on the moment it has come.
pub struct Switch {
    network: Shared,
    ports: usize,
}

/// A direction of a port's cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the end to the switch.
    In,
    /// From the switch to the end.
    Out,
}

impl Switch {
    /// Lays a cable for each card, all of which behave the same in both directions, and whose every
    /// choice comes from `seed`. Time is 0. A port has the number of its card and of its end.
    pub fn new(seed: u64, cards: &[Card], faults: Faults) -> (Switch, Vec<End>) {
        let ports = cards.len();
        let to_switch = (0..ports).map(Destination::Port);
        let cables = to_switch.chain((0..ports).map(Destination::End)).collect();
        let forwarding = Forwarding::default();
        let (network, ends) = lay(seed, cards, faults, cables, Some(forwarding));
        (Switch { network, ports }, ends)
    }

    /// Changes what happens to frames from now on.
    ///
    /// # Panics
    /// Where there is no such port.
    pub fn set_faults(&self, port: usize, way: Way, faults: Faults) {
        let cable = self.cable(port, way);
        self.network.lock().cables[cable].faults = faults;
    }

    /// Frames sent before `until_us` are gone. What is under way arrives.
    ///
    /// # Panics
    /// As of `set_faults`.
    pub fn cut(&self, port: usize, way: Way, until_us: u64) {
        let cable = self.cable(port, way);
        self.network.lock().cables[cable].cut(until_us * 1000);
    }

    /// What has happened to frames in a cable.
    ///
    /// # Panics
    /// As of `set_faults`.
    pub fn cable_counters(&self, port: usize, way: Way) -> CableCounters {
        let cable = self.cable(port, way);
        self.network.lock().cables[cable].counters
    }

    /// What the switch has done.
    pub fn counters(&self) -> SwitchCounters {
        let network = self.network.lock();
        let forwarding = network.forwarding.as_ref();
        forwarding.map_or(SwitchCounters::default(), |it| it.counters)
    }

    /// The time, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.network.lock().now_us()
    }

    /// When the next frame arrives at an end or at the switch, if any is under way; it may be now.
    pub fn next_event_us(&self) -> Option<u64> {
        self.network.lock().next_event_us()
    }

    /// Lets time pass and arrive what is due by then.
    ///
    /// # Panics
    /// Where it would go back.
    pub fn advance_to(&self, now_us: u64) {
        self.network.lock().advance_to(now_us);
    }

    fn cable(&self, port: usize, way: Way) -> usize {
        assert!(port < self.ports, "a port");
        match way {
            Way::In => port,
            Way::Out => self.ports + port,
        }
    }
}
