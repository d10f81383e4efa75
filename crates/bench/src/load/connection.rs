//! One connection of the load: it sends requests and receives their replies.

use std::collections::VecDeque;
use std::io;

use coua_transport::{Received, Sent, Stream};

use super::clock::Clock;
use super::dialect::{Front, Heard, PendingRequest, Replies};
use super::error::Error;
use super::measured::{Measured, Run};
use super::requests::Requests;

/// A non-blocking stream with requests in flight.
///
/// # Invariants
/// - `sent <= out.len()`; bytes from `sent` on wait for the socket to take them.
/// - `numbers` are the keys of the requests in `asked`, in order.
/// - `rest` is the beginning of a reply; the next receive continues it.
pub(super) struct Connection {
    stream: Stream,
    requests: Requests,
    out: Vec<u8>,
    sent: usize,
    asked: VecDeque<PendingRequest>,
    numbers: VecDeque<u32>,
    replies: Replies,
    rest: Vec<u8>,
    /// The server has ended the stream; what came before may not have been read yet.
    has_ended: bool,
}

impl Connection {
    /// The largest reply that is received in one piece; servers have smaller limits.
    const REPLY_MAX: usize = 256 << 20;

    pub(super) fn new(stream: Stream, requests: Requests) -> Connection {
        Connection {
            replies: Replies::new(requests.plan().dialect),
            stream,
            requests,
            out: Vec::new(),
            sent: 0,
            asked: VecDeque::new(),
            numbers: VecDeque::new(),
            rest: Vec::new(),
            has_ended: false,
        }
    }

    /// Notes that the server has ended the stream, which is reported only once.
    pub(super) fn note_end(&mut self) {
        self.has_ended = true;
    }

    /// Requests without a reply.
    #[inline]
    pub(super) fn in_flight(&self) -> usize {
        self.asked.len()
    }

    /// Appends one request to those that wait to be sent; false when no requests are left.
    #[inline]
    pub(super) fn ask(&mut self, at_ns: u64) -> bool {
        match self
            .requests
            .append(at_ns, &mut self.out, &mut self.numbers)
        {
            Some(asked) => {
                self.asked.push_back(asked);
                true
            }
            None => false,
        }
    }

    /// Sends what is waiting, as far as the socket takes it.
    pub(super) fn send(&mut self, measured: &mut Measured) -> Result<(), Error> {
        while self.sent < self.out.len() {
            match self.stream.send(&self.out[self.sent..]) {
                Sent::Bytes(bytes) => {
                    self.sent += bytes;
                    measured.sent += bytes as u64;
                }
                Sent::Full => return Ok(()),
                Sent::Broken => return Err(Error::Io(io::ErrorKind::BrokenPipe.into())),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Receives until the socket is empty or every request has its reply. `input` is a buffer that
    /// all connections use in turn.
    pub(super) fn receive(
        &mut self,
        input: &mut Vec<u8>,
        clock: Clock,
        measured: &mut Measured,
    ) -> Result<(), Error> {
        let mut filled = self.rest.len();
        if filled > 0 {
            grow(input, filled + 1)?;
            input[..filled].copy_from_slice(&self.rest);
            self.rest.clear();
        }
        while !self.asked.is_empty() {
            if filled == input.len() {
                grow(input, 2 * filled)?;
            }
            let space = input.len() - filled;
            let bytes = match self.stream.receive(&mut input[filled..]) {
                Received::Bytes(bytes) => bytes,
                Received::Nothing => break,
                Received::Ended => return Err(Error::Io(io::ErrorKind::UnexpectedEof.into())),
            };
            measured.received += bytes as u64;
            filled += bytes;
            let used = self.hear(&input[..filled], clock.now_ns(), measured)?;
            input.copy_within(used..filled, 0);
            filled -= used;
            if bytes < space && !self.has_ended {
                break;
            }
        }
        self.rest.extend_from_slice(&input[..filled]);
        Ok(())
    }

    /// Handles the replies that have arrived, and returns their length in bytes.
    fn hear(&mut self, input: &[u8], now_ns: u64, measured: &mut Measured) -> Result<usize, Error> {
        let mut at = 0;
        let mut run = Run::default();
        while let Some(asked) = self.asked.front_mut() {
            let rest = &input[at..];
            let mut front = Front {
                asked,
                numbers: &mut self.numbers,
            };
            let plan = self.requests.plan();
            match self.replies.next(plan, &mut front, rest, measured) {
                Ok(Heard::More) => break,
                Ok(Heard::Part(bytes)) => at += bytes,
                Ok(Heard::Reply(bytes)) => {
                    at += bytes;
                    measured.reply(asked.op);
                    run.count(asked.at_ns, now_ns, 1, measured);
                    self.asked.pop_front();
                }
                Err(_) => return Err(Error::unexpected(rest)),
            }
        }
        run.flush(now_ns, measured);
        if self.asked.is_empty() && at < input.len() {
            return Err(Error::unexpected(&input[at..]));
        }
        Ok(at)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut connection = f.debug_struct("Connection");
        connection.field("peer", &self.stream.peer());
        connection.field("in_flight", &self.in_flight());
        connection.finish_non_exhaustive()
    }
}

/// Makes room for a reply that does not fit. Refuses replies that no request can have.
fn grow(input: &mut Vec<u8>, size: usize) -> Result<(), Error> {
    if size > Connection::REPLY_MAX {
        return Err(Error::unexpected(&input[..100]));
    }
    if input.len() < size {
        input.resize(size, 0);
    }
    Ok(())
}
