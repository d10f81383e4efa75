//! Programs that a command starts, and the cores that it gives them.

use std::io;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::client;
use crate::process::{self, Server};

/// Which coua.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CouaFlag {
    /// The coua program [default: the one beside this program]
    #[arg(long, value_name = "PROGRAM")]
    coua: Option<PathBuf>,
}

impl CouaFlag {
    /// The program.
    pub(crate) fn path(&self) -> io::Result<PathBuf> {
        process::coua(self.coua.as_deref())
    }
}

/// Which memcached.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct MemcachedFlag {
    /// The memcached program [default: ~/.cache/memcached-current/memcached if it exists, else the
    /// one in PATH]
    #[arg(long, value_name = "PROGRAM")]
    memcached: Option<PathBuf>,
}

impl MemcachedFlag {
    /// The program.
    pub(crate) fn path(&self) -> PathBuf {
        process::memcached(self.memcached.as_deref())
    }
}

/// Which memcached, if any.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct OptionalMemcachedFlag {
    #[command(flatten)]
    memcached: MemcachedFlag,
    /// Leave memcached out
    #[arg(long)]
    no_memcached: bool,
}

impl OptionalMemcachedFlag {
    /// The program; `None` if memcached is left out.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        (!self.no_memcached).then(|| self.memcached.path())
    }
}

impl From<MemcachedFlag> for OptionalMemcachedFlag {
    fn from(memcached: MemcachedFlag) -> OptionalMemcachedFlag {
        OptionalMemcachedFlag {
            memcached,
            no_memcached: false,
        }
    }
}

/// Which core the servers have, and which the load.
#[derive(Args, Clone, Debug)]
pub(crate) struct CoreFlags {
    /// Core of the servers
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    pub(crate) server_core: usize,
    /// Core of the load
    #[arg(long, value_name = "CORE", default_value_t = 1)]
    pub(crate) load_core: usize,
}

/// The versions of two servers, as they report them.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Versions {
    pub(crate) coua: String,
    pub(crate) memcached: String,
}

impl Versions {
    /// Asks servers that run.
    pub(crate) fn of(coua: &Server, memcached: &Server) -> Result<Versions, client::Error> {
        Ok(Versions {
            coua: coua.client()?.version()?,
            memcached: memcached.client()?.version()?,
        })
    }
}
