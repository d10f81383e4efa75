//! The kinds of links, and what opens their ends.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use coua_transport::userspace::Card;

/// A kind of link between two processes on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Shared memory, of which the server copies into and out of the client's.
    Memif,
    /// A virtio card: the server is vhost-user, the client virtio-user.
    Vhost,
}

/// Which end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is there first, and listens at the socket.
    Server,
    /// It comes.
    Client,
}

/// What every process is started with: memory of its own in huge pages, no card, few words.
const COMMON: &str = "--no-pci --in-memory --no-telemetry --single-file-segments \
    --log-level=lib.eal:4 --log-level=lib.vhost.*:4";

/// MiB of memory for a link's frames.
const MEMORY: usize = 64;

impl Kind {
    /// As on a command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Memif => "memif",
            Kind::Vhost => "vhost",
        }
    }

    /// The arguments of DPDK's environment for an end, which finds the other by a unix socket.
    pub(crate) fn arguments(self, end: End, socket: &Path) -> String {
        let memif = |role| memif(0, role, socket);
        let path = socket.display();
        let device = match (self, end) {
            (Kind::Memif, End::Server) => memif("server"),
            (Kind::Memif, End::Client) => memif("client"),
            (Kind::Vhost, End::Server) => format!("net_vhost0,iface={path},queues=1"),
            (Kind::Vhost, End::Client) => {
                format!("net_virtio_user0,path={path},queues=1,queue_size=1024")
            }
        };
        format!("{COMMON} -m {MEMORY} --vdev={device}")
    }

    /// The arguments of a process that is the client of several memif links, in the order of their
    /// sockets.
    pub(crate) fn memif_clients(sockets: impl Iterator<Item = PathBuf>) -> String {
        let devices: Vec<String> = sockets
            .enumerate()
            .map(|(link, socket)| memif(link, "client", &socket))
            .collect();
        let memory = MEMORY * devices.len();
        format!("{COMMON} -m {memory} --vdev={}", devices.join(" --vdev="))
    }

    /// DPDK's name of the port of one of those links.
    pub(crate) fn memif_port(link: usize) -> String {
        format!("net_memif{link}")
    }

    /// Opens an end, and waits for nobody.
    pub(crate) fn open(self, end: End, socket: &Path) -> anyhow::Result<Card> {
        open(&self.arguments(end, socket)).with_context(|| {
            format!(
                "the {} link at {} cannot be opened",
                self.name(),
                socket.display()
            )
        })
    }
}

/// A device at one end of a memif link.
fn memif(link: usize, role: &str, socket: &Path) -> String {
    let (port, socket) = (Kind::memif_port(link), socket.display());
    format!("{port},role={role},socket={socket},socket-abstract=no,rsize=10")
}

#[cfg(feature = "dpdk")]
fn open(arguments: &str) -> anyhow::Result<Card> {
    use coua_transport::userspace::dpdk::{Eal, Port, PortOptions};

    let eal = Eal::start(arguments)?;
    let options = PortOptions {
        name: None,
        queues: 1,
        mtu: None,
        offloads: false,
        interrupts: false,
    };
    let (_, queues) = Port::open(eal, &options)?;
    let queue = queues.into_iter().next().context("a port has a queue")?;
    Ok(Card::Dpdk(Box::new(queue)))
}

#[cfg(not(feature = "dpdk"))]
fn open(_: &str) -> anyhow::Result<Card> {
    anyhow::bail!("this coua-bench was built without DPDK: cargo build --release --features dpdk")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_meet_at_one_socket() {
        for kind in [Kind::Memif, Kind::Vhost] {
            let [server, client] =
                [End::Server, End::Client].map(|end| kind.arguments(end, Path::new("/run/l")));
            assert!(server.contains("=/run/l,") && client.contains("=/run/l,"));
            assert_ne!(server, client);
        }
    }
}
