//! Replies that are gathered before they leave.

/// Bytes of a reply at most. A longer one is not sent.
pub const REPLY_LEN_MAX: usize = 2 << 20;

/// Bytes of all replies that one worker gathers at a time, outside of `-m`. What does not fit is not
/// sent.
pub const REPLIES_LEN_MAX: usize = 8 << 20;

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
