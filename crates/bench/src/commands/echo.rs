//! `coua-bench echo`: the bare server as a process of its own.

use std::ffi::OsString;
use std::net::SocketAddr;

use clap::{Args, ValueEnum};

use crate::echo::{Echo, canned_hit};

/// Answers every request with bytes of the size that a cache would answer with
#[derive(Args, Clone, Debug)]
pub(crate) struct Flags {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:11311")]
    listen: SocketAddr,
    #[command(flatten)]
    answer: Answer,
}

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
        let text =
            format!("--of {request} --key-size {key} --value-size {value} --keys-per-get {keys}");
        text.split(' ').map(OsString::from).collect()
    }

    /// Line ends of a request, and the reply to it.
    pub(crate) fn lines_and_reply(&self) -> (usize, Vec<u8>) {
        match self.request {
            Request::Get => {
                let hit = canned_hit(self.key_size, self.value_size, self.keys_per_get);
                (1, hit)
            }
            Request::Set => (2, b"STORED\r\n".to_vec()),
        }
    }
}

/// Serves until it is killed.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let (lines, reply) = flags.answer.lines_and_reply();
    Echo::bind(flags.listen, lines, &reply)?.serve()?;
    Ok(())
}
