//! What the user of a stack does between [`Stack::begin`] and [`Stack::end`].

use std::net::{IpAddr, SocketAddr};

use super::link::LinkAddress;
use super::{ConnectError, ConnectionId, Failure, Stack};
use crate::connection::{Connection, ConnectionFlags, State};
use crate::nic::Nic;
use crate::wire::Address;
use crate::wire::four_tuple::FourTuple;

/// The outcome of an attempt to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// This many bytes were read, at least one.
    Bytes(usize),
    /// Nothing is there at the moment.
    Nothing,
    /// The peer has sent everything.
    Ended,
    /// The connection has failed, or does not exist.
    Failed(Failure),
}

/// What a connection is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The user's name for the connection: see [`Stack::set_tag`].
    pub tag: u64,
    /// There are bytes to read, or the end of the stream has been reached.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// The peer sends no more; what it sent before can still be read.
    pub ended: bool,
    /// Why it ended, if not by an orderly close.
    pub failure: Option<Failure>,
}

/// A datagram that arrived in this turn.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    pub(super) tuple: FourTuple,
    pub(super) link: LinkAddress,
    /// The frame's number in its burst.
    pub(super) frame: u16,
    /// Where in the frame the payload begins, and its length in bytes.
    pub(super) start: u16,
    pub(super) len: u16,
}

impl Datagram {
    /// Its payload. It is valid only until [`Stack::end`].
    #[inline]
    pub fn bytes<'n>(&self, nic: &'n impl Nic) -> &'n [u8] {
        let (start, len) = (usize::from(self.start), usize::from(self.len));
        &nic.frame(usize::from(self.frame)).bytes[start..][..len]
    }

    /// Where it came from.
    #[inline]
    pub fn source(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::from(self.tuple.remote), self.tuple.remote_port)
    }

    /// Which of our addresses it came to.
    pub fn destination(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::from(self.tuple.local), self.tuple.local_port)
    }
}

/// A connection as statistics show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Its state.
    pub state: State,
    /// Bytes received and not read.
    pub unread: u32,
    /// Bytes taken from the user and not acknowledged by the peer.
    pub unacknowledged: u32,
    /// The smoothed round-trip time, in microseconds; 0 where nothing was measured.
    pub rtt_us: u32,
    /// The congestion window, in bytes.
    pub window: u32,
}

impl Stack {
    /// A connection that a peer has opened and the user has not taken yet.
    pub fn next_accepted(&mut self) -> Option<ConnectionId> {
        loop {
            let id = self.accepted.pop_front()?;
            if self.index_of(id).is_some() {
                return Some(id);
            }
        }
    }

    /// Whether there may be such a connection.
    pub fn has_accepted(&self) -> bool {
        !self.accepted.is_empty()
    }

    /// The tag of a connection while its user has set none.
    pub const NO_TAG: u64 = Connection::NO_TAG;

    /// Sets the user's name for a connection.
    pub fn set_tag(&mut self, id: ConnectionId, tag: u64) {
        if let Some(index) = self.index_of(id) {
            self.connections[index].tag = tag;
        }
    }

    /// A connection whose readiness has changed, and its readiness. It is not named again until
    /// something changes again.
    pub fn next_ready(&mut self) -> Option<(ConnectionId, Readiness)> {
        loop {
            let index = self.ready.pop_front()?;
            let connection = &mut self.connections[index as usize];
            if connection.flags.has(ConnectionFlags::LISTED_READY) {
                connection.flags.clear(ConnectionFlags::LISTED_READY);
                return Some((self.id_of(index), self.readiness_at(index as usize)));
            }
        }
    }

    /// The present readiness of a connection, whether or not it has changed; `None` if there is no
    /// such connection.
    pub fn readiness(&self, id: ConnectionId) -> Option<Readiness> {
        self.index_of(id).map(|index| self.readiness_at(index))
    }

