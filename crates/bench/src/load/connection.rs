//! One connection of the load: a burst out, its replies in.

use std::io;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::engine::Error;
use super::measured::Measured;
use super::replies::{Shape, Step};
use super::requests::{Kind, Requests};
use crate::target::Stream;

/// A non-blocking stream with at most one burst in flight.
///
/// # Invariants
/// - `sent <= burst.len()`; bytes from `sent` on wait for the socket to take them.
/// - `answered <= kinds.len()`; the burst is over when they are equal.
/// - `replies[..filled]` is the beginning of the reply to request `answered`, less the values
///   already counted.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    requests: Requests,
    burst: Vec<u8>,
    sent: usize,
    kinds: Vec<Kind>,
    answered: usize,
    replies: Box<[u8]>,
    filled: usize,
    sent_at: Instant,
}

impl Connection {
    /// Bytes read at a time; a value larger than this gets a larger buffer.
    const READ: usize = 64 << 10;

    pub(super) fn new(stream: Stream, requests: Requests, shape: Shape) -> Connection {
        Connection {
            stream,
            requests,
            burst: Vec::new(),
            sent: 0,
            kinds: Vec::new(),
            answered: 0,
            replies: vec![0; Self::READ.max(2 * shape.block())].into(),
            filled: 0,
            sent_at: Instant::now(),
        }
    }

    /// Whether every request has its reply.
    pub(super) fn idle(&self) -> bool {
        self.answered == self.kinds.len()
    }

    /// Writes the next burst, as far as the socket takes it; the connection stays idle when no
    /// requests are left.
    pub(super) fn begin(&mut self, depth: usize) -> Result<(), Error> {
        self.burst.clear();
        self.kinds.clear();
        (self.sent, self.answered) = (0, 0);
        self.requests
            .append_burst(depth, &mut self.burst, &mut self.kinds);
        self.sent_at = Instant::now();
        self.send()
    }

    /// Writes what the socket did not take before.
    pub(super) fn send(&mut self) -> Result<(), Error> {
        while self.sent < self.burst.len() {
            match send(&self.stream, &self.burst[self.sent..], SendFlags::NOSIGNAL) {
                Ok(bytes) => self.sent += bytes,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Error::Io(error.into())),
            }
        }
        Ok(())
    }

    /// Reads what is there, until the socket is empty or the burst is over.
    pub(super) fn receive(&mut self, shape: Shape, measured: &mut Measured) -> Result<(), Error> {
        while !self.idle() {
            let space = self.replies.len() - self.filled;
            let bytes = match recv(
                &self.stream,
                &mut self.replies[self.filled..],
                RecvFlags::empty(),
            ) {
                Ok((0, _)) => return Err(Error::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok((bytes, _)) => bytes,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(Error::Io(error.into())),
            };
            self.filled += bytes;
            self.consume(shape, measured)?;
            if bytes < space {
                return Ok(());
            }
        }
        Ok(())
    }

    fn consume(&mut self, shape: Shape, measured: &mut Measured) -> Result<(), Error> {
        let (block, before) = (shape.block(), self.answered);
        let mut at = 0;
        while let Some(&kind) = self.kinds.get(self.answered) {
            let rest = &self.replies[at..self.filled];
            match shape
                .next(kind, rest)
                .map_err(|_| Error::unexpected(rest))?
            {
                Step::Incomplete => break,
                Step::Block => {
                    measured.hits += 1;
                    at += block;
                }
                Step::Reply { bytes, refused } => {
                    measured.gets += u64::from(kind == Kind::Get);
                    measured.refused += u64::from(refused);
                    self.answered += 1;
                    at += bytes;
                }
            }
        }
        if self.answered > before {
            measured.record(self.sent_at.elapsed(), (self.answered - before) as u64);
        }
        if at < self.filled {
            if self.idle() {
                return Err(Error::unexpected(&self.replies[at..self.filled]));
            }
            self.replies.copy_within(at..self.filled, 0);
        }
        self.filled -= at;
        Ok(())
    }
}
