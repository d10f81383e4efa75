//! What the kernel reports about an interface.

use std::io;
use std::os::fd::AsFd;

use coua_tcp::nic::Mac;

use super::syscall;

/// The least MTU of a link with IPv6 (RFC 8200), as `Features::mtu` requires.
pub(super) const MTU_MIN: u16 = 1280;

/// A network interface in its present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device {
    /// Its number.
    pub(super) index: i32,
    /// Its MAC address.
    pub(super) mac: Mac,
    /// Whether its frames have Ethernet headers.
    pub(super) is_ethernet: bool,
    /// Bytes of the longest IP packet that it carries.
    pub(super) mtu: u16,
    /// Whether it is switched on.
    pub(super) is_up: bool,
}

impl Device {
    /// Looks the interface up by its name in the network namespace of `socket`, which may be any
    /// socket.
    ///
    /// Fails with `ENODEV` if there is none.
    pub(super) fn find(socket: impl AsFd, name: &str) -> io::Result<Device> {
        let socket = socket.as_fd();
        let (link, mac) = syscall::hardware(socket, name)?;
        let mtu = syscall::mtu(socket, name)?.clamp(0, i32::from(u16::MAX));
        Ok(Device {
            index: syscall::index(socket, name)?,
            mac: Mac(mac),
            is_ethernet: matches!(link, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK),
            mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
            is_up: syscall::flags(socket, name)? & libc::IFF_UP != 0,
        })
    }
}