    fn readiness_at(&self, index: usize) -> Readiness {
        let connection = &self.connections[index];
        Readiness {
            tag: connection.tag,
            readable: connection.is_readable(),
            // Only a user who waits for room needs the exact answer.
            writable: !connection.flags.has(ConnectionFlags::WANTS_ROOM)
                || connection.send_room(&self.shared) > 0,
            ended: connection.flags.has(ConnectionFlags::PEER_ENDED),
            failure: connection.failure,
        }
    }

    /// Whether a datagram of this turn waits to be taken.
    pub fn has_datagrams(&self) -> bool {
        !self.datagrams.is_empty()
    }

    /// The next datagram of this turn.
    #[inline]
    pub fn next_datagram(&mut self) -> Option<Datagram> {
        self.datagrams.pop_front()
    }

    /// Copies out what was received.
    pub fn receive(&mut self, nic: &impl Nic, id: ConnectionId, space: &mut [u8]) -> Received {
        let Some(index) = self.index_of(id) else {
            return Received::Failed(Failure::Aborted);
        };
        let connection = &mut self.connections[index];
        if connection.receive.unread > 0 && !space.is_empty() {
            let len = connection.read(&mut self.shared, nic, space);
            if connection.has_opened(&self.shared) {
                connection.flags.set(ConnectionFlags::ACK_NOW);
                self.list_to_emit(id.index);
            }
            return Received::Bytes(len);
        }
        match connection.failure {
            Some(failure) => Received::Failed(failure),
            None if connection.flags.has(ConnectionFlags::PEER_ENDED)
                || connection.state == State::Closed =>
            {
                Received::Ended
            }
            None => Received::Nothing,
        }
    }

    /// Bytes that were received and not read.
    pub fn unread(&self, id: ConnectionId) -> usize {
        self.index_of(id)
            .map_or(0, |index| self.connections[index].receive.unread as usize)
    }

    /// Takes bytes to be sent and returns how many it took. If that is not all,
    /// [`Stack::next_ready`] reports when there is room again.
    ///
    /// # Errors
    /// [`Failure`]: why the connection has ended, or [`Failure::Aborted`] if it takes no more
    /// bytes.
    pub fn send(&mut self, id: ConnectionId, bytes: &[u8]) -> Result<usize, Failure> {
        let Some(index) = self.index_of(id) else {
            return Err(Failure::Aborted);
        };
        let connection = &mut self.connections[index];
        if let Some(failure) = connection.failure {
            return Err(failure);
        }
        if !matches!(
            connection.state,
            State::Established | State::CloseWait | State::SynSent | State::SynReceived
        ) {
            return Err(Failure::Aborted);
        }
        let taken = connection.enqueue(&mut self.shared, bytes);
        if taken < bytes.len() {
            connection.flags.set(ConnectionFlags::WANTS_ROOM);
            if connection.send_room(&self.shared) > 0 {
                let holds_nothing = connection.send.head.is_none();
                self.wait_for_memory(id.index);
                if holds_nothing {
                    self.note_refused(id.index);
                }
            }
        }
        if taken > 0 {
            self.list_to_emit(id.index);
        }
        Ok(taken)
    }

    /// Like [`Stack::send`], for the last bytes of this turn: a short reply leaves at once if
    /// nothing waits before it.
    ///
    /// # Errors
    /// As of [`Stack::send`].
    #[inline]
    pub fn send_now(
        &mut self,
        nic: &mut impl Nic,
        id: ConnectionId,
        bytes: &[u8],
    ) -> Result<usize, Failure> {
        if let Some(index) = self.index_of(id)
            && self.connections[index].try_reply_fast(&mut self.shared, nic, bytes)
        {
            // Its timer is set at the end of the turn.
            self.list_to_emit(id.index);
            return Ok(bytes.len());
        }
        self.send(id, bytes)
    }

    /// Answers a datagram with another, made of pieces. False if it is too long, or the card's
    /// queue has no room.
    pub fn answer(&mut self, nic: &mut impl Nic, to: &Datagram, pieces: &[&[u8]]) -> bool {
        self.emit_datagram(nic, to.link, &to.tuple, pieces)
    }

