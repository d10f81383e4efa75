//! How received frames are spread over a port's queues: by RSS, or by flow rules if RSS cannot.
//!
//! RSS spreads the connections of one peer only if it hashes ports too. If it does not, or if there
//! is no RSS, two sets of rules are tried. The first one that the driver accepts as a whole is
//! kept:
//!
//! ```text
//! hash rules   eth / ip / tcp                           → RSS over all queues
//! port rules   eth / ip / tcp, port & mask = value      → one queue, for each value of the mask's bits
//! ```
//!
//! There is one rule each for IPv4 and IPv6, TCP and UDP. The port is the one by which the
//! connections of a peer differ: the peer's, if the peer opens them. To accept connections, no key
//! has to be the same for both directions of a connection. To open them, ports are tried until the
//! replies come to the right queue.
//!
//! # Invariants
//! A connection stays with the worker to whose queue it came first. So rules are made before queues
//! are used, and stay until the port is closed.
//!
//! # Not here
//! - The hash that a port is set up with: `coua_port_configure` in the shim.
//! - Frames that no rule matches (ARP, ICMP, frames with VLAN tags): they arrive as without rules,
//!   and each worker passes on to the others what it learns from them.

use std::fmt;

use coua_dpdk_sys as sys;

/// How received frames are spread over several queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spreading {
    /// There is one queue.
    OneQueue,
    /// By a hash of addresses and ports that is the same for both directions of a connection.
    Symmetric,
    /// By a hash of addresses and ports with the card's own key.
    OwnKey,
    /// By flow rules that hash addresses and ports.
    HashRules,
    /// By flow rules that look at bits of the port that tells the connections of a peer apart.
    PortRules,
    /// By a hash of addresses alone: all connections of a peer come to one queue.
    ByAddress,
    /// As the device does it, which it does not report. On links in memory the peer's queue
    /// decides.
    ByPeer,
}

/// Which port of TCP or UDP differs between the connections of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Differing {
    /// The peer's: the peer opens the connections.
    Theirs,
    /// This side's: this side opens them.
    Own,
}

/// Rules on a port. They are removed when this is dropped.
pub(super) struct Rules {
    port: u16,
}

/// The sets of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    Hash,
    Ports,
}

/// What RSS does on a port that was set up for it, if it has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rss {
    None,
    Addresses,
    /// It hashes addresses and ports, the driver says, but not whether it accepted the key. Some of
    /// these drivers need rules for it.
    Unproven,
    Ports,
    /// It hashes with the symmetric key.
    Symmetric,
}

/// Which frames a rule matches, and what it does to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// They are spread over so many queues.
    Hash(sys::Traffic, u16),
    /// Those with these ports go to one queue.
    Queue(sys::Traffic, sys::PortMatch, u16),
}

/// A part of the ports, and the queue that it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    value: u16,
    mask: u16,
    queue: u16,
}

impl Spreading {
    /// Finds out how a started port spreads frames, and makes rules if RSS does not do it.
    pub(super) fn settle(
        port: u16,
        facts: &sys::PortFacts,
        queues: u16,
        differing: Differing,
    ) -> (Spreading, Option<Rules>) {
        if queues == 1 {
            return (Spreading::OneQueue, None);
        }
        let (sets, otherwise) = Rss::of(port, facts).plan();
        let made = sets.iter().find_map(|&set| {
            let rules = Rules::make(port, queues, set, differing)?;
            Some((set.spreading(), Some(rules)))
        });
        made.unwrap_or((otherwise, None))
    }
}

impl fmt::Display for Spreading {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Spreading::OneQueue => "one queue",
            Spreading::Symmetric => {
                "connections are spread by the card's hash, which is the same for both directions"
            }
            Spreading::OwnKey => "connections are spread by the card's hash, with its own key",
            Spreading::HashRules => {
                "connections are spread by flow rules that hash addresses and ports"
            }
            Spreading::PortRules => {
                "connections are spread by flow rules on the port by which they differ"
            }
            Spreading::ByAddress => {
                "the card's hash is of addresses alone and it takes no flow rules: all connections \
                 of a peer come to one worker"
            }
            Spreading::ByPeer => {
                "the device has no hash and takes no flow rules: connections are spread as it does \
                 by itself, or by the peer's queues"
            }
        })
    }
}

impl Rss {
    fn of(port: u16, facts: &sys::PortFacts) -> Rss {
        if facts.has_rss == 0 {
            return Rss::None;
        }
        let mut hash = sys::PortHash::default();
        if sys::coua_port_hash(port, &mut hash) != 0 {
            return match facts.hashes_ports {
                0 => Rss::Addresses,
                _ => Rss::Unproven,
            };
        }
        match (
            hash.is_over_addresses,
            hash.is_over_ports,
            hash.is_symmetric,
        ) {
            (0, ..) => Rss::None,
            (_, 0, _) => Rss::Addresses,
            (_, _, 0) => Rss::Ports,
            _ => Rss::Symmetric,
        }
    }

    /// The sets of rules to try, and what is left if the driver refuses them.
    fn plan(self) -> (&'static [Set], Spreading) {
        match self {
            Rss::Symmetric => (&[], Spreading::Symmetric),
            Rss::Ports => (&[], Spreading::OwnKey),
            // What it may already do is better than port rules.
            Rss::Unproven => (&[Set::Hash], Spreading::OwnKey),
            Rss::Addresses => (&[Set::Hash, Set::Ports], Spreading::ByAddress),
            Rss::None => (&[Set::Hash, Set::Ports], Spreading::ByPeer),
        }
    }
}

