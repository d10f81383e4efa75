//! Who takes part, and what scripts call them.

use std::net::IpAddr;

use coua_tcp::nic::Mac;

use crate::card::OWN_MAC;

/// The port of ours.
pub(crate) const PORT: u16 = 11211;

/// Addresses and MAC addresses by name.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    pub(crate) is_v6: bool,
    /// What the other end of the connections is called.
    pub(crate) peer: String,
}

/// Names with their addresses of both kinds.
const ADDRESSES: [(&str, &str, &str); 9] = [
    ("ours", "192.0.2.1", "2001:db8::1"),
    ("ours-too", "192.0.2.11", "2001:db8::11"),
    ("near", "192.0.2.2", "2001:db8::2"),
    ("other", "192.0.2.3", "2001:db8::3"),
    ("gateway", "192.0.2.254", "2001:db8::fe"),
    ("far", "198.51.100.2", "2001:db8:f::2"),
    ("nobody", "0.0.0.0", "::"),
    ("all", "192.0.2.255", "ff02::1"),
    ("group", "224.0.0.1", "ff02::1:ff00:1"),
];

const MACS: [(&str, [u8; 6]); 8] = [
    ("ours", OWN_MAC.0),
    ("near", [2, 0, 0, 0, 0, 2]),
    ("other", [2, 0, 0, 0, 0, 3]),
    ("gateway", [2, 0, 0, 0, 0, 0xfe]),
    ("all", [0xff; 6]),
    ("group", [0x33, 0x33, 0xff, 0, 0, 1]),
    ("all-nodes", [0x33, 0x33, 0, 0, 0, 1]),
    ("mld-routers", [0x33, 0x33, 0, 0, 0, 0x16]),
];

impl Hosts {
    pub(crate) fn address(&self, name: &str) -> Result<IpAddr, String> {
        let name = if name == "peer" { &self.peer } else { name };
        let known = ADDRESSES.iter().find(|(known, ..)| *known == name);
        let text = match known {
            Some((_, v4, v6)) => [v4, v6][usize::from(self.is_v6)],
            None => name,
        };
        text.parse()
            .map_err(|_| format!("{name} is neither a host nor an address"))
    }

    pub(crate) fn name(&self, address: IpAddr) -> String {
        let is_it = |name: &&str| self.address(name) == Ok(address);
        let names = ADDRESSES.iter().map(|(name, ..)| *name);
        match names.filter(|name| *name != self.peer).find(is_it) {
            Some(name) => name.to_owned(),
            None if is_it(&"peer") => "peer".to_owned(),
            None => address.to_string(),
        }
    }

    /// The MAC address to which frames for the peer go.
    fn peer_mac(&self) -> &str {
        if self.peer == "far" {
            "gateway"
        } else {
            &self.peer
        }
    }

    pub(crate) fn mac(&self, name: &str) -> Result<Mac, String> {
        let name = if name == "peer" {
            self.peer_mac()
        } else {
            name
        };
        let known = MACS.iter().find(|(known, _)| *known == name);
        known
            .map(|(_, mac)| Mac(*mac))
            .ok_or_else(|| format!("{name} has no MAC address"))
    }

    pub(crate) fn mac_name(&self, mac: Mac) -> String {
        let is_it = |name: &&str| self.mac(name) == Ok(mac);
        let names = ["peer"]
            .into_iter()
            .chain(MACS.iter().map(|(name, _)| *name));
        match names.into_iter().find(is_it) {
            Some(name) => name.to_owned(),
            None => mac.to_string(),
        }
    }
}

/// One connection, as far as its numbers go.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) peer_port: u16,
    pub(crate) own_port: u16,
    /// The peer's initial sequence number, which scripts count from.
    pub(crate) peer_iss: u32,
    /// The stack's, once its SYN has left.
    pub(crate) own_iss: Option<u32>,
    /// The stack's first timestamp and its last.
    pub(crate) clock: Option<(u32, u32)>,
    /// Behind the last number that the stack has used, and that of the connection before.
    pub(crate) own_end: u32,
    pub(crate) own_end_before: u32,
}

impl Flow {
    /// The stack's number for one of a script, which is itself before a SYN has left.
    pub(crate) fn own(&self, relative: i64) -> u32 {
        self.own_iss.unwrap_or(0).wrapping_add(wrapped(relative))
    }

    pub(crate) fn peer(&self, relative: i64) -> u32 {
        self.peer_iss.wrapping_add(wrapped(relative))
    }
}

/// The number on the circle.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the circle has 2^32 numbers"
)]
pub(crate) fn wrapped(number: i64) -> u32 {
    number as u32
}

/// The byte at a place of the stack's stream.
pub(crate) fn own_byte(at: u32) -> u8 {
    at.wrapping_mul(0x9e37_79b1).to_be_bytes()[0]
}

/// The byte at a place of the peer's stream.
pub(crate) fn peer_byte(at: u32) -> u8 {
    at.wrapping_mul(0x85eb_ca6b).to_be_bytes()[1]
}
