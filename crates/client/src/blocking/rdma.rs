//! Requests over RDMA, where the server has it too (coua's `--rdma`).

use std::io;
use std::time::{Duration, Instant};

use coua_rdma::libfabric::{Link, LinkError};
use coua_rdma::{Offer, REQUEST, Ticket};

use crate::address::Address;
use crate::blocking::transport::{Connect, Sockets, Transport};

/// What a server may read and write: a reply of the longest that one makes, and a value beside it.
const LENT_LEN: usize = 4 << 20;

/// Room for a reply. A server makes none that is longer.
const REPLY_LEN_MAX: usize = (2 << 20) + (64 << 10);

/// How long it may take to ask for RDMA and to connect.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long after a failure it is not asked for again.
const PAUSE: Duration = Duration::from_secs(10);

/// Bytes of a server's offer at most.
const OFFER_LEN_MAX: usize = 1024;

/// Opens connections that go on over RDMA where the server offers that, and this machine has libfabric and the network.
/// Where not, they stay what they are. So it works with memcached too.
///
/// A connection is opened as the one that it wraps, and a login happens there. Behind its first answer the server is asked
/// for RDMA. Each connection lends its server 4 MiB of memory. What is sent over RDMA is **not encrypted**, even if
/// the connection that it wraps is.
///
/// ```no_run
/// use coua_client::{Client, Config, Rdma};
///
/// let config = Config::new("10.0.0.1:11211")?;
/// let cache = Client::builder(config).transport(Rdma::default()).build();
/// cache.set("greeting", "hello", std::time::Duration::from_secs(60))?;
/// # Ok::<(), coua_client::Error>(())
/// ```
#[derive(Debug)]
pub struct Rdma {
    inner: Box<dyn Connect>,
}

impl Default for Rdma {
    fn default() -> Rdma {
        Rdma::over(Sockets)
    }
}

impl Rdma {
    /// Wraps connections that `inner` opens.
    pub fn over(inner: impl Connect + 'static) -> Rdma {
        let inner = Box::new(inner);
        Rdma { inner }
    }
}

impl Connect for Rdma {
    fn connect(&self, address: &Address, timeout: Duration) -> io::Result<Box<dyn Transport>> {
        Ok(Box::new(Upgraded {
            inner: self.inner.connect(address, timeout)?,
            link: None,
            ask_at: Some(Instant::now()),
            is_inner: false,
            waiting: None,
            reply: None,
            again: Vec::new(),
        }))
    }
}

/// A connection, and perhaps one over RDMA beside it.
#[derive(Debug)]
struct Upgraded {
    inner: Box<dyn Transport>,
    link: Option<Link>,
    /// When the server is to be asked; `None` if it does not have it.
    ask_at: Option<Instant>,
    /// What was asked last is answered on the inner connection.
    is_inner: bool,
    /// What was asked over RDMA and is not answered. There is one at a time: so answers come in their order.
    waiting: Option<Ticket>,
    /// An answer, how long it is, and how much of it was taken.
    reply: Option<(Ticket, usize, usize)>,
    /// What was asked last, if it only reads: an answer that is too long is asked for again the other way.
    again: Vec<u8>,
}

impl Upgraded {
    /// Asks the server, whose answers have all come. An error is one of the inner connection.
    fn ask(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut sent = 0;
        while sent < REQUEST.len() {
            sent += self.inner.send(&REQUEST[sent..])?;
        }
        let mut line = [0; OFFER_LEN_MAX];
        let mut len = 0;
        while !line[..len].ends_with(b"\r\n") {
            let rest = deadline.saturating_duration_since(Instant::now());
            let came = self.inner.receive(&mut line[len..], rest)?;
            if came == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            len += came;
        }
        let offer = str::from_utf8(&line[..len]).ok().map(str::trim_end);
        self.ask_at = None;
        let Some(offer) = offer.and_then(Offer::decode) else {
            if line.starts_with(b"SERVER_ERROR") {
                // It has it, and no room now.
                self.ask_at = Some(Instant::now() + PAUSE);
            }
            return Ok(());
        };
        match Link::connect(&offer, LENT_LEN, PATIENCE) {
            Ok(link) => self.link = Some(link),
            Err(_) => self.ask_at = Some(Instant::now() + PAUSE),
        }
        Ok(())
    }

    /// Waits for the answer over RDMA.
    fn wait_for_reply(&mut self, timeout: Duration) -> io::Result<()> {
        let (Some(link), Some(ticket)) = (&mut self.link, self.waiting) else {
            return Ok(());
        };
        match link.wait(ticket, Instant::now() + timeout) {
            Ok(len) => {
                (self.waiting, self.reply) = (None, Some((ticket, len, 0)));
                Ok(())
            }
            Err(LinkError::TimedOut) => Err(io::ErrorKind::TimedOut.into()),
            Err(LinkError::ReplyTooLong { .. }) if !self.again.is_empty() => {
                (self.waiting, self.is_inner) = (None, true);
                let again = std::mem::take(&mut self.again);
                let mut sent = 0;
                while sent < again.len() {
                    sent += self.inner.send(&again[sent..])?;
                }
                Ok(())
            }
            Err(error) => {
                (self.waiting, self.link) = (None, None);
                Err(io::Error::new(io::ErrorKind::ConnectionReset, error))
            }
        }
    }
}

