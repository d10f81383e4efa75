//! Replies.

use crate::fabric::{Fabric, Span};
use crate::limits::REPLY_COPY_MAX;

use super::request::{Reply, Stage};
use super::{RequestId, Server};

impl<K> Server<K> {
    /// Answers a request with a copy of `bytes`, [`REPLY_COPY_MAX`] of them at most. One whose value is refused is
    /// answered before the value has a place; once it has one ([`Server::receive_value`]), after all of it has arrived.
    ///
    /// # Panics
    /// If they are more.
    pub fn reply(&mut self, fabric: &mut impl Fabric, id: RequestId, bytes: &[u8]) {
        let Some(request) = self.request_mut(id) else {
            return;
        };
        if bytes.len() > request.header.area_len as usize {
            return self.reply_too_long(fabric, id, bytes.len());
        }
        // Not every network writes nothing, and tells the other side of it.
        request.is_too_long = bytes.is_empty();
        self.counts.replies_copied += 1;
        if bytes.is_empty() {
            return self.answer(fabric, id, &0_u64.to_le_bytes(), &[], &[], None);
        }
        self.answer(fabric, id, bytes, &[], &[], None);
    }

    /// Answers a request with `head`, a value from where it lies, and `tail`. `keep` keeps the value there until the
    /// network has read it. Head and tail are copied; together they are [`REPLY_COPY_MAX`] bytes at most. Of a value in
    /// several pieces all but the last are at least as long as the longest part of a reply ([`Limits::part_len_max`]).
    ///
    /// # Panics
    /// If head and tail are longer, or pieces shorter.
    pub fn reply_from(
        &mut self,
        fabric: &mut impl Fabric,
        id: RequestId,
        (head, tail): (&[u8], &[u8]),
        value: &[Span],
        keep: K,
    ) {
        let Some(request) = self.request_mut(id) else {
            return;
        };
        let len = head.len() + tail.len() + value.iter().map(|part| part.len).sum::<usize>();
        if len > request.header.area_len as usize {
            return self.reply_too_long(fabric, id, len);
        }
        let part_len = self.limits.part_len_max();
        let all_but_last = value.iter().rev().skip(1);
        assert!(
            all_but_last.fold(true, |all, piece| all & (piece.len >= part_len)),
            "short pieces"
        );
        self.counts.replies_gathered += 1;
        self.answer(fabric, id, head, value, tail, Some(keep));
    }

    /// Tells a client how long its reply would be.
    fn reply_too_long(&mut self, fabric: &mut impl Fabric, id: RequestId, len: usize) {
        self.counts.too_long += 1;
        if let Some(request) = self.request_mut(id) {
            request.is_too_long = true;
        }
        self.answer(fabric, id, &(len as u64).to_le_bytes(), &[], &[], None);
    }

    fn answer(
        &mut self,
        fabric: &mut impl Fabric,
        id: RequestId,
        head: &[u8],
        value: &[Span],
        tail: &[u8],
        keep: Option<K>,
    ) {
        assert!(head.len() + tail.len() <= REPLY_COPY_MAX, "a long reply");
        // There are two for each frame, and a request that is under way has had a frame.
        let buffer = self.reply_buffers.pop().expect("a buffer for each reply");
        fabric.copy_in(buffer.part(0, head.len()), head);
        fabric.copy_in(buffer.part(head.len(), tail.len()), tail);
        let Some(request) = self.request_mut(id) else {
            return self.reply_buffers.push(buffer);
        };
        let peer = request.peer;
        for one in request.granted.drain(..) {
            fabric.revoke(one);
        }
        let is_early = !request.has_arrived();
        let mut pieces = std::mem::take(&mut request.places);
        pieces.clear();
        pieces.push(buffer.part(0, head.len()));
        pieces.extend(value);
        pieces.push(buffer.part(head.len(), tail.len()));
        pieces.retain(|piece| piece.len > 0);
        request.stage = Stage::Replying(Reply::new(pieces, buffer, keep));
        let credits = self.limits.credits;
        if is_early && let Some(connection) = self.connection_mut(peer) {
            // What the client sends of the value before it has the answer is nobody's.
            connection.strays += credits;
        }
        self.go_on(fabric, peer);
    }
}
