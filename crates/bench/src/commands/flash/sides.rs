//! The two servers, each with a file.

use std::path::PathBuf;

use anyhow::Context;
use rustix::process::Pid;
use serde::Serialize;

use super::Flags;
use crate::client::{Client, Stats};
use crate::process::{self, MemoryFile, Server, free_address, resident_kib};
use crate::target::Target;

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Side {
    Coua,
    Memcached,
}

impl Side {
    pub(super) const BOTH: [Side; 2] = [Side::Coua, Side::Memcached];

    pub(super) fn name(self) -> &'static str {
        match self {
            Side::Coua => "coua",
            Side::Memcached => "extstore",
        }
    }
}

/// What is started.
pub(super) struct Programs {
    pub(super) coua: PathBuf,
    pub(super) memcached: PathBuf,
}

/// Memory, file, workers and cores.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) memory: u64,
    pub(super) flash: u64,
    pub(super) workers: usize,
    pub(super) cores: Vec<usize>,
}

/// A server that runs, and its file.
pub(super) struct Running {
    pub(super) side: Side,
    pub(super) server: Server,
    pub(super) file: MemoryFile,
    pid: Pid,
}

/// Items shorter than this stay off flash: half of the shortest value that is stored here.
const ITEM_LEN_MIN: usize = 64;

/// extstore's pages, in MiB: twice its write buffer, so that a volume has many of them.
const PAGE_MIB: u64 = 8;

impl Running {
    /// Starts one side.
    pub(super) fn start(
        side: Side,
        programs: &Programs,
        flags: &Flags,
        set: &Set,
    ) -> anyhow::Result<Running> {
        let file = MemoryFile::new(&flags.folder);
        let path = file.path().display();
        let mib = set.flash;
        let (program, option) = match side {
            Side::Coua => (
                &programs.coua,
                format!("ext_path={path}:{mib}m,ext_item_size={ITEM_LEN_MIN}"),
            ),
            Side::Memcached => (
                &programs.memcached,
                format!(
                    "ext_path={path}:{mib}M,ext_item_size={ITEM_LEN_MIN},ext_page_size={PAGE_MIB}"
                ),
            ),
        };
        let more = ["-t", &set.workers.to_string(), "-o", &option].map(str::to_owned);
        let address = free_address()?;
        let arguments = process::Flags {
            memory: set.memory,
            item_size_max: None,
            more: more.to_vec(),
        }
        .arguments(address);
        let target = Target::Tcp(address);
        let server = Server::start_at(program, &set.cores, arguments, target, None)?;
        let owner = server.owner().context("the server has ended")?;
        Ok(Running {
            side,
            server,
            file,
            pid: owner.pid(),
        })
    }

    pub(super) fn client(&self) -> anyhow::Result<Client> {
        Ok(self.server.client()?)
    }

    pub(super) fn stats(&self) -> anyhow::Result<Stats> {
        Ok(self.client()?.stats()?)
    }

    /// Resident memory, in KiB.
    pub(super) fn resident_kib(&self) -> u64 {
        resident_kib(self.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Bytes that it has written to its file, by its own count: the kernel counts a page of the page cache once, however
    /// often it is overwritten before it goes to the disk.
    pub(super) fn bytes_written(&self) -> anyhow::Result<u64> {
        Ok(self.stats()?.number("extstore_bytes_written"))
    }
}
