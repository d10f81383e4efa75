//! TCP stacks of a server's or the load's own, and the links between them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use coua::flags::{Driver, Net};
use coua_transport::userspace::memif::{Options, Role};
use coua_transport::userspace::{Algorithm, Network, Polling};

use crate::cable::{DEVICE, Holder, SERVER_NETWORK};
use crate::process::Folder;

/// A stack of the server's own, by its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    Packet,
    Xdp,
    Dpdk,
    /// Shared memory: the load is at its other end, without a cable.
    Memif,
}

/// The server's address on a memif link.
const MEMIF_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const MEMIF_SERVER_NETWORK: &str = "10.0.0.1/8";
/// The load's address.
const MEMIF_LOAD: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const MEMIF_LEN: u8 = 8;

impl Stack {
    /// DPDK on a packet socket, unless other arguments are given.
    const DPDK: &str = "--no-pci --in-memory --no-telemetry -m 64 --vdev=net_af_packet0,iface=eth0";

    pub(super) fn parse(text: &str) -> Result<Stack, String> {
        match text {
            "packet" => Ok(Stack::Packet),
            "xdp" => Ok(Stack::Xdp),
            "dpdk" => Ok(Stack::Dpdk),
            "memif" => Ok(Stack::Memif),
            _ => Err(format!(
                "--net {text}: give packet, xdp, dpdk or memif alone; the cable or link to serve on \
                 is made here"
            )),
        }
    }

    /// The value of `--net`, and the flags that go with it. `link` is the socket of a memif link.
    pub(super) fn words(self, link: &Path, has: impl Fn(&str) -> bool) -> Vec<String> {
        let driver = match self {
            Stack::Packet => format!("packet:{DEVICE}"),
            Stack::Xdp => format!("xdp:{DEVICE}"),
            Stack::Dpdk => "dpdk".to_owned(),
            Stack::Memif => format!("memif:{}", link.display()),
        };
        let address = match self {
            Stack::Xdp => None,
            Stack::Packet | Stack::Dpdk => Some(SERVER_NETWORK),
            Stack::Memif => Some(MEMIF_SERVER_NETWORK),
        };
        let arguments = (self == Stack::Dpdk).then(|| Self::DPDK.to_owned());
        let polling = (self == Stack::Memif).then_some("busy");
        let others = [
            ("--address", address.map(str::to_owned)),
            ("--dpdk-args", arguments),
            ("--poll", polling.map(str::to_owned)),
        ];
        let others = others.into_iter().filter(|(flag, _)| !has(flag));
        let mut words = vec!["--net".to_owned(), driver];
        for (flag, value) in others {
            words.extend(
                value
                    .map(|value| [flag.to_owned(), value])
                    .into_iter()
                    .flatten(),
            );
        }
        words
    }

    /// Who has the address at the server's end of a cable.
    pub(super) fn holder(self) -> Holder {
        match self {
            Stack::Xdp => Holder::Shared,
            Stack::Packet | Stack::Dpdk | Stack::Memif => Holder::Server,
        }
    }
}

/// A stack of the load's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadStack {
    /// AF_XDP, at the load's end of each cable
    Xdp,
}

impl LoadStack {
    /// The load's network, as its flags describe it.
    pub(super) fn net(self) -> Net {
        match self {
            LoadStack::Xdp => net(Driver::Xdp(DEVICE.to_owned()), Vec::new()),
        }
    }
}

/// The memif links of all servers that have one.
#[derive(Debug)]
pub(super) struct Links {
    folder: Folder,
}

impl Links {
    /// No links yet.
    pub(super) fn new() -> std::io::Result<Links> {
        let folder = Folder::new()?;
        Ok(Links { folder })
    }

    /// The socket at which the two ends of a link meet.
    pub(super) fn socket(&self, link: usize) -> PathBuf {
        self.folder.path(&format!("memif{link}"))
    }

    /// The flags of the load's end of a link.
    pub(super) fn load_end(&self, link: usize) -> Net {
        let driver = Driver::Memif(Options {
            role: Role::Client,
            ..Options::new(self.socket(link))
        });
        let address = Network::new(MEMIF_LOAD, MEMIF_LEN).expect("an address of IPv4");
        net(driver, vec![address])
    }

    /// The server's address at its end of a link.
    pub(super) fn server(port: u16) -> SocketAddr {
        (MEMIF_SERVER, port).into()
    }
}

fn net(driver: Driver, addresses: Vec<Network>) -> Net {
    Net {
        driver,
        addresses,
        gateways: Vec::new(),
        allow: Vec::new(),
        polling: Polling::Busy,
        congestion: Algorithm::default(),
        trace: None,
        port: 0,
        udp_port: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_link_meet_at_its_socket() {
        let links = Links::new().unwrap();
        let [first, second] = [0, 1].map(|link| links.socket(link));
        assert_ne!(first, second);
        let words = Stack::Memif.words(&first, |_| false).join(" ");
        assert!(words.contains(&format!("--net memif:{} ", first.display())));
        match links.load_end(0).driver {
            Driver::Memif(options) => {
                assert_eq!((options.role, options.socket), (Role::Client, first));
            }
            other => panic!("{other:?}"),
        }
    }
}
