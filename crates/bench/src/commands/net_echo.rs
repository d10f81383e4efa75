//! `coua-bench net-echo`: the bare service on coua's stack as a process of its own.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use coua_transport::userspace::packet::PacketSocket;
use coua_transport::userspace::{Card, Network, af_xdp};

use super::echo::Answer;
use crate::cpu;
use crate::link::{Echo, End, Kind};

/// `echo` on coua's own TCP stack, over shared memory or a network interface (a part of `net`)
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Kind of the link
    #[arg(long, value_enum, default_value = "memif")]
    link: Kind,
    /// The unix socket at which the two ends of the link meet
    #[arg(long, required_unless_present = "net")]
    socket: Option<PathBuf>,
    /// An interface instead of a link: packet:INTERFACE or xdp:INTERFACE
    #[arg(long, conflicts_with_all = ["link", "socket"])]
    net: Option<Net>,
    /// The address to serve at; with xdp it is always the interface's
    #[arg(long, default_value = "10.0.0.1/8")]
    address: Network,
    /// The port to serve at
    #[arg(long, default_value_t = 11211)]
    port: u16,
    /// Core to run on [default: not bound]
    #[arg(long)]
    core: Option<usize>,
    /// Threads, each with a queue of the interface
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Most connections at a time
    #[arg(long, default_value_t = 70_000)]
    connections: usize,
    #[command(flatten)]
    answer: Answer,
}

const EXAMPLES: &str = "\
Examples:
  The echo on one core, and a load on the other
    coua-bench net-echo --socket /tmp/link --core 0
    coua-bench net-load --socket /tmp/link --core 1 --answers same
  On an interface, at an address of its own (needs root)
    coua-bench net-echo --net packet:eth1 --address 10.0.0.1/24 --mirror";

/// A network interface and how its frames are reached.
#[derive(Clone, Debug)]
enum Net {
    Packet(String),
    Xdp(String),
}

impl FromStr for Net {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Net, &'static str> {
        let (kind, device) = text.split_once(':').unwrap_or((text, ""));
        match (kind, device) {
            ("packet", device) if !device.is_empty() => Ok(Net::Packet(device.to_owned())),
            ("xdp", device) if !device.is_empty() => Ok(Net::Xdp(device.to_owned())),
            _ => Err("expected packet:INTERFACE or xdp:INTERFACE"),
        }
    }
}

/// Serves until it is killed.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    if let Some(core) = flags.core {
        cpu::pin(core)?;
    }
    let (cards, addresses) = cards(flags)?;
    let serve = |mut card: Card| -> anyhow::Result<()> {
        let (port, connections) = (flags.port, flags.connections);
        let reply = flags.answer.reply();
        let mut echo = Echo::new(addresses.clone(), port, connections, reply, &card)?;
        echo.serve(&mut card)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = cards
            .into_iter()
            .map(|card| scope.spawn(|| serve(card)))
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

/// A card for each worker, and the addresses of the cards.
fn cards(flags: &Flags) -> anyhow::Result<(Vec<Card>, Vec<Network>)> {
    let workers = usize::from(flags.workers);
    match &flags.net {
        None => {
            let socket = flags.socket.as_ref().context("--socket is missing")?;
            let card = flags.link.open(End::Server, socket)?;
            Ok((vec![card], vec![flags.address]))
        }
        Some(Net::Packet(device)) => {
            let sockets = PacketSocket::open(device, None, workers)?;
            let cards = sockets.into_iter().map(Box::new).map(Card::Packet);
            Ok((cards.collect(), vec![flags.address]))
        }
        Some(Net::Xdp(device)) => {
            let options = af_xdp::Options {
                workers,
                tcp_ports: vec![flags.port],
                ..af_xdp::Options::new(device.as_str())
            };
            let opened = af_xdp::open(&options)?;
            let addresses = opened.addresses.iter().filter_map(|&address| {
                let len = if address.is_ipv4() { 32 } else { 128 };
                Network::new(address, len)
            });
            let addresses = addresses.collect();
            let cards = opened.nics.into_iter().map(Box::new).map(Card::Xdp);
            Ok((cards.collect(), addresses))
        }
    }
}
