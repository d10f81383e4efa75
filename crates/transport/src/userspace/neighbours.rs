//! How packets reach an address: the kernel's routes and the MAC addresses of its neighbours.
//!
//! A driver that leaves ARP and neighbour discovery to the kernel must ask it when the stack opens
//! a connection. The kernel decides as for its own packets: it applies policy rules and metrics,
//! and chooses gateway and source address.
//!
//! If the kernel does not know a neighbour's MAC address yet, the question makes it ask the
//! neighbour, and the caller tries again some milliseconds later. Nothing here waits for the
//! network. A question costs four to six system calls and may wait for the kernel's lock over its
//! network settings. So it is for opening connections, not for each packet.
//!
//! # Not here
//! Replies to peers that opened the connection: those go to the MAC address that the segment came
//! from.

use std::io;
use std::net::IpAddr;

use coua_tcp::nic::Mac;
use rustix::io::Errno;

use super::netlink::{Attributes, FLAG_CREATE, Netlink, Request};

/// Asks the kernel about one interface.
pub struct Neighbours {
    netlink: Netlink,
    interface: u32,
}

/// What the kernel knows about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Frames reach it through this hop.
    Reachable(Hop),
    /// The next hop has been asked for its MAC address: try again in some milliseconds.
    Pending,
    /// The next hop has not answered for some seconds. It is being asked again.
    Silent,
    /// There is no route to it, or it is not the address of a single host.
    Unroutable,
    /// The route leads over another interface, or to this machine itself.
    Elsewhere {
        /// The kernel's number of that interface.
        interface: u32,
    },
}

/// How frames reach an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The MAC address that frames are sent to.
    pub mac: Mac,
    /// The IP address of that MAC: a gateway's, or the address that was asked about.
    pub next: IpAddr,
    /// The source address for packets; `None` if the kernel names none.
    pub source: Option<IpAddr>,
    /// Bytes of the longest packet on the way, if the kernel knows that it is less than the
    /// interface's MTU.
    pub mtu: Option<u32>,
}

const NEW_NEIGHBOUR: u16 = 28;
const GET_NEIGHBOUR: u16 = 30;
const GET_ROUTE: u16 = 26;
const ROUTE_HEAD_LEN: usize = 12;
const ROUTE_TO: u16 = 1;
const ROUTE_INTERFACE: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const ROUTE_SOURCE: u16 = 7;
const ROUTE_METRICS: u16 = 8;
const ROUTE_VIA: u16 = 18;
const METRIC_MTU: u16 = 2;
const TYPE_UNICAST: u8 = 1;
const TYPE_LOCAL: u8 = 2;
const NEIGHBOUR_HEAD_LEN: usize = 12;
const NEIGHBOUR_IP: u16 = 1;
const NEIGHBOUR_MAC: u16 = 2;
const FAILED: u16 = 0x20;
const STALE: u16 = 0x04;
/// Reachable, stale, delay, probe, no ARP, permanent: states in which the MAC is to be used.
const USABLE: u16 = 0x02 | STALE | 0x08 | 0x10 | 0x40 | 0x80;
/// Tells the kernel that the entry is in use, so that it finds or confirms the MAC address.
const USE: u8 = 0x01;

impl Neighbours {
    /// For the interface with this number in this thread's network namespace.
    ///
    /// # Errors
    /// If the kernel does not open a netlink socket.
    pub fn open(interface: u32) -> io::Result<Neighbours> {
        Ok(Neighbours {
            netlink: Netlink::open()?,
            interface,
        })
    }

    /// Asks how frames reach an address.
    ///
    /// # Errors
    /// If the kernel does not answer. Without CAP_NET_ADMIN, also if the kernel does not know the
    /// next hop yet.
    pub fn find(&mut self, to: IpAddr) -> io::Result<Answer> {
        let route = match self.route(to)? {
            Ok(route) => route,
            Err(answer) => return Ok(answer),
        };
        let (state, mac) = self.neighbour(route.next)?;
        let Some(mac) = mac.filter(|_| state & USABLE != 0) else {
            self.use_neighbour(route.next)?;
            return Ok(if state & FAILED != 0 {
                Answer::Silent
            } else {
                Answer::Pending
            });
        };
        if state & STALE != 0 {
            // Without the right to do so, the entry is used as it is, which is what the kernel does
            // at first.
            let _ = self.use_neighbour(route.next);
        }
        Ok(Answer::Reachable(Hop { mac, ..route }))
    }

