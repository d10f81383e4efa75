//! The subcommands: flags, the order of what is measured, and the report.

pub(crate) mod echo;
pub(crate) mod hits;
pub(crate) mod memory;
pub(crate) mod run;
pub(crate) mod server;
pub(crate) mod soak;
pub(crate) mod store;
