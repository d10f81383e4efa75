//! One connection of the simulated network.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use super::Manner;
use crate::outcome::{Received, Sent};
use crate::readiness::{Readiness, Token};

/// Where the end of the client's stream is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PeerEnd {
    NotSent,
    OnTheWay,
    Arrived,
}

/// One connection with both its ends.
pub(super) struct Link {
    manner: Manner,
    /// Sent by the client and not received.
    up: VecDeque<u8>,
    /// Bytes of that which have arrived at the server.
    arrived: usize,
    peer_end: PeerEnd,
    /// Sent by the server and not received by the client.
    down: VecDeque<u8>,
    /// Neither end gets anything through any more.
    is_broken: bool,
    /// Which poller waits for the server's end, and under which name.
    pub(super) watch: Option<(usize, Token)>,
    /// It stands in its poller's list.
    pub(super) is_listed: bool,
    /// The server waits to hear that there is room.
    wants_room: bool,
    /// There was room when the server was told that there was none: it hears so by itself.
    owes_edge: bool,
    pub(super) server_is_open: bool,
    pub(super) peer_is_open: bool,
}

impl Link {
    pub(super) fn new(manner: Manner) -> Link {
        Link {
            manner,
            up: VecDeque::new(),
            arrived: 0,
            peer_end: PeerEnd::NotSent,
            down: VecDeque::new(),
            is_broken: false,
            watch: None,
            is_listed: false,
            wants_room: false,
            owes_edge: false,
            server_is_open: true,
            peer_is_open: true,
        }
    }

    pub(super) fn poller(&self) -> Option<usize> {
        self.watch.map(|(poller, _)| poller)
    }

    /// Bytes that have not arrived.
    pub(super) fn under_way(&self) -> usize {
        self.up.len() - self.arrived
    }

    pub(super) fn unread_by_peer(&self) -> usize {
        self.down.len()
    }

    /// What a poller that looks now can tell of the server's end.
    pub(super) fn readiness(&self, token: Token) -> Option<Readiness> {
        let ended = self.is_broken || self.peer_end == PeerEnd::Arrived;
        let readiness = Readiness {
            token,
            readable: ended || self.arrived > 0,
            writable: self.is_broken || self.has_room_to_tell_of(),
            end_of_stream: ended,
        };
        (readiness.readable || readiness.writable).then_some(readiness)
    }

    fn has_room_to_tell_of(&self) -> bool {
        // As Linux does, room is told of when a third of the buffer is free.
        self.room() >= (self.manner.down_room / 3).max(1)
    }

    fn room(&self) -> usize {
        self.manner.down_room.saturating_sub(self.down.len())
    }

    /// Lets some of what is on its way arrive. True where that is an edge.
    pub(super) fn deliver(&mut self, rng: &mut Xoshiro256PlusPlus) -> bool {
        let mut edge = false;
        if self.under_way() > 0 {
            self.arrived += piece(rng, self.manner.piece_max).min(self.under_way());
            edge = true;
        }
        if self.peer_end == PeerEnd::OnTheWay && self.under_way() == 0 && rng.random() {
            self.peer_end = PeerEnd::Arrived;
            edge = true;
        }
        if self.owes_edge && self.has_room_to_tell_of() {
            self.owes_edge = false;
            self.wants_room = false;
            edge = true;
        }
        edge
    }

