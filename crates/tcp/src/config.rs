//! What a stack is told when it is made.

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

/// The settings of a stack. [`Config::new`] gives those that are usual.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its addresses, each with the network in which its neighbours are.
    pub addresses: Vec<Network>,
    /// Through whom others are reached: at most one of IPv4 and one of IPv6 are used.
    pub gateways: Vec<Address>,
    /// The VLAN in which it opens connections; 0 for none. Replies go where the request came from.
    pub vlan: u16,
    /// It reports to switches and routers in which groups it is asked for its IPv6 addresses (MLD,
    /// RFC 3810): a switch that snoops on that may else keep the questions from it. Not where the
    /// kernel has the same addresses, and reports them.
    pub multicast_reports: bool,
    /// Who may send to it; empty for everybody.
    pub allow: Vec<Network>,
    /// Connections at most, half-open ones and those in TIME-WAIT included.
    pub connections_max: usize,
    /// Connections that are opened from outside and not yet established, at most. Further ones get
    /// SYN cookies (RFC 4987).
    pub half_open_max: usize,
    /// Bytes for what waits to be acknowledged or read, over all connections.
    pub memory_max: usize,
    /// Bytes that a connection may have received and not read.
    pub receive_len_max: u32,
    /// Bytes that a connection may have accepted and not got acknowledged.
    pub send_len_max: u32,
    /// How the congestion window grows and shrinks.
    pub algorithm: Algorithm,
    /// Timestamps are used with peers that have them (RFC 7323). Without them a window that is used
    /// up several times in a second may let old segments in.
    pub timestamps: bool,
    /// SACK is used with peers that have it (RFC 2018).
    pub sack: bool,
    /// ECN is used with peers that have it (RFC 3168): queues mark packets instead of dropping them.
    pub ecn: bool,
    /// The shortest retransmission timeout. RFC 6298 wants a second; 200 ms are usual where the
    /// other side acknowledges within 40.
    pub rto_min: Duration,
    /// How long an acknowledgment may wait for data to ride on, at most 500 ms (RFC 9293, section
    /// 3.8.6.3).
    pub ack_delay: Duration,
    /// How long data may stay unacknowledged until the connection is given up (RFC 5482; at least
    /// 100 s are wanted by RFC 9293, section 3.8.3).
    pub user_timeout: Duration,
    /// After how long a silence the peer is asked whether it is still there; never where none.
    pub keep_alive: Option<Duration>,
    /// How long the end of a connection is remembered (2 MSL).
    pub time_wait: Duration,
    /// The ports of connections that it opens itself.
    pub ephemeral_ports: (u16, u16),
    /// Checksums of what comes are not looked at, and what goes has none: only where the link
    /// cannot err.
    pub trusts_link: bool,
    /// From a source that nobody can guess.
    pub secret: [u8; 32],
}

impl Config {
    /// A stack with these addresses, and a secret from a source that nobody can guess.
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

    /// The address of ours with this number of bits, if it is one.
    pub(crate) fn is_own(&self, address: Address) -> bool {
        self.addresses.iter().any(|own| own.address() == address)
    }

    /// Whether packets from there are taken: from a station, not from ourselves, and allowed.
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

    /// Who takes packets to `destination`: itself, or a gateway. `None` where nobody does.
    pub(crate) fn next_hop(&self, destination: Address) -> Option<Address> {
        if self.addresses.iter().any(|own| own.contains(destination)) || destination.is_link_local()
        {
            return Some(destination);
        }
        let is_same_kind = |gateway: &&Address| gateway.is_v4() == destination.is_v4();
        self.gateways.iter().find(is_same_kind).copied()
    }

    /// The address of ours from which to reach `destination`.
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
