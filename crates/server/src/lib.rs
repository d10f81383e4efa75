//! The server of coua: connections in, the store behind them, memcached's replies out.
//!
//! Each [`worker::Worker`] is one thread with its own listening sockets, connections, buffers and
//! counters. It works in turns: wait for sockets, receive, parse, execute all requests of all
//! ready connections as one burst of the store with a rolling look-ahead, send. A request never
//! moves to another thread and takes no lock.
//!
//! # Not here
//! The language is `coua-protocol`'s, the items are `coua-store`'s, the sockets are
//! `coua-transport`'s.

pub mod allocator;
pub mod buffers;
pub mod check;
pub mod clock;
pub mod closing;
pub mod cluster;
pub mod connections;
pub mod counters;
pub mod crawler;
pub mod datagram;
pub mod doctor;
pub mod dump;
pub mod execute;
pub mod fetch_list;
pub mod fetches;
pub mod flags;
pub mod flash;
pub mod gathered;
pub mod hand_over;
pub mod host;
pub mod hot_keys;
pub mod latency;
pub mod live;
pub mod log;
pub mod losses;
pub mod memory_errors;
pub mod message;
pub mod metrics;
pub mod outcome;
pub mod output;
pub mod permissions;
pub mod prefixes;
pub mod pressure;
pub mod process;
pub mod rdma;
pub mod rdma_report;
pub mod reload;
pub mod reply_queue;
pub mod sandbox;
pub mod server;
pub mod service_manager;
pub mod session;
pub mod shared;
pub mod stats;
pub mod uri;
pub mod users;
pub mod version;
pub mod watch;
pub mod worker;
