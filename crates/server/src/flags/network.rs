//! `--net` and what goes with it: a stack of the server's own on a network card.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use coua_transport::userspace::memif;
use coua_transport::userspace::{Algorithm, Network, Polling};

use super::FlagError;

/// The heading of these flags in the list of all.
pub(super) const NETWORK: &str = "Network";

/// A stack of the program's own, as it is written; a load generator takes the same flags.
#[derive(Args, Clone, Debug, Default)]
pub struct NetFlags {
    /// Use a TCP/IP stack of the program's own on a network card, past the kernel: xdp:INTERFACE
    /// (AF_XDP; takes only what is for its addresses and ports), memif:SOCKET (memory shared with
    /// VPP, DPDK or another coua on this machine, which meet at a unix socket; options behind it, such
    /// as memif:SOCKET,role=client: role=server or client, id=NUM, secret=TEXT, mac=MAC, mtu=NUM,
    /// ring=NUM), dpdk or dpdk:PORT (see --dpdk-args), packet:INTERFACE or tap:NAME (slower; for
    /// tests). The host's firewall does not see what comes this way: see --allow.
    #[arg(long = "net", value_name = "DRIVER", help_heading = NETWORK)]
    pub net: Option<String>,

    /// Arguments of DPDK's environment, such as "-a 0000:3b:00.0". DPDK needs huge pages.
    #[arg(long = "dpdk-args", value_name = "TEXT", allow_hyphen_values = true,
          help_heading = NETWORK)]
    pub dpdk_args: Option<String>,

    /// Address of that stack and the length of its network: 192.0.2.7/24. Several, with commas or
    /// repeated. With xdp those of the interface unless given.
    #[arg(long = "address", value_name = "ADDR/LEN", action = ArgAction::Append,
          help_heading = NETWORK)]
    pub address: Vec<String>,

    /// Through whom that stack reaches other networks: one of IPv4, one of IPv6.
    #[arg(long = "gateway", value_name = "ADDR", action = ArgAction::Append,
          help_heading = NETWORK)]
    pub gateway: Vec<String>,

    /// Who may send to that stack: 10.0.0.0/8. Several, with commas or repeated. Everybody unless
    /// given.
    #[arg(long = "allow", value_name = "ADDR/LEN", action = ArgAction::Append,
          help_heading = NETWORK)]
    pub allow: Vec<String>,

    /// How that stack waits: adaptive asks the card for a while and then sleeps, busy never sleeps.
    #[arg(long = "poll", value_name = "HOW", help_heading = NETWORK)]
    pub poll: Option<String>,

    /// How that stack finds out what a path carries: cubic (RFC 9438) or newreno (RFC 5681, RFC 6582).
    /// cubic unless given.
    #[arg(long = "congestion", value_name = "HOW", help_heading = NETWORK)]
    pub congestion: Option<String>,

    /// Write every frame of that stack to a file that Wireshark and tcpdump read, with all that is
    /// sent and received. With several threads each has its own: FILE.0, FILE.1 and so on
    /// (mergecap joins them). It grows without end, and slows the program down.
    #[arg(long = "pcap", value_name = "FILE", help_heading = NETWORK)]
    pub pcap: Option<PathBuf>,
}

/// By which driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// AF_XDP on a network interface.
    Xdp(String),
    /// A packet socket on a network interface.
    Packet(String),
    /// A TAP device, which is made.
    Tap(String),
    /// Memory shared with another process; the queues are as many as the workers.
    Memif(memif::Options),
    /// DPDK, with the arguments of its environment and a port, the first where none is named.
    Dpdk {
        /// Arguments of EAL, as on a command line.
        arguments: String,
        /// The port's name.
        port: Option<String>,
    },
}

/// A stack of the server's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Net {
    /// By which driver.
    pub driver: Driver,
    /// Its addresses; those of the interface where empty.
    pub addresses: Vec<Network>,
    /// Through whom others are reached.
    pub gateways: Vec<std::net::IpAddr>,
    /// Who may send to it; empty for everybody.
    pub allow: Vec<Network>,
    /// How it waits for frames.
    pub polling: Polling,
    /// How the congestion windows of its connections grow and shrink.
    pub congestion: Algorithm,
    /// The file to which its frames are written.
    pub trace: Option<PathBuf>,
    /// The TCP port; 0 where connections are only opened.
    pub port: u16,
    /// The UDP port, where datagrams are served.
    pub udp_port: Option<u16>,
}

/// The part of `-m` that the stacks of all workers take.
const MEMORY_SHARE: usize = 8;

/// Bytes that one of them takes at least: windows of some connections at full size.
pub(super) const STACK_MEMORY_MIN: usize = 4 << 20;

/// Bytes of `memory` that each worker's stack takes for what waits to be acknowledged or read.
pub(super) fn stack_memory(memory: usize, workers: usize) -> usize {
    (memory / MEMORY_SHARE / workers).max(STACK_MEMORY_MIN)
}

