//! Requests on their way from the network to sessions.

use coua_protocol::{Dialect, ErrorLine, Parser};
use coua_rdma::libfabric::{Bytes, DriverEvent, Request};
use coua_rdma::{Fabric, Greeting, PeerId, RequestId, ServerEvent, Span, Staged};
use coua_transport::Stream;
use subtle::ConstantTimeEq;

use super::{Upload, Waiting, What, WorkerRdma};
use crate::gathered::Gathered;
use crate::log::Limit;
use crate::message::{Message, RdmaMessage};
use crate::session::Session;

/// What follows a value that comes apart from its command.
const VALUE_END: &[u8] = b"\r\n";

/// Bytes of values that one client may have under way to the server: two of the longest.
const STAGING_OF_CLIENT_MAX: usize = (2 << 20) + (64 << 10);

static MISBEHAVED: Limit = Limit::new();

/// A command and its value in staging memory, as a session receives it.
struct StagedBytes {
    bytes: Bytes,
    _staged: Staged,
}

impl AsRef<[u8]> for StagedBytes {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// A request that has a session now.
pub enum Next {
    /// Its bytes are at the beginning of the room: so many.
    InRoom(Session, usize),
    /// The session's stream has them.
    InStream(Session),
}

impl WorkerRdma {
    /// Finds out what has happened. True if there was something.
    pub fn poll(&mut self, now_ms: u64) -> bool {
        let mut events = std::mem::take(&mut self.driver_events);
        self.driver.poll(&mut events);
        let has_any = !events.is_empty();
        for event in events.drain(..) {
            match event {
                DriverEvent::Asked { request, data } => self.answer_client(request, &data, now_ms),
                DriverEvent::Connected { .. } => {}
                DriverEvent::Completion(completion) => {
                    let mut acts = std::mem::take(&mut self.server_events);
                    self.server.take(&mut self.driver, completion, &mut acts);
                    for act in acts.drain(..) {
                        self.act(act, now_ms);
                    }
                    self.server_events = acts;
                }
            }
        }
        self.driver_events = events;
        self.is_untold |= has_any;
        has_any
    }

    /// Whether its descriptors tell of everything that is still to be done.
    pub fn may_sleep(&self) -> bool {
        self.waiting.is_empty() && self.ended.is_empty() && self.driver.may_sleep()
    }

    /// A client asks for a connection.
    fn answer_client(&mut self, request: Request, data: &[u8], now_ms: u64) {
        self.expected.retain(|it| it.until_ms > now_ms);
        let greeting = Greeting::decode(data);
        let place = greeting.and_then(|greeting| {
            let is_it = |it: &super::Expected| bool::from(it.token[..].ct_eq(&greeting.token[..]));
            self.expected.iter().position(is_it)
        });
        let (Some(greeting), Some(place), true) = (greeting, place, self.server.has_room()) else {
            self.refused += 1;
            self.driver.reject(request);
            return;
        };
        // It is good once.
        let client = self.expected.swap_remove(place).client;
        let Ok(peer) = self.driver.accept(request) else {
            self.refused += 1;
            return;
        };
        let at = peer.0 as usize;
        if self.clients.len() <= at {
            self.clients.resize_with(at + 1, || None);
        }
        match self.server.connect(peer, greeting.memory, false) {
            Ok(()) => self.clients[at] = Some(client),
            Err(_) => self.driver.disconnect(peer),
        }
    }

    fn act(&mut self, event: ServerEvent, now_ms: u64) {
        match event {
            ServerEvent::Request {
                request,
                peer,
                command,
                value_len: 0,
                ..
            } => {
                let what = What::Frame(command);
                self.waiting.push_back(Waiting {
                    peer,
                    request,
                    what,
                });
            }
            ServerEvent::Request {
                request,
                peer,
                command,
                early,
                value_len,
                early_len,
            } => {
                self.begin_upload((request, peer), command, early, (value_len, early_len));
                self.server.release(&mut self.driver, command);
            }
            ServerEvent::Early {
                request,
                offset,
                bytes,
            } => {
                self.copy_early(request, offset, bytes);
                self.server.release(&mut self.driver, bytes);
            }
            ServerEvent::Arrived { request } => self.end_upload(request),
            ServerEvent::Abandoned { request } => {
                self.uploads.remove(&request);
            }
            ServerEvent::Misbehaved { peer, how } => {
                if let Some(Some(client)) = self.clients.get(peer.0 as usize) {
                    let address = &client.connection.peer;
                    MISBEHAVED.debug(
                        now_ms,
                        format_args!(
                            "connection from {address} closed: over RDMA it has sent {how}"
                        ),
                    );
                    self.ended.push(client.session);
                }
            }
            ServerEvent::Closed { peer } => {
                if let Some(place) = self.clients.get_mut(peer.0 as usize) {
                    *place = None;
                }
            }
        }
    }

