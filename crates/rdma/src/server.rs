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
mod frames;
mod grants;
mod replies;
mod request;

use crate::fabric::{Completion, Fabric, PeerId, Refused, Span};
use crate::limits::{Limits, REPLY_COPY_MAX};
use crate::wire::BadFrame;

use connection::Connection;
pub use connection::{ConnectionCounts, RemoteMemory};
use request::{Request, Stage};

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

    /// Whether requests of a connection are not answered yet, or their replies are under way.
    pub fn is_busy(&self, peer: PeerId) -> bool {
        self.connection(peer)
            .is_some_and(|connection| !connection.requests.is_empty())
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
