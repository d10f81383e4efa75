//! Frames from clients: requests, and more of their values.

use crate::fabric::{Fabric, PeerId, Span};
use crate::wire::{self, Frame, RequestHeader};

use super::request::{Request, Stage};
use super::{Misbehaviour, RequestId, Server, ServerEvent};

impl<K> Server<K> {
    /// Deals with a frame, whose buffer goes back unless an event names it.
    pub(super) fn take_frame(
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
    pub(super) fn receiving(&self, peer: PeerId, named: (u16, u8)) -> Option<RequestId> {
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
}
