//! The server's side: requests come in as frames, values are fetched, replies are written.
//!
//! A worker has one [`Server`] for all its connections. Nothing here waits. The worker polls its fabric, hands each
//! completion to [`Server::take`], and acts on the events: it executes requests and answers them.
//!
//! # Invariants
//! - The receive buffers that connections can fill are no more than there are: a connection is admitted only with
//!   credits that are left, and who sends more frames than it has credits for is disconnected.
//! - What a client says is checked before it is used: lengths, offsets, the order of its frames. Of its keys and
//!   addresses the network checks what they give access to; a wrong one ends that client's connection alone.
//! - Memory that the network may read or write stays held (`K`) until its work has come back.

mod connection;
mod request;

use crate::fabric::{Completion, Fabric, Gather, PeerId, Refused, Remote, Span, Work};
use crate::limits::{Limits, REPLY_COPY_MAX};
use crate::wire::{self, BadFrame, Frame, GRANTS_MAX, Immediate, RequestHeader};

use connection::Connection;
pub use connection::{ConnectionCounts, RemoteMemory};
use request::{Reply, Request, Stage};

/// Names a request of a server. It is not used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    index: u32,
    generation: u32,
}

/// What a worker has to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A request has come. Without a value of its own it can be executed at once. Else the worker makes room for the
    /// value ([`Server::receive_value`]), and waits for [`ServerEvent::Arrived`].
    Request {
        /// Its name.
        request: RequestId,
        /// From whom.
        peer: PeerId,
        /// The command. Its frame is given back by [`Server::release`].
        command: Span,
        /// The beginning of the value, in the same frame.
        early: Span,
        /// Bytes of the value that does not stand in the command; 0 for none.
        value_len: usize,
        /// How many of them come in frames: the worker copies those to their place.
        early_len: usize,
    },
    /// More of a value's beginning has come, to be copied and given back by [`Server::release`].
    Early {
        /// Of which request.
        request: RequestId,
        /// Where in the value.
        offset: usize,
        /// The bytes.
        bytes: Span,
    },
    /// All of a value is there.
    Arrived {
        /// Whose.
        request: RequestId,
    },
    /// The connection of a request has ended before it was answered. What was begun for it is to be given up.
    Abandoned {
        /// Which.
        request: RequestId,
    },
    /// A client has done what no client may. Its connection ends.
    Misbehaved {
        /// Who.
        peer: PeerId,
        /// What.
        how: Misbehaviour,
    },
    /// A connection has ended; its number can be used again.
    Closed {
        /// Which.
        peer: PeerId,
    },
}

/// What no client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misbehaviour {
    /// It sent something that is no frame.
    #[error(transparent)]
    Frame(#[from] BadFrame),
    /// It sent more frames than it has credits for.
    #[error("more frames than credits")]
    Credits,
    /// It asked for a reply outside of the memory that it lends.
    #[error("a reply outside of the lent memory")]
    Area,
    /// Its value is too long for any item.
    #[error("a value that is too long")]
    TooLong,
    /// It sent more of a value that nobody waits for, or in another order.
    #[error("a part of a value that nobody waits for")]
    Part,
    /// It wrote where nothing was granted to it.
    #[error("a write that was not granted")]
    Write,
    /// It took back that a part of a value is ready.
    #[error("less is ready than before")]
    Ready,
}

/// A server has no room for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all receive buffers are promised to other connections")]
pub struct Full;

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Connections that were made.
    pub connections: u64,
    /// Connections that ended since their client misbehaved.
    pub misbehaved: u64,
    /// Requests.
    pub requests: u64,
    /// Requests whose values came, in part at least, by reading the client's memory.
    pub fetched: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Requests whose values were written, in part at least, by their clients.
    pub pushed: u64,
    /// Bytes of values that came in frames of their own.
    pub bytes_early: u64,
    /// Replies that were copied.
    pub replies_copied: u64,
    /// Replies that were sent from where they lay.
    pub replies_gathered: u64,
    /// Bytes of replies.
    pub bytes_written: u64,
    /// Replies that were longer than the client has room for.
    pub too_long: u64,
}