    /// The hop without its MAC address, or why there is none.
    fn route(&mut self, to: IpAddr) -> io::Result<Result<Hop, Answer>> {
        let (family, bytes) = parts(to);
        let mut head = [0; ROUTE_HEAD_LEN];
        head[0] = family;
        head[1] = if to.is_ipv4() { 32 } else { 128 };
        let request = Request::new(GET_ROUTE, 0, &head).attribute(ROUTE_TO, &bytes);
        let messages = match self.netlink.ask(request) {
            Ok(messages) => messages,
            Err(error) if is_no_route(&error) => return Ok(Err(Answer::Unroutable)),
            Err(error) => return Err(error),
        };
        let Some(message) = messages.first() else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        // struct rtmsg: family, lengths of destination and source, TOS, table, protocol, scope,
        // type, flags u32.
        let [.., kind, _, _, _, _] = message.head::<ROUTE_HEAD_LEN>().unwrap_or_default();
        let attributes = message.attributes(ROUTE_HEAD_LEN);
        let interface = attributes.find_u32(ROUTE_INTERFACE).unwrap_or(0);
        if !matches!(kind, TYPE_UNICAST | TYPE_LOCAL) {
            return Ok(Err(Answer::Unroutable));
        }
        if kind == TYPE_LOCAL || interface != self.interface {
            return Ok(Err(Answer::Elsewhere { interface }));
        }
        // An IPv4 route may have an IPv6 gateway, in an attribute of its own.
        let via = attributes
            .find_kind(ROUTE_VIA)
            .and_then(|via| address(via.get(2..)?));
        let gateway = attributes.find_kind(ROUTE_GATEWAY).and_then(address);
        let metrics = Attributes(attributes.find_kind(ROUTE_METRICS).unwrap_or_default());
        Ok(Ok(Hop {
            mac: Mac::default(),
            next: gateway.or(via).unwrap_or(to),
            source: attributes.find_kind(ROUTE_SOURCE).and_then(address),
            mtu: metrics.find_u32(METRIC_MTU),
        }))
    }

    /// State and MAC address of a neighbour; 0 and `None` if the kernel does not know it.
    fn neighbour(&mut self, of: IpAddr) -> io::Result<(u16, Option<Mac>)> {
        let request = self.about(GET_NEIGHBOUR, 0, of, 0);
        let messages = match self.netlink.ask(request) {
            Ok(messages) => messages,
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
                return Ok((0, None));
            }
            Err(error) => return Err(error),
        };
        let Some(message) = messages.first() else {
            return Ok((0, None));
        };
        let head = message.head::<NEIGHBOUR_HEAD_LEN>().unwrap_or_default();
        let [.., a, b, _, _] = head;
        let mac = message
            .attributes(NEIGHBOUR_HEAD_LEN)
            .find_kind(NEIGHBOUR_MAC)
            .and_then(|mac| mac.try_into().ok())
            .map(Mac);
        Ok((u16::from_ne_bytes([a, b]), mac))
    }

    fn use_neighbour(&mut self, of: IpAddr) -> io::Result<()> {
        let request = self.about(NEW_NEIGHBOUR, FLAG_CREATE, of, USE);
        self.netlink.ask(request).map(drop)
    }

    /// `struct ndmsg`: family, padding, interface i32, state u16, flags, type.
    fn about(&self, kind: u16, flags: u16, of: IpAddr, entry_flags: u8) -> Request {
        let (family, bytes) = parts(of);
        let mut head = [0; NEIGHBOUR_HEAD_LEN];
        head[0] = family;
        head[4..8].copy_from_slice(&self.interface.to_ne_bytes());
        head[10] = entry_flags;
        Request::new(kind, flags, &head).attribute(NEIGHBOUR_IP, &bytes)
    }
}

/// The kernel's number for the address family, and the bytes of the address.
fn parts(of: IpAddr) -> (u8, Vec<u8>) {
    match of {
        IpAddr::V4(of) => (2, of.octets().to_vec()),
        IpAddr::V6(of) => (10, of.octets().to_vec()),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(<[u8; 4]>::try_from(bytes).ok()?.into()),
        16 => Some(<[u8; 16]>::try_from(bytes).ok()?.into()),
        _ => None,
    }
}

/// The errors for routes that lead nowhere or are set up to refuse.
fn is_no_route(error: &io::Error) -> bool {
    let refusals = [
        Errno::NETUNREACH,
        Errno::HOSTUNREACH,
        Errno::ACCESS,
        Errno::INVAL,
    ];
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    code.is_some_and(|code| refusals.contains(&code))
}
