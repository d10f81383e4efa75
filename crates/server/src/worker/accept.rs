//! New connections: which are admitted, which are refused because there are too many, and when
//! accepting pauses.

use std::sync::Arc;

use coua_transport::tls::ClientCertificate;
use coua_transport::{Accepted, Listener, Stream};

use super::{
    ACCEPT_PAUSE_MS, USERSPACE_LISTENER, Worker, listener_token, session_id, session_token,
};
use crate::clock::Now;
use crate::closing::CloseCause;
use crate::connections::ConnectionInfo;
use crate::log::Limit;
use crate::session::Session;
use crate::shared::Handed;
use crate::watch::{LogStreams, lines};

/// Connections accepted from one listener in one turn, at most.
const ACCEPTS_PER_TURN: usize = 64;

/// What memcached sends to a connection beyond its limit.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

static ACCEPT_LIMIT: Limit = Limit::new();

/// Limits the log lines about connections beyond `-c`.
static REJECTED: Limit = Limit::new();

impl Worker {
    /// Accepts the connections that wait at the listeners, up to the turn's limit.
    pub(super) fn accept(&mut self, now: Now) {
        if let Some(since) = self.accept_paused_ms
            && now.since_start_ms >= since + ACCEPT_PAUSE_MS
        {
            self.counters()
                .listen_disabled_us
                .add((now.since_start_ms - since) * 1000);
            self.resume_accepting();
        }
        if std::mem::take(&mut self.is_woken) {
            for connection in self.shared.take_handed(self.index) {
                self.welcome(Stream::from(connection.socket), connection.tls, now);
            }
            for token in self.shared.watchers.sessions_of(self.index) {
                self.list(session_id(token));
            }
        }
        while let Some(number) = self.waiting_listeners.pop() {
            if self.drain.is_some() && number != USERSPACE_LISTENER {
                continue;
            }
            for _ in 0..ACCEPTS_PER_TURN {
                // Without `refuses_at_once`, connections wait in the backlog, so a place is taken
                // before accepting: a connection accepted without a place could only be refused.
                let waits = !self.shared.live.refuses_at_once();
                let has_place = waits && self.shared.registry.admit();
                if waits && !has_place {
                    self.pause_accepting(now);
                    break;
                }
                let tls = self.tls_at(number);
                let accepted = match number {
                    USERSPACE_LISTENER => self.poller.accept().map(Accepted::Stream),
                    number => self.listeners.get(number).map(Listener::accept),
                };
                match accepted {
                    Some(Accepted::Stream(stream)) if has_place || self.shared.registry.admit() => {
                        self.deal(stream, tls, now);
                        continue;
                    }
                    Some(Accepted::Stream(stream)) => {
                        self.counters().rejected_connections.add(1);
                        let (peer, most) = (stream.peer(), self.shared.registry.open_max());
                        REJECTED.debug(
                            now.since_start_ms,
                            format_args!("connection from {peer} refused: {most} are open (-c)"),
                        );
                        if tls.is_some() {
                            // The client would not understand a word.
                            continue;
                        }
                        // Best effort: the empty send buffer of a new connection takes the line,
                        // unless the peer has already gone.
                        let _ = stream.send(TOO_MANY);
                        continue;
                    }
                    Some(Accepted::Exhausted(error)) => {
                        if let Some(others) = ACCEPT_LIMIT.pass(now.since_start_ms) {
                            tracing::warn!(%error, others, "cannot accept connections");
                        }
                        self.pause_accepting(now);
                    }
                    Some(Accepted::Nothing) | None => {}
                }
                if has_place {
                    self.shared.registry.give_place_back();
                }
                break;
            }
        }
    }

    /// Gives an admitted connection to the worker with the fewest connections. A connection of a
    /// user-space stack stays with the worker where its frames arrive.
    fn deal(&mut self, stream: Stream, tls: Option<ClientCertificate>, now: Now) {
        let registry = &self.shared.registry;
        let connection = match stream.into_descriptor() {
            Ok(connection) => connection,
            Err(stream) => {
                registry.keep(self.index);
                return self.welcome(stream, tls, now);
            }
        };
        let to = registry.deal(self.index);
        match to == self.index {
            true => self.welcome(Stream::from(connection), tls, now),
            false => {
                let socket = connection;
                self.shared.hand_over(to, Handed { socket, tls });
            }
        }
    }

    /// Starts to serve an admitted connection.
    fn welcome(&mut self, stream: Stream, tls: Option<ClientCertificate>, now: Now) {
        self.counters().total_connections.add(1);
        let connection = Arc::new(ConnectionInfo::new(&stream, now.unix));
        let (number, peer) = (connection.descriptor, &connection.peer);
        tracing::trace!("<{number} new client connection: {peer}");
        (self.shared.watchers).tell(LogStreams::CONNECTIONS, |line| {
            lines::opened(line, peer, number);
        });
        let settings = &self.shared.settings;
        let stream = match (tls, &settings.tls) {
            (Some(of_client), Some(settings)) => stream.encrypted(&settings.tls, of_client),
            _ => Ok(stream),
        };
        let is_refused = stream.is_err();
        let (Ok(stream) | Err(stream)) = stream;
        let session = Session::new(
            stream,
            Arc::clone(&connection),
            self.shared.first_parser(),
            self.shared.live.permissions(),
        );
        let id = self.sessions.insert(session);
        self.shared
            .registry
            .show(self.index, id.slot as usize, connection);
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        if let Err(error) = self.poller.add_stream(&session.stream, session_token(id)) {
            if let Some(others) = ACCEPT_LIMIT.pass(now.since_start_ms) {
                tracing::warn!(%error, others, "cannot watch a connection's socket");
            }
            self.close_for(id, CloseCause::System);
        } else if is_refused {
            self.close_for(id, CloseCause::Protocol);
        } else if self.drain.is_some() {
            // It was handed over late; what it has sent is still looked at.
            self.list(id);
        }
    }

    /// What TLS asks of the clients of a listener.
    fn tls_at(&self, number: usize) -> Option<ClientCertificate> {
        match number {
            USERSPACE_LISTENER => self.shared.settings.tls.as_ref().map(|tls| tls.of_clients),
            number => self.tls.get(number).copied().flatten(),
        }
    }

    fn pause_accepting(&mut self, now: Now) {
        self.counters().listen_disabled.add(1);
        self.ignore_listeners();
        self.accept_paused_ms = self.drain.is_none().then_some(now.since_start_ms);
    }

    /// Accepts no more. What has come to a socket waits there for the next process; the stack in
    /// user space answers no more openings, and what it has opened is still taken.
    pub(super) fn stop_accepting(&mut self) {
        self.ignore_listeners();
        self.accept_paused_ms = None;
        self.poller.ignore_openings();
        self.waiting_listeners.push(USERSPACE_LISTENER);
    }

    /// Takes the listeners out of the poller's set: they are level-triggered, and would be reported
    /// again and again.
    fn ignore_listeners(&mut self) {
        self.waiting_listeners.clear();
        for listener in &self.listeners {
            // A listener that is not in the set has been removed before.
            let _ = self.poller.remove(listener);
        }
    }

    fn resume_accepting(&mut self) {
        self.accept_paused_ms = None;
        for (number, listener) in self.listeners.iter().enumerate() {
            let token = listener_token(number);
            if let Err(error) = self
                .poller
                .add_source(listener, token, listener.is_shared())
            {
                tracing::error!(%error, "worker {} cannot listen any more", self.index);
            }
        }
    }
}
