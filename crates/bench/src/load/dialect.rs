//! The dialects of the protocol: how requests are written and replies are checked.
//!
//! Every reply is checked. A value must match its key, byte by byte, or it counts as wrong. Misses
//! are counted, and so are errors that the server reports. Anything that cannot be a reply to the
//! oldest request ends the load.

mod binary;
mod lines;
mod meta;
mod mirror;
mod text;

use std::collections::VecDeque;

use super::measured::Measured;
use super::plan::{Dialect, Plan};
use crate::workload::Op;

/// Appends a request for these keys; there is only one unless `op` reads.
#[inline]
pub(super) fn append(plan: &Plan, op: Op, numbers: &[u32], ttl: u32, out: &mut Vec<u8>) {
    match plan.dialect {
        Dialect::Text | Dialect::Udp => text::append(plan, op, numbers, ttl, out),
        Dialect::Meta => meta::append(plan, op, numbers, ttl, out),
        Dialect::Binary => binary::append(plan, op, numbers, ttl, out),
        Dialect::Mirror => mirror::append(plan, numbers, out),
    }
}

/// How the replies of one connection are read.
#[derive(Debug)]
pub(super) enum Replies {
    /// In either text dialect.
    Lines(lines::Lines),
    /// In the binary protocol, which needs no state.
    Binary,
    /// From a service without a cache.
    Mirror,
}

impl Replies {
    /// For a new connection.
    pub(super) fn new(dialect: Dialect) -> Replies {
        match dialect {
            Dialect::Text | Dialect::Meta | Dialect::Udp => Replies::Lines(lines::Lines::new()),
            Dialect::Binary => Replies::Binary,
            Dialect::Mirror => Replies::Mirror,
        }
    }

    /// Reads the beginning of `input` as a part of the reply to the oldest request.
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
    /// What it asks for.
    pub(super) op: Op,
    /// How many keys have no outcome yet; their numbers are in a queue beside it.
    pub(super) left: u32,
    /// Whether it is a request for several keys.
    pub(super) many: bool,
    /// When it was due, or when it was sent if it has no due time, in nanoseconds of the engine's
    /// clock.
    pub(super) at_ns: u64,
}

/// The oldest request without a reply, and the keys of all such requests, its own first.
#[derive(Debug)]
pub(super) struct Front<'a> {
    /// The request.
    pub(super) asked: &'a mut PendingRequest,
    /// Numbers of keys.
    pub(super) numbers: &'a mut VecDeque<u32>,
}

impl Front<'_> {
    /// The next key of the request; `None` if it has no more.
    #[inline]
    fn pop(&mut self) -> Option<u32> {
        self.asked.left = self.asked.left.checked_sub(1)?;
        self.numbers.pop_front()
    }

    /// Finds the key that a value belongs to; the keys before it are misses.
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

    /// The reply has ended, so the keys that are left are misses.
    #[inline]
    fn miss_rest(&mut self, measured: &mut Measured) {
        measured.misses += u64::from(self.asked.left);
        self.drop_rest();
    }

    /// The reply has ended and says nothing about the keys that are left.
    #[inline]
    fn drop_rest(&mut self) {
        while self.pop().is_some() {}
    }
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Not enough to tell.
    More,
    /// So many bytes of a reply that continues.
    Part(usize),
    /// So many bytes that end the reply to the oldest request.
    Reply(usize),
}

/// The server's reply does not fit the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unexpected;

#[cfg(test)]
mod tests;
