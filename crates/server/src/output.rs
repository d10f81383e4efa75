//! The buffer in which a worker gathers the replies of one connection.
//!
//! All replies to one connection's requests in a turn are written here and leave in one system
//! call. What the socket does not take moves to the connection's
//! [`ReplyQueue`](crate::reply_queue::ReplyQueue).

use coua_memory_errors::check;
use coua_protocol::reply::{Full, Reply};
use coua_protocol::{BinaryRequestId, ErrorLine};
use coua_store::{Burst, Item, Pinned};
use coua_transport::Sent;

use crate::buffers::Pool;
use crate::gathered::REPLIES_LEN_MAX;
use crate::message::Message;
use crate::outcome::Outcome;
use crate::reply_queue::{Drained, NoMemory, send_pieces, up_to};
use crate::session::Session;

/// Bytes that the buffer holds.
pub const OUTPUT_LEN: usize = 96 << 10;

/// Values of at least this length are sent directly from the store.
pub const IN_PLACE_LEN_MIN: usize = 16 << 10;

/// Values up to this length are copied when they can neither be sent nor pinned. Longer values are
/// pinned before their first byte is sent, because it could not be taken back.
pub const COPIED_LEN_MAX: usize = 64 << 10;

/// The longest reply, including a copied value. The key in base64 and all flags take far less than
/// what is added to the value here.
const REPLY_LEN_MAX: usize = IN_PLACE_LEN_MIN + (4 << 10);

/// Replies that are to be sent to one connection.
pub struct Output {
    buffer: Box<[u8]>,
    len: usize,
    /// Bytes that the socket has taken since the caller last set this to 0.
    pub bytes_sent: u64,
    /// Bytes of [`REPLIES_LEN_MAX`] that are left for replies to messages.
    pub message_room: usize,
}

/// The result of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// The socket has taken everything.
    All,
    /// The rest waits in the connection's queue: nothing more may be executed for it.
    Blocked,
    /// The connection is broken.
    Broken,
    /// The machine has lost a part of what was sent or is still to be sent: the connection must be
    /// closed.
    Lost,
    /// There is no memory to keep the rest: the connection must be closed.
    NoMemory,
    /// The value has been refused; the reply to send instead is in the buffer.
    Refused,
}

/// A value that is sent directly from the store.
pub struct InPlace<'i> {
    /// The item whose value it is.
    pub item: &'i Item<'i>,
    /// The request that it answers.
    pub question: Question,
    /// Where the reply to which the value belongs begins in the buffer.
    pub reply_start: usize,
}

/// The request that a value answers.
#[derive(Clone, Copy, Debug)]
pub enum Question {
    /// One key of a `get`.
    Classic {
        /// `END` follows.
        last: bool,
    },
    /// An `mg`.
    Meta,
    /// A binary request.
    Binary(BinaryRequestId),
}

impl Question {
    /// What follows the value.
    pub fn tail(self) -> &'static [u8] {
        match self {
            Question::Classic { last: true } => b"\r\nEND\r\n",
            Question::Classic { last: false } | Question::Meta => b"\r\n",
            Question::Binary(_) => b"",
        }
    }

    /// Answers in place of the value, when the memory for connections is used up.
    fn refuse(self, reply: &mut Reply<'_>) -> Result<(), Full> {
        let error = ErrorLine::OutOfMemoryReply;
        match self {
            Question::Classic { .. } | Question::Meta => reply.error(error),
            Question::Binary(asked) => {
                let (status, text) = error.into();
                reply.binary_error(asked, status, text)
            }
        }
    }
}

/// A message's reply that has become too long is lost.
fn gathered(fits: bool) -> Flushed {
    match fits {
        true => Flushed::All,
        false => Flushed::Broken,
    }
}