    /// Sends a datagram that answers none, made of pieces, from a port on which datagrams are
    /// received from then on. False if it is not sent, as with [`Stack::answer`], or because the
    /// next hop's MAC address is not known yet; it is asked for then.
    ///
    /// # Errors
    /// [`ConnectError`]: no route.
    pub fn ask(
        &mut self,
        nic: &mut impl Nic,
        from: u16,
        to: SocketAddr,
        pieces: &[&[u8]],
    ) -> Result<bool, ConnectError> {
        let remote = Address::from(to.ip());
        let config = &self.shared.config;
        let local = config.source_for(remote).ok_or(ConnectError::NoRoute)?;
        let hop = config.next_hop(remote).ok_or(ConnectError::NoRoute)?;
        let vlan = config.vlan;
        self.listen_for_datagrams(from);
        let Some(mac) = self.neighbours.find(hop, self.shared.now) else {
            return Ok(false);
        };
        let tuple = FourTuple {
            local,
            remote,
            local_port: from,
            remote_port: to.port(),
        };
        Ok(self.emit_datagram(nic, LinkAddress { mac, vlan }, &tuple, pieces))
    }

    /// The user sends no more but still receives.
    pub fn shut_down(&mut self, id: ConnectionId) {
        if let Some(index) = self.index_of(id) {
            let connection = &mut self.connections[index];
            if connection.state == State::SynSent || !connection.end(&mut self.shared) {
                connection.abort(&mut self.shared, Failure::Aborted);
                self.after_change(id.index);
            }
            self.list_to_emit(id.index);
        }
    }

    /// The user is done: bytes that were taken are still sent, and nothing more is received. The id
    /// is invalid from now on.
    pub fn close(&mut self, id: ConnectionId) {
        let Some(index) = self.index_of(id) else {
            return;
        };
        let connection = &mut self.connections[index];
        // Closing with unread data sends a reset (RFC 2525, section 2.17).
        let is_abrupt = connection.receive.unread > 0 || !connection.is_open();
        if is_abrupt || !connection.end(&mut self.shared) {
            connection.abort(&mut self.shared, Failure::Aborted);
        }
        self.forsake(id.index);
    }

    /// The user is done, and the peer gets a reset.
    pub fn abort(&mut self, id: ConnectionId) {
        if let Some(index) = self.index_of(id) {
            self.connections[index].abort(&mut self.shared, Failure::Aborted);
            self.forsake(id.index);
        }
    }

    /// Whether a connection that the user is done with has sent what the peer has not acknowledged.
    /// It looks at all connections.
    pub fn has_sending_orphans(&self) -> bool {
        self.connections.iter().any(|connection| {
            connection.flags.has(ConnectionFlags::ORPHAN)
                && connection.state != State::Closed
                && connection.send.end != connection.send.una
        })
    }

    fn forsake(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        connection.tag = Stack::NO_TAG;
        connection.flags.set(ConnectionFlags::ORPHAN);
        connection.flags.clear(ConnectionFlags::LISTED_READY);
        connection.forget_unread(&mut self.shared);
        connection.set_orphans_end(&self.shared);
        if connection.state != State::Closed {
            self.note_orphan(index);
        }
        self.list_to_emit(index);
    }

    /// A connection as statistics show it.
    pub fn describe(&self, id: ConnectionId) -> Option<Description> {
        let connection = &self.connections[self.index_of(id)?];
        let tuple = &connection.tuple;
        Some(Description {
            local: SocketAddr::new(tuple.local.into(), tuple.local_port),
            remote: SocketAddr::new(tuple.remote.into(), tuple.remote_port),
            state: connection.state,
            unread: connection.receive.unread,
            unacknowledged: connection.send.end.since(connection.send.una),
            rtt_us: connection.rtt.smoothed,
            window: connection.congestion.window(),
        })
    }
}
