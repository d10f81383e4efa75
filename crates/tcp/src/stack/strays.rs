//! Segments that have come to the wrong stack of several that share a card.
//!
//! A sender may change the queue to which a connection's segments come. Linux draws a connection's hash
//! anew when its retransmission timer expires, and on some cards the queue goes by the sender's hash. So
//! a stack does not reset what it does not know: it passes the segment on to the next stack, until one
//! has the connection. The last one that has not resets it.
//!
//! # Invariants
//! - A segment is passed on once at most by each stack: `hops` goes down with each.
//! - Of what a card brings, no more is passed on than the limits allow. What has been passed on once
//!   counts no more.

use std::collections::VecDeque;

use super::Stack;
use crate::limits::Answer;
use crate::nic::{Features, Frame, Nic, Offload};
use crate::time::Instant;
use crate::wire::Address;

/// Segments that wait to be passed on at most; further ones are dropped, as a network may.
const STRAYS_MAX: usize = 64;

/// A segment on its way to the stack that has its connection.
#[derive(Clone, Debug)]
pub struct Stray {
    frame: Box<[u8]>,
    /// Stacks that are still to be asked, behind the one that gets it.
    hops: u8,
}

/// What a stack has to pass on.
pub(super) struct Strays {
    waiting: VecDeque<Stray>,
    /// Other stacks on the card.
    others: u8,
    /// Stacks that are still to be asked for the segment that is being taken in.
    hops: u8,
}

impl Strays {
    /// None, and no others.
    pub(super) fn new() -> Strays {
        Strays {
            waiting: VecDeque::new(),
            others: 0,
            hops: 0,
        }
    }

    /// Whether the segment that is being taken in was passed on to here.
    pub(super) fn is_stray(&self) -> bool {
        self.hops != self.others
    }
}

impl Stack {
    /// Tells how many other stacks are on the same card: [`Stack::next_stray`] then has what is to be
    /// passed on to the next of them, in a circle.
    pub fn set_others(&mut self, others: u8) {
        (self.strays.others, self.strays.hops) = (others, others);
        self.strays.waiting.reserve(STRAYS_MAX);
    }

    /// A segment for the next stack, which has it from [`Stack::take_stray`].
    pub fn next_stray(&mut self) -> Option<Stray> {
        self.strays.waiting.pop_front()
    }

    /// Takes in a segment that another stack has passed on, before [`Stack::begin`].
    pub fn take_stray(&mut self, now: Instant, stray: &Stray) {
        self.shared.now = self.shared.now.max(now);
        self.strays.hops = stray.hops;
        let nic = OneFrame {
            bytes: &stray.frame,
            features: self.shared.features,
        };
        // It was right when it was passed on.
        let taken = self.try_frame(&nic, &stray.frame, 0, true);
        debug_assert!(taken.is_ok(), "{taken:?}");
        self.keep_all_fresh(&nic);
        self.shared.buffers.end_reserve();
        self.strays.hops = self.strays.others;
    }

    /// Passes on the segment that is being taken in, of which this stack has no connection. False where
    /// nobody else has one.
    pub(super) fn pass_on(&mut self, frame: &[u8], remote: Address) -> bool {
        let Some(hops) = self.strays.hops.checked_sub(1) else {
            return false;
        };
        let may = self.strays.is_stray() || self.shared.may_answer(Answer::Pass, remote);
        if may && self.strays.waiting.len() < STRAYS_MAX {
            self.shared.counters.segments_passed_on += 1;
            let frame = frame.into();
            self.strays.waiting.push_back(Stray { frame, hops });
        }
        true
    }
}

/// A card that has brought one frame, and takes none.
struct OneFrame<'f> {
    bytes: &'f [u8],
    features: Features,
}

impl Nic for OneFrame<'_> {
    fn features(&self) -> Features {
        self.features
    }

    fn receive(&mut self) -> usize {
        1
    }

    fn frame(&self, _at: usize) -> Frame<'_> {
        Frame {
            bytes: self.bytes,
            is_verified: true,
        }
    }

    fn release(&mut self) {}

    fn slot(&mut self) -> Option<&mut [u8]> {
        None
    }

    fn commit(&mut self, _len: usize, _offload: Offload) {}

    fn flush(&mut self) {}
}
