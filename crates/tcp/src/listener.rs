//! The solicited-node multicast groups of the stack's IPv6 addresses, and when to report them
//! (MLDv2: RFC 3810; MLDv1: RFC 2710).
//!
//! Neighbours ask for an address in its solicited-node group (RFC 4861). A switch with MLD snooping
//! forwards a group's frames only to hosts that have reported the group, so a host that never
//! reports cannot be found. Every report names all groups, and no group is ever left: they follow
//! from the addresses in the settings.
//!
//! # Not here
//! Other groups, source filters. IGMP: ARP is broadcast, so IPv4 needs none.

use crate::secrets::Secrets;
use crate::time::Instant;
use crate::wire::Address;
use crate::wire::address::Network;
use crate::wire::mld::{GROUPS_MAX, Query, Record};

/// Unsolicited reports, of which one may be lost, and the most microseconds between them (RFC 3810,
/// sections 9.1 and 9.11).
const UNASKED: u8 = 2;
const UNASKED_INTERVAL: u64 = 1_000_000;

/// How long an MLDv1 querier is assumed to be present after a query, in microseconds: twice the
/// query interval plus the time that an answer may take (RFC 3810, section 9.12).
const V1_FOR: u64 = 260_000_000;

/// Separates the delays from other drawn numbers: no sender has this address.
const DELAYS: u128 = u128::MAX / 3;

/// The groups, and when the next report is due.
pub(crate) struct Listener {
    groups: Vec<Address>,
    /// The link-local address that reports come from; `::` if there is none (RFC 3810, section
    /// 5.2.13).
    source: Address,
    /// When the next report is due; `NEVER` if none is.
    pub(crate) report_at: Instant,
    unasked_left: u8,
    v1_until: Instant,
}

impl Listener {
    /// The listener for these addresses; it never reports if `reports` is false.
    pub(crate) fn new(addresses: &[Network], reports: bool, now: Instant) -> Listener {
        let own = addresses.iter().map(|network| network.address());
        let own: Vec<Address> = own.filter(|own| reports && !own.is_v4()).collect();
        let mut groups: Vec<Address> = Vec::new();
        for group in own.iter().map(|own| own.solicited_node()) {
            if groups.len() < GROUPS_MAX && !groups.contains(&group) {
                groups.push(group);
            }
        }
        let source = own.into_iter().find(|own| own.is_link_local());
        Listener {
            report_at: match groups.is_empty() {
                true => Instant::NEVER,
                false => now,
            },
            groups,
            source: source.unwrap_or(Address::UNSPECIFIED),
            unasked_left: UNASKED,
            v1_until: Instant::default(),
        }
    }

    /// The groups.
    pub(crate) fn groups(&self) -> &[Address] {
        &self.groups
    }

    /// Where reports come from.
    pub(crate) fn source(&self) -> Address {
        self.source
    }

    /// Handles a router's query (RFC 3810, section 6.2). One report answers all queries that come
    /// before it is sent.
    pub(crate) fn asked(&mut self, query: &Query, secrets: &Secrets, now: Instant) {
        let is_ours = |group| self.groups.contains(&group);
        if self.groups.is_empty() || !query.group.is_none_or(is_ours) {
            return;
        }
        if query.is_v1 {
            self.v1_until = now.after(V1_FOR);
        }
        let bound = u64::from(query.delay_ms) * 1000 + 1;
        let at = now.after(secrets.drawn(now.micros(), DELAYS) % bound);
        self.report_at = self.report_at.min(at);
    }

    /// The report that is due now: `Some(Some(_))` for MLDv2, `Some(None)` for MLDv1, `None` if
    /// none is due.
    pub(crate) fn due(&mut self, secrets: &Secrets, now: Instant) -> Option<Option<Record>> {
        if self.report_at > now {
            return None;
        }
        let is_unasked = self.unasked_left > 0;
        self.unasked_left = self.unasked_left.saturating_sub(1);
        self.report_at = match self.unasked_left {
            0 => Instant::NEVER,
            _ => now.after(secrets.drawn(now.micros(), DELAYS) % UNASKED_INTERVAL),
        };
        Some(match (now < self.v1_until, is_unasked) {
            (true, _) => None,
            (false, true) => Some(Record::Changes),
            (false, false) => Some(Record::Is),
        })
    }
}
