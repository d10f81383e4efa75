//! A connection of either kind.

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

/// Where requests go and replies come from.
#[derive(Debug)]
pub(super) enum Link {
    /// Bytes in order.
    Stream(Connection),
    /// Datagrams.
    Datagrams(Datagrams),
}

/// The poller's token for what is no link, such as a timer. A link's token is its place among those of
/// its thread.
pub(super) const NO_LINK: u64 = u64::MAX;

impl Link {
    /// Opens one for up to `depth` requests in flight, and hands it to `watch`.
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

    /// Writes one request, to be sent with [`send`](Self::send); false where that cannot be now.
    #[inline]
    pub(super) fn ask(&mut self, at_ns: u64) -> bool {
        match self {
            Link::Stream(connection) => connection.ask(at_ns),
            Link::Datagrams(datagrams) => datagrams.ask(at_ns),
        }
    }

    /// Sends what waits, as far as the socket takes it.
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

    /// Reads what is there.
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

    /// Whether a datagram waits to be sent. Of a stream something says when there is room.
    pub(super) fn has_unsent(&self) -> bool {
        match self {
            Link::Stream(_) => false,
            Link::Datagrams(datagrams) => datagrams.has_unsent(),
        }
    }

    /// Takes in a datagram that came over a stack of our own.
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

    /// Gives up what has waited too long where replies may be lost.
    pub(super) fn give_up(&mut self, now_ns: u64, measured: &mut Measured) {
        if let Link::Datagrams(datagrams) = self {
            datagrams.give_up(now_ns, measured);
        }
    }
}
