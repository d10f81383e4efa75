//! The client's side: requests go out, replies arrive in parts.
//!
//! A thread has a [`Client`] for each server. Nothing here waits: [`Client::submit`] begins a request, completions are
//! handed to [`Client::take`], and the events say what has come.
//!
//! # Values
//! A long value goes out in two ways at once. Its beginning is sent in frames, as much as fills the network for a round
//! trip; meanwhile the server asks for the rest. Where the bytes do not lie in registered memory they are copied there
//! piece by piece, and the server is told now and then how far that has come. Where frames can overtake each other, a
//! request is a single frame, sent when the whole value is where it can be read.
//!
//! # Invariants
//! - A request brings along what its reply needs: room in the lent memory, and room for as many writes as it may have
//!   parts. So the server never has to wait for the client.
//! - The memory of a request that was given up is not used again before its reply has come, or the connection has
//!   ended.

mod areas;

use crate::fabric::{Completion, Fabric, PeerId, Refused, Remote, Span, Work};
use crate::limits::{FRAME_LEN, Limits, Measured};
use crate::wire::{self, GENERATIONS, Immediate, REPLY_PARTS_MAX, RequestHeader, SLOTS_MAX};

use areas::Areas;

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
    /// Bytes that are copied.
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
    /// It sent a frame.
    #[error("a frame from a server")]
    Frame,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    /// Its reply is awaited.
    Waiting,
    /// As `Waiting`, but nobody asks for the reply any more.
    GivenUp,
    /// Its reply is there.
    Answered,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u8,
    state: State,
    /// Frames that it has sent.
    frames: usize,
    area: Option<Span>,
    source: Option<Span>,
    /// Bit by bit, which parts have come.
    seen: Vec<u64>,
    parts_seen: usize,
    /// Parts from the first on that have come without a gap.
    parts_in_order: usize,
    /// Parts of the whole reply, once the last has come, and its length.
    whole: Option<(usize, usize)>,
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
        let parts = reply_max.div_ceil(self.limits.part_len);
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
        let plan = self.plan(submission.command.len(), value_len)?;
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

    /// How a request's value is divided, by what credits are left.
    fn plan(&self, command_len: usize, value_len: usize) -> Result<Plan, NotNow> {
        let room = FRAME_LEN - wire::REQUEST_LEN - command_len;
        // Of a longer value none comes with the request, so that the server begins with that sooner.
        let first = if value_len <= room { value_len } else { 0 };
        let per_frame = FRAME_LEN - wire::EARLY_LEN;
        let credits = self.credits.min(self.free_frames.len());
        if !self.limits.is_ordered {
            let plan = Plan {
                first,
                early_len: first,
            };
            return if credits > 0 {
                Ok(plan)
            } else {
                Err(NotNow::Busy)
            };
        }
        // Frames that say how much is ready: each time twice as much.
        let ready_frames = |rest: usize| match rest {
            0 => 0,
            rest => rest.div_ceil(self.limits.read_len).ilog2() as usize + 1,
        };
        let wanted = self.measured.early_len().min(value_len).max(first);
        // A short rest is not worth a round trip.
        let wanted = if value_len - wanted <= per_frame {
            value_len
        } else {
            wanted
        };
        let mut early = wanted;
        loop {
            let frames = 1 + (early - first).div_ceil(per_frame) + ready_frames(value_len - early);
            if frames <= credits {
                return Ok(Plan {
                    first,
                    early_len: early,
                });
            }
            if early == first {
                return Err(NotNow::Busy);
            }
            early = early.saturating_sub(per_frame).max(first);
        }
    }

    fn promise_writes(&mut self, fabric: &mut impl Fabric, parts: usize) {
        self.writes_promised += parts;
        if self.writes_promised > self.writes_expected {
            fabric.expect_writes(self.peer, self.writes_promised - self.writes_expected);
            self.writes_expected = self.writes_promised;
        }
    }

    fn send(
        &mut self,
        fabric: &mut impl Fabric,
        ticket: Ticket,
        submission: &Submission<'_>,
        area: Span,
        plan: Plan,
    ) -> Result<(), Refused> {
        let whole = |value: usize| u32::try_from(value).expect("shorter than 4 GiB");
        let lent = self.memory.lent;
        let value_len = submission.value.as_ref().map_or(0, Value::len);
        let source = match submission.value {
            Some(Value::Lent(span)) => Some(span),
            _ => self.slots[usize::from(ticket.slot)].source,
        };
        let is_ready = match (submission.value, source) {
            (Some(Value::Bytes(bytes)), Some(source)) if !self.limits.is_ordered => {
                fabric.copy_in(source, bytes);
                true
            }
            (value, _) => matches!(value, Some(Value::Lent(_))),
        };
        let source_offset = source.map_or(0, |span| span.offset - lent.offset);
        let header = RequestHeader {
            slot: ticket.slot,
            generation: ticket.generation,
            value_len: whole(value_len),
            early_len: whole(plan.early_len),
            ready_len: whole(if is_ready { value_len } else { plan.early_len }),
            source: Remote {
                key: self.memory.remote.key,
                address: self.memory.remote.address + source_offset as u64,
            },
            area_offset: whole(area.offset - lent.offset),
            area_len: whole(area.len),
        };
        let head = wire::encode_request(&header, submission.command.len());
        let value = submission.value;
        self.send_frame(
            fabric,
            ticket,
            &[&head, submission.command],
            value,
            0,
            plan.first,
        )?;
        let mut at = plan.first;
        while at < plan.early_len {
            let len = (plan.early_len - at).min(FRAME_LEN - wire::EARLY_LEN);
            let head = wire::encode_early(ticket.slot, ticket.generation, whole(at));
            self.send_frame(fabric, ticket, &[&head], value, at, len)?;
            at += len;
        }
        let (Some(Value::Bytes(bytes)), Some(source), false) = (value, source, is_ready) else {
            return Ok(());
        };
        // The server reads behind the copy: it is told when it can.
        let mut step = self.limits.read_len;
        while at < bytes.len() {
            let end = (at + step).min(bytes.len());
            fabric.copy_in(source.part(at, end - at), &bytes[at..end]);
            at = end;
            step *= 2;
            let ready = wire::encode_ready(ticket.slot, ticket.generation, whole(at));
            self.send_frame(fabric, ticket, &[&ready], None, 0, 0)?;
        }
        Ok(())
    }

    /// Sends a frame of some parts, and bytes of the value behind them.
    fn send_frame(
        &mut self,
        fabric: &mut impl Fabric,
        ticket: Ticket,
        parts: &[&[u8]],
        value: Option<Value<'_>>,
        from: usize,
        len: usize,
    ) -> Result<(), Refused> {
        let frame = self.free_frames.pop().expect("a frame for each credit");
        let mut end = 0;
        let mut put = |fabric: &mut _, bytes: &[u8]| {
            Fabric::copy_in(fabric, frame.part(end, bytes.len()), bytes);
            end += bytes.len();
        };
        for part in parts {
            put(fabric, part);
        }
        match value {
            Some(Value::Bytes(bytes)) => put(fabric, &bytes[from..from + len]),
            Some(Value::Lent(span)) if len > 0 => {
                let bytes = fabric.bytes(span.part(from, len)).to_vec();
                put(fabric, &bytes);
            }
            _ => {}
        }
        self.credits -= 1;
        self.slots[usize::from(ticket.slot)].frames += 1;
        let work = Work::Send {
            from: frame.part(0, end),
        };
        let token = (frame.offset as u64) << 16 | u64::from(frame.region);
        fabric.post(self.peer, &work, token)
    }

    /// Deals with what has happened. Events are appended to `events`.
    pub fn take(
        &mut self,
        fabric: &mut impl Fabric,
        completion: Completion,
        events: &mut Vec<ClientEvent>,
    ) {
        match completion {
            Completion::Done { token } => self.take_frame_back(token),
            Completion::Failed { token } => {
                self.take_frame_back(token);
                self.disconnect(fabric);
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

    fn take_frame_back(&mut self, token: u64) {
        let is_it = |frame: &&Span| (frame.offset as u64) << 16 | u64::from(frame.region) == token;
        if let Some(&frame) = self.memory.frames.iter().find(is_it) {
            self.free_frames.push(frame);
        }
    }

    /// A part of a reply has come.
    fn take_part(
        &mut self,
        told: Immediate,
        len: usize,
        fabric: &impl Fabric,
        events: &mut Vec<ClientEvent>,
    ) -> Result<(), Misbehaviour> {
        let ticket = Ticket {
            slot: told.slot,
            generation: told.generation,
        };
        let part_len = self.limits.part_len;
        let slot = self
            .slots
            .get_mut(usize::from(told.slot))
            .ok_or(Misbehaviour::Slot)?;
        let is_awaited = slot.generation == told.generation
            && matches!(slot.state, State::Waiting | State::GivenUp);
        let area = slot.area.filter(|_| is_awaited).ok_or(Misbehaviour::Slot)?;
        let part = usize::from(told.part);
        let end = part * part_len + len;
        let has_its_length = if told.is_too_long {
            told.is_last && part == 0 && len == 8
        } else {
            end <= area.len && (len == part_len || told.is_last && len < part_len)
        };
        if !has_its_length || !slot.see(part) || told.is_last && slot.whole.is_some() {
            return Err(Misbehaviour::Part);
        }
        if told.is_last {
            slot.whole = Some((part + 1, end));
        }
        if slot.whole.is_some_and(|(parts, _)| slot.parts_seen > parts) {
            return Err(Misbehaviour::Part);
        }
        let is_given_up = slot.state == State::GivenUp;
        let is_further = slot.advance();
        match slot.whole {
            Some((parts, len)) if slot.parts_seen == parts => {
                slot.state = State::Answered;
                self.credits += std::mem::take(&mut slot.frames);
                self.writes_promised -= area.len.div_ceil(part_len);
                if told.is_too_long {
                    let mut long = [0; 8];
                    long.copy_from_slice(fabric.bytes(area.part(0, 8)));
                    let len = usize::try_from(u64::from_le_bytes(long)).unwrap_or(usize::MAX);
                    self.free(ticket);
                    if !is_given_up {
                        events.push(ClientEvent::TooLong { ticket, len });
                    }
                } else if is_given_up {
                    self.free(ticket);
                } else {
                    events.push(ClientEvent::Done { ticket, len });
                }
            }
            _ if is_further && !is_given_up => {
                let len = slot.parts_in_order * part_len;
                events.push(ClientEvent::Progress { ticket, len });
            }
            _ => {}
        }
        Ok(())
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
        if self.state_of(ticket) == Some(State::Answered) {
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
        let spans = [slot.area.take(), slot.source.take()];
        slot.state = State::Free;
        slot.generation = (slot.generation + 1) % GENERATIONS;
        slot.frames = 0;
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

/// How a request's value is divided.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Bytes in the request's own frame.
    first: usize,
    /// Bytes in frames altogether.
    early_len: usize,
}

impl Slot {
    /// Notes that a part has come. False if it had come before.
    fn see(&mut self, part: usize) -> bool {
        let (word, bit) = (part / 64, 1 << (part % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        self.parts_seen += usize::from(is_new);
        is_new
    }

    /// Counts on over the parts that have come without a gap. True if there are more than before.
    fn advance(&mut self) -> bool {
        let before = self.parts_in_order;
        let has = |part: usize| {
            self.seen
                .get(part / 64)
                .is_some_and(|word| word >> (part % 64) & 1 == 1)
        };
        while has(self.parts_in_order) {
            self.parts_in_order += 1;
        }
        self.parts_in_order > before
    }

    fn forget_parts(&mut self) {
        self.seen.clear();
        self.parts_seen = 0;
        self.parts_in_order = 0;
        self.whole = None;
    }
}