impl Net {
    /// What the flags say of a server with these ports, where they say anything.
    pub(super) fn resolve(
        raw: &NetFlags,
        port: &str,
        udp_port: &str,
    ) -> Result<Option<Net>, FlagError> {
        let Some(net) = Net::of_nobody(raw)? else {
            return Ok(None);
        };
        let port = match port.parse() {
            Ok(port @ 1..) => port,
            _ => {
                let why = format!("-p {port}: with --net, a port from 1 to 65535");
                return Err(FlagError::new(why));
            }
        };
        let udp_port = match udp_port.parse() {
            Ok(0) => None,
            Ok(port @ 1..) => Some(port),
            Err(_) => {
                let takes = "a port from 1 to 65535, or 0, with --net";
                return Err(FlagError::value("-U", udp_port, takes));
            }
        };
        Ok(Some(Net {
            port,
            udp_port,
            ..net
        }))
    }

    /// What the flags say of a program that serves at no port, where they say anything.
    ///
    /// # Errors
    /// [`FlagError`]: a flag cannot be as given, or needs `--net`.
    pub fn of_nobody(raw: &NetFlags) -> Result<Option<Net>, FlagError> {
        let Some(text) = &raw.net else {
            let given = [
                ("--address", !raw.address.is_empty()),
                ("--gateway", !raw.gateway.is_empty()),
                ("--allow", !raw.allow.is_empty()),
                ("--poll", raw.poll.is_some()),
                ("--congestion", raw.congestion.is_some()),
                ("--dpdk-args", raw.dpdk_args.is_some()),
                ("--pcap", raw.pcap.is_some()),
            ];
            return match given.iter().find(|(_, is_given)| *is_given) {
                Some((flag, _)) => Err(FlagError::new(format!("{flag} needs --net"))),
                None => Ok(None),
            };
        };
        let driver = driver(text, raw)?;
        let addresses = networks("--address", &raw.address)?;
        if addresses.is_empty() && !matches!(driver, Driver::Xdp(_)) {
            return Err(FlagError::new(
                "--net needs --address: an address for it alone, such as 192.0.2.7/24",
            ));
        }
        let gateways = raw.gateway.iter().map(|text| {
            text.parse()
                .map_err(|_| FlagError::new(format!("--gateway {text}: not an address")))
        });
        let polling = match raw.poll.as_deref() {
            None | Some("adaptive") => Polling::Adaptive,
            Some("busy") => Polling::Busy,
            Some(text) => {
                let why = format!("--poll {text}: give adaptive or busy");
                return Err(FlagError::new(why));
            }
        };
        let congestion = match raw.congestion.as_deref() {
            None | Some("cubic") => Algorithm::Cubic,
            Some("newreno") => Algorithm::NewReno,
            Some(text) => {
                let why = format!("--congestion {text}: give cubic or newreno");
                return Err(FlagError::new(why));
            }
        };
        Ok(Some(Net {
            driver,
            addresses,
            gateways: gateways.collect::<Result<_, _>>()?,
            allow: networks("--allow", &raw.allow)?,
            polling,
            congestion,
            trace: raw.pcap.clone(),
            port: 0,
            udp_port: None,
        }))
    }
}

impl Driver {
    /// A path that the driver was given, which is one from where the server was started.
    pub fn path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Driver::Memif(options) => Some(&mut options.socket),
            _ => None,
        }
    }
}

fn driver(text: &str, raw: &NetFlags) -> Result<Driver, FlagError> {
    let wrong = || {
        let kinds =
            "give xdp:INTERFACE, memif:SOCKET, dpdk, dpdk:PORT, packet:INTERFACE or tap:NAME";
        FlagError::new(format!("--net {text}: {kinds}"))
    };
    let dpdk = text.strip_prefix("dpdk").map(|rest| rest.strip_prefix(':'));
    match dpdk {
        Some(port) if port.is_some_and(|port| !port.is_empty()) || text == "dpdk" => {
            if cfg!(not(feature = "dpdk")) {
                let why = "this coua was built without DPDK: cargo build --release --features dpdk";
                return Err(FlagError::new(format!("--net {text}: {why}")));
            }
            return Ok(Driver::Dpdk {
                arguments: raw.dpdk_args.clone().unwrap_or_default(),
                port: port.map(str::to_owned),
            });
        }
        _ if raw.dpdk_args.is_some() => {
            return Err(FlagError::new("--dpdk-args needs --net dpdk"));
        }
        _ => {}
    }
    let (kind, name) = text.split_once(':').ok_or_else(wrong)?;
    if kind == "memif" {
        let options = name.parse();
        let wrong = |why: memif::OptionError| FlagError::new(format!("--net {text}: {why}"));
        return options.map(Driver::Memif).map_err(wrong);
    }
    // The kernel's names have 15 bytes at most.
    if name.is_empty() || name.len() > 15 {
        return Err(wrong());
    }
    match kind {
        "xdp" => Ok(Driver::Xdp(name.to_owned())),
        "packet" => Ok(Driver::Packet(name.to_owned())),
        "tap" => Ok(Driver::Tap(name.to_owned())),
        _ => Err(wrong()),
    }
}

fn networks(flag: &str, texts: &[String]) -> Result<Vec<Network>, FlagError> {
    let texts = texts.iter().flat_map(|text| text.split(','));
    texts
        .map(|text| {
            text.parse()
                .map_err(|why| FlagError::new(format!("{flag} {text}: {why}")))
        })
        .collect()
}
