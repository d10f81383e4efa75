//! `coua-bench echo`: the bare server as a process of its own.

use std::ffi::OsString;
use std::net::SocketAddr;

use clap::{Args, ValueEnum};

use crate::echo::{Echo, Reply, canned_hit};

/// Answers every request with bytes of the size that a cache would answer with
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:11311")]
    listen: SocketAddr,
    /// Threads, among which the kernel deals out connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    #[command(flatten)]
    answer: Answer,
}

const EXAMPLES: &str = "\
Examples:
  What a service that knows no keys can do on kernel sockets, beside coua and memcached
    coua-bench echo --listen 127.0.0.1:11311 --mirror
    coua-bench run --target 127.0.0.1:11311 --dialect mirror --key-size 16
  The same bytes a reply as a cache with values of 100 bytes sends
    coua-bench echo --value-size 100";

/// What is answered.
#[derive(Args, Clone, Debug)]
pub(crate) struct Answer {
    /// The request that comes: all get or all set
    #[arg(long = "of", value_enum, default_value = "get")]
    pub(crate) request: Request,
    /// Bytes a key
    #[arg(long, default_value_t = 8)]
    pub(crate) key_size: usize,
    /// Bytes a value
    #[arg(long, default_value_t = 8)]
    pub(crate) value_size: usize,
    /// Keys that one get asks for
    #[arg(long, default_value_t = 1)]
    pub(crate) keys_per_get: usize,
    /// Send back what comes, whatever that is
    #[arg(long)]
    pub(crate) mirror: bool,
}

/// A kind of request that the echo can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Request {
    /// One line a request, values in the reply.
    Get,
    /// Two lines a request, `STORED` in the reply.
    Set,
}

impl Answer {
    /// The same as flags on a command line.
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
