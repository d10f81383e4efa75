//! The DPDK driver on real devices: memif, vhost, packet sockets and TAP.
//!
//! EAL is once in a process, so each side of a link is a process of its own: this program again,
//! with a role to play ([`roles`]), driven by lines over its standard input and output ([`child`]).
//!
//! It needs root, huge pages, which it sets and gives back ([`huge_pages`]), and for the kernel as
//! a peer what [`netns`] needs; where they are missing a test fails and says so.
#![cfg(feature = "dpdk")]

mod child;
mod errors;
mod huge_pages;
mod kernel;
mod links;
mod memif;
#[path = "../support/netns.rs"]
mod netns;
mod offloads;
mod own_memif;
mod roles;
mod spreading;
mod traffic;
mod vhost;
