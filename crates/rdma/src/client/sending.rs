//! How a request and its value are sent.

use crate::fabric::{Fabric, Gather, Refused, Remote, Span, Work};
use crate::limits::FRAME_LEN;
use crate::wire::{self, Immediate, RequestHeader};

use super::slot::State;
use super::{Client, NotNow, Submission, Ticket, Value};

/// Marks the token of a write; the others are those of frames.
pub(super) const TOKEN_WRITE: u64 = 1 << 63;

/// How a request's value is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Bytes in the request's own frame.
    pub(super) first: usize,
    /// Bytes in frames altogether.
    pub(super) early_len: usize,
    /// Bytes of the rest that are copied at first.
    pub(super) step: usize,
    /// Frames that may have to say how much is ready.
    pub(super) ready_frames: usize,
}

impl Client {
    /// How a request's value is divided, by what credits are left.
    pub(super) fn plan(
        &self,
        command_len: usize,
        value_len: usize,
        is_copied: bool,
    ) -> Result<Plan, NotNow> {
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
        let is_read = is_copied && !self.limits.may_write;
        let wanted = match is_read {
            true => self.measured.early_len_copied(self.limits.read_len),
            false => self.measured.early_len(),
        };
        // Half of the credits are for other requests.
        let most = first + per_frame * (self.limits.credits / 2);
        let wanted = wanted.min(most).min(value_len).max(first);
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
        if self.limits.may_write {
            // Nothing is told: each step is written. A server that will not have that is told of at most a few.
            return (self.limits.part_len, if rest > 0 { 4 } else { 0 });
        }
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

    pub(super) fn send(
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
    pub(super) fn pass_on(
        &mut self,
        fabric: &mut impl Fabric,
        ticket: Ticket,
    ) -> Result<(), Refused> {
        let may_write = self.limits.may_write;
        let slot = &self.slots[usize::from(ticket.slot)];
        match &slot.granted {
            // The server will say.
            None if may_write => Ok(()),
            Some(granted) if !granted.is_empty() => self.write_on(fabric, ticket),
            _ if slot.written == slot.fed => Ok(()),
            // The last frame says that all is ready.
            _ if slot.spare_frames.len() <= 1 && slot.fed < slot.value_len => Ok(()),
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
    pub(super) fn take_write_back(&mut self, fabric: &mut impl Fabric, token: u64) {
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

    pub(super) fn take_frame_back(&mut self, token: u64) {
        let is_it = |frame: &&Span| (frame.offset as u64) << 16 | u64::from(frame.region) == token;
        if let Some(&frame) = self.memory.frames.iter().find(is_it) {
            self.free_frames.push(frame);
        }
    }
}

fn frame_token(frame: &Span) -> u64 {
    (frame.offset as u64) << 16 | u64::from(frame.region)
}
