//! The sender of a datagram.

use std::net::SocketAddr;

use coua_tcp::stack::Datagram;

/// Who sent a datagram, or says so, and the way back to there.
#[derive(Clone, Copy, Debug)]
pub struct Sender(Way);

/// The way back to a sender.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// The kernel finds it.
    Kernel(SocketAddr),
    /// The one that the datagram came.
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

    /// The port at which the datagram came, where that is a stack's in user space.
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
