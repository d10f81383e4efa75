//! Requests that arrive in UDP datagrams, and their replies.
//!
//! A datagram is served like a connection that sends nothing else. It takes one of the worker's few
//! sessions for datagrams, with a new parser, and its replies leave together after the last of its
//! requests has been executed. If all requests took the fast path, within one turn, the replies are
//! sent from the output buffer; otherwise they are gathered in the datagram first.
//!
//! Datagrams come from a socket, which keeps what is not received, or from the worker's own stack,
//! which keeps nothing beyond a turn. So the stack is received from first, and its datagrams that
//! find no room are dropped.

use std::io;
use std::sync::Arc;

use coua_protocol::Parser;
use coua_protocol::datagram::{FRAME_LEN, PART_LEN};
use coua_transport::userspace::BURST_LEN;
use coua_transport::{Arrived, Datagrams, Poller};

use super::{Worker, listener_token};
use crate::clock::Now;
use crate::connections::ConnectionInfo;
use crate::counters::Counters;
use crate::datagram::{Allowances, Datagram};
use crate::execute::Answers;
use crate::message::Message;
use crate::outcome::Outcome;
use crate::session::{Listed, Session, SessionId, Sessions};
use crate::shared::Shared;

/// Datagrams of one socket that are being served at a time.
const SESSIONS: usize = 32;

/// The same for a stack: as many as one turn may bring.
const SESSIONS_OF_STACK: usize = BURST_LEN;

/// A worker's sockets for datagrams.
pub(super) struct DatagramSockets {
    sockets: Vec<Datagrams>,
    /// Sockets with something to receive, by number.
    readable: Vec<usize>,
    /// Sessions of each socket that serve no datagram.
    vacant: Vec<Vec<SessionId>>,
    allowances: Option<Allowances>,
}

impl DatagramSockets {
    /// Registers the sockets with the poller; their tokens follow those of the `listeners`
    /// listeners.
    pub(super) fn new(
        sockets: Vec<Datagrams>,
        shared: &Shared,
        poller: &Poller,
        listeners: usize,
        sessions: &mut Sessions,
    ) -> io::Result<DatagramSockets> {
        let now = shared.clock.now();
        let settings = &shared.settings;
        let mut vacant = Vec::with_capacity(sockets.len());
        for (number, socket) in sockets.iter().enumerate() {
            poller.add_source(socket, listener_token(listeners + number), false)?;
            let count = match socket.keeps() {
                true => SESSIONS,
                false => SESSIONS_OF_STACK,
            };
            let part_len = PART_LEN.min(socket.payload_len_max() - FRAME_LEN);
            let mut names = Vec::with_capacity(count);
            for _ in 0..count {
                let stream = socket.as_stream()?;
                let connection = Arc::new(ConnectionInfo::new(&stream, now.unix));
                let parser = Parser::of(settings.dialect);
                let mut session = Session::new(stream, connection, parser, settings.permissions);
                session.readable = false;
                let datagram = Datagram::vacant(number, part_len);
                session.message = Some(Box::new(Message::Datagram(datagram)));
                names.push(sessions.insert(session));
            }
            vacant.push(names);
        }
        Ok(DatagramSockets {
            readable: Vec::with_capacity(sockets.len()),
            allowances: (!sockets.is_empty() && settings.udp_reply_rate > 0)
                .then(|| Allowances::new(settings.udp_reply_rate)),
            sockets,
            vacant,
        })
    }

    /// Notes that a socket is readable.
    pub(super) fn note_readable(&mut self, number: usize) {
        self.readable.push(number);
    }

    /// Sends the reply to a datagram, if its sender's allowance permits, and makes the session
    /// vacant.
    #[inline]
    fn answer(
        &mut self,
        id: SessionId,
        datagram: &Datagram,
        reply: &[u8],
        counters: &Counters,
        now: Now,
    ) {
        self.vacant[datagram.socket].push(id);
        if reply.is_empty() {
            return;
        }
        let to = datagram.from();
        let may = self.allowances.as_mut().is_none_or(|allowances| {
            let cost = datagram.cost(reply.len());
            allowances.take(to.address().ip(), cost, now.since_start_ms)
        });
        let socket = &self.sockets[datagram.socket];
        let is_sent = may
            && match datagram.alone(reply.len()) {
                Some(frame) => socket.send([&frame, reply], to),
                None => datagram
                    .parts(reply)
                    .all(|(frame, part)| socket.send([&frame, part], to)),
            };
        if !is_sent {
            counters.udp_replies_dropped.add(1);
        }
    }

