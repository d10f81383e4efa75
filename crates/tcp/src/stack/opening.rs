//! How connections begin: by a peer's SYN, by a SYN cookie, or by [`Stack::connect`].

use std::net::SocketAddr;

use super::link::LinkAddress;
use super::outgoing::Reply;
use super::{ConnectionId, Failure, Stack};
use crate::connection::{
    Connection, ConnectionFlags, Offer, Path, Payload, State, first_window, headers_len, offer,
    own_shift,
};
use crate::nic::Nic;
use crate::secrets;
use crate::table::Hash;
use crate::wire::Address;
use crate::wire::four_tuple::FourTuple;
use crate::wire::tcp::{Flags, Header, Options, Timestamps};

/// How long after the last cookie was sent one may still come back, in microseconds.
const COOKIES_FOR: u64 = 130_000_000;

/// The most local ports tried for an outgoing connection.
const PORTS_TRIED: u64 = 4096;

/// A segment for which there is no connection.
pub(super) struct Incoming<'f> {
    pub(super) tuple: FourTuple,
    pub(super) hash: Hash,
    pub(super) link: LinkAddress,
    pub(super) header: Header,
    pub(super) payload: Payload<'f>,
    /// The whole frame.
    pub(super) frame: &'f [u8],
}

/// The outcome of an acknowledgment that may carry a SYN cookie.
enum Resumed {
    /// A connection has begun.
    Yes,
    /// It carries no cookie, or one that is too old.
    NoCookie,
    /// All places are in use.
    NoRoom,
}

/// Why a connection cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// None of our addresses is in the remote address's network, and there is no gateway.
    NoRoute,
    /// The limit of connections is reached, or memory is short.
    Full,
    /// All ports that were tried are in use for connections to the same remote address and port, or
    /// may not be used.
    NoPort,
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ConnectError::NoRoute => "no address of this stack reaches it, and there is no gateway",
            ConnectError::Full => "there are as many connections as there may be",
            ConnectError::NoPort => "no port is free",
        })
    }
}

impl std::error::Error for ConnectError {}

impl Stack {
    /// Opens a connection; [`Stack::next_ready`] reports when it is established or has failed.
    ///
    /// `may_use` says which local ports may be used: with several queues, those for which the
    /// peer's segments come to this worker's queue.
    ///
    /// # Errors
    /// [`ConnectError`]: no route, no room, or no port that may be used.
    pub fn connect(
        &mut self,
        to: SocketAddr,
        mut may_use: impl FnMut(&FourTuple) -> bool,
    ) -> Result<ConnectionId, ConnectError> {
        let remote = Address::from(to.ip());
        let config = &self.shared.config;
        let local = config.source_for(remote).ok_or(ConnectError::NoRoute)?;
        config.next_hop(remote).ok_or(ConnectError::NoRoute)?;
        let mut tuple = FourTuple {
            local,
            remote,
            local_port: 0,
            remote_port: to.port(),
        };
        let (first, last) = config.ephemeral_ports;
        let count = u64::from(last.saturating_sub(first)) + 1;
        let offset = self.shared.secrets.port_offset(&tuple);
        let hash = (0..count.min(PORTS_TRIED)).find_map(|_| {
            // RFC 6056, section 3.3.3: an outsider cannot predict the next port.
            let step = offset.wrapping_add(self.port_counter) % count;
            self.port_counter = self.port_counter.wrapping_add(1);
            tuple.local_port = first + u16::try_from(step).expect("below the count");
            let hash = self.table.hash(&tuple);
            (may_use(&tuple) && self.find(&tuple, hash).is_none()).then_some(hash)
        });
        let hash = hash.ok_or(ConnectError::NoPort)?;
        if !self.make_room() {
            return Err(ConnectError::Full);
        }
        let path = Path {
            mac: None,
            vlan: self.shared.config.vlan,
            mtu: self.shared.features.mtu,
        };
        let mut connection = Connection::new(tuple, hash, path, &self.shared);
        if !connection.open(&mut self.shared) {
            return Err(ConnectError::Full);
        }
        let index = self.insert(connection);
        self.list_to_emit(index);
        Ok(self.id_of(index))
    }