impl From<Flushed> for Outcome {
    fn from(flushed: Flushed) -> Outcome {
        match flushed {
            Flushed::All | Flushed::Refused => Outcome::Done,
            Flushed::Blocked => Outcome::Blocked,
            Flushed::Broken => Outcome::Close,
            Flushed::NoMemory => Outcome::CloseForMemory,
            Flushed::Lost => Outcome::CloseForLoss,
        }
    }
}

impl From<NoMemory> for Flushed {
    fn from(_: NoMemory) -> Flushed {
        Flushed::NoMemory
    }
}

impl Default for Output {
    fn default() -> Output {
        Output::new()
    }
}

impl Output {
    /// An empty buffer.
    pub fn new() -> Output {
        Output {
            buffer: vec![0; OUTPUT_LEN].into_boxed_slice(),
            len: 0,
            bytes_sent: 0,
            message_room: REPLIES_LEN_MAX,
        }
    }

    /// Where in the buffer the next reply begins.
    pub fn next_start(&self) -> usize {
        self.len
    }

    /// What has been written since `start`, where a reply began.
    pub fn written_from(&self, start: usize) -> &[u8] {
        &self.buffer[start.min(self.len)..self.len]
    }

    /// Whether any next reply fits.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.buffer.len() - self.len >= REPLY_LEN_MAX
    }

    /// Appends what `write` writes.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; nothing has been written then.
    #[inline]
    pub fn write(
        &mut self,
        write: impl FnOnce(&mut Reply<'_>) -> Result<(), Full>,
    ) -> Result<(), Full> {
        let mut reply = Reply::new(&mut self.buffer[self.len..]);
        let written = write(&mut reply);
        self.len += reply.len();
        written
    }

    /// Appends a reply of bounded length.
    ///
    /// # Panics
    /// If it does not fit; check [`Output::has_room`] first.
    #[inline]
    pub fn reply(&mut self, write: impl FnOnce(&mut Reply<'_>) -> Result<(), Full>) {
        self.write(write).expect("room for a reply");
    }

    /// Removes what was written after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Adds everything to the message's gathered reply. False if the reply has become too long.
    pub fn gather(&mut self, message: &mut Message) -> bool {
        let written = &self.buffer[..self.len];
        self.bytes_sent += written.len() as u64;
        self.len = 0;
        (message.gathered()).gather(std::iter::once(written), &mut self.message_room)
    }

    /// As [`Output::gather`], with a value behind it: copied, or pinned where the message can send it from where it
    /// lies.
    fn gather_value(
        &mut self,
        message: &mut Message,
        value: &InPlace<'_>,
        burst: Option<&Burst<'_>>,
    ) -> bool {
        let tail = value.question.tail();
        let total = self.len + value.item.value_len() + tail.len();
        if let Message::Rdma(rdma) = message
            && rdma.value.is_none()
            && let Some(pinned) = burst.and_then(|burst| burst.pin(value.item))
        {
            let head = std::iter::once(&self.buffer[..self.len]);
            let room = &mut self.message_room;
            let fits = rdma.gathered.gather(head, room);
            rdma.value = Some((rdma.gathered.bytes().len(), pinned));
            let fits = fits && rdma.gathered.gather(std::iter::once(tail), room);
            self.bytes_sent += total as u64;
            self.len = 0;
            return fits && !value.item.is_doubtful();
        }
        let pieces = std::iter::once(&self.buffer[..self.len])
            .chain(value.item.value())
            .chain(std::iter::once(tail));
        let fits = message.gathered().gather(pieces, &mut self.message_room);
        self.bytes_sent += total as u64;
        self.len = 0;
        fits && !value.item.is_doubtful()
    }

    /// Sends everything to the session. The session's queue must be empty.
    pub fn flush(&mut self, session: &mut Session, pool: &mut Pool) -> Flushed {
        if let Some(message) = &mut session.message {
            return gathered(self.gather(message));
        }
        let mut rest = &self.buffer[..self.len];
        self.len = 0;
        while !rest.is_empty() {
            match session.stream.send_now(rest) {
                Sent::Bytes(count) => {
                    self.bytes_sent += count as u64;
                    rest = &rest[count..];
                }
                Sent::Full => {
                    let queued = session.queue.get_or_insert_default().push(pool, rest);
                    return queued.map_or_else(Flushed::from, |()| Flushed::Blocked);
                }
                Sent::Broken => return Flushed::Broken,
            }
        }
        Flushed::All
    }

    /// Sends everything, then `value` directly from the store. A long value that cannot be pinned
    /// now is refused. Without a burst, `value` was read from flash and what is not sent of it is copied.
    pub fn flush_with_value(
        &mut self,
        value: &InPlace<'_>,
        burst: Option<&Burst<'_>>,
        session: &mut Session,
        pool: &mut Pool,
    ) -> Flushed {
        let mut sent = 0;
        let tail = value.question.tail();
        if let Some(message) = &mut session.message {
            return gathered(self.gather_value(message, value, burst));
        }
        let pin = || burst.and_then(|burst| burst.pin(value.item));
        let must_pin = burst.is_some() && value.item.value_len() > COPIED_LEN_MAX;
        let pinned = must_pin.then(pin).flatten();
        if must_pin && pinned.is_none() {
            self.truncate(value.reply_start);
            self.reply(|reply| value.question.refuse(reply));
            return Flushed::Refused;
        }
        // What has left is not taken back. So a reply is not complete before it is known that nothing of
        // it was lost: its last bytes follow with what is sent next.
        let body_len = value.item.value_len().saturating_sub(1);
        let pieces =
            std::iter::once(&self.buffer[..self.len]).chain(up_to(value.item.value(), body_len));
        let total = self.len + body_len;
        let drained = send_pieces(&session.stream, pieces, total, &mut sent);
        self.bytes_sent += sent as u64;
        // An encrypted stream keeps what the socket has not taken: then the session is blocked, and the
        // value's last bytes wait with it.
        let drained = match drained {
            Drained::All if session.stream.has_unsent() => Drained::Blocked,
            drained => drained,
        };
        let flushed = match drained {
            Drained::All => Flushed::All,
            Drained::Broken => {
                // The kernel does not send from memory that is lost, and does not say so.
                value.item.value().for_each(|chunk| {
                    let _ = check(chunk);
                });
                Flushed::Broken
            }
            Drained::Lost => Flushed::Lost,
            Drained::Blocked => {
                let pinned = pinned.or_else(pin);
                self.queue_rest(sent, value, pinned, session, pool)
                    .map_or_else(Flushed::from, |()| Flushed::Blocked)
            }
        };
        self.len = 0;
        if flushed == Flushed::All {
            let last = value.item.value().last();
            let last = last.and_then(<[u8]>::last_chunk::<1>);
            for bytes in [last.map_or(&[][..], |last| last), tail] {
                self.buffer[self.len..self.len + bytes.len()].copy_from_slice(bytes);
                self.len += bytes.len();
            }
        }
        // The value's length is promised, or most of it sent.
        match value.item.is_doubtful() {
            true => {
                self.len = 0;
                Flushed::Lost
            }
            false => flushed,
        }
    }

    /// Queues what has not been sent of the buffer and the value.
    fn queue_rest(
        &mut self,
        sent: usize,
        value: &InPlace<'_>,
        pinned: Option<Pinned>,
        session: &mut Session,
        pool: &mut Pool,
    ) -> Result<(), NoMemory> {
        let queue = session.queue.get_or_insert_default();
        let mut skip = sent.saturating_sub(self.len);
        let tail = value.question.tail();
        queue.push(pool, &self.buffer[sent.min(self.len)..self.len])?;
        if let Some(pinned) = pinned {
            queue.push_value(pinned, tail, skip);
            return Ok(());
        }
        for chunk in value.item.value().chain(std::iter::once(tail)) {
            let begin = skip.min(chunk.len());
            skip -= begin;
            queue.push(pool, &chunk[begin..])?;
        }
        Ok(())
    }
}