    pub(super) fn receive(&mut self, spaces: &mut [IoSliceMut<'_>]) -> Received {
        let mut count = 0;
        for space in spaces {
            let taken = space.len().min(self.arrived - count);
            copy_front(&self.up, count, &mut space[..taken]);
            count += taken;
        }
        self.up.drain(..count);
        self.arrived -= count;
        if count > 0 {
            Received::Bytes(count)
        } else if self.is_broken || self.peer_end == PeerEnd::Arrived {
            Received::Ended
        } else {
            Received::Nothing
        }
    }

    pub(super) fn send(&mut self, pieces: &[IoSlice<'_>], rng: &mut Xoshiro256PlusPlus) -> Sent {
        let offered: usize = pieces.iter().map(|piece| piece.len()).sum();
        if self.is_broken {
            return Sent::Broken;
        }
        if offered == 0 {
            return Sent::Bytes(0);
        }
        if !self.peer_is_open {
            // The system takes it and hears then that nobody is there.
            self.is_broken = true;
            return Sent::Bytes(offered);
        }
        let room = self.room();
        let refused = one_in(rng, self.manner.refused_send_one_in);
        if room == 0 || refused {
            self.wants_room = true;
            self.owes_edge |= refused;
            return Sent::Full;
        }
        let mut count = room.min(offered);
        if one_in(rng, self.manner.short_send_one_in) {
            count = piece(rng, count);
            self.owes_edge |= count < room.min(offered);
        }
        self.wants_room |= count < offered;
        let mut left = count;
        for piece in pieces {
            let taken = piece.len().min(left);
            self.down.extend(&piece[..taken]);
            left -= taken;
        }
        Sent::Bytes(count)
    }

    /// The client takes what was sent. The number of bytes, and whether the server hears of room.
    pub(super) fn peer_receive(&mut self, into: &mut Vec<u8>, most: usize) -> (usize, bool) {
        let count = most.min(self.down.len());
        let start = into.len();
        into.resize(start + count, 0);
        copy_front(&self.down, 0, &mut into[start..]);
        self.down.drain(..count);
        let edge = self.wants_room && self.has_room_to_tell_of();
        if edge {
            self.wants_room = false;
        }
        (count, edge)
    }

    /// Whether the client gets nothing more.
    pub(super) fn is_over_for_peer(&self) -> bool {
        self.down.is_empty() && (self.is_broken || !self.server_is_open)
    }

    pub(super) fn peer_send(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.is_broken || !self.server_is_open {
            return None;
        }
        let room = self.manner.up_room.saturating_sub(self.up.len());
        let count = bytes.len().min(room);
        self.up.extend(&bytes[..count]);
        Some(count)
    }

    pub(super) fn peer_end(&mut self) {
        if self.peer_end == PeerEnd::NotSent {
            self.peer_end = PeerEnd::OnTheWay;
        }
    }

    /// Breaks the connection. What has arrived may still be received, or not.
    pub(super) fn reset(&mut self, rng: &mut Xoshiro256PlusPlus) {
        self.is_broken = true;
        self.down.clear();
        if rng.random() {
            self.arrived = 0;
        }
        self.up.truncate(self.arrived);
    }

    pub(super) fn server_close(&mut self) {
        self.server_is_open = false;
        self.watch = None;
        self.up.clear();
        self.arrived = 0;
    }
}

/// Fills `to` with the bytes of `queue` from `from` on.
fn copy_front(queue: &VecDeque<u8>, from: usize, to: &mut [u8]) {
    let (front, back) = queue.as_slices();
    let split = front.len().saturating_sub(from).min(to.len());
    let (to_front, to_back) = to.split_at_mut(split);
    to_front.copy_from_slice(&front[front.len().min(from)..][..split]);
    let skipped = from.saturating_sub(front.len());
    let behind = &back[skipped..][..to_back.len()];
    to_back.copy_from_slice(behind);
}

/// A number of bytes from 1 to `most`, of any order of magnitude.
pub(super) fn piece(rng: &mut Xoshiro256PlusPlus, most: usize) -> usize {
    let magnitude = rng.random_range(0..=most.max(1).ilog2());
    rng.random_range(1..=2_usize << magnitude).min(most).max(1)
}

/// True once in `count` times on average; never for 0.
pub(super) fn one_in(rng: &mut Xoshiro256PlusPlus, count: u32) -> bool {
    count > 0 && rng.random_range(0..count) == 0
}
