//! The client's side: requests go out, replies arrive in parts.
//!
//! A thread has a [`Client`] for each server. Nothing here waits: [`Client::submit`] begins a request, completions are
//! handed to [`Client::take`], and the events say what has come.
//!
//! # Values
//! A long value goes out in two ways at once. Its beginning is sent in frames, as much as fills the network for a round
//! trip; meanwhile the server asks for the rest. Bytes that do not lie in registered memory are copied there piece by
//! piece ([`Client::feed`]), and the server is told now and then how far that has come; or, if it trusts the client, it
//! says where they are to be written, and each piece goes there as soon as it is copied. Where frames can overtake each other, a
//! request is a single frame, sent when the whole value is where it can be read.
//!
//! # Invariants
//! - A request brings along what its reply needs: room in the lent memory, and room for as many writes as it may have
//!   parts. So the server never has to wait for the client.
//! - The memory of a request that was given up is not used again before its reply has come, or the connection has
//!   ended.

mod receiving;
mod sending;
mod slot;

use crate::fabric::{Completion, Fabric, PeerId, Remote, Span};
use crate::limits::{FRAME_LEN, Limits, Measured};
use crate::wire::{
    self, GENERATIONS, GRANT_LEN, GRANTS_MAX, Immediate, REPLY_PARTS_MAX, SLOTS_MAX,
};

use crate::areas::Areas;
use sending::TOKEN_WRITE;
use slot::{Slot, State};

/// The memory of a client: what it lends to its server, and what it sends from.
#[derive(Clone, Debug)]
pub struct ClientMemory {
    /// What the server may read and write.
    pub lent: Span,
    /// The key and the address by which the server does that.
    pub remote: Remote,
    /// What frames are sent from, each of [`FRAME_LEN`] bytes: one for each credit.
    pub frames: Vec<Span>,
}

/// Names a request of a client. It is not used again for another one, for a long time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    slot: u16,
    generation: u8,
}

/// A value that does not stand in its command.
#[derive(Clone, Copy, Debug)]
pub enum Value<'v> {
    /// Bytes that are copied: the first of them at once, the rest by [`Client::feed`].
    Bytes(&'v [u8]),
    /// A part of the lent memory, which stays as it is until the request is done.
    Lent(Span),
}

impl Value<'_> {
    fn len(&self) -> usize {
        match self {
            Value::Bytes(bytes) => bytes.len(),
            Value::Lent(span) => span.len,
        }
    }
}

/// A request that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'r> {
    /// The command, as it would be sent over TCP.
    pub command: &'r [u8],
    /// Its value, if that does not stand in the command.
    pub value: Option<Value<'r>>,
    /// How long its reply may be.
    pub reply_max: usize,
}

/// Why a request cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotNow {
    /// Others are under way: again when one of them is done.
    #[error("too many requests are under way")]
    Busy,
    /// The command does not fit into a frame, or the value or the reply into the lent memory.
    #[error("a request that is too long")]
    TooLong,
    /// The connection has ended.
    #[error("the connection has ended")]
    Gone,
}

/// What a client learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// So many bytes of a reply have come, from its beginning on.
    Progress {
        /// Of which request.
        ticket: Ticket,
        /// How many.
        len: usize,
    },
    /// All of a reply has come. It stays where it is until [`Client::release`].
    Done {
        /// Of which request.
        ticket: Ticket,
        /// Bytes.
        len: usize,
    },
    /// The reply is longer than its request gave room for. The request was executed.
    TooLong {
        /// Of which request, which needs no release.
        ticket: Ticket,
        /// How long the reply is.
        len: usize,
    },
    /// The connection has ended, and it is not known whether the request was executed.
    Lost {
        /// Which request; it needs no release.
        ticket: Ticket,
    },
    /// The server has done what no server may. The connection ends.
    Misbehaved {
        /// What.
        how: Misbehaviour,
    },
    /// The connection has ended.
    Closed,
}

/// What no server may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misbehaviour {
    /// It answered what nobody has asked.
    #[error("an answer that nobody waits for")]
    Slot,
    /// It wrote a part twice, or of a wrong length, or behind the last.
    #[error("a part of an answer that cannot be")]
    Part,
    /// It granted memory for a value that it was not asked for, or not as much as the value needs.
    #[error("grants that do not fit the value")]
    Grant,
    /// It sent a frame.
    #[error("a frame from a server")]
    Frame,
}

