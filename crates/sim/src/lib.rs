//! The whole server of coua on a simulated network and clock, from a seed.
//!
//! A seed chooses the server's flags, the clients, their requests, how bytes arrive, who acts when,
//! and how time passes. Everything runs in one thread, so the same seed always gives the same run.
//! The workers, the parser, the execution and the store are the real ones. Only the sockets and the
//! clock are simulated.
//!
//! ```text
//! World  in rounds: network, workers and clients in any order, then time
//!   ├─ Worker (coua)  ─ Stream, Listener, Poller (coua-transport, simulated)
//!   └─ Client ─ Conversation   bytes there and back; stalls, breaks, ends
//!                 ├─ script    what to ask next
//!                 ├─ codec     how it is written and read
//!                 └─ Keys ─ Model   which answers are right
//! ```
//!
//! ```
//! let first = coua_sim::run(17, false)?;
//! let second = coua_sim::run(17, false)?;
//! assert!(first.answers > 0);
//! assert_eq!(first, second);
//! # Ok::<(), String>(())
//! ```
//!
//! # Invariants
//! - The model of the client's keys allows every answer, and every byte is accounted for.
//! - A client that ends its side gets the rest of its answers. The server closes no connection
//!   without counting why.
//! - A client that sends one small request at a time is answered within a bounded number of turns,
//!   whatever the others do.
//! - When all clients have left, nothing is held for them, and the counters add up.
//!
//! # Not here
//! Races between two workers within one turn: loom and the store's stress tests look for those. UDP.

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

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// A hash of everything that clients received, in order.
    pub hash: u64,
    /// Rounds.
    pub rounds: u64,
    /// Turns of all workers.
    pub turns: u64,
    /// Requests executed.
    pub requests: u64,
    /// Answers that clients read.
    pub answers: u64,
    /// The longest that the witness waited for an answer, in turns.
    pub turns_waited_max: u64,
    /// Items evicted.
    pub evictions: u64,
    /// Connections closed for lack of memory.
    pub shed: u64,
    /// Times that a request had to wait for memory.
    pub deferred: u64,
    /// Connections closed for being idle.
    pub idle_kicks: u64,
    /// Connections refused because there were too many.
    pub rejected: u64,
    /// Requests refused for lack of memory.
    pub refused: u64,
}

impl Summary {
    /// Adds another run's figures. Of the longest waits it keeps the longer one.
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

/// Runs a seed. A loud run writes what happens to standard error.
///
/// # Errors
/// What went wrong, and the last events before it.
pub fn run(seed: u64, is_loud: bool) -> Result<Summary, String> {
    let mut world = World::new(seed, is_loud)?;
    world
        .run()
        .map_err(|why| format!("{}\nseed {seed}: {why}", world.scene.record.lines()))
}
