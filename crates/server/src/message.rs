//! Messages: what sessions serve that end with it. A datagram, or a request over RDMA.
//!
//! All requests in a message are answered together.

use coua_rdma::{PeerId, RequestId};
use coua_store::Pinned;

use crate::datagram::Datagram;

/// Bytes of a reply at most. A longer one is not sent.
pub const REPLY_LEN_MAX: usize = 2 << 20;

/// Bytes of all replies that one worker gathers at a time, outside of `-m`. What does not fit is not
/// sent.
pub const REPLIES_LEN_MAX: usize = 8 << 20;

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

/// A reply in the making.
#[derive(Debug, Default)]
pub struct Gathered {
    reply: Vec<u8>,
    is_too_long: bool,
}

impl Gathered {
    /// Has room for so many bytes from the start.
    pub fn with_room(len: usize) -> Gathered {
        Gathered {
            reply: Vec::with_capacity(len),
            is_too_long: false,
        }
    }

    /// A new message has come; what was gathered for the one before has been cleared.
    #[inline]
    pub fn begin(&mut self) {
        self.is_too_long = false;
    }

    /// Keeps a part of the reply, and takes its length from `room`, the bytes that all replies of the
    /// worker may still take. False where it has become too long; what there was is given up then.
    pub fn gather<'p>(&mut self, pieces: impl Iterator<Item = &'p [u8]>, room: &mut usize) -> bool {
        for piece in pieces {
            let len = self.reply.len() + piece.len();
            if self.is_too_long || len > REPLY_LEN_MAX || piece.len() > *room {
                self.clear(room);
                self.is_too_long = true;
                return false;
            }
            *room -= piece.len();
            self.reply.extend_from_slice(piece);
        }
        true
    }

    /// The reply as far as it has been gathered.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.reply
    }

    /// Forgets the reply, and gives back what it took of the worker's `room`.
    pub fn clear(&mut self, room: &mut usize) {
        *room += self.reply.len();
        self.reply.clear();
        self.reply.shrink_to(64 << 10);
    }
}
