//! The sender of a datagram.

use std::net::SocketAddr;

use coua_tcp::stack::Datagram;

/// The sender of a datagram, as the datagram states it, and the way back to it.
#[derive(Clone, Copy, Debug)]
pub struct Sender(Way);

/// The way back to a sender.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// The kernel finds it.
    Kernel(SocketAddr),
    /// The way that the datagram came.
    Userspace(Datagram),
}

impl Sender {
    /// The address from which the datagram came.
    #[inline]
    pub fn address(&self) -> SocketAddr {
        match &self.0 {
            Way::Kernel(address) => *address,
            Way::Userspace(datagram) => datagram.source(),
        }
    }

    /// The port that the datagram was sent to, if that is a port of a stack in user space.
    pub fn port(&self) -> Option<u16> {
        match &self.0 {
            Way::Kernel(_) => None,
            Way::Userspace(datagram) => Some(datagram.destination().port()),
        }
    }

    /// The way back.
    #[inline]
    pub(crate) fn way(&self) -> &Way {
        &self.0
    }
}

impl From<SocketAddr> for Sender {
    fn from(address: SocketAddr) -> Sender {
        Sender(Way::Kernel(address))
    }
}

impl From<Datagram> for Sender {
    #[inline]
    fn from(datagram: Datagram) -> Sender {
        Sender(Way::Userspace(datagram))
    }
}