    /// Handles a segment for which there is no connection (RFC 9293, sections 3.10.7.1 and
    /// 3.10.7.2).
    pub(super) fn take_incoming(&mut self, nic: &impl Nic, incoming: &Incoming<'_>) {
        let header = &incoming.header;
        let listens = self.listens_at.contains(&incoming.tuple.local_port);
        let flags = header.flags;
        if flags.has(Flags::RST) {
            self.shared.counters.dropped_no_connection += 1;
            self.pass_on(incoming.frame, incoming.tuple.remote);
        } else if listens && flags.has(Flags::SYN) && !flags.has(Flags::ACK) {
            match self.ignores_openings {
                true => self.shared.counters.dropped_no_connection += 1,
                false => self.take_syn(incoming),
            }
        } else if listens
            && flags.has(Flags::ACK)
            && !flags.has(Flags::SYN)
            && self.shared.now < self.cookies_until
        {
            match self.resume_from_cookie(nic, incoming) {
                Resumed::Yes => self.shared.counters.cookies_accepted += 1,
                // A later segment may have overtaken the one that carries the cookie. A reset would
                // end a connection that is just being opened.
                Resumed::NoCookie => {
                    self.shared.counters.dropped_no_connection += 1;
                    self.pass_on(incoming.frame, incoming.tuple.remote);
                }
                Resumed::NoRoom => {
                    self.shared.counters.refused_full += 1;
                    let (tuple, link) = (incoming.tuple, incoming.link);
                    self.reset(&tuple, link, header, incoming.payload.bytes.len());
                }
            }
        } else if listens && !flags.has(Flags::ACK) {
            self.shared.counters.dropped_no_connection += 1;
        } else {
            self.shared.counters.dropped_no_connection += 1;
            if self.pass_on(incoming.frame, incoming.tuple.remote) {
                return;
            }
            let (tuple, link) = (incoming.tuple, incoming.link);
            self.reset(&tuple, link, header, incoming.payload.bytes.len());
        }
    }

    fn take_syn(&mut self, incoming: &Incoming<'_>) {
        let header = &incoming.header;
        let offer = offer(header, incoming.tuple.remote.is_v4());
        // Half-open connections take at most half the places, so that a peer that proves its
        // address with a cookie finds room.
        let config = &self.shared.config;
        let half_open_max = config.half_open_max.min(config.connections_max.div_ceil(2));
        if self.half_open >= half_open_max || !self.make_room() {
            self.send_cookie(incoming, offer);
            return;
        }
        let mut connection = self.connection_for(incoming);
        if !connection.accept(&mut self.shared, header.seq, offer) {
            self.shared.counters.refused_full += 1;
            return;
        }
        connection.flags.set(ConnectionFlags::HALF_OPEN);
        self.half_open += 1;
        let index = self.insert(connection);
        self.list_to_emit(index);
    }

    fn connection_for(&self, incoming: &Incoming<'_>) -> Connection {
        let path = Path {
            mac: Some(incoming.link.mac),
            vlan: incoming.link.vlan,
            mtu: self.shared.features.mtu,
        };
        Connection::new(incoming.tuple, incoming.hash, path, &self.shared)
    }

    /// Answers a SYN with a cookie and keeps no state for it.
    fn send_cookie(&mut self, incoming: &Incoming<'_>, offer: Offer) {
        let now = self.shared.now;
        let (tuple, header) = (&incoming.tuple, &incoming.header);
        let secrets = &self.shared.secrets;
        let cookie = secrets.cookie(tuple, header.seq, offer.mss, now);
        let offset = secrets.timestamp_offset(tuple);
        let mut options = Options {
            mss: Some(self.shared.features.mtu - headers_len(tuple.remote.is_v4())),
            ..Options::default()
        };
        let offer = Offer {
            sack: offer.sack && self.shared.config.sack,
            timestamp: offer.timestamp.filter(|_| self.shared.config.timestamps),
            ..offer
        };
        if let Some(value) = offer.timestamp {
            let told = secrets::cookie_timestamp(now, offer.window_scale, offer.sack);
            options.timestamps = Some(Timestamps {
                value: told.wrapping_add(offset),
                echo: value,
            });
            // The client's timestamp echo returns these; without timestamps they would be lost.
            options.window_scale = offer.window_scale.map(|_| own_shift(&self.shared.config));
            options.sack_permitted = offer.sack;
        }
        let reply = Header {
            source: tuple.local_port,
            destination: tuple.remote_port,
            seq: cookie,
            ack: header.seq + 1,
            flags: Flags::SYN.and(Flags::ACK),
            window: first_window(&self.shared.config),
            options,
        };
        self.shared.counters.cookies_sent += 1;
        self.cookies_until = now.after(COOKIES_FOR);
        self.reply(Reply {
            link: incoming.link,
            local: tuple.local,
            remote: tuple.remote,
            header: reply,
        });
    }

