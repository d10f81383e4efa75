//! The datagrams of a driver's stack, as one more source that a worker receives from.
//!
//! A datagram lies in the frame in which it came, which goes when the turn ends. A reply is at once
//! written into a frame to the sender.

use std::net::SocketAddr;
use std::rc::Rc;

use coua_tcp::nic::Nic;
use coua_tcp::stack::{ConnectError, Datagram};
use coua_tcp::wire::{ip, udp};

use super::driver::{SharedStackDriver, StackDriver};
use crate::outcome::Arrived;

/// All datagrams of a driver's stack.
pub(crate) struct DatagramEnd {
    host: SharedStackDriver,
}

impl DatagramEnd {
    /// Those of this driver.
    pub(crate) fn new(host: &SharedStackDriver) -> DatagramEnd {
        DatagramEnd {
            host: Rc::clone(host),
        }
    }

    /// The driver.
    pub(crate) fn host(&self) -> &SharedStackDriver {
        &self.host
    }

    /// Copies the next datagram of this turn to `room`.
    #[inline]
    pub(crate) fn receive(&self, room: &mut [u8]) -> Arrived {
        let StackDriver { stack, card, .. } = &mut *self.host.borrow_mut();
        let Some(datagram) = stack.next_datagram() else {
            return Arrived::Nothing;
        };
        let bytes = datagram.bytes(card);
        let len = bytes.len().min(room.len());
        room[..len].copy_from_slice(&bytes[..len]);
        Arrived::Datagram {
            len,
            from: datagram.into(),
        }
    }

    /// Sends a datagram made of `pieces` in answer to one of this or an earlier turn.
    #[inline]
    pub(crate) fn answer(&self, to: &Datagram, pieces: [&[u8]; 2]) -> bool {
        let StackDriver { stack, card, .. } = &mut *self.host.borrow_mut();
        card.answer(stack, to, pieces)
    }

    /// Sends a datagram that answers none, from a port at which datagrams are received from then
    /// on. False if it does not leave in this turn.
    pub(crate) fn ask(
        &self,
        from: u16,
        to: SocketAddr,
        pieces: [&[u8]; 2],
    ) -> Result<bool, ConnectError> {
        let StackDriver { stack, card, .. } = &mut *self.host.borrow_mut();
        stack.ask(card, from, to, &pieces)
    }

    /// Drops the datagrams that have not been taken, and returns their number.
    pub(crate) fn discard(&self) -> u64 {
        let stack = &mut self.host.borrow_mut().stack;
        std::iter::from_fn(|| stack.next_datagram()).fold(0, |count, _| count + 1)
    }

    /// The most bytes that fit into one datagram, to any address.
    pub(crate) fn payload_len_max(&self) -> usize {
        let mtu = usize::from(self.host.borrow().card.features().mtu);
        mtu.saturating_sub(ip::V6_HEADER_LEN + udp::HEADER_LEN)
    }
}
