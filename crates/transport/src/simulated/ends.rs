//! The server's ends of the simulated network.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use super::{Network, SERVER, SourceId};
use crate::outcome::{Accepted, Received, Sent};
use crate::peer_address::PeerAddress;
use crate::readiness::{Readiness, Token};

/// Numbers that look like descriptors begin here.
const FIRST_DESCRIPTOR: usize = 16;

/// The server's end of a connection.
pub struct StreamEnd {
    network: Network,
    number: usize,
}

impl StreamEnd {
    pub(crate) fn id(&self) -> SourceId {
        SourceId::Stream(self.number)
    }

    pub(crate) fn receive(&self, spaces: &mut [IoSliceMut<'_>]) -> Received {
        self.network.state().receive(self.number, spaces)
    }

    pub(crate) fn send(&self, pieces: &[IoSlice<'_>]) -> Sent {
        self.network.state().send(self.number, pieces)
    }

    pub(crate) fn descriptor(&self) -> i32 {
        i32::try_from(FIRST_DESCRIPTOR + self.number).unwrap_or(i32::MAX)
    }

    pub(crate) fn peer(&self) -> PeerAddress {
        let [.., high, low] = self.number.to_be_bytes();
        let address = Ipv4Addr::new(10, 1, high, low);
        PeerAddress::Tcp4(SocketAddr::V4(SocketAddrV4::new(address, 40_000)))
    }

    pub(crate) fn local(&self) -> PeerAddress {
        PeerAddress::Tcp4(SERVER)
    }
}

impl Drop for StreamEnd {
    fn drop(&mut self) {
        self.network.state().link(self.number).server_close();
    }
}

/// The server's listener.
#[derive(Clone)]
pub struct ListenerEnd {
    network: Network,
    number: usize,
    is_tcp: bool,
}

impl ListenerEnd {
    pub(super) fn new(network: Network, number: usize, is_tcp: bool) -> ListenerEnd {
        ListenerEnd {
            network,
            number,
            is_tcp,
        }
    }

    pub(crate) fn is_tcp(&self) -> bool {
        self.is_tcp
    }

    pub(crate) fn id(&self) -> SourceId {
        SourceId::Listener(self.number)
    }

    pub(crate) fn descriptor(&self) -> i32 {
        i32::try_from(self.number).unwrap_or(i32::MAX)
    }

    pub(crate) fn accept(&self) -> Accepted<StreamEnd> {
        self.network
            .state()
            .accept(self.number)
            .map(|number| StreamEnd {
                network: self.network.clone(),
                number,
            })
    }
}

/// A waker.
pub struct WakerEnd {
    network: Network,
    number: usize,
}

impl WakerEnd {
    pub(super) fn new(network: Network, number: usize) -> WakerEnd {
        WakerEnd { network, number }
    }

    pub(crate) fn id(&self) -> SourceId {
        SourceId::Waker(self.number)
    }

    pub(crate) fn set(&self, awake: bool) {
        self.network.state().set_waker(self.number, awake);
    }
}

/// A worker's poller.
pub struct PollerEnd {
    network: Network,
    number: usize,
}

impl PollerEnd {
    pub(super) fn new(network: Network, number: usize) -> PollerEnd {
        PollerEnd { network, number }
    }

    pub(crate) fn add(&self, source: SourceId, token: Token) -> io::Result<()> {
        self.network.state().add(self.number, source, token)
    }

    pub(crate) fn remove(&self, source: SourceId) -> io::Result<()> {
        self.network.state().remove(self.number, source)
    }

    pub(crate) fn wait(&self, report: &mut Vec<Readiness>) {
        self.network.state().wait(self.number, report);
    }
}
