//! Load over a link between two processes, without the kernel's TCP: shared memory, with a server's
//! own stack at one end and [`client`]s at the other.

pub(crate) mod client;
mod drive;
mod echo;
mod frames;
mod inside;
mod kind;

pub(crate) use drive::{Driver, Plan};
pub(crate) use echo::Echo;
pub(crate) use frames::{Bounce, Counted, Passed, Tally, Volley};
pub(crate) use inside::{Control, Inside, Over};
pub(crate) use kind::{End, Kind};
