//! Requests in datagrams, one in each, and replies in as many as they need.
//!
//! A reply may be lost; its request counts as lost after a while. A place is reused only with
//! another request id, so that a late reply is not taken for another one.

use std::collections::VecDeque;
use std::net::UdpSocket;
use std::rc::Rc;

use coua_protocol::datagram::{FRAME_LEN, PART_LEN};
use coua_transport::Sender;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::clock::Clock;
use super::dialect::{Front, Heard, PendingRequest, Replies};
use super::error::Error;
use super::measured::{Measured, Run};
use super::own_datagrams::OwnDatagrams;
use super::plan::Dialect;
use super::requests::Requests;

/// Requests in flight to one server.
///
/// # Invariants
/// - The place of request id `i` is `i` modulo the number of places; ids are given out in order, and
///   only to places that are free.
#[derive(Debug)]
pub(super) struct Datagrams {
    way: Way,
    requests: Requests,
    places: Vec<Place>,
    next_id: u16,
    in_flight: usize,
    /// Places whose requests wait to be sent.
    unsent: VecDeque<u16>,
}

/// How datagrams get to the server.
pub(super) enum Way {
    /// A connected, non-blocking socket of the kernel's.
    Kernel(UdpSocket),
    /// A port of this thread's own stack, and the server's address as received there.
    Own(Rc<OwnDatagrams>, Sender),
}

impl Way {
    /// Sends a datagram.
    fn send(&self, bytes: &[u8]) -> Result<usize, Error> {
        match self {
            Way::Kernel(socket) => loop {
                return match send(socket, bytes, SendFlags::NOSIGNAL) {
                    Ok(len) => Ok(len),
                    Err(Errno::AGAIN) => Ok(0),
                    Err(Errno::INTR) => continue,
                    Err(error) => Err(Error::Io(error.into())),
                };
            },
            Way::Own(end, server) => end.send(bytes, server),
        }
    }
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Way::Kernel(socket) => socket.fmt(f),
            Way::Own(_, server) => server.fmt(f),
        }
    }
}

/// A request and its reply so far.
#[derive(Debug, Default)]
struct Place {
    id: u16,
    asked: Option<PendingRequest>,
    request: Vec<u8>,
    numbers: VecDeque<u32>,
    sent_at_ns: u64,
    reply: Vec<u8>,
    parts: u16,
}

impl Datagrams {
    /// After this time a reply counts as lost, in nanoseconds.
    const PATIENCE_NS: u64 = 500_000_000;
    /// The most requests in flight: half of the ids, so that old ones can be told from new ones.
    pub(super) const DEPTH_MAX: usize = 1 << 15;

    pub(super) fn new(way: Way, requests: Requests, depth: usize) -> Datagrams {
        let places = depth.clamp(1, Self::DEPTH_MAX).next_power_of_two();
        Datagrams {
            way,
            requests,
            places: (0..places).map(|_| Place::default()).collect(),
            next_id: 0,
            in_flight: 0,
            unsent: VecDeque::new(),
        }
    }

    /// Requests without a reply.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn place(&self, id: u16) -> usize {
        usize::from(id) & (self.places.len() - 1)
    }

    /// Prepares one request, to be sent by [`send`](Self::send). False when no requests are left,
    /// or while the next id's place still waits for a reply.
    pub(super) fn ask(&mut self, at_ns: u64) -> bool {
        let id = self.next_id;
        let at = self.place(id);
        let place = &mut self.places[at];
        if place.asked.is_some() {
            return false;
        }
        place.request.clear();
        place.request.extend_from_slice(&id.to_be_bytes());
        place.request.extend_from_slice(&[0, 0, 0, 1, 0, 0]);
        place.numbers.clear();
        place.reply.clear();
        (place.id, place.parts, place.sent_at_ns) = (id, 0, at_ns);
        place.asked = self
            .requests
            .append(at_ns, &mut place.request, &mut place.numbers);
        if place.asked.is_none() {
            return false;
        }
        self.next_id = id.wrapping_add(1);
        self.in_flight += 1;
        self.unsent.push_back(id);
        true
    }

    /// Whether a request waits to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends what is waiting, as far as possible.
    pub(super) fn send(&mut self, clock: Clock, measured: &mut Measured) -> Result<(), Error> {
        while let Some(&id) = self.unsent.front() {
            let at = self.place(id);
            let place = &mut self.places[at];
            let bytes = self.way.send(&place.request)?;
            if bytes == 0 {
                return Ok(());
            }
            measured.sent += bytes as u64;
            place.sent_at_ns = clock.now_ns();
            self.unsent.pop_front();
        }
        Ok(())
    }

    /// Receives all datagrams into `input`. Those of an own stack arrive at all of its ports alike;
    /// they are passed to [`hear`](Self::hear).
    pub(super) fn receive(
        &mut self,
        input: &mut [u8],
        clock: Clock,
        measured: &mut Measured,
    ) -> Result<(), Error> {
        loop {
            let Way::Kernel(socket) = &self.way else {
                return Ok(());
            };
            let bytes = match recv(socket, &mut *input, RecvFlags::empty()) {
                Ok((bytes, _)) => bytes,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(Error::Io(error.into())),
            };
            self.hear(&input[..bytes], clock, measured)?;
        }
    }

    /// Handles a datagram from the server.
    pub(super) fn hear(
        &mut self,
        datagram: &[u8],
        clock: Clock,
        measured: &mut Measured,
    ) -> Result<(), Error> {
        measured.received += datagram.len() as u64;
        let Some((frame, part)) = datagram.split_first_chunk::<FRAME_LEN>() else {
            return Err(Error::unexpected(datagram));
        };
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let (id, number, parts) = (word(0), usize::from(word(2)), word(4));
        let at = usize::from(id) & (self.places.len() - 1);
        let place = &mut self.places[at];
        let Some(asked) = place.asked.as_mut().filter(|_| place.id == id) else {
            // Its request has been given up.
            return Ok(());
        };
        let start = number * PART_LEN;
        if place.reply.len() < start + part.len() {
            place.reply.resize(start + part.len(), 0);
        }
        place.reply[start..start + part.len()].copy_from_slice(part);
        place.parts += 1;
        if place.parts < parts {
            return Ok(());
        }
        let mut front = Front {
            asked,
            numbers: &mut place.numbers,
        };
        let mut replies = Replies::new(Dialect::Udp);
        let mut rest = &place.reply[..];
        loop {
            match replies.next(self.requests.plan(), &mut front, rest, measured) {
                Ok(Heard::Part(bytes)) => rest = &rest[bytes..],
                Ok(Heard::Reply(_)) => break,
                Ok(Heard::More) | Err(_) => return Err(Error::unexpected(rest)),
            }
        }
        let now_ns = clock.now_ns();
        let mut run = Run::default();
        run.count(asked.at_ns, now_ns, 1, measured);
        run.flush(now_ns, measured);
        measured.reply(asked.op);
        place.asked = None;
        self.in_flight -= 1;
        Ok(())
    }

    /// Gives up requests that have waited too long. They count as replies that took that long, so
    /// that losses do not improve the latencies.
    pub(super) fn give_up(&mut self, now_ns: u64, measured: &mut Measured) {
        for place in &mut self.places {
            if now_ns.saturating_sub(place.sent_at_ns) > Self::PATIENCE_NS
                && let Some(asked) = place.asked.take()
            {
                measured.lost += 1;
                measured.record(now_ns.saturating_sub(asked.at_ns), 1);
                self.in_flight -= 1;
            }
        }
    }
}