/// The requests of one thread to one server.
pub struct Client {
    peer: PeerId,
    limits: Limits,
    measured: Measured,
    memory: ClientMemory,
    areas: Areas,
    slots: Vec<Slot>,
    free_slots: Vec<u16>,
    free_frames: Vec<Span>,
    /// Frames that may be sent before a request is answered.
    credits: usize,
    /// Writes that the network has room for, and those that replies may still need.
    writes_expected: usize,
    writes_promised: usize,
    is_closed: bool,
}

impl Client {
    /// A client of the server `peer`, which has told its `limits`.
    ///
    /// # Panics
    /// If the memory has fewer frames than the limits have credits.
    pub fn new(peer: PeerId, limits: Limits, measured: Measured, memory: ClientMemory) -> Client {
        assert!(
            memory.frames.len() >= limits.credits,
            "a frame for each credit"
        );
        // A reply that was read late does not keep other requests from being made.
        let slots = (2 * limits.credits).min(SLOTS_MAX);
        let last = u16::try_from(slots).expect("12 bits");
        Client {
            peer,
            limits,
            measured,
            areas: Areas::new(memory.lent.len),
            slots: std::iter::repeat_with(Slot::default).take(slots).collect(),
            free_slots: (0..last).rev().collect(),
            free_frames: memory.frames.clone(),
            credits: limits.credits,
            memory,
            writes_expected: 0,
            writes_promised: 0,
            is_closed: false,
        }
    }

    /// What the server has told.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Says what was measured since.
    pub fn set_measured(&mut self, measured: Measured) {
        self.measured = measured;
    }

    /// Lends a part of the lent memory to the caller, to prepare a value in.
    pub fn borrow(&mut self, len: usize) -> Option<Span> {
        let area = self.areas.take(len)?;
        Some(self.memory.lent.part(area, len))
    }

    /// Takes such a part back.
    pub fn give_back(&mut self, span: Span) {
        self.areas
            .give_back(span.offset - self.memory.lent.offset, span.len);
    }

    /// Requests under way.
    pub fn under_way(&self) -> usize {
        let is_waiting = |slot: &&Slot| matches!(slot.state, State::Waiting | State::GivenUp);
        self.slots.iter().filter(is_waiting).count()
    }

    /// Begins a request.
    ///
    /// # Errors
    /// [`NotNow`], and nothing has begun.
    pub fn submit(
        &mut self,
        fabric: &mut impl Fabric,
        submission: &Submission<'_>,
    ) -> Result<Ticket, NotNow> {
        let value_len = submission.value.as_ref().map_or(0, Value::len);
        // As long as the answer "too long" at least.
        let reply_max = submission.reply_max.max(8);
        let is_copied = matches!(submission.value, Some(Value::Bytes(_)));
        let reply_max = if is_copied {
            reply_max.max(GRANTS_MAX * GRANT_LEN)
        } else {
            reply_max
        };
        // One more for what the server may say of the value.
        let parts = self.limits.parts_of(reply_max) + usize::from(is_copied);
        if submission.command.len() > FRAME_LEN - wire::REQUEST_LEN
            || value_len > self.limits.value_len_max
            || reply_max.max(value_len) > self.memory.lent.len
            || parts > REPLY_PARTS_MAX
        {
            return Err(NotNow::TooLong);
        }
        if self.is_closed {
            return Err(NotNow::Gone);
        }
        let plan = self.plan(submission.command.len(), value_len, is_copied)?;
        let Some(&slot_number) = self.free_slots.last() else {
            return Err(NotNow::Busy);
        };
        let area = self.borrow(reply_max).ok_or(NotNow::Busy)?;
        let source = match submission.value {
            Some(Value::Bytes(_)) if plan.early_len < value_len => {
                let Some(source) = self.borrow(value_len) else {
                    self.give_back(area);
                    return Err(NotNow::Busy);
                };
                Some(source)
            }
            _ => None,
        };
        self.free_slots.pop();
        let slot = &mut self.slots[usize::from(slot_number)];
        slot.state = State::Waiting;
        slot.area = Some(area);
        slot.source = source;
        slot.parts_promised = parts;
        slot.value_len = value_len;
        (slot.rest_from, slot.fed, slot.written) = (plan.early_len, plan.early_len, plan.early_len);
        slot.step = plan.step;
        let kept = self.free_frames.len() - plan.ready_frames;
        slot.spare_frames.extend(self.free_frames.drain(kept..));
        // They count as sent, so that nobody else uses their credits.
        slot.frames = plan.ready_frames;
        self.credits -= plan.ready_frames;
        let ticket = Ticket {
            slot: slot_number,
            generation: slot.generation,
        };
        self.promise_writes(fabric, parts);
        let sent = self.send(fabric, ticket, submission, area, plan);
        if sent.is_err() {
            self.is_closed = true;
            fabric.disconnect(self.peer);
        }
        // What could not be sent is lost with the connection; its end says so.
        Ok(ticket)
    }

