//! The kinds of links, and what opens their ends.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::ValueEnum;
use coua_tcp::nic::{Mac, Nic};
use coua_transport::userspace::Card;
use coua_transport::userspace::memif::{self, MemifNic, Options, Role};

/// A kind of link between two processes on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Shared memory (memif), by coua's own driver
    Memif,
    /// memif by DPDK's driver
    MemifDpdk,
    /// A virtio device by DPDK: the server is vhost-user, the client virtio-user
    Vhost,
}

/// Which end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Starts first, and listens at the socket.
    Server,
    /// Connects to the socket.
    Client,
}

/// What every process of DPDK's is started with: memory of its own in huge pages, no card, few
/// words.
const COMMON: &str = "--no-pci --in-memory --no-telemetry -m 64 --single-file-segments \
    --log-level=lib.eal:4 --log-level=lib.vhost.*:4";

/// How long a client of coua's driver waits for its server.
const PATIENCE: Duration = Duration::from_secs(10);

impl Kind {
    /// As on a command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Memif => "memif",
            Kind::MemifDpdk => "memif-dpdk",
            Kind::Vhost => "vhost",
        }
    }

    /// The flags of a coua that is the server.
    pub(crate) fn coua_flags(self, socket: &Path) -> Vec<String> {
        match self.eal(End::Server, socket) {
            None => vec!["--net".to_owned(), format!("memif:{}", socket.display())],
            Some(arguments) => {
                let [net, dpdk, flag] = ["--net", "dpdk", "--dpdk-args"].map(str::to_owned);
                vec![net, dpdk, flag, arguments]
            }
        }
    }

    /// The arguments of DPDK's environment for an end, which finds the other by a unix socket; `None`
    /// without DPDK.
    fn eal(self, end: End, socket: &Path) -> Option<String> {
        let socket = socket.display();
        let device = match (self, end) {
            (Kind::Memif, _) => return None,
            (Kind::MemifDpdk, _) => {
                let role = if end == End::Server {
                    "server"
                } else {
                    "client"
                };
                format!("net_memif0,role={role},socket={socket},socket-abstract=no,rsize=10")
            }
            (Kind::Vhost, End::Server) => format!("net_vhost0,iface={socket},queues=1"),
            (Kind::Vhost, End::Client) => {
                format!("net_virtio_user0,path={socket},queues=1,queue_size=1024")
            }
        };
        Some(format!("{COMMON} --vdev={device}"))
    }

    /// Opens an end. A server waits for nobody.
    pub(crate) fn open(self, end: End, socket: &Path) -> anyhow::Result<Card> {
        let opened = match self.eal(end, socket) {
            None => open_memif(end, socket),
            Some(arguments) => open(&arguments),
        };
        opened.with_context(|| {
            format!(
                "the {} link at {} cannot be opened",
                self.name(),
                socket.display()
            )
        })
    }
}

fn open_memif(end: End, socket: &Path) -> anyhow::Result<Card> {
    let (role, last) = match end {
        End::Server => (Role::Server, 1),
        End::Client => (Role::Client, 2),
    };
    let options = Options {
        role,
        ..Options::new(socket)
    };
    let nics = memif::open(&options, Mac([2, 0, 0, 0, 0, last]), Box::new(|_| ()))?;
    let mut nic = nics.into_iter().next().context("a link has a queue")?;
    if end == End::Client {
        wait_for_server(&mut nic)?;
    }
    Ok(Card::Memif(Box::new(nic)))
}

fn wait_for_server(nic: &mut MemifNic) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !nic.has_link() {
        ensure!(
            begun.elapsed() < PATIENCE,
            "no server at the link's socket within 10 s"
        );
        // As one who has slept, so that what the server says is heard at once.
        nic.disarm();
        nic.receive();
        nic.release();
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
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
        connects: true,
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
        let socket = Path::new("/run/l");
        for kind in [Kind::MemifDpdk, Kind::Vhost] {
            let ends = [End::Server, End::Client].map(|end| kind.eal(end, socket));
            let [server, client] = ends.map(|arguments| arguments.expect("DPDK has some"));
            assert!(server.contains("=/run/l,") && client.contains("=/run/l,"));
            assert_ne!(server, client);
        }
        assert_eq!(Kind::Memif.coua_flags(socket), ["--net", "memif:/run/l"]);
    }
}
