//! In which multicast groups the stack is asked for its IPv6 addresses, and who is told (MLD: RFC
//! 3810, and RFC 2710 for queriers of the first version).
//!
//! Neighbours ask for an address in its solicited-node group (RFC 4861). A switch that snoops on MLD
//! passes a group's frames on to those only who have reported that they listen, so a host that
//! never reports is not found any more. Nothing is left out and nobody ever leaves: groups are those
//! of the settings' addresses.
//!
//! # Not here
//! Other groups, sources, IGMP: ARP goes to all stations.

use crate::secrets::Secrets;
use crate::time::Instant;
use crate::wire::Address;
use crate::wire::address::Network;
use crate::wire::mld::{GROUPS_MAX, Query, Record};

/// Reports that are sent unasked, since one may be lost, and microseconds between them at most (RFC
/// 3810, sections 9.1 and 9.11).
const UNASKED: u8 = 2;
const UNASKED_INTERVAL: u64 = 1_000_000;

/// Microseconds for which a querier of the first version is taken to be there: twice the interval
/// of queries, and the time that an answer may take (RFC 3810, section 9.12).
const V1_FOR: u64 = 260_000_000;

/// Tells the delays that are drawn from others' numbers: no address is like it.
const DELAYS: u128 = u128::MAX / 3;

/// The groups, and when the next report is due.
pub(crate) struct Listener {
    groups: Vec<Address>,
    /// The link-local address that reports come from; `::` where there is none (RFC 3810, section
    /// 5.2.13).
    source: Address,
    /// Never, where nothing is to be reported.
    pub(crate) report_at: Instant,
    unasked_left: u8,
    v1_until: Instant,
}

impl Listener {
    /// For these addresses; it never reports where `reports` is false.
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

    /// A router asks (RFC 3810, section 6.2). One report answers all that ask before it leaves.
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

    /// What of the second version is due now, or that it is one of the first; none where nothing is.
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