    fn promise_writes(&mut self, fabric: &mut impl Fabric, parts: usize) {
        self.writes_promised += parts;
        if self.writes_promised > self.writes_expected {
            fabric.expect_writes(self.peer, self.writes_promised - self.writes_expected);
            self.writes_expected = self.writes_promised;
        }
    }

    /// Deals with what has happened. Events are appended to `events`.
    pub fn take(
        &mut self,
        fabric: &mut impl Fabric,
        completion: Completion,
        events: &mut Vec<ClientEvent>,
    ) {
        match completion {
            Completion::Done { token } if token & TOKEN_WRITE != 0 => {
                self.take_write_back(fabric, token);
            }
            Completion::Done { token } => self.take_frame_back(token),
            Completion::Failed { token } => {
                self.disconnect(fabric);
                if token & TOKEN_WRITE != 0 {
                    self.take_write_back(fabric, token);
                } else {
                    self.take_frame_back(token);
                }
            }
            Completion::Written { immediate, len, .. } if !self.is_closed => {
                self.writes_expected = self.writes_expected.saturating_sub(1);
                if let Err(how) = self.take_part(Immediate::decode(immediate), len, fabric, events)
                {
                    events.push(ClientEvent::Misbehaved { how });
                    self.disconnect(fabric);
                }
            }
            Completion::Written { .. } => {}
            Completion::Frame { frame, .. } => {
                fabric.give_frame(frame);
                let how = Misbehaviour::Frame;
                events.push(ClientEvent::Misbehaved { how });
                self.disconnect(fabric);
            }
            Completion::Closed { .. } => self.lose_all(events),
        }
    }

    /// Ends the connection.
    pub fn disconnect(&mut self, fabric: &mut impl Fabric) {
        if !std::mem::replace(&mut self.is_closed, true) {
            fabric.disconnect(self.peer);
        }
    }

    /// Where a reply lies, or what has come of it.
    pub fn reply(&self, ticket: Ticket, len: usize) -> Option<Span> {
        let slot = self.slots.get(usize::from(ticket.slot))?;
        let is_it = slot.generation == ticket.generation && slot.state != State::Free;
        let area = slot.area.filter(|_| is_it)?;
        Some(area.part(0, len.min(area.len)))
    }

    /// Frees the memory of a reply that has been read.
    pub fn release(&mut self, ticket: Ticket) {
        let is_leaving = self
            .slots
            .get(usize::from(ticket.slot))
            .is_some_and(|it| it.is_leaving);
        if self.state_of(ticket) == Some(State::Answered) && !is_leaving {
            self.free(ticket);
        }
    }

    /// Asks no more for a reply; its memory is free when it has come.
    pub fn give_up(&mut self, ticket: Ticket) {
        match self.state_of(ticket) {
            Some(State::Waiting) => self.slots[usize::from(ticket.slot)].state = State::GivenUp,
            Some(State::Answered) => self.free(ticket),
            _ => {}
        }
    }

    fn state_of(&self, ticket: Ticket) -> Option<State> {
        let slot = self.slots.get(usize::from(ticket.slot))?;
        (slot.generation == ticket.generation).then_some(slot.state)
    }

    fn free(&mut self, ticket: Ticket) {
        let slot = &mut self.slots[usize::from(ticket.slot)];
        if slot.writes > 0 {
            // The network may still read the value.
            slot.is_leaving = true;
            slot.state = State::Answered;
            return;
        }
        let spans = [slot.area.take(), slot.source.take()];
        (slot.is_leaving, slot.granted, slot.value_len) = (false, None, 0);
        slot.state = State::Free;
        slot.generation = (slot.generation + 1) % GENERATIONS;
        slot.frames = 0;
        self.free_frames.append(&mut slot.spare_frames);
        slot.forget_parts();
        self.free_slots.push(ticket.slot);
        for span in spans.into_iter().flatten() {
            self.give_back(span);
        }
    }

    fn lose_all(&mut self, events: &mut Vec<ClientEvent>) {
        self.is_closed = true;
        for number in 0..self.slots.len() {
            let slot = &self.slots[number];
            let state = slot.state;
            let ticket = Ticket {
                slot: u16::try_from(number).expect("12 bits"),
                generation: slot.generation,
            };
            if matches!(state, State::Waiting | State::GivenUp) {
                self.free(ticket);
            }
            if state == State::Waiting {
                events.push(ClientEvent::Lost { ticket });
            }
        }
        events.push(ClientEvent::Closed);
    }
}
