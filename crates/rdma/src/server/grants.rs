//! Values that trusted clients write where they will lie.

use crate::fabric::{Fabric, Gather, PeerId, Remote, Work};
use crate::wire::{self, GRANTS_MAX, Immediate};

use super::{Misbehaviour, RequestId, Server, ServerEvent, TOKEN_GRANT};

impl<K> Server<K> {
    /// Shows a client where to write the rest of a value that it still copies; or that the server will read it.
    pub(super) fn grant(&mut self, fabric: &mut impl Fabric, id: RequestId) {
        let Some(request) = self.request_mut(id) else {
            return;
        };
        let (peer, header) = (request.peer, request.header);
        if header.ready_len == header.value_len {
            return;
        }
        let places = request.places.clone();
        let has_room = header.area_len as usize >= GRANTS_MAX * wire::GRANT_LEN;
        let mut granted = Vec::new();
        if has_room && places.len() <= GRANTS_MAX {
            granted.extend(places.iter().map_while(|place| fabric.grant(peer, *place)));
        }
        if granted.len() < places.len() {
            granted.drain(..).for_each(|one| fabric.revoke(one));
        }
        // There are two for each frame: one for this, one for the reply.
        let buffer = self.reply_buffers.pop().expect("a buffer for each grant");
        let mut bytes = Vec::new();
        for (one, place) in granted.iter().zip(&places) {
            bytes.extend(wire::encode_grant(*one, place.len));
        }
        if granted.is_empty() {
            let nothing = Remote { key: 0, address: 0 };
            bytes.extend(wire::encode_grant(nothing, 0));
        } else {
            self.counts.pushed += 1;
            fabric.expect_writes(peer, 1);
        }
        bytes.truncate(header.area_len as usize);
        let from = buffer.part(0, bytes.len());
        fabric.copy_in(from, &bytes);
        let (Some(request), Some(connection)) = (
            self.requests[id.index as usize].request.as_mut(),
            self.connections[peer.0 as usize].as_mut(),
        ) else {
            return;
        };
        request.granted = granted;
        request.grant_buffer = Some(buffer);
        let immediate = Immediate {
            slot: header.slot,
            generation: header.generation,
            part: 0,
            is_last: false,
            is_too_long: true,
        };
        let work = Work::Write {
            from: Gather::of(from),
            to: Remote {
                key: connection.memory.key,
                address: connection.memory.address + u64::from(header.area_offset),
            },
            immediate: Some(immediate.encode()),
        };
        let token = u64::from(id.generation) << 32 | u64::from(id.index) | TOKEN_GRANT;
        match fabric.post(peer, &work, token) {
            Ok(()) => connection.writes += 1,
            // Without an answer the client would wait for ever.
            Err(_) => {
                self.reply_buffers.push(buffer);
                request.grant_buffer = None;
                self.disconnect(fabric, peer);
            }
        }
    }

    /// A client has written the rest of a value.
    pub(super) fn take_pushed(
        &mut self,
        fabric: &mut impl Fabric,
        peer: PeerId,
        immediate: u32,
        events: &mut Vec<ServerEvent>,
    ) -> Result<(), Misbehaviour> {
        let told = Immediate::decode(immediate);
        let named = (told.slot, told.generation);
        let id = self.receiving(peer, named).ok_or(Misbehaviour::Write)?;
        let request = self.request_mut(id).ok_or(Misbehaviour::Write)?;
        if request.granted.is_empty() || !told.is_last {
            return Err(Misbehaviour::Write);
        }
        for one in request.granted.drain(..) {
            fabric.revoke(one);
        }
        request.header.ready_len = request.header.value_len;
        if request.pushed() {
            events.push(ServerEvent::Arrived { request: id });
        }
        Ok(())
    }
}
