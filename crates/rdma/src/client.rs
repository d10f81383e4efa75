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

mod areas;

use crate::fabric::{Completion, Fabric, Gather, PeerId, Refused, Remote, Span, Work};
use crate::limits::{FRAME_LEN, Limits, Measured};
use crate::wire::{
    self, GENERATIONS, GRANT_LEN, GRANTS_MAX, Immediate, REPLY_PARTS_MAX, RequestHeader, SLOTS_MAX,
};

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

/// Marks the token of a write; the others are those of frames.
const TOKEN_WRITE: u64 = 1 << 63;

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
    /// Where its value is copied to, how long it is, how much was copied and how much the next copy is.
    source: Option<Span>,
    value_len: usize,
    fed: usize,
    step: usize,
    /// What the server has said of the rest of the value, and from where on that is.
    granted: Option<Vec<(Remote, usize)>>,
    rest_from: usize,
    /// How much of the value was written, and writes under way.
    written: usize,
    writes: usize,
    /// Frames that are kept for saying how much is ready.
    spare_frames: Vec<Span>,
    /// Writes that the network was told to expect.
    parts_promised: usize,
    /// It is free when they are done.
    is_leaving: bool,
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

    /// How a request's value is divided, by what credits are left.
    fn plan(&self, command_len: usize, value_len: usize, is_copied: bool) -> Result<Plan, NotNow> {
        let room = FRAME_LEN - wire::REQUEST_LEN - command_len;
        // Of a longer value none comes with the request, so that the server begins with that sooner.
        let first = if value_len <= room { value_len } else { 0 };
        let per_frame = FRAME_LEN - wire::EARLY_LEN;
        let credits = self.credits.min(self.free_frames.len());
        if !self.limits.is_ordered {
            let plan = Plan {
                first,
                early_len: first,
                step: value_len,
                ready_frames: 0,
            };
            return if credits > 0 {
                Ok(plan)
            } else {
                Err(NotNow::Busy)
            };
        }
        let wanted = self.measured.early_len().min(value_len).max(first);
        // A short rest is not worth a round trip.
        let wanted = if value_len - wanted <= per_frame {
            value_len
        } else {
            wanted
        };
        let mut early = wanted;
        loop {
            let (step, ready_frames) = self.steps(if is_copied { value_len - early } else { 0 });
            let frames = 1 + (early - first).div_ceil(per_frame) + ready_frames;
            if frames <= credits {
                return Ok(Plan {
                    first,
                    early_len: early,
                    step,
                    ready_frames,
                });
            }
            if early == first {
                return Err(NotNow::Busy);
            }
            early = early.saturating_sub(per_frame).max(first);
        }
    }

    /// In what steps the rest of a value is copied, and how many they are: each may have to be told to the server.
    fn steps(&self, rest: usize) -> (usize, usize) {
        let mut first = self.limits.read_len;
        loop {
            let (mut step, mut at, mut count) = (first, 0, 0);
            while at < rest {
                at += step;
                step = self.measured.next_copy(step);
                count += 1;
            }
            if count <= (self.limits.credits / 2).max(1) {
                return (first, count);
            }
            first *= 2;
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
        if is_ready {
            self.slots[usize::from(ticket.slot)].fed = value_len;
        }
        Ok(())
    }

    /// Copies the next piece of a value to where the network reaches it, and sends it on its way. True if there is more
    /// to copy. To be called again and again after [`Client::submit`], with the same bytes; completions may be dealt with
    /// in between.
    pub fn feed(&mut self, fabric: &mut impl Fabric, ticket: Ticket, value: &[u8]) -> bool {
        let Some(slot) = self.slots.get_mut(usize::from(ticket.slot)) else {
            return false;
        };
        let is_it = slot.generation == ticket.generation
            && matches!(slot.state, State::Waiting | State::GivenUp);
        let Some(source) = slot.source.filter(|_| is_it && slot.fed < slot.value_len) else {
            return false;
        };
        debug_assert_eq!(value.len(), slot.value_len);
        let (from, end) = (slot.fed, (slot.fed + slot.step).min(slot.value_len));
        slot.fed = end;
        slot.step = self.measured.next_copy(slot.step);
        fabric.copy_in(source.part(from, end - from), &value[from..end]);
        if self.pass_on(fabric, ticket).is_err() {
            self.disconnect(fabric);
        }
        end < value.len()
    }

    /// Sends on what was copied of a value: writes it, or says that it can be read.
    fn pass_on(&mut self, fabric: &mut impl Fabric, ticket: Ticket) -> Result<(), Refused> {
        let may_write = self.limits.may_write;
        let slot = &self.slots[usize::from(ticket.slot)];
        match &slot.granted {
            // The server will say.
            None if may_write => Ok(()),
            Some(granted) if !granted.is_empty() => self.write_on(fabric, ticket),
            _ if slot.written == slot.fed => Ok(()),
            _ => {
                let fed = slot.fed;
                let slot = &mut self.slots[usize::from(ticket.slot)];
                slot.written = fed;
                let frame = slot.spare_frames.pop().expect("a frame for each step");
                let fed = u32::try_from(fed).expect("shorter than 4 GiB");
                let ready = wire::encode_ready(ticket.slot, ticket.generation, fed);
                self.send_from(fabric, frame, &[&ready], None, 0, 0)
            }
        }
    }

    /// Writes what was copied of a value to where the server wants it.
    fn write_on(&mut self, fabric: &mut impl Fabric, ticket: Ticket) -> Result<(), Refused> {
        let slot = &mut self.slots[usize::from(ticket.slot)];
        let (Some(granted), Some(source)) = (&slot.granted, slot.source) else {
            return Ok(());
        };
        while slot.written < slot.fed {
            let mut skip = slot.written - slot.rest_from;
            let place = granted.iter().find_map(|(to, len)| {
                let is_there = skip < *len;
                let place = (*to, skip, len.wrapping_sub(skip));
                skip = skip.wrapping_sub(*len);
                is_there.then_some(place)
            });
            let Some((to, skip, left)) = place else {
                return Err(Refused::Gone);
            };
            let len = left.min(slot.fed - slot.written);
            let is_last = slot.written + len == slot.value_len;
            let immediate = Immediate {
                slot: ticket.slot,
                generation: ticket.generation,
                part: 0,
                is_last: true,
                is_too_long: false,
            };
            let work = Work::Write {
                from: Gather::of(source.part(slot.written, len)),
                to: Remote {
                    key: to.key,
                    address: to.address + skip as u64,
                },
                immediate: is_last.then(|| immediate.encode()),
            };
            let token = TOKEN_WRITE | u64::from(ticket.slot);
            match fabric.post(self.peer, &work, token) {
                Ok(()) => {}
                // It goes on when others are done.
                Err(Refused::Full) => return Ok(()),
                Err(Refused::Gone) => return Err(Refused::Gone),
            }
            slot.written += len;
            slot.writes += 1;
        }
        Ok(())
    }

    /// A write of a value is done.
    fn take_write_back(&mut self, fabric: &mut impl Fabric, token: u64) {
        let number = u16::try_from(token & 0xfff).expect("12 bits");
        let slot = &mut self.slots[usize::from(number)];
        slot.writes -= 1;
        let ticket = Ticket {
            slot: number,
            generation: slot.generation,
        };
        if slot.is_leaving && slot.writes == 0 {
            self.free(ticket);
        } else if !self.is_closed
            && slot.state == State::Waiting
            && self.write_on(fabric, ticket).is_err()
        {
            self.disconnect(fabric);
        }
    }

    /// Sends a frame of some parts, and bytes of the value behind them.
    fn send_frame(
        &mut self,
        fabric: &mut impl Fabric,
        ticket: Ticket,
        parts: &[&[u8]],
        value: Option<Value<'_>>,
        at: usize,
        len: usize,
    ) -> Result<(), Refused> {
        let frame = self.free_frames.pop().expect("a frame for each credit");
        self.credits -= 1;
        self.slots[usize::from(ticket.slot)].frames += 1;
        self.send_from(fabric, frame, parts, value, at, len)
    }

    /// Sends such a frame from a buffer.
    fn send_from(
        &mut self,
        fabric: &mut impl Fabric,
        frame: Span,
        parts: &[&[u8]],
        value: Option<Value<'_>>,
        at: usize,
        len: usize,
    ) -> Result<(), Refused> {
        let mut end = 0;
        let mut put = |fabric: &mut _, bytes: &[u8]| {
            Fabric::copy_in(fabric, frame.part(end, bytes.len()), bytes);
            end += bytes.len();
        };
        for part in parts {
            put(fabric, part);
        }
        // What lies in registered memory is gathered from there.
        if let Some(Value::Bytes(bytes)) = value {
            put(fabric, &bytes[at..at + len]);
        }
        let mut from = Gather::of(frame.part(0, end));
        if let Some(Value::Lent(span)) = value {
            from.push(span.part(at, len));
        }
        let work = Work::Send { from };
        let token = frame_token(&frame);
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
        fabric: &mut impl Fabric,
        events: &mut Vec<ClientEvent>,
    ) -> Result<(), Misbehaviour> {
        let ticket = Ticket {
            slot: told.slot,
            generation: told.generation,
        };
        let limits = self.limits;
        let slot = self
            .slots
            .get_mut(usize::from(told.slot))
            .ok_or(Misbehaviour::Slot)?;
        let is_awaited = slot.generation == told.generation
            && matches!(slot.state, State::Waiting | State::GivenUp);
        let area = slot.area.filter(|_| is_awaited).ok_or(Misbehaviour::Slot)?;
        if told.is_too_long && !told.is_last {
            return self.take_grants(ticket, area, len, fabric);
        }
        let part = usize::from(told.part);
        let (from, part_len) = limits.part(part);
        let end = from + len;
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
                self.writes_promised -= slot.parts_promised;
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
                let (len, _) = limits.part(slot.parts_in_order);
                events.push(ClientEvent::Progress { ticket, len });
            }
            _ => {}
        }
        Ok(())
    }

    /// The server has said where the rest of a value is to be written.
    fn take_grants(
        &mut self,
        ticket: Ticket,
        area: Span,
        len: usize,
        fabric: &mut impl Fabric,
    ) -> Result<(), Misbehaviour> {
        let slot = &mut self.slots[usize::from(ticket.slot)];
        let rest = slot.value_len - slot.rest_from;
        let is_asked_for = slot.source.is_some() && slot.granted.is_none();
        if !is_asked_for || !len.is_multiple_of(GRANT_LEN) || len > area.len {
            return Err(Misbehaviour::Grant);
        }
        let bytes = fabric.bytes(area.part(0, len));
        let mut granted: Vec<_> = bytes
            .chunks_exact(GRANT_LEN)
            .map(wire::decode_grant)
            .collect();
        let all = granted
            .iter()
            .try_fold(0_usize, |all, (_, len)| all.checked_add(*len));
        if all == Some(0) {
            granted.clear();
        } else if all != Some(rest) {
            return Err(Misbehaviour::Grant);
        }
        slot.granted = Some(granted);
        if slot.fed > slot.written && self.pass_on(fabric, ticket).is_err() {
            self.disconnect(fabric);
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

fn frame_token(frame: &Span) -> u64 {
    (frame.offset as u64) << 16 | u64::from(frame.region)
}

/// How a request's value is divided.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Bytes in the request's own frame.
    first: usize,
    /// Bytes in frames altogether.
    early_len: usize,
    /// Bytes of the rest that are copied at first.
    step: usize,
    /// Frames that may have to say how much is ready.
    ready_frames: usize,
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
