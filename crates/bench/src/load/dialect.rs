//! The protocol's spellings: requests written, replies compared with what they must say.
//!
//! Every reply is checked. A value must belong to its key, byte by byte, or it is counted as wrong;
//! a miss is counted, and so is an error that the server reports. What cannot be a reply to the
//! request at the front ends the load.

mod binary;
mod lines;
mod meta;
mod mirror;
mod text;

use std::collections::VecDeque;

use super::measured::Measured;
use super::plan::{Dialect, Plan};
use crate::workload::Op;

/// Appends a request for these keys, which are one unless `op` reads.
#[inline]
pub(super) fn append(plan: &Plan, op: Op, numbers: &[u32], ttl: u32, out: &mut Vec<u8>) {
    match plan.dialect {
        Dialect::Text | Dialect::Udp => text::append(plan, op, numbers, ttl, out),
        Dialect::Meta => meta::append(plan, op, numbers, ttl, out),
        Dialect::Binary => binary::append(plan, op, numbers, ttl, out),
        Dialect::Mirror => mirror::append(plan, numbers, out),
    }
}

/// The replies of one connection.
#[derive(Debug)]
pub(super) enum Replies {
    /// Of either text dialect.
    Lines(lines::Lines),
    /// Of the binary protocol, which has nothing to remember.
    Binary,
    /// Of a bare service.
    Mirror,
}

impl Replies {
    /// At the beginning of a connection.
    pub(super) fn new(dialect: Dialect) -> Replies {
        match dialect {
            Dialect::Text | Dialect::Meta | Dialect::Udp => Replies::Lines(lines::Lines::new()),
            Dialect::Binary => Replies::Binary,
            Dialect::Mirror => Replies::Mirror,
        }
    }

    /// Takes what `input` begins with as a part of the reply to the request at the front.
    #[inline]
    pub(super) fn next(
        &mut self,
        plan: &Plan,
        front: &mut Front<'_>,
        input: &[u8],
        measured: &mut Measured,
    ) -> Result<Heard, Unexpected> {
        match self {
            Replies::Lines(lines) => lines.next(plan, front, input, measured),
            Replies::Binary => binary::next(plan, front, input, measured),
            Replies::Mirror => mirror::next(plan, front, input, measured),
        }
    }
}

/// A request that waits for its reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    /// What was asked.
    pub(super) op: Op,
    /// Keys whose outcome is not known yet; their numbers stand in a queue beside.
    pub(super) left: u32,
    /// It asked for several keys, or may have.
    pub(super) many: bool,
    /// When it was due, or sent where nothing says when, in nanoseconds of the engine's clock.
    pub(super) at_ns: u64,
}

/// The oldest request without a reply, and the keys of all that have none; its own come first.
#[derive(Debug)]
pub(super) struct Front<'a> {
    /// The request.
    pub(super) asked: &'a mut PendingRequest,
    /// Numbers of keys.
    pub(super) numbers: &'a mut VecDeque<u32>,
}

impl Front<'_> {
    /// The next key that was asked for; none where the request has no more.
    #[inline]
    fn pop(&mut self) -> Option<u32> {
        self.asked.left = self.asked.left.checked_sub(1)?;
        self.numbers.pop_front()
    }

    /// Finds the key that a value came for; those before it are misses.
    #[inline]
    fn find(
        &mut self,
        measured: &mut Measured,
        is: impl Fn(u32) -> bool,
    ) -> Result<u32, Unexpected> {
        loop {
            let number = self.pop().ok_or(Unexpected)?;
            if is(number) {
                return Ok(number);
            }
            measured.misses += 1;
        }
    }

    /// Finds it by its name.
    #[inline]
    fn find_key(
        &mut self,
        plan: &Plan,
        key: &[u8],
        measured: &mut Measured,
    ) -> Result<u32, Unexpected> {
        self.find(measured, |number| plan.canned || plan.keys.is(number, key))
    }

    /// The reply is at its end, and keys that are left were not found.
    #[inline]
    fn miss_rest(&mut self, measured: &mut Measured) {
        measured.misses += u64::from(self.asked.left);
        self.drop_rest();
    }

    /// The reply is at its end, and says nothing about keys that are left.
    #[inline]
    fn drop_rest(&mut self) {
        while self.pop().is_some() {}
    }
}

/// What the next bytes were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// They are not enough.
    More,
    /// So many, of a reply that goes on.
    Part(usize),
    /// So many, and the reply to the request at the front is over.
    Reply(usize),
}

/// The server answered something that the request cannot be answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unexpected;

#[cfg(test)]
mod tests;
