//! Segments that arrived at the wrong one of several stacks that share a card.
//!
//! The sender may change the queue on which a connection's segments arrive: Linux draws a new hash
//! for a connection when its retransmission timer expires, and some cards choose the queue by the
//! sender's hash. So a stack does not answer a segment of an unknown connection with a reset at
//! once. It passes the segment on to the next stack, until one has the connection. If none has, the
//! last stack sends the reset.
//!
//! # Invariants
//! - Each stack passes a segment on at most once: `hops` goes down each time.
//! - The limits bound how many segments from a card are passed on. A segment that was passed on
//!   before is not counted again.

use std::collections::VecDeque;

use super::Stack;
use crate::limits::Answer;
use crate::nic::{Features, Frame, Nic, Offload};
use crate::time::Instant;
use crate::wire::Address;

/// The most segments that may wait to be passed on; further ones are dropped, as a network may drop
/// packets.
const STRAYS_MAX: usize = 64;

/// A segment on its way to the stack that has its connection.
#[derive(Clone, Debug)]
pub struct Stray {
    frame: Box<[u8]>,
    /// How many more stacks it may visit after the one that gets it next.
    hops: u8,
}

/// The segments that a stack passes on.
pub(super) struct Strays {
    waiting: VecDeque<Stray>,
    /// Other stacks on the card.
    others: u8,
    /// How many more stacks the segment that is being processed may visit.
    hops: u8,
}

impl Strays {
    /// No segments, and no other stacks.
    pub(super) fn new() -> Strays {
        Strays {
            waiting: VecDeque::new(),
            others: 0,
            hops: 0,
        }
    }

    /// Whether another stack has passed on the segment that is being processed.
    pub(super) fn is_stray(&self) -> bool {
        self.hops != self.others
    }
}

impl Stack {
    /// Sets how many other stacks share the card. [`Stack::next_stray`] then returns the segments
    /// to pass on to the next of them, in a ring.
    pub fn set_others(&mut self, others: u8) {
        (self.strays.others, self.strays.hops) = (others, others);
        self.strays.waiting.reserve(STRAYS_MAX);
    }

    /// A segment to give to the next stack with [`Stack::take_stray`].
    pub fn next_stray(&mut self) -> Option<Stray> {
        self.strays.waiting.pop_front()
    }

    /// Processes a segment that another stack has passed on. Called before [`Stack::begin`].
    pub fn take_stray(&mut self, now: Instant, stray: &Stray) {
        self.shared.now = self.shared.now.max(now);
        self.strays.hops = stray.hops;
        let nic = OneFrame {
            bytes: &stray.frame,
            features: self.shared.features,
        };
        // Its checksums were verified before it was passed on.
        let taken = self.try_frame(&nic, &stray.frame, 0, true);
        debug_assert!(taken.is_ok(), "{taken:?}");
        self.keep_all_fresh(&nic);
        self.shared.buffers.end_reserve();
        self.strays.hops = self.strays.others;
    }

    /// Passes on the segment that is being processed, for which this stack has no connection. False
    /// if no stack is left that could have it.
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

/// A card that has received one frame and sends none.
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
