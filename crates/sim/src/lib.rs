//! The whole server of coua on a simulated network and clock, from a seed.
//!
//! A seed chooses the server's flags, the clients, what they ask, how bytes come and go, who acts
//! when and how time passes. Everything runs in one thread: the same seed always makes the same
//! run. The workers, the parser, the execution and the store are the real ones; only sockets and
//! clock are not.
//!
//! ```text
//! World  round after round: network, workers and clients in any order, then time
//!   ├─ Worker (coua)  ─ Stream, Listener, Poller (coua-transport, simulated)
//!   └─ Client ─ Conversation   bytes there and back; stalls, breaks, ends
//!                 ├─ script    what to ask next
//!                 ├─ codec     how it is written and read
//!                 └─ Keys ─ Model   which answers are right
//! ```
//!
//! # Invariants
//! - Every answer is one that the model of its client's keys allows, every byte accounted for.
//! - Whoever ends its side gets the rest of its answers; the server closes nobody without counting
//!   why.
//! - A client that asks for one small thing at a time is answered within a number of turns,
//!   whatever the others do.
//! - When everybody is gone nothing is held for anybody, and the counters add up.
//!
//! # Not here
//! What goes on between two workers within one turn: loom and the stress tests of the store. UDP.

mod audit;
mod client;
mod codec;
mod dice;
mod filler;
mod keys;
mod model;
mod plan;
mod request;
mod scene;
mod script;
mod values;
mod window;
mod world;

use world::World;

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Of everything that clients received, in order.
    pub hash: u64,
    /// Rounds.
    pub rounds: u64,
    /// Turns of all workers.
    pub turns: u64,
    /// Requests executed.
    pub requests: u64,
    /// Answers that clients read.
    pub answers: u64,
    /// Turns that the witness waited for an answer at most.
    pub turns_waited_max: u64,
    /// Items evicted.
    pub evictions: u64,
    /// Connections closed for want of memory.
    pub shed: u64,
    /// Times that a request had to wait for memory.
    pub deferred: u64,
    /// Connections closed for being idle.
    pub idle_kicks: u64,
    /// Connections refused because there were too many.
    pub rejected: u64,
    /// Requests refused for want of memory.
    pub refused: u64,
}

impl Summary {
    /// Adds another run's; the longest waits are not added up.
    pub fn add(&mut self, other: &Summary) {
        self.hash ^= other.hash;
        self.rounds += other.rounds;
        self.turns += other.turns;
        self.requests += other.requests;
        self.answers += other.answers;
        self.turns_waited_max = self.turns_waited_max.max(other.turns_waited_max);
        self.evictions += other.evictions;
        self.shed += other.shed;
        self.deferred += other.deferred;
        self.idle_kicks += other.idle_kicks;
        self.rejected += other.rejected;
        self.refused += other.refused;
    }
}

/// Runs a seed; a loud run writes down what happens on standard error.
///
/// # Errors
/// What went wrong, and what happened last.
pub fn run(seed: u64, is_loud: bool) -> Result<Summary, String> {
    let mut world = World::new(seed, is_loud)?;
    world
        .run()
        .map_err(|why| format!("{}\nseed {seed}: {why}", world.scene.record.lines()))
}