/// One worker's connections. `K` is what keeps memory in its place while the network reads it: a pin of an item.
pub struct Server<K> {
    limits: Limits,
    connections: Vec<Option<Connection>>,
    requests: Vec<Slot<K>>,
    free_requests: Vec<u32>,
    /// Buffers for replies that are copied.
    reply_buffers: Vec<Span>,
    /// Receive buffers that nobody was promised.
    free_credits: usize,
    counts: ServerCounts,
}

struct Slot<K> {
    generation: u32,
    request: Option<Request<K>>,
}

/// What a token names beside a request: which of its works.
const TOKEN_READ: u64 = 1 << 63;
const TOKEN_GRANT: u64 = 1 << 30;

impl<K> Server<K> {
    /// A server whose fabric has `frames` receive buffers, and which copies replies into `reply_buffers`, each of
    /// [`REPLY_COPY_MAX`] bytes; there should be two for each frame.
    pub fn new(limits: Limits, frames: usize, reply_buffers: Vec<Span>) -> Server<K> {
        debug_assert!(reply_buffers.iter().all(|it| it.len >= REPLY_COPY_MAX));
        Server {
            limits,
            connections: Vec::new(),
            requests: Vec::new(),
            free_requests: Vec::new(),
            reply_buffers,
            free_credits: frames,
            counts: ServerCounts::default(),
        }
    }

    /// What a client is told.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What has happened so far.
    pub fn counts(&self) -> ServerCounts {
        self.counts
    }

    /// What has happened on one connection.
    pub fn connection_counts(&self, peer: PeerId) -> Option<ConnectionCounts> {
        self.connection(peer).map(|connection| connection.counts)
    }

