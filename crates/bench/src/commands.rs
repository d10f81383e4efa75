//! The subcommands: flags, the order of what is measured, and the report.

pub(crate) mod agent;
pub(crate) mod compare;
pub(crate) mod diff;
pub(crate) mod echo;
pub(crate) mod figure;
pub(crate) mod fill;
pub(crate) mod first_screen;
pub(crate) mod gaps;
pub(crate) mod guard;
pub(crate) mod hits;
mod load_flags;
pub(crate) mod memaslap;
pub(crate) mod memory;
pub(crate) mod net;
pub(crate) mod net_echo;
pub(crate) mod net_load;
pub(crate) mod page;
mod rates;
pub(crate) mod run;
pub(crate) mod server;
pub(crate) mod site;
pub(crate) mod soak;
pub(crate) mod stack;
pub(crate) mod store;
pub(crate) mod verify;
pub(crate) mod workers;
pub(crate) mod xdp;
