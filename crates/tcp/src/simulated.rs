//! A network that a test makes up: cables, a switch and cards, in one thread and on a time that the
//! test tells.
//!
//! A [`Link`] is two ends and a cable between them; a [`Switch`] has any number of ends. An [`End`]
//! is a [`Nic`](crate::nic::Nic). What each direction of a cable does to the frames in it is said by
//! [`Faults`]; every choice is drawn from the seed, each direction from a sequence of its own, so
//! that the same seed and the same calls give the same run.
//!
//! ```text
//!          flush            advance_to             receive
//! End ──────────────▶ cable ───────────▶ arrived ───────────▶ End
//!                    └ cable ─▶ switch ─▶ cable ─┘
//! ```
//!
//! # What a frame meets, in this order
//! 1. The cable is down, or goes down with this frame: it is gone.
//! 2. It is longer than the path takes: it vanishes without a word.
//! 3. It waits for those before it, as long as the queue has room, and takes its time at the
//!    cable's rate.
//! 4. It is lost; or it goes on, and perhaps a copy and a frame of garbage with it.
//! 5. It is damaged, or cut short.
//! 6. It arrives after the delay and some jitter, in order; or, put off, later than others.
//!
//! # Time
//! Microseconds, from any beginning. `advance_to` lets arrive what is due; nothing arrives
//! otherwise, not even over a cable without delay. `next_event_us` says when the next frame is due.
//!
//! # Memory
//! Frames are kept and used again: once as many as ever were under way have been, nothing is
//! allocated.

mod cable;
mod card;
mod counters;
mod end;
mod faults;
mod forwarding;
mod link;
mod offload;
mod state;
mod switch;

pub use card::Card;
pub use counters::{CableCounters, CardCounters, SwitchCounters};
pub use end::End;
pub use faults::Faults;
pub use link::Link;
pub use switch::{Switch, Way};

#[cfg(test)]
mod tests;
