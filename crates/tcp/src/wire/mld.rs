//! Multicast listener discovery: queries of both versions, and reports (RFC 2710, RFC 3810).
//!
//! ```text
//! IPv6, one hop │ hop-by-hop options: router alert │ ICMPv6: a query, or a report
//! ```

use super::ip::{self, Protocol};
use super::{Address, Malformed, put, u16_at};

/// The group of all MLDv2-capable routers (RFC 3810, section 5.2.14).
const ROUTERS: Address = Address::v6([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16]);

/// The hop-by-hop options after the IPv6 header: ICMPv6 follows, and routers must examine the
/// packet (RFC 2711).
const ROUTER_ALERT: [u8; 8] = [58, 0, 5, 2, 0, 0, 1, 0];

/// The ICMPv6 types of the messages.
const QUERY: u8 = 130;
const REPORT_V1: u8 = 131;
const REPORT_V2: u8 = 143;

/// Bytes of an MLDv1 query, and of an MLDv1 report.
const V1_LEN: usize = 24;

/// Bytes of an MLDv2 report before its records, and of a record.
const REPORT_LEN: usize = 8;
const RECORD_LEN: usize = 20;

/// Groups that a report can name in a packet of 1280 bytes, which every link carries.
pub(crate) const GROUPS_MAX: usize = (1280 - 40 - ROUTER_ALERT.len() - REPORT_LEN) / RECORD_LEN;

/// A router asks who listens to which group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The group that it asks for; `None` for all groups.
    pub group: Option<Address>,
    /// The maximum response delay, in milliseconds.
    pub delay_ms: u32,
    /// The querier supports MLDv1 only.
    pub is_v1: bool,
}

impl Query {
    /// Reads the message of a packet with this header. `None` if it is another message, or does not
    /// come from this link (RFC 3810, section 6.2).
    ///
    /// # Errors
    /// If a query is too short, or asks for an address that is not a group.
    pub(super) fn read(header: &ip::Header, bytes: &[u8]) -> Result<Option<Query>, Malformed> {
        let is_near = header.hop_limit == 1 && header.source.is_link_local();
        if bytes[0] != QUERY || !is_near {
            return Ok(None);
        }
        let is_v1 = bytes.len() == V1_LEN;
        if bytes.len() < V1_LEN || !is_v1 && bytes.len() < V1_LEN + 4 {
            return Err(Malformed::Length);
        }
        let group = Address::v6(std::array::from_fn(|at| bytes[8 + at]));
        let is_general = group == Address::UNSPECIFIED;
        if !is_general && group.octets()[0] != 0xff {
            return Err(Malformed::Field);
        }
        let code = u32::from(u16_at(bytes, 4));
        Ok(Some(Query {
            group: (!is_general).then_some(group),
            delay_ms: match code {
                // RFC 3810, section 5.1.3: a mantissa of twelve bits and an exponent of three.
                0x8000.. if !is_v1 => (code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3),
                _ => code,
            },
            is_v1,
        }))
    }
}

/// What a report says about its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// They are listened to, from any source.
    Is,
    /// They are listened to from now on, from any source.
    Changes,
}

/// A report of one or several groups that are listened to.
pub(crate) struct Report<'g> {
    pub(crate) groups: &'g [Address],
    /// The record type of MLDv2; `None` for MLDv1, whose reports name one group only.
    pub(crate) record: Option<Record>,
}

impl Report<'_> {
    /// The destination address.
    pub(crate) fn destination(&self) -> Address {
        match self.record {
            Some(_) => ROUTERS,
            None => self.groups[0],
        }
    }

    /// The header of its packet.
    pub(crate) fn header(&self, from: Address) -> ip::Header {
        let len = match self.record {
            Some(_) => REPORT_LEN + self.groups.len() * RECORD_LEN,
            None => V1_LEN,
        };
        ip::Header {
            hop_limit: 1,
            ..ip::Header::new(
                from,
                self.destination(),
                Protocol::HOP_BY_HOP,
                ROUTER_ALERT.len() + len,
            )
        }
    }

    /// Writes what follows that header, of exactly the payload length in it.
    pub(crate) fn write(&self, header: &ip::Header, bytes: &mut [u8]) {
        bytes.fill(0);
        put(bytes, 0, &ROUTER_ALERT);
        let message = &mut bytes[ROUTER_ALERT.len()..];
        let Some(record) = self.record else {
            message[0] = REPORT_V1;
            put(message, 8, &self.groups[0].octets());
            return header.seal_icmp(message);
        };
        let kind = match record {
            // MODE_IS_EXCLUDE and CHANGE_TO_EXCLUDE_MODE, of no sources.
            Record::Is => 2,
            Record::Changes => 4,
        };
        let count = u16::try_from(self.groups.len()).expect("GROUPS_MAX at most");
        message[0] = REPORT_V2;
        put(message, 6, &count.to_be_bytes());
        let records = message[REPORT_LEN..].chunks_exact_mut(RECORD_LEN);
        for (place, group) in records.zip(self.groups) {
            place[0] = kind;
            put(place, 4, &group.octets());
        }
        header.seal_icmp(message);
    }
}
