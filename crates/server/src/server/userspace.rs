//! Cards for a program's own stacks, one queue for each thread: for the server's workers, or for a
//! load generator.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
#[cfg(feature = "dpdk")]
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use coua_transport::userspace::af_xdp::{self, XdpNic};
use coua_transport::userspace::memif::{self, News, Role};
use coua_transport::userspace::packet::{PacketSocket, Tap};
use coua_transport::userspace::{Card, Config, Exchange, Mac, Network, StackSetup};
#[cfg(feature = "dpdk")]
use coua_transport::userspace::{Polling, dpdk};
use rustix::rand::{GetRandomFlags, getrandom};

use super::StartError;
use crate::flags::{Driver, Net, Settings};
use crate::log::Limit;

/// Opens the queues of the card that the settings name, with a stack's settings for each.
pub(super) fn open(net: &Net, settings: &Settings) -> Result<Vec<StackSetup>, StartError> {
    let stack = StackSizes {
        // Some connections are opening or closing, beside those that are served.
        connections: settings.connections_max * 2 + 1024,
        memory: settings.stack_memory,
    };
    open_stacks(net, settings.workers, &stack, None)
}

/// How large each thread's stack may become.
#[derive(Clone, Copy, Debug)]
pub struct StackSizes {
    /// Connections at most, those that are opening or closing included.
    pub connections: usize,
    /// Bytes for what waits to be acknowledged or read, at most.
    pub memory: usize,
}

/// Opens the queues of a card for so many threads, with a stack's settings for each. Of the ports
/// `active` connections are opened from here.
///
/// # Errors
/// [`StartError::Net`], with what to do.
pub fn open_stacks(
    net: &Net,
    threads: usize,
    sizes: &StackSizes,
    active: Option<RangeInclusive<u16>>,
) -> Result<Vec<StackSetup>, StartError> {
    let (name, cards, found) = cards(net, threads, active.clone())?;
    let addresses = match net.addresses.is_empty() {
        true => found,
        false => net.addresses.clone(),
    };
    if addresses.is_empty() {
        return Err(failed(
            &name,
            "the interface has no address to take over; give --address",
        ));
    }
    let mut secret = [0; 32];
    fill_randomly(&mut secret).map_err(|why| failed(&name, why))?;
    let exchanges = Exchange::between(cards.len());
    let cards = cards.into_iter().zip(exchanges).enumerate();
    let setups = cards.map(|(thread, (card, exchange))| {
        // Each thread's stack has a secret of its own.
        secret[0] ^= u8::try_from(thread & 0xff).unwrap_or(0);
        let usual = Config::new(addresses.clone(), secret);
        let ports = active.clone().map(RangeInclusive::into_inner);
        StackSetup {
            card,
            config: Config {
                gateways: net.gateways.iter().map(|&gateway| gateway.into()).collect(),
                allow: net.allow.clone(),
                connections_max: sizes.connections,
                half_open_max: 1024,
                memory_max: sizes.memory,
                algorithm: net.congestion,
                // Over AF_XDP the addresses are the kernel's, which reports their groups.
                multicast_reports: !matches!(net.driver, Driver::Xdp(_)),
                ephemeral_ports: ports.unwrap_or(usual.ephemeral_ports),
                ..usual
            },
            ports: own_port(net).into_iter().collect(),
            datagram_port: net.udp_port,
            polling: net.polling,
            exchange,
        }
    });
    Ok(setups.collect())
}

/// The TCP port at which it serves.
fn own_port(net: &Net) -> Option<u16> {
    (net.port != 0).then_some(net.port)
}

/// Access bits of a trace: all that clients send and get stands in it.
const TRACE_MODE: u32 = 0o600;

/// Begins to write the frames of a setup's card to a new file.
///
/// # Errors
/// [`StartError::Trace`].
pub fn traced(setup: StackSetup, path: &Path) -> Result<StackSetup, StartError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let file = options.mode(TRACE_MODE).open(path);
    let card = file.and_then(|file| setup.card.traced(file));
    let card = card.map_err(|source| StartError::Trace {
        path: path.to_owned(),
        source,
    })?;
    Ok(StackSetup { card, ..setup })
}

/// The driver's name when the server says where it listens.
pub fn name(driver: &Driver) -> &'static str {
    match driver {
        Driver::Xdp(_) => "xdp",
        Driver::Packet(_) => "packet",
        Driver::Tap(_) => "tap",
        Driver::Memif(_) => "memif",
        Driver::Dpdk { .. } => "dpdk",
    }
}

/// The addresses of the stacks, which all have the same, with a port.
pub(super) fn addresses(setups: &[StackSetup], port: u16) -> impl Iterator<Item = SocketAddr> {
    let networks = setups.first().map(|setup| setup.config.addresses.iter());
    let addresses = networks.into_iter().flatten();
    addresses.map(move |network| SocketAddr::new(network.address().into(), port))
}

