//! Addresses of IPv4 and IPv6 in one form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP address. IPv4 is held as an IPv4-mapped IPv6 address (RFC 4291, section 2.5.5.2), so that
/// two of them compare in one step; no IPv6 packet may carry such an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    high: u64,
    low: u64,
}

/// What stands before an IPv4 address.
const MAPPED: u128 = 0xffff << 32;

impl Address {
    /// `::`, no address.
    pub const UNSPECIFIED: Address = Address::from_bits(0);

    /// From the four bytes of a packet.
    #[inline]
    pub const fn v4(octets: [u8; 4]) -> Address {
        Address::from_bits(MAPPED | u32::from_be_bytes(octets) as u128)
    }

    /// From the sixteen bytes of a packet.
    #[inline]
    pub const fn v6(octets: [u8; 16]) -> Address {
        Address::from_bits(u128::from_be_bytes(octets))
    }

    /// Whether it is one of IPv4.
    #[inline]
    pub const fn is_v4(self) -> bool {
        self.bits() >> 32 == MAPPED >> 32
    }

    /// All bits.
    #[inline]
    pub const fn bits(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }

    /// From [`Address::bits`], in halves: an address is aligned as these are.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "halves are taken")]
    const fn from_bits(bits: u128) -> Address {
        Address {
            high: (bits >> 64) as u64,
            low: bits as u64,
        }
    }

    /// Its four bytes, where it is one of IPv4.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
    pub const fn v4_octets(self) -> [u8; 4] {
        (self.low as u32).to_be_bytes()
    }

    /// All sixteen bytes.
    #[inline]
    pub const fn octets(self) -> [u8; 16] {
        self.bits().to_be_bytes()
    }

    /// Whether a packet may come from it, or go to it as to one station: not multicast, not
    /// broadcast, not loopback, not "this network" (RFC 1122, section 3.2.1.3; RFC 4291).
    pub fn is_station(self) -> bool {
        match IpAddr::from(self) {
            IpAddr::V4(ip) => {
                let first = ip.octets()[0];
                first != 0 && first != 127 && first < 224
            }
            IpAddr::V6(ip) => {
                !ip.is_multicast()
                    && !ip.is_unspecified()
                    && !ip.is_loopback()
                    // Mapped and compatible ones must not travel.
                    && self.bits() >> 32 != 0
            }
        }
    }

    /// The multicast group in which the neighbours of IPv6 look for it (RFC 4291, section 2.7.1).
    #[must_use]
    pub const fn solicited_node(self) -> Address {
        Address::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | self.bits() & 0xff_ffff)
    }

    /// Whether it is link-local (RFC 4291, section 2.5.6).
    pub const fn is_link_local(self) -> bool {
        self.bits() >> 118 == 0xfe80 >> 6
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Address {
        match ip {
            IpAddr::V4(ip) => Address::v4(ip.octets()),
            IpAddr::V6(ip) => Address::v6(ip.octets()),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> IpAddr {
        match address.is_v4() {
            true => Ipv4Addr::from(address.v4_octets()).into(),
            false => Ipv6Addr::from(address.bits()).into(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Addresses with a common beginning, as `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: Address,
    /// Of the 128 bits of an [`Address`].
    prefix_len: u8,
}

impl Network {
    /// All that share the first `prefix_len` bits with `address`; `None` where it has not so many.
    pub fn new(address: IpAddr, prefix_len: u8) -> Option<Network> {
        let prefix_len = match address {
            IpAddr::V4(_) if prefix_len <= 32 => prefix_len + 96,
            IpAddr::V6(_) if prefix_len <= 128 => prefix_len,
            _ => return None,
        };
        Some(Network {
            address: address.into(),
            prefix_len,
        })
    }

    /// The address that it was made with, host part included.
    pub const fn address(self) -> Address {
        self.address
    }

    /// Whether `other` is one of them.
    #[inline]
    pub fn contains(self, other: Address) -> bool {
        let differs = self.address.bits() ^ other.bits();
        // A network of all IPv6 addresses does not mean those of IPv4.
        differs & self.mask() == 0 && self.address.is_v4() == other.is_v4()
    }

    /// The address by which all of an IPv4 network are meant; `None` where there is none.
    pub fn broadcast(self) -> Option<Address> {
        let has_one = self.address.is_v4() && self.prefix_len < 127;
        has_one.then(|| Address::from_bits(self.address.bits() | !self.mask()))
    }

    fn mask(self) -> u128 {
        u128::MAX
            .checked_shl(128 - u32::from(self.prefix_len))
            .unwrap_or(0)
    }
}

impl std::str::FromStr for Network {
    type Err = NotANetwork;

    /// `ADDRESS` or `ADDRESS/LENGTH`.
    fn from_str(text: &str) -> Result<Network, NotANetwork> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        let len = match len {
            Some(len) => len.parse().map_err(|_| NotANetwork)?,
            None if address.is_ipv4() => 32,
            None => 128,
        };
        Network::new(address, len).ok_or(NotANetwork)
    }
}

/// A text is neither an address nor an address with the length of its network behind a slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotANetwork;

impl fmt::Display for NotANetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address like 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32")
    }
}

impl std::error::Error for NotANetwork {}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse::<IpAddr>().expect("an address").into()
    }

    #[test]
    fn both_kinds_come_back_as_they_were() {
        for text in ["192.0.2.7", "0.0.0.0", "2001:db8::1", "::"] {
            assert_eq!(address(text).to_string(), text);
        }
        assert!(address("192.0.2.7").is_v4() && !address("2001:db8::1").is_v4());
        assert_eq!(address("192.0.2.7").v4_octets(), [192, 0, 2, 7]);
    }

    #[test]
    fn stations() {
        for text in ["192.0.2.7", "10.0.0.255", "2001:db8::1", "fe80::1"] {
            assert!(address(text).is_station(), "{text}");
        }
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "ff02::1",
            "::1.2.3.4",
        ] {
            assert!(!address(text).is_station(), "{text}");
        }
    }

    #[test]
    fn networks() {
        let network: Network = "192.0.2.9/24".parse().expect("a network");
        assert!(network.contains(address("192.0.2.255")));
        assert!(!network.contains(address("192.0.3.1")));
        assert_eq!(network.broadcast(), Some(address("192.0.2.255")));
        let all: Network = "0.0.0.0/0".parse().expect("a network");
        assert!(all.contains(address("8.8.8.8")) && !all.contains(address("2001:db8::1")));
        let all: Network = "::/0".parse().expect("a network");
        assert!(!all.contains(address("8.8.8.8")) && all.contains(address("2001:db8::1")));
        let one: Network = "2001:db8::1".parse().expect("a network");
        assert!(one.contains(address("2001:db8::1")) && !one.contains(address("2001:db8::2")));
        assert_eq!(one.broadcast(), None);
        for text in [
            "",
            "192.0.2.1/33",
            "::/129",
            "192.0.2/24",
            "a",
            "192.0.2.1/",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NotANetwork), "{text}");
        }
    }

    #[test]
    fn groups_of_neighbours() {
        let group = address("2001:db8::12:3456").solicited_node();
        assert_eq!(group, address("ff02::1:ff12:3456"));
        assert!(address("fe80::1").is_link_local() && address("febf::1").is_link_local());
        assert!(!address("fec0::1").is_link_local());
    }
}