    /// Begins a connection whose cookie has come back.
    fn resume_from_cookie(&mut self, nic: &impl Nic, incoming: &Incoming<'_>) -> Resumed {
        let (tuple, header) = (&incoming.tuple, &incoming.header);
        let (irs, iss) = (header.seq - 1, header.ack - 1);
        let secrets = &self.shared.secrets;
        let Some(cookie) = secrets.open_cookie(tuple, irs, iss, self.shared.now) else {
            return Resumed::NoCookie;
        };
        let mut offer = Offer {
            mss: cookie.mss,
            window_scale: None,
            sack: false,
            timestamp: None,
            // The cookie does not carry it.
            ecn: false,
        };
        if let Some(timestamps) = header.options.timestamps {
            let offset = secrets.timestamp_offset(tuple);
            let told = secrets::open_cookie_timestamp(timestamps.echo.wrapping_sub(offset));
            (offer.window_scale, offer.sack) = told;
            offer.timestamp = Some(timestamps.value);
        }
        if !self.make_room_for_proven() {
            return Resumed::NoRoom;
        }
        let mut connection = self.connection_for(incoming);
        connection.resume(&self.shared, (irs, iss), offer);
        let index = self.insert(connection);
        self.arrive(nic, index, incoming);
        Resumed::Yes
    }

    /// Delivers the segment to the connection that was just made for it.
    fn arrive(&mut self, nic: &impl Nic, index: u32, incoming: &Incoming<'_>) {
        let connection = &mut self.connections[index as usize];
        let arrived = connection.arrives(&mut self.shared, nic, &incoming.header, incoming.payload);
        if connection.has_fresh() {
            self.fresh.push(index);
        }
        if arrived == crate::connection::Arrived::Opened {
            self.opened(index);
        }
        self.after_change(index);
        self.list_to_emit(index);
    }

    /// Whether the answer to an outgoing SYN arrived on another stack's queue, as all later
    /// segments would. The attempt fails then; from another local port the answer may arrive on
    /// this queue.
    pub(super) fn is_misdirected(&mut self, index: u32, header: &Header) -> bool {
        let connection = &mut self.connections[index as usize];
        let is_misdirected = self.strays.is_stray()
            && connection.state == State::SynSent
            && header.flags.has(Flags::SYN);
        if is_misdirected {
            connection.abort(&mut self.shared, Failure::Misdirected);
            self.after_change(index);
            self.list_to_emit(index);
        }
        is_misdirected
    }

    /// Reports a connection whose handshake is done.
    pub(super) fn opened(&mut self, index: u32) {
        let id = self.id_of(index);
        let connection = &self.connections[index as usize];
        if connection.flags.has(ConnectionFlags::PASSIVE) {
            self.shared.counters.accepted += 1;
            self.accepted.push_back(id);
            if connection.is_readable() {
                self.list_ready(index);
            }
        } else {
            self.shared.counters.connected += 1;
            self.list_ready(index);
        }
    }

    /// Ends a connection in TIME-WAIT in favour of its successor.
    pub(super) fn supersede(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        connection.state = State::Closed;
        if connection.flags.has(ConnectionFlags::ORPHAN) {
            self.remove(index);
        } else {
            self.after_change(index);
        }
    }
}