/// The driver's name, a card for each thread, and the addresses of the interface.
fn cards(
    net: &Net,
    workers: usize,
    active: Option<RangeInclusive<u16>>,
) -> Result<(String, Vec<Card>, Vec<Network>), StartError> {
    match &net.driver {
        Driver::Packet(device) => {
            let name = format!("packet:{device}");
            let sockets = PacketSocket::open(device, None, workers);
            let sockets = sockets.map_err(|error| failed(&name, error))?;
            let cards = sockets
                .into_iter()
                .map(|socket| Card::Packet(Box::new(socket)));
            Ok((name, cards.collect(), Vec::new()))
        }
        Driver::Tap(device) => {
            let name = format!("tap:{device}");
            let mac = random_mac().map_err(|why| failed(&name, why))?;
            let taps = Tap::open(device, mac, workers);
            let taps = taps.map_err(|error| failed(&name, error))?;
            let cards = taps.into_iter().map(|tap| Card::Tap(Box::new(tap)));
            Ok((name, cards.collect(), Vec::new()))
        }
        Driver::Memif(options) => {
            let name = format!("memif:{}", options.socket.display());
            let mac = random_mac().map_err(|why| failed(&name, why))?;
            let options = memif::Options {
                queues: workers,
                ..options.clone()
            };
            let opened = memif::open(&options, mac, report(name.clone(), workers));
            let nics = opened.map_err(|error| failed(&name, error))?;
            if options.role == Role::Server {
                tracing::info!("{name}: waits for a client");
            }
            let cards = nics.into_iter().map(|nic| Card::Memif(Box::new(nic)));
            Ok((name, cards.collect(), Vec::new()))
        }
        #[cfg(not(feature = "dpdk"))]
        Driver::Dpdk { .. } => Err(failed("dpdk", "this coua was built without it")),
        #[cfg(feature = "dpdk")]
        Driver::Dpdk { arguments, port } => {
            let eal = start_eal(arguments)?;
            let options = dpdk::PortOptions {
                name: port.clone(),
                queues: u16::try_from(workers).map_err(|_| failed("dpdk", "-t: too many"))?,
                mtu: None,
                offloads: true,
                interrupts: net.polling == Polling::Adaptive,
                connects: active.is_some(),
            };
            let opened = dpdk::Port::open(eal, &options);
            let (port, queues) = opened.map_err(|error| failed("dpdk", error))?;
            let (name, driver) = (port.name(), port.driver());
            tracing::info!("DPDK port {name} ({driver}): {}", port.spreading());
            let name = format!("dpdk:{name}");
            let cards = queues.into_iter().map(|queue| Card::Dpdk(Box::new(queue)));
            Ok((name, cards.collect(), Vec::new()))
        }
        Driver::Xdp(device) => {
            let name = format!("xdp:{device}");
            let options = af_xdp::Options {
                workers,
                addresses: net
                    .addresses
                    .iter()
                    .map(|network| network.address().into())
                    .collect(),
                tcp_ports: own_port(net).into_iter().collect(),
                udp_ports: net.udp_port.into_iter().collect(),
                active_ports: active,
                ..af_xdp::Options::new(device.as_str())
            };
            let opened = af_xdp::open(&options).map_err(|error| failed(&name, error))?;
            let is_zero_copy = opened.nics.iter().all(XdpNic::is_zero_copy);
            let frames = match is_zero_copy {
                true => "the card puts frames where they are read (zero-copy)",
                false => "the kernel copies each frame, for the card has no zero-copy",
            };
            tracing::info!("AF_XDP on {device}: {frames}");
            let found = opened.addresses.iter().filter_map(|&address| {
                let len = if address.is_ipv4() { 32 } else { 128 };
                Network::new(address, len)
            });
            let found = found.collect();
            let cards = opened.nics.into_iter().map(|nic| Card::Xdp(Box::new(nic)));
            Ok((name, cards.collect(), found))
        }
    }
}

/// Starts DPDK's environment, or returns the one that was started with the same arguments: a process
/// has only one.
#[cfg(feature = "dpdk")]
fn start_eal(arguments: &str) -> Result<dpdk::Eal, StartError> {
    static STARTED: Mutex<Option<(String, dpdk::Eal)>> = Mutex::new(None);
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    match &*started {
        Some((with, eal)) if with == arguments => Ok(*eal),
        _ => {
            let eal = dpdk::Eal::start(arguments).map_err(|error| failed("dpdk", error))?;
            *started = Some((arguments.to_owned(), eal));
            Ok(eal)
        }
    }
}

/// Logs what happens to a memif link.
fn report(name: String, workers: usize) -> memif::Report {
    let started = Instant::now();
    let refusals = Limit::new();
    Box::new(move |news| match news {
        News::Connected { queues, .. } if *queues < workers => {
            tracing::warn!("{name}: {news}; of {workers} workers the others have none and idle");
        }
        News::Refused { .. } => {
            let since = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            if let Some(others) = refusals.pass(since) {
                tracing::warn!(others, "{name}: {news}");
            }
        }
        _ => tracing::info!("{name}: {news}"),
    })
}

/// An address of this machine's own making.
fn random_mac() -> Result<Mac, String> {
    let mut octets = [2, 0, 0, 0, 0, 0];
    fill_randomly(&mut octets[1..])?;
    Ok(Mac(octets))
}

fn fill_randomly(bytes: &mut [u8]) -> Result<(), String> {
    getrandom(bytes, GetRandomFlags::empty())
        .map(|_| ())
        .map_err(|errno| format!("no random numbers: {errno}"))
}

fn failed(name: &str, why: impl Display) -> StartError {
    StartError::Net {
        name: name.to_owned(),
        why: why.to_string(),
    }
}
