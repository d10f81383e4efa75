//! What the kernel reports about a network interface, and whether it can be served.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use coua_tcp::nic::Mac;
use rustix::io::Errno;

use super::error::OpenError;
use super::ethtool::{Ethtool, Offloads};
use super::options::Options;
use super::umem;
use crate::userspace::netlink::{Attributes, Message, Netlink, Request};

/// An address of an interface, with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits of the network's prefix.
    pub prefix_len: u8,
}

/// A network interface, as it was when it was read.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number in the kernel.
    pub index: u32,
    /// Its MAC address.
    pub mac: Mac,
    /// Bytes of the longest IP packet.
    pub mtu: u32,
    /// Receive queues in use.
    pub queues: u32,
    /// Its addresses in the kernel's order, including link-local ones.
    pub addresses: Vec<Address>,
    is_ethernet: bool,
    is_up: bool,
    has_vlans: bool,
    offloads: Offloads,
}

/// Messages and attributes of rtnetlink.
const GET_LINK: u16 = 18;
const GET_ADDRESS: u16 = 22;
const LINK_HEAD_LEN: usize = 16;
const ADDRESS_HEAD_LEN: usize = 8;
const LINK_MAC: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const LINK_BELOW: u16 = 5;
const LINK_INFO: u16 = 18;
const LINK_INFO_KIND: u16 = 1;
const LINK_QUEUES: u16 = 32;
const LINK_BELOW_NAMESPACE: u16 = 37;
const LINK_XDP: u16 = 43;
const LINK_XDP_ATTACHED: u16 = 2;
const LINK_XDP_ID: u16 = 4;
const ADDRESS_ANY: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
/// The kernel's `ARPHRD_ETHER` and `IFF_UP`.
const ETHERNET: u16 = 1;
const UP: u32 = 1;

impl Interface {
    /// Reads the interface of this name in this thread's network namespace.
    ///
    /// # Errors
    /// [`OpenError::NoSuchInterface`], or [`OpenError::System`] if the kernel does not answer.
    pub fn read(name: &str) -> Result<Interface, OpenError> {
        let failed = |source| OpenError::System {
            action: "tell of its interfaces over netlink",
            source,
        };
        let mut netlink = Netlink::open().map_err(failed)?;
        let link = link(&mut netlink, name).map_err(failed)?.ok_or_else(|| {
            OpenError::NoSuchInterface {
                interface: name.to_owned(),
            }
        })?;
        let ([_, _, a, b, c, d, e, f, g, h, i, j, ..], attributes) = link_parts(&link);
        let index = u32::from_ne_bytes([c, d, e, f]);
        let all_links = netlink
            .ask(Request::dump(GET_LINK, &[0; LINK_HEAD_LEN]))
            .map_err(failed)?;
        let all_addresses = netlink
            .ask(Request::dump(GET_ADDRESS, &[0; ADDRESS_HEAD_LEN]))
            .map_err(failed)?;
        let ethtool = Ethtool::open().map_err(failed)?;
        let queues = ethtool
            .queues(name)
            .ok()
            .filter(|queues| *queues > 0)
            .or_else(|| attributes.find_u32(LINK_QUEUES));
        Ok(Interface {
            name: name.to_owned(),
            index,
            mac: Mac(attributes
                .find_kind(LINK_MAC)
                .and_then(|mac| mac.try_into().ok())
                .unwrap_or_default()),
            mtu: attributes.find_u32(LINK_MTU).unwrap_or(0),
            queues: queues.unwrap_or(1),
            addresses: all_addresses
                .iter()
                .filter_map(|message| address(message, index))
                .collect(),
            is_ethernet: u16::from_ne_bytes([a, b]) == ETHERNET,
            is_up: u32::from_ne_bytes([g, h, i, j]) & UP != 0,
            has_vlans: all_links.iter().any(|link| is_vlan_on(link, index)),
            offloads: ethtool.offloads(name),
        })
    }

    /// Checks whether it can be served as `options` ask.
    pub(super) fn check(&self, options: &Options) -> Result<(), OpenError> {
        let interface = || self.name.clone();
        if !self.is_ethernet {
            return Err(OpenError::NotEthernet {
                interface: interface(),
            });
        }
        if !self.is_up {
            return Err(OpenError::Down {
                interface: interface(),
            });
        }
        if self.mtu as usize > umem::MTU_MAX {
            return Err(OpenError::Mtu {
                interface: interface(),
                mtu: self.mtu,
                mtu_max: u32::try_from(umem::MTU_MAX).expect("a few kilobytes"),
            });
        }
        if self.offloads.strips_tags && (options.vlans || self.has_vlans) {
            return Err(OpenError::StripsTags {
                interface: interface(),
            });
        }
        for (is_on, feature, flag) in [
            (self.offloads.lro, "large receive offload", "lro"),
            (
                self.offloads.gro_hw,
                "receive offload by the card",
                "rx-gro-hw",
            ),
        ] {
            if is_on {
                return Err(OpenError::Merges {
                    interface: interface(),
                    feature,
                    flag,
                });
            }
        }
        Ok(())
    }
}

