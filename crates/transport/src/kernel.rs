//! The kernel's sockets, its epoll sets and its event descriptors, as the seam takes them.
//!
//! All descriptors are non-blocking and close-on-exec, and interrupted calls are made again.

pub(crate) mod address;
pub(crate) mod datagrams;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod listener;
pub(crate) mod stream;
pub(crate) mod unix;
pub(crate) mod unsent;
