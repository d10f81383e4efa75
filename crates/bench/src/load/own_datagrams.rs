//! The datagrams of one load thread's own stack: each connection has a port of its own.
//!
//! To open a port, a thread asks the server for its version from that port. The answer shows that
//! the server is there, and that the card delivers what comes to the port to this thread's queue.
//! If no answer comes in time, another port is tried, and this one is left to the other threads.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use coua_transport::{Arrived, Datagrams, Poller, Sender};

use super::error::Error;

/// The UDP frame header (protocol.txt) of the request that opens a port: the request's number,
/// which ordinary requests reach last, the datagram's number, the count of datagrams, and zero.
const FRAME: [u8; 8] = [0xff, 0xff, 0, 0, 0, 1, 0, 0];
const PROBE: &[u8] = b"version\r\n";

/// How long a port waits for the answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// The datagrams of one thread's stack.
pub(super) struct OwnDatagrams {
    end: Datagrams,
    /// Whether the card had no room for a datagram since this was last asked.
    is_full: Cell<bool>,
    /// By port: the connection that it belongs to.
    links: Vec<Option<u32>>,
}

/// A port that is being opened.
struct Pending {
    port: u16,
    asked_at: Option<Instant>,
}

/// Ports that are being opened, and those that are open.
pub(super) struct Ports {
    end: Datagrams,
    to: SocketAddr,
    pending: Vec<Pending>,
    open: Vec<Sender>,
    count: usize,
}

impl Ports {
    /// `count` ports to the server at `to`, none of them open yet; none if there is no stack.
    pub(super) fn new(poller: &Poller, to: SocketAddr, count: usize) -> Option<Ports> {
        Some(Ports {
            end: poller.client_datagrams()?,
            to,
            pending: Vec::new(),
            open: Vec::with_capacity(count),
            count,
        })
    }

    /// Does the work of one turn, in which `most` ports at most are being opened. `claim` gives a
    /// free port, and `release` takes back one that does not lead to this thread's queue. Returns
    /// whether any was opened.
    pub(super) fn turn(
        &mut self,
        most: usize,
        mut claim: impl FnMut() -> Option<u16>,
        release: impl Fn(u16),
    ) -> io::Result<bool> {
        let before = self.open.len();
        let mut room = [0; 256];
        loop {
            let from = match self.end.receive(&mut room) {
                Arrived::Nothing => break,
                Arrived::Useless => continue,
                Arrived::Datagram { from, .. } => from,
            };
            let is_it = |pending: &Pending| Some(pending.port) == from.port();
            if from.address() == self.to
                && let Some(place) = self.pending.iter().position(is_it)
            {
                self.pending.swap_remove(place);
                self.open.push(from);
            }
        }
        let is_late =
            |pending: &mut Pending| pending.asked_at.is_some_and(|at| at.elapsed() > PATIENCE);
        for pending in self.pending.extract_if(.., is_late) {
            release(pending.port);
        }
        while self.pending.len() < most && self.pending.len() + self.open.len() < self.count {
            let Some(port) = claim() else { break };
            self.pending.push(Pending {
                port,
                asked_at: None,
            });
        }
        for pending in &mut self.pending {
            if pending.asked_at.is_none() && self.end.ask(pending.port, self.to, [&FRAME, PROBE])? {
                pending.asked_at = Some(Instant::now());
            }
        }
        Ok(self.open.len() > before)
    }

    /// Whether all are open.
    pub(super) fn are_open(&self) -> bool {
        self.open.len() == self.count
    }

    /// How many are open.
    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// The datagrams, and the sender by which each connection reaches the server, in order.
    pub(super) fn finish(self) -> (OwnDatagrams, Vec<Sender>) {
        let mut links = vec![None; usize::from(u16::MAX) + 1];
        for (sender, index) in self.open.iter().zip(0..) {
            if let Some(port) = sender.port() {
                links[usize::from(port)] = Some(index);
            }
        }
        let datagrams = OwnDatagrams {
            end: self.end,
            is_full: Cell::new(false),
            links,
        };
        (datagrams, self.open)
    }
}

impl OwnDatagrams {
    /// The source of the datagrams, for the poller.
    pub(super) fn source(&self) -> &Datagrams {
        &self.end
    }

    /// Receives the next datagram of this turn into `room`: its length, and the connection that it
    /// is for.
    pub(super) fn receive(&self, room: &mut [u8]) -> Option<(usize, usize)> {
        loop {
            let (len, from) = match self.end.receive(room) {
                Arrived::Nothing => return None,
                Arrived::Useless => continue,
                Arrived::Datagram { len, from } => (len, from),
            };
            let port = usize::from(from.port().unwrap_or(0));
            if let Some(index) = self.links[port] {
                return Some((len, index as usize));
            }
        }
    }

    /// Answers the sender of an earlier datagram. Sends no bytes if the card takes no more in this
    /// turn.
    pub(super) fn send(&self, bytes: &[u8], to: &Sender) -> Result<usize, Error> {
        let most = self.end.payload_len_max();
        if bytes.len() > most {
            let why = format!(
                "--net with --dialect udp: a request has {} bytes, and a datagram {most} at most",
                bytes.len()
            );
            return Err(Error::Net(why.into()));
        }
        match self.end.send([bytes, &[]], to) {
            true => Ok(bytes.len()),
            false => {
                self.is_full.set(true);
                Ok(0)
            }
        }
    }

    /// Whether the card had no room for a datagram since this was last asked.
    pub(super) fn was_full(&self) -> bool {
        self.is_full.replace(false)
    }
}
