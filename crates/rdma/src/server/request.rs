//! One request: how much of its value is there, how much of its reply is sent.

use crate::fabric::{Fabric, Gather, PARTS_MAX, PeerId, Refused, Remote, Span, Work};
use crate::limits::Limits;
use crate::wire::{Immediate, RequestHeader};

use super::ServerCounts;
use super::connection::Connection;

pub(super) struct Request<K> {
    pub(super) peer: PeerId,
    pub(super) header: RequestHeader,
    /// Frames that it has taken.
    pub(super) frames: usize,
    pub(super) is_too_long: bool,
    /// Bytes of the value that have come in frames.
    pub(super) early_done: usize,
    /// Where the rest of the value is to lie.
    pub(super) places: Vec<Span>,
    /// Bytes of the rest whose reads were posted, and that have come.
    posted: usize,
    fetched: usize,
    reads: usize,
    /// Where the client may write the rest of the value.
    pub(super) granted: Vec<Remote>,
    /// The buffer that its grants are sent from.
    pub(super) grant_buffer: Option<Span>,
    pub(super) stage: Stage<K>,
}

pub(super) enum Stage<K> {
    /// It is executed, or its value arrives.
    Receiving,
    /// Its reply is under way.
    Replying(Reply<K>),
}

/// A reply that is being sent.
pub(super) struct Reply<K> {
    /// What it consists of.
    pieces: Vec<Span>,
    /// The buffer of what was copied.
    pub(super) buffer: Span,
    len: usize,
    sent: usize,
    parts: usize,
    pub(super) under_way: usize,
    /// Held until the request is freed.
    _keep: Option<K>,
}

impl<K> Reply<K> {
    pub(super) fn new(pieces: Vec<Span>, buffer: Span, keep: Option<K>) -> Reply<K> {
        Reply {
            len: pieces.iter().map(|piece| piece.len).sum(),
            pieces,
            buffer,
            sent: 0,
            parts: 0,
            under_way: 0,
            _keep: keep,
        }
    }

    /// Whether its last part was posted. An empty reply has one part, too.
    pub(super) fn is_sent(&self) -> bool {
        self.parts > 0 && self.sent == self.len
    }

    /// The next part: as many bytes as it has, out of as many pieces as one write takes.
    fn next_part(&self, limits: &Limits) -> Option<Gather> {
        let (from, len) = limits.part(self.parts);
        debug_assert_eq!(from, self.sent);
        let mut skip = self.sent;
        let mut left = len.min(self.len - self.sent);
        let mut part = Gather::new();
        for piece in &self.pieces {
            if skip >= piece.len {
                skip -= piece.len;
                continue;
            }
            let len = left.min(piece.len - skip);
            if len == 0 {
                break;
            }
            if !part.push(piece.part(skip, len)) {
                return None;
            }
            left -= len;
            skip = 0;
        }
        Some(part)
    }
}

impl<K> Request<K> {
    pub(super) fn new(peer: PeerId, header: RequestHeader, early_done: usize) -> Request<K> {
        Request {
            peer,
            header,
            frames: 1,
            is_too_long: false,
            early_done,
            places: Vec::new(),
            posted: 0,
            fetched: 0,
            reads: 0,
            granted: Vec::new(),
            grant_buffer: None,
            stage: Stage::Receiving,
        }
    }

    /// Bytes of its value that do not come in frames.
    pub(super) fn to_fetch(&self) -> usize {
        (self.header.value_len - self.header.early_len) as usize
    }

    /// Whether all of its value is there.
    pub(super) fn has_arrived(&self) -> bool {
        self.early_done == self.header.early_len as usize && self.fetched == self.to_fetch()
    }

    /// Posts reads of its value, as far as that is ready and has a place.
    pub(super) fn fetch(
        &mut self,
        fabric: &mut impl Fabric,
        connection: &mut Connection,
        limits: &Limits,
        token: u64,
        counts: &mut ServerCounts,
    ) -> Option<Refused> {
        if self.places.is_empty() || !self.granted.is_empty() {
            return None;
        }
        let early_len = self.header.early_len as usize;
        while connection.reads < limits.reads_max {
            let ready = (self.header.ready_len as usize).saturating_sub(early_len);
            let (place, left_there) = self.place_of(self.posted)?;
            let is_all_ready = ready == self.to_fetch();
            let len = left_there
                .min(limits.read_len)
                .min(ready.saturating_sub(self.posted));
            // Short reads cost as much as long ones.
            let is_worth_it = len > 0 && (is_all_ready || len == left_there.min(limits.read_len));
            if !is_worth_it {
                return None;
            }
            let from = Remote {
                key: self.header.source.key,
                address: self.header.source.address + (early_len + self.posted) as u64,
            };
            let into = Span { len, ..place };
            if let Err(refused) = fabric.post(self.peer, &Work::Read { into, from }, token) {
                return Some(refused);
            }
            self.posted += len;
            self.reads += 1;
            connection.reads += 1;
            connection.counts.bytes_read += len as u64;
            counts.bytes_read += len as u64;
        }
        None
    }

    /// Where the byte of a number, of those that are fetched, is to lie, and how many follow it there.
    fn place_of(&self, number: usize) -> Option<(Span, usize)> {
        let mut skip = number;
        for place in &self.places {
            if skip < place.len {
                let rest = place.part(skip, place.len - skip);
                return Some((rest, rest.len));
            }
            skip -= place.len;
        }
        None
    }

    /// A read has come back. True if the value is whole by it.
    pub(super) fn fetched(&mut self, is_done: bool) -> bool {
        self.reads -= 1;
        // Reads of one connection come back in any order, so only all of them count.
        if is_done && self.reads == 0 && self.fetched < self.posted {
            self.fetched = self.posted;
            return self.has_arrived();
        }
        false
    }

    /// The client has written the rest of the value. True if it is whole by that.
    pub(super) fn pushed(&mut self) -> bool {
        self.fetched = self.to_fetch();
        self.has_arrived()
    }

    /// Posts parts of its reply.
    pub(super) fn send(
        &mut self,
        fabric: &mut impl Fabric,
        connection: &mut Connection,
        limits: &Limits,
        token: u64,
        counts: &mut ServerCounts,
    ) -> Option<Refused> {
        let Stage::Replying(reply) = &mut self.stage else {
            return None;
        };
        while !reply.is_sent() && connection.writes < limits.writes_max {
            let from = reply.next_part(limits).unwrap_or_else(|| {
                unreachable!(
                    "head, tail and pieces that are longer than a part: {PARTS_MAX} at most"
                )
            });
            let len = from.len();
            let is_last = reply.sent + len == reply.len;
            let immediate = Immediate {
                slot: self.header.slot,
                generation: self.header.generation,
                part: u16::try_from(reply.parts).expect("fewer parts than there are numbers"),
                is_last,
                is_too_long: self.is_too_long,
            };
            let offset = u64::from(self.header.area_offset) + reply.sent as u64;
            let work = Work::Write {
                from,
                to: Remote {
                    key: connection.memory.key,
                    address: connection.memory.address + offset,
                },
                immediate: Some(immediate.encode()),
            };
            if let Err(refused) = fabric.post(self.peer, &work, token) {
                return Some(refused);
            }
            reply.sent += len;
            reply.parts += 1;
            reply.under_way += 1;
            connection.writes += 1;
            connection.counts.bytes_written += len as u64;
            counts.bytes_written += len as u64;
            if is_last {
                // From now on the client may send as many frames again.
                connection.frames -= self.frames;
            }
        }
        None
    }
}
