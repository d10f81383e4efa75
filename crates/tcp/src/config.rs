//! The settings of a stack.

use std::time::Duration;

use crate::wire::Address;
use crate::wire::address::Network;

/// How the congestion window grows and shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 5681 and RFC 6582.
    NewReno,
}

/// The settings of a stack. [`Config::new`] sets the defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its addresses, each with the network of its neighbours.
    pub addresses: Vec<Network>,
    /// The gateways to other networks; the first of IPv4 and the first of IPv6 are used.
    pub gateways: Vec<Address>,
    /// The VLAN in which it opens connections; 0 for none. Replies go where the request came from.
    pub vlan: u16,
    /// Whether it reports the solicited-node groups of its IPv6 addresses to switches and routers
    /// (MLD, RFC 3810): without reports, a switch with MLD snooping may withhold neighbour
    /// solicitations. Off if the kernel has the same addresses and reports them.
    pub multicast_reports: bool,
    /// The networks whose hosts may send to it; empty for all.
    pub allow: Vec<Network>,
    /// The most connections, including half-open ones and those in TIME-WAIT.
    pub connections_max: usize,
    /// The most connections that peers have opened and that are not yet established. Further ones
    /// get SYN cookies (RFC 4987).
    pub half_open_max: usize,
    /// The most bytes of memory for data that waits to be acknowledged or read, over all
    /// connections.
    pub memory_max: usize,
    /// The most bytes that a connection may have received and not read.
    pub receive_len_max: u32,
    /// The most bytes that a connection may have taken from its user and not had acknowledged.
    pub send_len_max: u32,
    /// How the congestion window grows and shrinks.
    pub algorithm: Algorithm,
    /// Whether to use timestamps with peers that support them (RFC 7323). Without them, old
    /// segments may be accepted on fast connections, whose sequence numbers wrap around quickly.
    pub timestamps: bool,
    /// Whether to use SACK with peers that support it (RFC 2018).
    pub sack: bool,
    /// Whether to use ECN with peers that support it (RFC 3168): queues mark packets instead of
    /// dropping them.
    pub ecn: bool,
    /// The shortest retransmission timeout. RFC 6298 asks for one second; 200 ms are common if the
    /// peer delays acknowledgments by at most 40 ms.
    pub rto_min: Duration,
    /// How long an acknowledgment may be delayed so that it can be piggybacked on data, at most 500
    /// ms (RFC 9293, section 3.8.6.3).
    pub ack_delay: Duration,
    /// How long data may stay unacknowledged before the connection is given up (RFC 5482; RFC 9293,
    /// section 3.8.3, asks for at least 100 s).
    pub user_timeout: Duration,
    /// After how long a silence a keep-alive probe is sent; `None` for never.
    pub keep_alive: Option<Duration>,
    /// How long a connection stays in TIME-WAIT (2 MSL).
    pub time_wait: Duration,
    /// The local ports of connections that it opens, the first and the last.
    pub ephemeral_ports: (u16, u16),
    /// Checksums are neither verified nor sent: only for links that cannot corrupt frames.
    pub trusts_link: bool,
    /// Random bytes that nobody can guess.
    pub secret: [u8; 32],
}

impl Config {
    /// The default settings of a stack with these addresses, and with a secret that nobody can
    /// guess.
    pub fn new(addresses: Vec<Network>, secret: [u8; 32]) -> Config {
        Config {
            addresses,
            gateways: Vec::new(),
            vlan: 0,
            multicast_reports: true,
            allow: Vec::new(),
            connections_max: 1024,
            half_open_max: 256,
            memory_max: 64 << 20,
            receive_len_max: 256 << 10,
            send_len_max: 256 << 10,
            algorithm: Algorithm::Cubic,
            timestamps: true,
            sack: true,
            ecn: true,
            rto_min: Duration::from_millis(200),
            ack_delay: Duration::from_millis(40),
            user_timeout: Duration::from_secs(120),
            keep_alive: Some(Duration::from_secs(7200)),
            time_wait: Duration::from_secs(60),
            ephemeral_ports: (49152, 65535),
            trusts_link: false,
            secret,
        }
    }

    /// Whether the address is one of ours.
    pub(crate) fn is_own(&self, address: Address) -> bool {
        self.addresses.iter().any(|own| own.address() == address)
    }

    /// Whether packets from an address are accepted: that of a single station, not our own, and
    /// allowed.
    #[inline]
    pub(crate) fn takes_from(&self, source: Address) -> bool {
        source.is_station()
            && !self.is_own(source)
            && (self.allow.is_empty() || self.allow.iter().any(|network| network.contains(source)))
            && !self
                .addresses
                .iter()
                .any(|own| own.broadcast() == Some(source))
    }

    /// The next hop to `destination`: the host itself, or a gateway. `None` if there is neither.
    pub(crate) fn next_hop(&self, destination: Address) -> Option<Address> {
        if self.addresses.iter().any(|own| own.contains(destination)) || destination.is_link_local()
        {
            return Some(destination);
        }
        let is_same_kind = |gateway: &&Address| gateway.is_v4() == destination.is_v4();
        self.gateways.iter().find(is_same_kind).copied()
    }

    /// Our address to use as the source of packets to `destination`.
    pub(crate) fn source_for(&self, destination: Address) -> Option<Address> {
        let near = self.addresses.iter().find(|own| own.contains(destination));
        let kin = || {
            self.addresses.iter().find(|own| {
                own.address().is_v4() == destination.is_v4() && !own.address().is_link_local()
            })
        };
        near.or_else(kin).map(|own| own.address())
    }
}