impl Set {
    fn rules(self, queues: u16, differing: Differing) -> impl Iterator<Item = Rule> {
        let is_own = u8::from(differing == Differing::Own);
        let families = [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter();
        let traffic = families.map(|(is_ipv6, is_udp)| sys::Traffic { is_ipv6, is_udp });
        traffic.flat_map(move |of| {
            let hash = (self == Set::Hash).then_some(Rule::Hash(of, queues));
            let ports = (self == Set::Ports).then(|| shares(queues));
            let ports = ports.into_iter().flatten().map(move |share| {
                let ports = sys::PortMatch::new(share.value, share.mask, is_own);
                Rule::Queue(of, ports, share.queue)
            });
            hash.into_iter().chain(ports)
        })
    }

    fn spreading(self) -> Spreading {
        match self {
            Set::Hash => Spreading::HashRules,
            Set::Ports => Spreading::PortRules,
        }
    }
}

impl Rules {
    /// Makes a set of rules. If the driver refuses one of them, none is kept.
    fn make(port: u16, queues: u16, set: Set, differing: Differing) -> Option<Rules> {
        // From here on, whatever has been made is removed if a rule fails.
        let rules = Rules { port };
        let is_made = set.rules(queues, differing).all(|rule| rule.add(port));
        is_made.then_some(rules)
    }
}

impl Rule {
    /// Makes one rule. False if the driver refuses it.
    fn add(self, port: u16) -> bool {
        let result = match self {
            Rule::Hash(traffic, queues) => sys::coua_rule_hash(port, &traffic, queues),
            Rule::Queue(traffic, ports, queue) => {
                sys::coua_rule_queue(port, &traffic, &ports, queue)
            }
        };
        result == 0
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        // A device that accepts no rules has none to remove, and reports an error.
        sys::coua_rules_clear(self.port);
    }
}

/// All ports, divided into parts. If the number of queues is a power of two, there is one part for
/// each queue; otherwise there are so many parts that no queue has more than a third more than
/// another.
///
/// Linux connects from even ports while it has any, in ascending order. So the lowest bit is of no
/// use, and the bits above it spread best.
fn shares(queues: u16) -> impl Iterator<Item = Share> {
    let fineness = if queues.is_power_of_two() { 1 } else { 4 };
    let count = queues.next_power_of_two() * fineness;
    (0..count).map(move |number| Share {
        value: number << 1,
        mask: (count - 1) << 1,
        queue: number % queues,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// The queue of each share that a port is in.
    fn queues_of(port: u16, queues: u16) -> Vec<u16> {
        let all = shares(queues).filter(|share| port & share.mask == share.value);
        all.map(|share| share.queue).collect()
    }

    #[test]
    fn every_port_has_one_queue_and_queues_have_alike_many() {
        for queues in (2..=17).chain([33, 64, 128]) {
            let mut ports = vec![0_u32; usize::from(queues)];
            for port in 0..=u16::MAX {
                let [queue] = queues_of(port, queues)[..] else {
                    panic!("port {port} of {queues} queues");
                };
                ports[usize::from(queue)] += 1;
            }
            let (most, least) = (ports.iter().max(), ports.iter().min());
            let (most, least) = most.zip(least).expect("there are queues");
            let is_even = queues.is_power_of_two();
            assert!(*most * 3 <= *least * 4, "{queues}: {ports:?}");
            assert!(!is_even || most == least, "{queues}: {ports:?}");
            assert!(shares(queues).all(|share| share.value & !share.mask == 0));
        }
    }

    /// Those that the kernel here gives to a client, which all are even or nearly.
    #[test]
    fn the_ports_of_a_real_client_are_spread() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("it is bound");
        let clients = (0..64).map(|_| TcpStream::connect(to).expect("it listens"));
        let clients: Vec<_> = clients.collect();
        for queues in [2, 3, 4, 8] {
            let mut counts = vec![0; usize::from(queues)];
            for client in &clients {
                let port = client.local_addr().expect("it is open").port();
                counts[usize::from(queues_of(port, queues)[0])] += 1;
            }
            // Others take ports meanwhile, so that not all have the same.
            assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        }
    }

    #[test]
    fn rules_are_tried_only_where_rss_does_not_spread() {
        const BOTH: &[Set] = &[Set::Hash, Set::Ports];
        let plans: [(Rss, &[Set], Spreading); 5] = [
            (Rss::Symmetric, &[], Spreading::Symmetric),
            (Rss::Ports, &[], Spreading::OwnKey),
            (Rss::Unproven, &BOTH[..1], Spreading::OwnKey),
            (Rss::Addresses, BOTH, Spreading::ByAddress),
            (Rss::None, BOTH, Spreading::ByPeer),
        ];
        for (rss, sets, otherwise) in plans {
            assert_eq!(rss.plan(), (sets, otherwise), "{rss:?}");
        }
    }

    #[test]
    fn a_set_is_for_both_families_and_protocols() {
        for (set, each) in [(Set::Hash, 1), (Set::Ports, 4)] {
            let rules: Vec<_> = set.rules(4, Differing::Theirs).collect();
            assert_eq!(rules.len(), 4 * each);
            for (is_ipv6, is_udp) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let traffic = sys::Traffic { is_ipv6, is_udp };
                let of_it = rules.iter().filter(|rule| match rule {
                    Rule::Hash(of, queues) => *of == traffic && *queues == 4,
                    Rule::Queue(of, ports, queue) => *of == traffic && ports.value == queue << 1,
                });
                assert_eq!(of_it.count(), each, "{traffic:?} of {set:?}");
            }
        }
    }

    #[test]
    fn who_opens_connections_has_its_own_port_looked_at() {
        for (differing, expected) in [(Differing::Theirs, 0), (Differing::Own, 1)] {
            let is_so = |rule| matches!(rule, Rule::Queue(_, ports, _) if ports.is_own == expected);
            assert!(Set::Ports.rules(2, differing).all(is_so));
        }
    }
}