/// The XDP program that is attached to the interface: `None` if there is none, otherwise its
/// number, if the kernel reports it.
pub(super) fn program(name: &str) -> io::Result<Option<Option<u32>>> {
    let Some(link) = link(&mut Netlink::open()?, name)? else {
        return Ok(None);
    };
    let (_, attributes) = link_parts(&link);
    let xdp = Attributes(attributes.find_kind(LINK_XDP).unwrap_or_default());
    let is_attached = xdp
        .find_kind(LINK_XDP_ATTACHED)
        .is_some_and(|how| how != [0]);
    Ok(is_attached.then(|| xdp.find_u32(LINK_XDP_ID)))
}

fn link(netlink: &mut Netlink, name: &str) -> io::Result<Option<Message>> {
    // The kernel's longest name has 15 bytes.
    if name.is_empty() || name.len() > 15 {
        return Ok(None);
    }
    let mut value = name.as_bytes().to_vec();
    value.push(0);
    let request = Request::new(GET_LINK, 0, &[0; LINK_HEAD_LEN]).attribute(LINK_NAME, &value);
    match netlink.ask(request) {
        Ok(messages) => Ok(messages.into_iter().next()),
        Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `struct ifinfomsg`: family, padding, type u16, index i32, flags u32, change u32.
fn link_parts(link: &Message) -> ([u8; LINK_HEAD_LEN], Attributes<'_>) {
    let head = link.head().unwrap_or_default();
    (head, link.attributes(LINK_HEAD_LEN))
}

fn is_vlan_on(link: &Message, below: u32) -> bool {
    let (_, attributes) = link_parts(link);
    let info = Attributes(attributes.find_kind(LINK_INFO).unwrap_or_default());
    let kind = info.find_kind(LINK_INFO_KIND).unwrap_or_default();
    attributes.find_u32(LINK_BELOW) == Some(below)
        && attributes.find_kind(LINK_BELOW_NAMESPACE).is_none()
        && kind.split(|byte| *byte == 0).next() == Some(b"vlan")
}

/// `struct ifaddrmsg`: family, prefix length, flags, scope, index u32.
fn address(message: &Message, of: u32) -> Option<Address> {
    let [_, prefix_len, _, _, index @ ..] = message.head::<ADDRESS_HEAD_LEN>()?;
    if u32::from_ne_bytes(index) != of {
        return None;
    }
    let attributes = message.attributes(ADDRESS_HEAD_LEN);
    // On a point-to-point link the other attribute is the peer's address.
    let bytes = attributes
        .find_kind(ADDRESS_LOCAL)
        .or_else(|| attributes.find_kind(ADDRESS_ANY))?;
    let ip = match bytes.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into(),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into(),
    };
    Some(Address { ip, prefix_len })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Interface {
        Interface {
            name: "eth0".to_owned(),
            index: 2,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            queues: 1,
            addresses: Vec::new(),
            is_ethernet: true,
            is_up: true,
            has_vlans: false,
            offloads: Offloads::default(),
        }
    }

    fn complaint(card: &Interface, options: &Options) -> String {
        card.check(options)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn a_card_that_would_lose_tags_or_merge_segments_is_refused() {
        let mut options = Options::new("eth0");
        let mut card = card();
        assert_eq!(complaint(&card, &options), "");

        card.offloads.strips_tags = true;
        assert_eq!(complaint(&card, &options), "");
        card.has_vlans = true;
        assert!(complaint(&card, &options).contains("ethtool -K eth0 rxvlan off"));
        card.has_vlans = false;
        options.vlans = true;
        assert!(complaint(&card, &options).contains("ethtool -K eth0 rxvlan off"));
        card.offloads.strips_tags = false;
        assert_eq!(complaint(&card, &options), "");

        card.offloads.lro = true;
        assert!(complaint(&card, &options).contains("ethtool -K eth0 lro off"));
        card.offloads.lro = false;
        card.offloads.gro_hw = true;
        assert!(complaint(&card, &options).contains("ethtool -K eth0 rx-gro-hw off"));
    }

    #[test]
    fn the_longest_mtu_is_what_a_chunk_holds() {
        let options = Options::new("eth0");
        let mut card = card();
        card.mtu = u32::try_from(umem::MTU_MAX).expect("short");
        assert_eq!(complaint(&card, &options), "");
        card.mtu += 1;
        assert!(complaint(&card, &options).contains("ip link set eth0 mtu 3818"));
    }
}
