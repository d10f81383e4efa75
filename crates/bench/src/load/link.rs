//! A connection of either kind: a stream or datagrams.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use coua_transport::{Source, Stream};

use super::clock::Clock;
use super::connection::Connection;
use super::datagrams::{Datagrams, Way};
use super::error::Error;
use super::measured::Measured;
use super::plan::Dialect;
use super::requests::Requests;
use crate::target::Target;

/// Where requests are sent and replies are received.
#[derive(Debug)]
pub(super) enum Link {
    /// Bytes in order.
    Stream(Connection),
    /// Datagrams.
    Datagrams(Datagrams),
}

/// The poller's token for things that are no link, such as a timer. A link's token is its place
/// among those of its thread.
pub(super) const NO_LINK: u64 = u64::MAX;

impl Link {
    /// Opens a link for up to `depth` requests in flight, and passes it to `watch`.
    pub(super) fn open(
        target: &Target,
        requests: Requests,
        depth: usize,
        watch: impl FnOnce(Source<'_>) -> io::Result<()>,
    ) -> io::Result<Link> {
        if requests.plan().dialect == Dialect::Udp {
            let socket = target.connect_datagrams()?;
            socket.set_nonblocking(true)?;
            watch(Source::Kernel(socket.as_fd()))?;
            let way = Way::Kernel(socket);
            return Ok(Link::Datagrams(Datagrams::new(way, requests, depth)));
        }
        let stream = target.connect()?;
        stream.set_nonblocking(true)?;
        let stream = Stream::from(OwnedFd::from(stream));
        watch((&stream).into())?;
        Ok(Link::Stream(Connection::new(stream, requests)))
    }

    /// Requests without a reply.
    #[inline]
    pub(super) fn in_flight(&self) -> usize {
        match self {
            Link::Stream(connection) => connection.in_flight(),
            Link::Datagrams(datagrams) => datagrams.in_flight(),
        }
    }

    /// Prepares one request, to be sent by [`send`](Self::send). False if that is not possible now.
    #[inline]
    pub(super) fn ask(&mut self, at_ns: u64) -> bool {
        match self {
            Link::Stream(connection) => connection.ask(at_ns),
            Link::Datagrams(datagrams) => datagrams.ask(at_ns),
        }
    }

    /// Sends what is waiting, as far as the socket takes it.
    #[inline]
    pub(super) fn send(&mut self, clock: Clock, measured: &mut Measured) -> Result<(), Error> {
        match self {
            Link::Stream(connection) => connection.send(measured),
            Link::Datagrams(datagrams) => datagrams.send(clock, measured),
        }
    }

    /// Notes that the server has ended a stream.
    pub(super) fn note_end(&mut self) {
        if let Link::Stream(connection) = self {
            connection.note_end();
        }
    }

    /// Receives what has arrived.
    #[inline]
    pub(super) fn receive(
        &mut self,
        input: &mut Vec<u8>,
        clock: Clock,
        measured: &mut Measured,
    ) -> Result<(), Error> {
        match self {
            Link::Stream(connection) => connection.receive(input, clock, measured),
            Link::Datagrams(datagrams) => datagrams.receive(input, clock, measured),
        }
    }

    /// Whether a datagram waits to be sent. For a stream, the poller reports when there is room.
    pub(super) fn has_unsent(&self) -> bool {
        match self {
            Link::Stream(_) => false,
            Link::Datagrams(datagrams) => datagrams.has_unsent(),
        }
    }

    /// Handles a datagram that came over an own stack.
    pub(super) fn hear(
        &mut self,
        datagram: &[u8],
        clock: Clock,
        measured: &mut Measured,
    ) -> Result<(), Error> {
        match self {
            Link::Stream(_) => Ok(()),
            Link::Datagrams(datagrams) => datagrams.hear(datagram, clock, measured),
        }
    }

    /// Gives up requests that have waited too long, if replies may be lost.
    pub(super) fn give_up(&mut self, now_ns: u64, measured: &mut Measured) {
        if let Link::Datagrams(datagrams) = self {
            datagrams.give_up(now_ns, measured);
        }
    }
}
