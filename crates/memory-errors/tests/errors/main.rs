//! Pages that die under a process, and what becomes of it.
//!
//! Each test has a process of its own: there is one handler in a process, and some end it.

mod alone;
mod memory;
mod scenarios;

mod endings;
mod poisoned;
mod threads;

#[cfg(feature = "lab")]
mod kernel_errors;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "lab")]
mod machine_checks;
#[cfg(feature = "lab")]
mod pinned;
