//! How bytes reach a worker.
//!
//! A transport gives a worker connections, fills input buffers that the worker owns and takes
//! replies from buffers that the worker owns. It knows nothing of what the bytes mean, keeps no
//! threads and reads no clock. [`sockets`] is the kernel's TCP and unix sockets behind epoll.
//!
//! # Concurrency
//! Every type belongs to one worker. [`sockets::Waker`] alone is made to be shared: it is how
//! another thread ends a worker's sleep.

pub mod huge_pages;
pub mod sockets;
pub mod userspace;
