//! Messages: what sessions serve that end with it. A datagram, or a request over RDMA.
//!
//! All requests in a message are answered together.

use coua_rdma::{PeerId, RequestId};
use coua_store::Pinned;

use crate::datagram::Datagram;
use crate::gathered::Gathered;

/// What a session serves, if that is not a connection.
pub enum Message {
    /// A datagram.
    Datagram(Datagram),
    /// A request over RDMA.
    Rdma(RdmaMessage),
}

impl Message {
    /// The reply to it, as far as there is one.
    pub fn gathered(&mut self) -> &mut Gathered {
        match self {
            Message::Datagram(datagram) => &mut datagram.gathered,
            Message::Rdma(message) => &mut message.gathered,
        }
    }

    /// As [`Datagram::sender_bit`]; zero for what is no datagram.
    pub fn sender_bit(&self) -> u64 {
        match self {
            Message::Datagram(datagram) => datagram.sender_bit(),
            Message::Rdma(_) => 0,
        }
    }

    /// The datagram that it is.
    pub fn as_datagram_mut(&mut self) -> Option<&mut Datagram> {
        match self {
            Message::Datagram(datagram) => Some(datagram),
            Message::Rdma(_) => None,
        }
    }
}

/// A request over RDMA, and what is to be sent back.
pub struct RdmaMessage {
    /// From whom.
    pub peer: PeerId,
    /// Its name.
    pub request: RequestId,
    /// The reply, but for a value that is sent from where it lies.
    pub gathered: Gathered,
    /// That value, and how many bytes of the reply are before it.
    pub value: Option<(usize, Pinned)>,
}