    /// Connections.
    pub fn len(&self) -> usize {
        self.connections.iter().flatten().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests that were not answered yet, or whose replies are under way.
    pub fn requests_under_way(&self) -> usize {
        self.requests.len() - self.free_requests.len()
    }

    /// Whether there is room for another connection.
    pub fn has_room(&self) -> bool {
        self.free_credits >= self.limits.credits
    }

    /// Takes a connection on, of a client that lends `memory`. One that `may_write` is shown where its long values will
    /// lie, as long as they are its own alone, and writes them there: a trusted client's copies and the network's work
    /// go on at the same time.
    ///
    /// # Errors
    /// [`Full`] if its frames could need more buffers than there are.
    pub fn connect(
        &mut self,
        peer: PeerId,
        memory: RemoteMemory,
        may_write: bool,
    ) -> Result<(), Full> {
        if !self.has_room() {
            return Err(Full);
        }
        self.free_credits -= self.limits.credits;
        let at = peer.0 as usize;
        if self.connections.len() <= at {
            self.connections.resize_with(at + 1, || None);
        }
        self.connections[at] = Some(Connection::new(memory, may_write));
        self.counts.connections += 1;
        Ok(())
    }

    /// Ends a connection: its TCP connection has ended, or the server stops.
    pub fn disconnect(&mut self, fabric: &mut impl Fabric, peer: PeerId) {
        if let Some(connection) = self.connection_mut(peer)
            && !std::mem::replace(&mut connection.is_closing, true)
        {
            fabric.disconnect(peer);
        }
    }

    /// Deals with what has happened. Events are appended to `events`.
    pub fn take(
        &mut self,
        fabric: &mut impl Fabric,
        completion: Completion,
        events: &mut Vec<ServerEvent>,
    ) {
        match completion {
            Completion::Frame { peer, frame } => {
                if let Err(how) = self.take_frame(fabric, peer, frame, events) {
                    self.end_for(fabric, peer, how, events);
                }
            }
            Completion::Done { token } => self.take_done(fabric, token, true, events),
            Completion::Failed { token } => self.take_done(fabric, token, false, events),
            Completion::Written {
                peer, immediate, ..
            } => {
                if let Err(how) = self.take_pushed(fabric, peer, immediate, events) {
                    self.end_for(fabric, peer, how, events);
                }
            }
            Completion::Closed { peer } => self.forget(fabric, peer, events),
        }
    }

    fn end_for(
        &mut self,
        fabric: &mut impl Fabric,
        peer: PeerId,
        how: Misbehaviour,
        events: &mut Vec<ServerEvent>,
    ) {
        self.counts.misbehaved += 1;
        events.push(ServerEvent::Misbehaved { peer, how });
        self.disconnect(fabric, peer);
    }

    /// Gives the buffer of a command or of early bytes back.
    pub fn release(&mut self, fabric: &mut impl Fabric, frame: Span) {
        fabric.give_frame(frame);
    }

    /// Deals with a frame, whose buffer goes back unless an event names it.
    fn take_frame(
        &mut self,
        fabric: &mut impl Fabric,
        peer: PeerId,
        span: Span,
        events: &mut Vec<ServerEvent>,
    ) -> Result<(), Misbehaviour> {
        let credits = self.limits.credits;
        let Some(connection) = self.connection_mut(peer).filter(|it| !it.is_closing) else {
            fabric.give_frame(span);
            return Ok(());
        };
        connection.frames += 1;
        let is_too_many = connection.frames > credits;
        let taken = match wire::decode(fabric.bytes(span)) {
            _ if is_too_many => Err(Misbehaviour::Credits),
            Err(bad) => Err(bad.into()),
            Ok(Frame::Request {
                header,
                command,
                early,
            }) => {
                let (command_len, early_len) = (command.len(), early.len());
                let command = span.part(wire::REQUEST_LEN, command_len);
                let early = span.part(wire::REQUEST_LEN + command_len, early_len);
                self.begin(peer, &header, command, early, events)
            }
            Ok(Frame::Early {
                slot,
                generation,
                offset,
                bytes,
            }) => {
                let bytes = span.part(wire::EARLY_LEN, bytes.len());
                match self.receiving(peer, (slot, generation)) {
                    Some(id) => self.take_early(id, offset, bytes, events),
                    None => return self.take_stray(fabric, peer, span),
                }
            }
            Ok(Frame::Ready {
                slot,
                generation,
                ready_len,
            }) => {
                let Some(id) = self.receiving(peer, (slot, generation)) else {
                    return self.take_stray(fabric, peer, span);
                };
                let taken = self.take_ready(fabric, peer, id, ready_len);
                fabric.give_frame(span);
                return taken;
            }
        };
        if taken.is_err() {
            fabric.give_frame(span);
        }
        taken
    }

    /// A request begins.
    fn begin(
        &mut self,
        peer: PeerId,
        header: &RequestHeader,
        command: Span,
        early: Span,
        events: &mut Vec<ServerEvent>,
    ) -> Result<(), Misbehaviour> {
        let limits = self.limits;
        let connection = self.connection_mut(peer).ok_or(Misbehaviour::Part)?;
        let area_end = u64::from(header.area_offset) + u64::from(header.area_len);
        // Room at least for the length of a reply that does not fit.
        if area_end > connection.memory.len || header.area_len < 8 {
            return Err(Misbehaviour::Area);
        }
        if header.value_len as usize > limits.value_len_max {
            return Err(Misbehaviour::TooLong);
        }
        // Those that are answered but not acknowledged by the network yet are as many at most.
        if connection.requests.len() >= 2 * limits.credits {
            return Err(Misbehaviour::Credits);
        }
        connection.counts.requests += 1;
        self.counts.requests += 1;
        self.counts.fetched += u64::from(header.value_len > header.early_len);
        let request = Request::new(peer, *header, early.len);
        let is_whole = request.has_arrived();
        let id = self.insert(request);
        if let Some(connection) = self.connection_mut(peer) {
            connection.requests.push(id.index);
        }
        events.push(ServerEvent::Request {
            request: id,
            peer,
            command,
            early,
            value_len: header.value_len as usize,
            early_len: header.early_len as usize,
        });
        if header.value_len > 0 && is_whole {
            events.push(ServerEvent::Arrived { request: id });
        }
        Ok(())
    }

    /// The request of a connection that a later frame speaks of: the newest of its slot that waits for its value.
    fn receiving(&self, peer: PeerId, named: (u16, u8)) -> Option<RequestId> {
        let connection = self.connection(peer)?;
        connection.requests.iter().rev().find_map(|&index| {
            let slot = &self.requests[index as usize];
            let request = slot.request.as_ref()?;
            let is_it = (request.header.slot, request.header.generation) == named
                && matches!(request.stage, Stage::Receiving);
            is_it.then_some(RequestId {
                index,
                generation: slot.generation,
            })
        })
    }

    /// A frame belongs to a value that was refused meanwhile, or to none.
    fn take_stray(
        &mut self,
        fabric: &mut impl Fabric,
        peer: PeerId,
        frame: Span,
    ) -> Result<(), Misbehaviour> {
        fabric.give_frame(frame);
        let connection = self.connection_mut(peer).ok_or(Misbehaviour::Part)?;
        connection.frames -= 1;
        connection.strays = connection.strays.checked_sub(1).ok_or(Misbehaviour::Part)?;
        Ok(())
    }

    fn take_early(
        &mut self,
        id: RequestId,
        offset: u32,
        bytes: Span,
        events: &mut Vec<ServerEvent>,
    ) -> Result<(), Misbehaviour> {
        let request = self.request_mut(id).ok_or(Misbehaviour::Part)?;
        let offset = offset as usize;
        let is_next = offset == request.early_done
            && bytes.len > 0
            && offset + bytes.len <= request.header.early_len as usize;
        if !is_next {
            return Err(Misbehaviour::Part);
        }
        request.early_done += bytes.len;
        request.frames += 1;
        let is_whole = request.has_arrived();
        self.counts.bytes_early += bytes.len as u64;
        events.push(ServerEvent::Early {
            request: id,
            offset,
            bytes,
        });
        if is_whole {
            events.push(ServerEvent::Arrived { request: id });
        }
        Ok(())
    }

    fn take_ready(
        &mut self,
        fabric: &mut impl Fabric,
        peer: PeerId,
        id: RequestId,
        ready_len: u32,
    ) -> Result<(), Misbehaviour> {
        let request = self.request_mut(id).ok_or(Misbehaviour::Part)?;
        if ready_len < request.header.ready_len || ready_len > request.header.value_len {
            return Err(Misbehaviour::Ready);
        }
        request.header.ready_len = ready_len;
        request.frames += 1;
        self.go_on(fabric, peer);
        Ok(())
    }

    /// Says where a value is to lie: `places` follow one another from behind what comes in frames to its end. Its bytes
    /// are fetched from now on.
    ///
    /// # Panics
    /// If the places are not as long as what is to be fetched, for a request that waits for that.
    pub fn receive_value(
        &mut self,
        fabric: &mut impl Fabric,
        id: RequestId,
        places: impl IntoIterator<Item = Span>,
    ) {
        let Some(request) = self.request_mut(id) else {
            return;
        };
        request.places.extend(places);
        let room: usize = request.places.iter().map(|place| place.len).sum();
        assert_eq!(room, request.to_fetch(), "the places of a value");
        let peer = request.peer;
        if self
            .connection(peer)
            .is_some_and(|it| it.may_write && !it.is_closing)
        {
            self.grant(fabric, id);
        }
        self.go_on(fabric, peer);
    }

    /// Shows a client where to write the rest of a value that it still copies; or that the server will read it.
    fn grant(&mut self, fabric: &mut impl Fabric, id: RequestId) {
        let Some(request) = self.request_mut(id) else {
            return;
        };
        let (peer, header) = (request.peer, request.header);
        if header.ready_len == header.value_len {
            return;
        }
        let places = request.places.clone();
        let has_room = header.area_len as usize >= GRANTS_MAX * wire::GRANT_LEN;
        let mut granted = Vec::new();
        if has_room && places.len() <= GRANTS_MAX {
            granted.extend(places.iter().map_while(|place| fabric.grant(peer, *place)));
        }
        if granted.len() < places.len() {
            granted.drain(..).for_each(|one| fabric.revoke(one));
        }
        // There are two for each frame: one for this, one for the reply.
        let buffer = self.reply_buffers.pop().expect("a buffer for each grant");
        let mut bytes = Vec::new();
        for (one, place) in granted.iter().zip(&places) {
            bytes.extend(wire::encode_grant(*one, place.len));
        }
        if granted.is_empty() {
            let nothing = Remote { key: 0, address: 0 };
            bytes.extend(wire::encode_grant(nothing, 0));
        } else {
            self.counts.pushed += 1;
            fabric.expect_writes(peer, 1);
        }
        bytes.truncate(header.area_len as usize);
        let from = buffer.part(0, bytes.len());
        fabric.copy_in(from, &bytes);
        let (Some(request), Some(connection)) = (
            self.requests[id.index as usize].request.as_mut(),
            self.connections[peer.0 as usize].as_mut(),
        ) else {
            return;
        };
        request.granted = granted;
        request.grant_buffer = Some(buffer);
        let immediate = Immediate {
            slot: header.slot,
            generation: header.generation,
            part: 0,
            is_last: false,
            is_too_long: true,
        };
        let work = Work::Write {
            from: Gather::of(from),
            to: Remote {
                key: connection.memory.key,
                address: connection.memory.address + u64::from(header.area_offset),
            },
            immediate: Some(immediate.encode()),
        };
        let token = u64::from(id.generation) << 32 | u64::from(id.index) | TOKEN_GRANT;
        match fabric.post(peer, &work, token) {
            Ok(()) => connection.writes += 1,
            // Without an answer the client would wait for ever.
            Err(_) => {
                self.reply_buffers.push(buffer);
                request.grant_buffer = None;
                self.disconnect(fabric, peer);
            }
        }
    }

    /// A client has written the rest of a value.
    fn take_pushed(
        &mut self,
        fabric: &mut impl Fabric,
        peer: PeerId,
        immediate: u32,
        events: &mut Vec<ServerEvent>,
    ) -> Result<(), Misbehaviour> {
        let told = Immediate::decode(immediate);
        let named = (told.slot, told.generation);
        let id = self.receiving(peer, named).ok_or(Misbehaviour::Write)?;
        let request = self.request_mut(id).ok_or(Misbehaviour::Write)?;
        if request.granted.is_empty() || !told.is_last {
            return Err(Misbehaviour::Write);
        }
        for one in request.granted.drain(..) {
            fabric.revoke(one);
        }
        request.header.ready_len = request.header.value_len;
        if request.pushed() {
            events.push(ServerEvent::Arrived { request: id });
        }
        Ok(())
    }

    /// Answers a request with a copy of `bytes`, [`REPLY_COPY_MAX`] of them at most. One whose value is refused is
    /// answered before the value has a place; once it has one ([`Server::receive_value`]), after all of it has arrived.
    ///
    /// # Panics
    /// If they are more.
    pub fn reply(&mut self, fabric: &mut impl Fabric, id: RequestId, bytes: &[u8]) {
        let Some(request) = self.request_mut(id) else {
            return;
        };
        if bytes.len() > request.header.area_len as usize {
            return self.reply_too_long(fabric, id, bytes.len());
        }
        self.counts.replies_copied += 1;
        self.answer(fabric, id, bytes, &[], &[], None);
    }

    /// Answers a request with `head`, a value from where it lies, and `tail`. `keep` keeps the value there until the
    /// network has read it. Head and tail are copied; together they are [`REPLY_COPY_MAX`] bytes at most. Of a value in
    /// several pieces all but the last are at least as long as the longest part of a reply ([`Limits::part_len_max`]).
    ///
    /// # Panics
    /// If head and tail are longer, or pieces shorter.
    pub fn reply_from(
        &mut self,
        fabric: &mut impl Fabric,
        id: RequestId,
        (head, tail): (&[u8], &[u8]),
        value: &[Span],
        keep: K,
    ) {
        let Some(request) = self.request_mut(id) else {
            return;
        };
        let len = head.len() + tail.len() + value.iter().map(|part| part.len).sum::<usize>();
        if len > request.header.area_len as usize {
            return self.reply_too_long(fabric, id, len);
        }
        let part_len = self.limits.part_len_max();
        let all_but_last = value.iter().rev().skip(1);
        assert!(
            all_but_last.fold(true, |all, piece| all & (piece.len >= part_len)),
            "short pieces"
        );
        self.counts.replies_gathered += 1;
        self.answer(fabric, id, head, value, tail, Some(keep));
    }

    /// Tells a client how long its reply would be.
    fn reply_too_long(&mut self, fabric: &mut impl Fabric, id: RequestId, len: usize) {
        self.counts.too_long += 1;
        if let Some(request) = self.request_mut(id) {
            request.is_too_long = true;
        }
        self.answer(fabric, id, &(len as u64).to_le_bytes(), &[], &[], None);
    }

    fn answer(
        &mut self,
        fabric: &mut impl Fabric,
        id: RequestId,
        head: &[u8],
        value: &[Span],
        tail: &[u8],
        keep: Option<K>,
    ) {
        assert!(head.len() + tail.len() <= REPLY_COPY_MAX, "a long reply");
        // There are two for each frame, and a request that is under way has had a frame.
        let buffer = self.reply_buffers.pop().expect("a buffer for each reply");
        fabric.copy_in(buffer.part(0, head.len()), head);
        fabric.copy_in(buffer.part(head.len(), tail.len()), tail);
        let Some(request) = self.request_mut(id) else {
            return self.reply_buffers.push(buffer);
        };
        let peer = request.peer;
        for one in request.granted.drain(..) {
            fabric.revoke(one);
        }
        let is_early = !request.has_arrived();
        let mut pieces = std::mem::take(&mut request.places);
        pieces.clear();
        pieces.push(buffer.part(0, head.len()));
        pieces.extend(value);
        pieces.push(buffer.part(head.len(), tail.len()));
        pieces.retain(|piece| piece.len > 0);
        request.stage = Stage::Replying(Reply::new(pieces, buffer, keep));
        let credits = self.limits.credits;
        if is_early && let Some(connection) = self.connection_mut(peer) {
            // What the client sends of the value before it has the answer is nobody's.
            connection.strays += credits;
        }
        self.go_on(fabric, peer);
    }

    /// Posts what a connection's requests can have posted: reads of their values, parts of their replies.
    fn go_on(&mut self, fabric: &mut impl Fabric, peer: PeerId) {
        let limits = self.limits;
        let Some(connection) = self
            .connections
            .get_mut(peer.0 as usize)
            .and_then(Option::as_mut)
        else {
            return;
        };
        if connection.is_closing {
            return;
        }
        let mut is_gone = false;
        for nth in 0..connection.requests.len() {
            let index = connection.requests[nth];
            let slot = &mut self.requests[index as usize];
            let Some(request) = slot.request.as_mut() else {
                continue;
            };
            let token = u64::from(slot.generation & 0x7fff_ffff) << 32 | u64::from(index);
            let refused = match &request.stage {
                Stage::Receiving => request.fetch(
                    fabric,
                    connection,
                    &limits,
                    token | TOKEN_READ,
                    &mut self.counts,
                ),
                Stage::Replying(_) => {
                    request.send(fabric, connection, &limits, token, &mut self.counts)
                }
            };
            is_gone |= refused == Some(Refused::Gone);
            if refused.is_some() {
                break;
            }
        }
        if is_gone {
            self.disconnect(fabric, peer);
        }
    }

    /// Work has come back.
    fn take_done(
        &mut self,
        fabric: &mut impl Fabric,
        token: u64,
        is_done: bool,
        events: &mut Vec<ServerEvent>,
    ) {
        let low = |value: u64| u32::try_from(value & 0x7fff_ffff).expect("31 bits");
        let id = RequestId {
            index: u32::try_from(token & 0x3fff_ffff).expect("30 bits"),
            generation: low(token >> 32),
        };
        let Some(request) = self.request_mut(id) else {
            return;
        };
        let peer = request.peer;
        let mut has_arrived = false;
        let mut has_ended = false;
        let mut grant_buffer = None;
        if token & TOKEN_READ != 0 {
            has_arrived = request.fetched(is_done);
        } else if token & TOKEN_GRANT != 0 {
            grant_buffer = request.grant_buffer.take();
        } else if let Stage::Replying(reply) = &mut request.stage {
            reply.under_way -= 1;
            has_ended = reply.is_sent() && reply.under_way == 0;
        }
        if let Some(connection) = self.connection_mut(peer) {
            let under_way = if token & TOKEN_READ != 0 {
                &mut connection.reads
            } else {
                &mut connection.writes
            };
            *under_way -= 1;
        }
        self.reply_buffers.extend(grant_buffer);
        if has_arrived {
            events.push(ServerEvent::Arrived { request: id });
        }
        if has_ended {
            self.remove(id);
        }
        if is_done {
            self.go_on(fabric, peer);
        } else {
            self.disconnect(fabric, peer);
        }
    }

    /// All of a connection has come back.
    fn forget(&mut self, fabric: &mut impl Fabric, peer: PeerId, events: &mut Vec<ServerEvent>) {
        let place = self.connections.get_mut(peer.0 as usize);
        let Some(connection) = place.and_then(Option::take) else {
            return;
        };
        self.free_credits += self.limits.credits;
        for index in connection.requests {
            let slot = &self.requests[index as usize];
            let id = RequestId {
                index,
                generation: slot.generation,
            };
            let is_answered = slot
                .request
                .as_ref()
                .is_none_or(|request| matches!(request.stage, Stage::Replying(_)));
            if !is_answered {
                events.push(ServerEvent::Abandoned { request: id });
            }
            if let Some(request) = self.request_mut(id) {
                request.granted.drain(..).for_each(|one| fabric.revoke(one));
            }
            self.free(id);
        }
        events.push(ServerEvent::Closed { peer });
    }

    fn insert(&mut self, request: Request<K>) -> RequestId {
        let index = self.free_requests.pop().unwrap_or_else(|| {
            self.requests.push(Slot {
                generation: 0,
                request: None,
            });
            u32::try_from(self.requests.len() - 1).expect("fewer requests than frames")
        });
        let slot = &mut self.requests[index as usize];
        slot.request = Some(request);
        RequestId {
            index,
            generation: slot.generation,
        }
    }

    /// Takes a request that has ended from its connection, and frees it.
    fn remove(&mut self, id: RequestId) {
        let peer = self.request_mut(id).map(|request| request.peer);
        if let Some(connection) = peer.and_then(|peer| self.connection_mut(peer)) {
            connection.requests.retain(|&index| index != id.index);
        }
        self.free(id);
    }

    fn free(&mut self, id: RequestId) {
        let slot = &mut self.requests[id.index as usize];
        let Some(request) = slot.request.take() else {
            return;
        };
        slot.generation = (slot.generation + 1) & 0x7fff_ffff;
        self.free_requests.push(id.index);
        self.reply_buffers.extend(request.grant_buffer);
        if let Stage::Replying(reply) = request.stage {
            self.reply_buffers.push(reply.buffer);
        }
    }

    fn request_mut(&mut self, id: RequestId) -> Option<&mut Request<K>> {
        let slot = self.requests.get_mut(id.index as usize)?;
        let is_it = slot.generation == id.generation;
        slot.request.as_mut().filter(|_| is_it)
    }

    fn connection(&self, peer: PeerId) -> Option<&Connection> {
        self.connections.get(peer.0 as usize)?.as_ref()
    }

    fn connection_mut(&mut self, peer: PeerId) -> Option<&mut Connection> {
        self.connections.get_mut(peer.0 as usize)?.as_mut()
    }
}