    /// Finishes a datagram whose requests came to `outcome`: sends the reply, from the output
    /// buffer if all of it is still there, and makes the session vacant.
    #[inline]
    pub(super) fn finish(
        &mut self,
        id: SessionId,
        session: &mut Session,
        outcome: Outcome,
        answers: &mut Answers<'_>,
    ) {
        // What is left of the datagram is not a whole request, and the rest never comes.
        session.release(answers.pool);
        session.refused_value = None;
        session.skips_keys = false;
        session.wait_no_more();
        let Some(message) = session.message.as_deref_mut() else {
            return;
        };
        let output = &mut *answers.output;
        let (counters, now) = (answers.counters, answers.now);
        let mut is_answered = matches!(outcome, Outcome::Done | Outcome::CloseWhenSent);
        let is_alone = message.gathered().bytes().is_empty();
        if !(is_answered && is_alone) {
            is_answered = is_answered && output.gather(message);
        }
        let Some(datagram) = message.as_datagram_mut() else {
            return;
        };
        if is_answered && is_alone {
            let reply = output.written_from(0);
            self.answer(id, datagram, reply, counters, now);
            output.bytes_sent += reply.len() as u64;
        } else {
            let reply = match is_answered {
                true => datagram.reply(),
                false => {
                    counters.udp_replies_dropped.add(1);
                    &[]
                }
            };
            self.answer(id, datagram, reply, counters, now);
            datagram.gathered.clear(&mut output.message_room);
        }
        output.truncate(0);
    }
}

impl Worker {
    /// Receives datagrams while there is room and sessions are vacant.
    pub(super) fn receive_datagrams(&mut self) {
        while let Some(number) = self.datagrams.readable.pop() {
            self.receive_from_socket(number);
        }
    }

    /// Receives the datagrams of the worker's own stack, before connections take the room for
    /// input.
    pub(super) fn receive_datagrams_of_stack(&mut self) {
        let DatagramSockets {
            sockets, readable, ..
        } = &mut self.datagrams;
        let Some(at) = readable.iter().position(|&at| !sockets[at].keeps()) else {
            return;
        };
        let number = readable.swap_remove(at);
        self.receive_from_socket(number);
        let lost = self.datagrams.sockets[number].discard();
        self.counters().udp_dropped.add(lost);
    }

    /// Receives datagrams for vacant sessions and parses them. While the batch is full, what a
    /// socket keeps stays in the socket.
    fn receive_from_socket(&mut self, number: usize) {
        let shared = &*self.shared;
        let counters = shared.counters(self.index);
        let own_port = shared.udp_port();
        let DatagramSockets {
            sockets,
            vacant,
            allowances,
            ..
        } = &mut self.datagrams;
        let (socket, vacant) = (&sockets[number], &mut vacant[number]);
        while let Some(&id) = vacant.last() {
            if self.batch.is_full() && socket.keeps() {
                return;
            }
            let (Some(session), Some(room)) = (self.sessions.get(id), self.input.datagram_room())
            else {
                return;
            };
            let message = session.message.as_deref_mut();
            let Some(datagram) = message.and_then(Message::as_datagram_mut) else {
                return;
            };
            let (len, from) = match socket.receive(room) {
                Arrived::Datagram { len, from } => (len, from),
                Arrived::Useless => continue,
                Arrived::Nothing => return,
            };
            counters.bytes_read.add(len as u64);
            if let Some(allowances) = allowances {
                allowances.credit(from.address().ip(), len);
            }
            // A datagram that fills the room may have been cut off.
            let request = match len < room.len() {
                true => datagram.begin(&room[..len], from, own_port),
                false => None,
            };
            let Some(start) = request else {
                counters.udp_dropped.add(1);
                continue;
            };
            counters.udp_requests.add(1);
            vacant.pop();
            session.parser = Parser::at_start_of(shared.settings.dialect, &room[start..len]);
            let input = self.input.occupy(id, start, len);
            if self.batch.is_full() {
                session.listed = Listed::Input;
                self.input.active.push_back(input);
            } else {
                let bytes = self.input.bytes();
                (self.batch).plan(session, input, bytes, self.share, shared);
            }
        }
    }
}
