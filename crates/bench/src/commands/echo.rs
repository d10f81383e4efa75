//! `coua-bench echo`: the bare server as a process of its own.

use std::ffi::OsString;
use std::net::SocketAddr;

use clap::{Args, ValueEnum};

use crate::echo::{Echo, Reply, canned_hit};

/// Serves as a cache without a store: every reply has fixed bytes of the right size
///
/// It shows what a server on the kernel's sockets reaches when the cache itself costs nothing.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:11311")]
    listen: SocketAddr,
    /// Threads, each with a listening socket (SO_REUSEPORT)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    #[command(flatten)]
    answer: Answer,
}

const EXAMPLES: &str = "\
Examples:
  What the kernel's sockets can do with replies that cost nothing
    coua-bench echo --listen 127.0.0.1:11311 --mirror
    coua-bench run --target 127.0.0.1:11311 --dialect mirror --key-size 16
  Replies as long as those of a cache with values of 100 bytes
    coua-bench echo --value-size 100";

/// What is answered.
#[derive(Args, Clone, Debug)]
pub(crate) struct Answer {
    /// What all requests are
    #[arg(long = "of", value_enum, default_value = "get")]
    pub(crate) request: Request,
    /// Bytes per key
    #[arg(long, default_value_t = 8)]
    pub(crate) key_size: usize,
    /// Bytes per value
    #[arg(long, default_value_t = 8)]
    pub(crate) value_size: usize,
    /// Keys per get
    #[arg(long, default_value_t = 1)]
    pub(crate) keys_per_get: usize,
    /// Send back what comes instead, whatever it is
    #[arg(long)]
    pub(crate) mirror: bool,
}

/// A kind of request that the echo can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Request {
    /// Gets: one line per request, values in the reply
    Get,
    /// Sets: two lines per request, STORED in the reply
    Set,
}

impl Answer {
    /// The same answer as flags on a command line.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let request = if self.request == Request::Get {
            "get"
        } else {
            "set"
        };
        let (key, value, keys) = (self.key_size, self.value_size, self.keys_per_get);
        let mirror = if self.mirror { " --mirror" } else { "" };
        let text = format!(
            "--of {request} --key-size {key} --value-size {value} --keys-per-get {keys}{mirror}"
        );
        text.split(' ').map(OsString::from).collect()
    }

    /// What a request is answered with.
    pub(crate) fn reply(&self) -> Reply {
        match self.request {
            _ if self.mirror => Reply::Mirror,
            Request::Get => Reply::Same {
                lines: 1,
                reply: canned_hit(self.key_size, self.value_size, self.keys_per_get),
            },
            Request::Set => Reply::Same {
                lines: 2,
                reply: b"STORED\r\n".to_vec(),
            },
        }
    }
}

/// Serves until it is killed.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let reply = flags.answer.reply();
    let shared = flags.workers > 1;
    let mut others = Vec::new();
    for _ in 1..flags.workers {
        let mut echo = Echo::bind(flags.listen, shared, &reply)?;
        others.push(std::thread::spawn(move || echo.serve()));
    }
    Echo::bind(flags.listen, shared, &reply)?.serve()?;
    Ok(())
}
