//! The buffer in which a worker gathers the replies of one connection.
//!
//! All replies to the requests of one connection and turn are written here and leave in one
//! system call. What the kernel does not take moves to the connection's
//! [`ReplyQueue`](crate::reply_queue::ReplyQueue).

use coua_protocol::reply::{Full, Reply};
use coua_protocol::{BinaryRequestId, ErrorLine};
use coua_store::{Burst, Item, Pinned};
use coua_transport::Sent;

use crate::buffers::Pool;
use crate::datagram::{Datagram, REPLIES_LEN_MAX};
use crate::outcome::Outcome;
use crate::reply_queue::{Drained, NoMemory, send_pieces};
use crate::session::Session;

/// Bytes that the buffer holds.
pub const OUTPUT_LEN: usize = 96 << 10;

/// Values from this length on are sent from where they lie in the store.
pub const IN_PLACE_LEN_MIN: usize = 16 << 10;

/// Values up to this length are copied where they can be neither sent nor pinned; longer ones are
/// pinned before their first byte leaves, for nobody could take it back.
pub const COPIED_LEN_MAX: usize = 64 << 10;

/// What any one reply takes at most, a copied value included: the key in base64 and all flags are
/// far below what is added to the value here.
const REPLY_LEN_MAX: usize = IN_PLACE_LEN_MIN + (4 << 10);

/// Replies that are to be sent to one connection.
pub struct Output {
    buffer: Box<[u8]>,
    len: usize,
    /// Bytes that the kernel has taken since somebody set this to 0.
    pub bytes_sent: u64,
    /// Bytes that replies to datagrams may still take, of [`REPLIES_LEN_MAX`].
    pub datagram_room: usize,
}

/// What sending came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// The kernel has taken everything.
    All,
    /// The rest waits in the connection's queue: no more may be executed for it.
    Blocked,
    /// The connection is broken.
    Broken,
    /// There is no memory to keep the rest in: the connection must be closed.
    NoMemory,
    /// The value has been refused, and what is to be sent instead lies in the buffer.
    Refused,
}

/// A value that is sent from where it lies in the store.
pub struct InPlace<'i> {
    /// Whose value.
    pub item: &'i Item<'i>,
    /// What it answers.
    pub question: Question,
    /// Where in the buffer the reply begins that the value belongs to.
    pub reply_start: usize,
}

/// What a value answers.
#[derive(Clone, Copy, Debug)]
pub enum Question {
    /// A key of a `get`.
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
    fn tail(self) -> &'static [u8] {
        match self {
            Question::Classic { last: true } => b"\r\nEND\r\n",
            Question::Classic { last: false } | Question::Meta => b"\r\n",
            Question::Binary(_) => b"",
        }
    }

    /// Answers in the value's place where memory for connections is used up.
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

/// A datagram's reply that has become too long is lost.
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
            datagram_room: REPLIES_LEN_MAX,
        }
    }

    /// Where in the buffer the next reply begins.
    pub fn next_start(&self) -> usize {
        self.len
    }

    /// What has been written from `start` on, where a reply began.
    pub fn written_from(&self, start: usize) -> &[u8] {
        &self.buffer[start.min(self.len)..self.len]
    }

    /// Whether the next reply fits, whatever it is.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.buffer.len() - self.len >= REPLY_LEN_MAX
    }

    /// Appends what `write` writes.
    ///
    /// # Errors
    /// [`Full`] where it does not fit; nothing of it has been written.
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
    /// If it does not fit, which [`Output::has_room`] would have told.
    #[inline]
    pub fn reply(&mut self, write: impl FnOnce(&mut Reply<'_>) -> Result<(), Full>) {
        self.write(write).expect("room for a reply");
    }

    /// Takes back what was written behind the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Adds everything to what a datagram's reply has gathered. False where it has become too long.
    pub fn gather(&mut self, datagram: &mut Datagram) -> bool {
        let written = &self.buffer[..self.len];
        self.bytes_sent += written.len() as u64;
        self.len = 0;
        datagram.gather(std::iter::once(written), &mut self.datagram_room)
    }

    /// Sends everything to the session, whose queue must be empty.
    pub fn flush(&mut self, session: &mut Session, pool: &mut Pool) -> Flushed {
        if let Some(datagram) = &mut session.datagram {
            return gathered(self.gather(datagram));
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

    /// Sends everything, then `value` from where it lies in the store. A long value that cannot be
    /// pinned at the moment is refused.
    pub fn flush_with_value(
        &mut self,
        value: &InPlace<'_>,
        burst: &Burst<'_>,
        session: &mut Session,
        pool: &mut Pool,
    ) -> Flushed {
        let mut sent = 0;
        let tail = value.question.tail();
        let total = self.len + value.item.value_len() + tail.len();
        let pieces = || {
            std::iter::once(&self.buffer[..self.len])
                .chain(value.item.value())
                .chain(std::iter::once(tail))
        };
        if let Some(datagram) = &mut session.datagram {
            let fits = datagram.gather(pieces(), &mut self.datagram_room);
            self.bytes_sent += total as u64;
            self.len = 0;
            return gathered(fits);
        }
        let is_long = value.item.value_len() > COPIED_LEN_MAX;
        let pinned = is_long.then(|| burst.pin(value.item)).flatten();
        if is_long && pinned.is_none() {
            self.truncate(value.reply_start);
            self.reply(|reply| value.question.refuse(reply));
            return Flushed::Refused;
        }
        let drained = send_pieces(&session.stream, pieces(), total, &mut sent);
        self.bytes_sent += sent as u64;
        let flushed = match drained {
            Drained::All => Flushed::All,
            Drained::Broken => Flushed::Broken,
            Drained::Blocked => {
                let pinned = pinned.or_else(|| burst.pin(value.item));
                self.queue_rest(sent, value, pinned, session, pool)
                    .map_or_else(Flushed::from, |()| Flushed::Blocked)
            }
        };
        self.len = 0;
        flushed
    }

    /// Keeps what of buffer and value has not been sent.
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
