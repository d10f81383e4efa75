//! How a reply arrives.

use crate::fabric::{Fabric, Span};
use crate::wire::{self, GRANT_LEN, Immediate};

use super::slot::State;
use super::{Client, ClientEvent, Misbehaviour, Ticket};

impl Client {
    /// A part of a reply has come.
    pub(super) fn take_part(
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
                    match len {
                        0 if !is_given_up => events.push(ClientEvent::Done { ticket, len }),
                        _ => self.free(ticket),
                    }
                    if len > 0 && !is_given_up {
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
}
