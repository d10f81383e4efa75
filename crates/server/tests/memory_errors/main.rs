//! The real server while the machine loses memory under it: no value is wrong, only what lay on a lost
//! page is missing, and everything else is answered.
//!
//! `poisoned` runs wherever the kernel can poison a page without a right. What needs a kernel that takes
//! pages out of use, or a machine that reports errors, is behind the feature `lab`:
//! `cargo xtask test lab` boots such machines.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod flash;
mod poisoned;
mod user;

#[cfg(feature = "lab")]
mod ends;
#[cfg(feature = "lab")]
mod kernel_errors;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "lab")]
mod machine_checks;

#[path = "../support/process.rs"]
#[allow(dead_code, reason = "each test takes what it needs")]
mod process;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "these tests need the program alone")]
mod support;