    /// Makes room for a command and its value, and has the value fetched.
    fn begin_upload(
        &mut self,
        (request, peer): (RequestId, PeerId),
        command: Span,
        early: Span,
        (value_len, early_len): (usize, usize),
    ) {
        let (server, driver) = (&mut self.server, &mut self.driver);
        let whole = command.len + value_len + VALUE_END.len();
        // Who begins values and does not send them leaves room for others.
        let of_peer = self.uploads.values().filter(|upload| upload.peer == peer);
        let held: usize = of_peer.map(|upload| upload.staged.span().len).sum();
        let may = held + whole <= STAGING_OF_CLIENT_MAX;
        let Some(staged) = may.then(|| self.staging.take(whole)).flatten() else {
            return server.reply(driver, request, ErrorLine::OutOfMemoryStoring.as_bytes());
        };
        let span = staged.span();
        driver.copy_within(command, span);
        driver.copy_in(
            span.part(command.len + value_len, VALUE_END.len()),
            VALUE_END,
        );
        let upload = Upload {
            peer,
            staged,
            command_len: command.len,
        };
        self.uploads.insert(request, upload);
        self.copy_early(request, 0, early);
        let place = span.part(command.len + early_len, value_len - early_len);
        let places = (place.len > 0).then_some(place);
        self.server.receive_value(&mut self.driver, request, places);
    }

    fn copy_early(&mut self, request: RequestId, offset: usize, bytes: Span) {
        if let Some(upload) = self.uploads.get(&request) {
            let to = upload.staged.span();
            self.driver
                .copy_within(bytes, to.part(upload.command_len + offset, bytes.len));
        }
    }

    fn end_upload(&mut self, request: RequestId) {
        if let Some(upload) = self.uploads.remove(&request) {
            self.waiting.push_back(Waiting {
                peer: upload.peer,
                request,
                what: What::Staged(upload.staged),
            });
        }
    }

    /// Whether requests wait for sessions.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Gives the next request that waits a session, and copies it into `room` if it is short. `None` if none waits.
    pub fn next(&mut self, room: &mut [u8], dialect: Dialect) -> Option<Next> {
        loop {
            let Waiting {
                peer,
                request,
                what,
            } = self.waiting.pop_front()?;
            let mut len = 0;
            let (stream, parser) = match what {
                What::Frame(span) => {
                    let bytes = self.driver.bytes(span);
                    len = bytes.len();
                    room[..len].copy_from_slice(bytes);
                    self.server.release(&mut self.driver, span);
                    let parser = Parser::at_start_of(dialect, &room[..len]);
                    (Stream::of_nothing(), parser)
                }
                What::Staged(staged) => {
                    let bytes = self.driver.bytes_of(staged.span());
                    let parser = Parser::at_start_of(dialect, bytes.as_ref());
                    let bytes = StagedBytes {
                        bytes,
                        _staged: staged,
                    };
                    (Stream::of_bytes(bytes), parser)
                }
            };
            let Some(Some(client)) = self.clients.get(peer.0 as usize) else {
                // It has gone meanwhile.
                continue;
            };
            let is_short = !stream.has_more();
            let connection = std::sync::Arc::clone(&client.connection);
            let mut session = Session::new(stream, connection, parser, client.may);
            session.user = client.user.clone();
            session.is_restricted = client.is_restricted;
            session.readable = !is_short;
            session.message = Some(self.message(peer, request));
            return Some(match is_short {
                true => Next::InRoom(session, len),
                false => Next::InStream(session),
            });
        }
    }

    fn message(&mut self, peer: PeerId, request: RequestId) -> Box<Message> {
        let mut spare = self.spare.pop();
        if let Some(Message::Rdma(message)) = spare.as_deref_mut() {
            (message.peer, message.request) = (peer, request);
            message.gathered.begin();
        }
        spare.unwrap_or_else(|| {
            Box::new(Message::Rdma(RdmaMessage {
                peer,
                request,
                gathered: Gathered::default(),
                value: None,
            }))
        })
    }
}
