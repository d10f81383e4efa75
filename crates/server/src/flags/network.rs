//! `--net` and what goes with it: a stack of the server's own on a network card.

use std::path::PathBuf;

use coua_transport::userspace::{Network, Polling};

use super::FlagError;
use super::raw::Raw;

/// By which driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// AF_XDP on a network interface.
    Xdp(String),
    /// A packet socket on a network interface.
    Packet(String),
    /// A TAP device, which is made.
    Tap(String),
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
    /// The file to which its frames are written.
    pub trace: Option<PathBuf>,
    /// The TCP port.
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
    /// What the flags say, where they say anything.
    pub(super) fn resolve(raw: &Raw, port: &str) -> Result<Option<Net>, FlagError> {
        let Some(text) = &raw.net else {
            let given = [
                ("--address", !raw.address.is_empty()),
                ("--gateway", !raw.gateway.is_empty()),
                ("--allow", !raw.allow.is_empty()),
                ("--poll", raw.poll.is_some()),
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
        let port = match port.parse() {
            Ok(port @ 1..) => port,
            _ => {
                let why = format!("-p {port}: with --net, a port from 1 to 65535");
                return Err(FlagError::new(why));
            }
        };
        let udp_port = match raw.udp_port.parse() {
            Ok(0) => None,
            Ok(port @ 1..) => Some(port),
            Err(_) => {
                let takes = "a port from 1 to 65535, or 0, with --net";
                return Err(FlagError::value("-U", &raw.udp_port, takes));
            }
        };
        Ok(Some(Net {
            driver,
            addresses,
            gateways: gateways.collect::<Result<_, _>>()?,
            allow: networks("--allow", &raw.allow)?,
            polling,
            trace: raw.pcap.clone(),
            port,
            udp_port,
        }))
    }
}

fn driver(text: &str, raw: &Raw) -> Result<Driver, FlagError> {
    let wrong = || {
        let kinds = "give xdp:INTERFACE, dpdk, dpdk:PORT, packet:INTERFACE or tap:NAME";
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
