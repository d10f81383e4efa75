//! The MAC addresses of neighbours (ARP: RFC 826; neighbour discovery: RFC 4861).
//!
//! A MAC address is asked for only to open connections: answers go back to where the request came
//! from. An announcement is believed only if it was asked for, or concerns a neighbour that is
//! already known.

use std::collections::HashMap;

use crate::nic::Mac;
use crate::time::Instant;
use crate::wire::Address;

/// The most neighbours that are remembered.
const NEIGHBOURS_MAX: usize = 1024;

/// Microseconds between two questions for the same neighbour (RFC 4861, section 10).
const ASK_INTERVAL: u64 = 1_000_000;

/// Microseconds after which a neighbour in use is asked again.
const STALE_AFTER: u64 = 60_000_000;

/// Whether a neighbour's announcement replaces what is already known (RFC 4861, section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrides(pub bool);

/// All neighbours that are known or asked for.
pub(crate) struct Neighbours {
    known: HashMap<Address, Neighbour>,
    /// Addresses to ask for.
    questions: Vec<Address>,
}

#[derive(Clone, Copy)]
struct Neighbour {
    mac: Option<Mac>,
    /// Another MAC address was announced without the override flag.
    is_doubted: bool,
    heard_at: Instant,
    asked_at: Option<Instant>,
    used_at: Instant,
}

impl Neighbours {
    pub(crate) fn new() -> Neighbours {
        Neighbours {
            known: HashMap::with_capacity(NEIGHBOURS_MAX + 1),
            questions: Vec::with_capacity(NEIGHBOURS_MAX),
        }
    }

    /// The MAC address of a neighbour, if it is known. If not, it will be asked for.
    pub(crate) fn find(&mut self, address: Address, now: Instant) -> Option<Mac> {
        if !self.known.contains_key(&address) {
            self.make_room();
        }
        let neighbour = self.known.entry(address).or_insert(Neighbour {
            mac: None,
            is_doubted: false,
            heard_at: now,
            asked_at: None,
            used_at: now,
        });
        neighbour.used_at = now;
        let is_stale = neighbour.is_doubted || now.micros_since(neighbour.heard_at) > STALE_AFTER;
        let may_ask = neighbour
            .asked_at
            .is_none_or(|at| now.micros_since(at) >= ASK_INTERVAL);
        if (neighbour.mac.is_none() || is_stale) && may_ask && self.questions.len() < NEIGHBOURS_MAX
        {
            neighbour.asked_at = Some(now);
            self.questions.push(address);
        }
        neighbour.mac
    }

    /// Notes a neighbour's announcement. True if the MAC address is new. An announcement without
    /// the override flag does not replace a known MAC address, which is asked for again (RFC 4861,
    /// section 7.2.5).
    pub(crate) fn learn(
        &mut self,
        address: Address,
        mac: Mac,
        overrides: Overrides,
        now: Instant,
    ) -> bool {
        let Some(neighbour) = self.known.get_mut(&address) else {
            return false;
        };
        let is_new = neighbour.mac != Some(mac);
        if is_new && neighbour.mac.is_some() && !overrides.0 {
            neighbour.is_doubted = true;
            return false;
        }
        neighbour.mac = Some(mac);
        neighbour.is_doubted = false;
        neighbour.heard_at = now;
        neighbour.asked_at = None;
        is_new
    }

    /// The next address to ask for.
    pub(crate) fn next_question(&mut self) -> Option<Address> {
        self.questions.pop()
    }

    /// Forgets the least recently used neighbour, if there are too many.
    fn make_room(&mut self) {
        if self.known.len() < NEIGHBOURS_MAX {
            return;
        }
        let oldest = self
            .known
            .iter()
            .min_by_key(|(_, neighbour)| neighbour.used_at);
        if let Some((&address, _)) = oldest {
            self.known.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn address(number: u32) -> Address {
        Address::v4(number.to_be_bytes())
    }

    #[test]
    fn who_is_not_known_is_asked_for_once_a_second() {
        let mut neighbours = Neighbours::new();
        let at = |millis: u64| Instant::from_micros(millis * 1000);
        assert_eq!(neighbours.find(address(1), at(0)), None);
        assert_eq!(neighbours.next_question(), Some(address(1)));
        assert_eq!(neighbours.find(address(1), at(999)), None);
        assert_eq!(neighbours.next_question(), None);
        assert_eq!(neighbours.find(address(1), at(1000)), None);
        assert_eq!(neighbours.next_question(), Some(address(1)));
        assert!(neighbours.learn(address(1), MAC, Overrides(true), at(1001)));
        assert!(!neighbours.learn(address(1), MAC, Overrides(true), at(1002)));
        assert_eq!(neighbours.find(address(1), at(1003)), Some(MAC));
    }

    #[test]
    fn who_was_heard_long_ago_is_asked_again_and_used_meanwhile() {
        let mut neighbours = Neighbours::new();
        let at = |seconds: u64| Instant::from_micros(seconds * 1_000_000);
        neighbours.find(address(1), at(0));
        neighbours.next_question();
        neighbours.learn(address(1), MAC, Overrides(true), at(0));
        assert_eq!(neighbours.find(address(1), at(61)), Some(MAC));
        assert_eq!(neighbours.next_question(), Some(address(1)));
    }

    #[test]
    fn nobody_can_fill_it_or_put_words_into_it() {
        let mut neighbours = Neighbours::new();
        assert!(!neighbours.learn(address(7), MAC, Overrides(true), Instant::default()));
        for number in 0..if cfg!(miri) { 1100 } else { 5000 } {
            neighbours.find(address(number), Instant::from_micros(u64::from(number)));
        }
        assert_eq!(neighbours.known.len(), NEIGHBOURS_MAX);
        assert!(neighbours.questions.len() <= NEIGHBOURS_MAX);
    }
}