impl Transport for Upgraded {
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.waiting.is_some() || self.reply.is_some() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Some(link) = self.link.as_mut().filter(|_| !self.is_inner) else {
            self.is_inner = true;
            return self.inner.send(bytes);
        };
        let (command, value) = parts(bytes);
        let sent = match value.is_some_and(|value| value.len() > link.value_len_max()) {
            true => Err(LinkError::TooLong),
            // Nothing else is under way, so there is room.
            false => link.submit(command, value, REPLY_LEN_MAX, Instant::now() + PATIENCE),
        };
        match sent {
            Ok(ticket) => {
                self.waiting = Some(ticket);
                self.again.clear();
                if only_reads(bytes) {
                    self.again.extend_from_slice(bytes);
                }
                Ok(bytes.len())
            }
            // Nothing was sent.
            Err(error) => {
                if !matches!(error, LinkError::TooLong) {
                    self.link = None;
                    self.ask_at = Some(Instant::now() + PAUSE);
                }
                self.is_inner = true;
                self.inner.send(bytes)
            }
        }
    }

    fn receive(&mut self, into: &mut [u8], timeout: Duration) -> io::Result<usize> {
        if self.waiting.is_some() {
            self.wait_for_reply(timeout)?;
        }
        let (Some(link), Some((ticket, len, taken))) = (&mut self.link, self.reply) else {
            return self.inner.receive(into, timeout);
        };
        let rest = &link.reply(ticket, len)[taken..];
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        self.reply = Some((ticket, len, taken + count));
        if taken + count == len {
            link.release(ticket);
            self.reply = None;
        }
        match count {
            0 if len == 0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(count),
        }
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        match self.waiting.is_some() {
            true => self.wait_for_reply(timeout),
            false if self.reply.is_some() => Ok(()),
            false => self.inner.wait(timeout),
        }
    }

    fn all_answered(&mut self) -> io::Result<()> {
        self.is_inner = false;
        match self.ask_at {
            Some(at) if self.link.is_none() && at <= Instant::now() => self.ask(),
            _ => Ok(()),
        }
    }
}

/// Requests of up to this many bytes are looked at: they can be sent at once on the inner connection, which has nothing else
/// to send.
const AGAIN_LEN_MAX: usize = 4096;

/// Whether requests change nothing, so that they may be executed twice.
fn only_reads(bytes: &[u8]) -> bool {
    let only_reads = |line: &[u8]| {
        let mut words = line.trim_ascii_end().split(|&byte| byte == b' ');
        match words.next() {
            Some(b"get" | b"gets" | b"mn" | b"") => true,
            // Of meta's flags, others may change the item.
            Some(b"mg") => words
                .skip(1)
                .all(|flag| flag.first().is_some_and(|flag| b"vfcsktOqb".contains(flag))),
            _ => false,
        }
    };
    bytes.len() <= AGAIN_LEN_MAX && bytes.split(|&byte| byte == b'\n').all(only_reads)
}

/// Requests as a command and a value behind it, if they are too long for a command alone. Requests end with the end of a
/// line, which the server adds to a value.
fn parts(bytes: &[u8]) -> (&[u8], Option<&[u8]>) {
    if bytes.len() <= Link::COMMAND_LEN_MAX {
        return (bytes, None);
    }
    let first = &bytes[..Link::COMMAND_LEN_MAX];
    let line = first.windows(2).position(|two| two == b"\r\n");
    let (command, rest) = bytes.split_at(line.map_or(first.len(), |at| at + 2));
    match rest.strip_suffix(b"\r\n") {
        Some(value) if !value.is_empty() => (command, Some(value)),
        // It cannot be sent so, and is too long.
        _ => (bytes, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_executed_twice() {
        for reads in [
            "get a b\r\n",
            "gets a\r\n",
            "mg a v f\r\nmn\r\n",
            "mg a v q k Oa\r\nmn\r\n",
        ] {
            assert!(only_reads(reads.as_bytes()), "{reads}");
        }
        for writes in [
            "mg a v N30\r\n",
            "mg a T5\r\n",
            "gat 5 a\r\n",
            "get a\r\ndelete a\r\n",
            "ma a\r\n",
        ] {
            assert!(!only_reads(writes.as_bytes()), "{writes}");
        }
    }

    #[test]
    fn long_requests_are_divided_behind_their_first_line() {
        assert_eq!(parts(b"mg a v\r\n"), (&b"mg a v\r\n"[..], None));
        let value = vec![b'x'; 10_000];
        let long = [b"ms a 10000\r\n", &value[..], b"\r\n"].concat();
        assert_eq!(parts(&long), (&b"ms a 10000\r\n"[..], Some(&value[..])));
        let keys = [&b"get"[..], &b" key".repeat(3000), b"\r\n"].concat();
        let (command, rest) = parts(&keys);
        assert_eq!(command.len(), Link::COMMAND_LEN_MAX);
        assert_eq!([command, rest.expect("the rest"), b"\r\n"].concat(), keys);
    }
}
