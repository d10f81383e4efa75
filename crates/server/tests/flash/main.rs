//! Items on flash: a server with little memory and a real file, spoken to over real sockets.

#[path = "../support/certificates.rs"]
#[allow(dead_code, reason = "what these tests do not need")]
mod certificates;
#[path = "../support/process.rs"]
#[allow(dead_code, reason = "what these tests do not need")]
mod process;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "what these tests do not need")]
mod support;

mod binary;
mod closing;
mod conditions;
mod failing;
mod guarded;
#[cfg(feature = "lab")]
mod lab;
mod large;
mod order;
mod restarts;
mod scene;
mod udp;
mod watching;
mod words;
