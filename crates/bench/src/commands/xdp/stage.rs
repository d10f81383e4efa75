//! One side, at the end of its cable, and the load on it.

use std::cell::Cell;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, ensure};
use coua_tcp::nic::{Mac, Nic};
use coua_tcp::wire::Address;
use coua_transport::userspace::af_xdp::{self, Interface, XdpNic};

use super::outcome::Sample;
use super::{Flags, Side};
use crate::cable::{Cable, DEVICE, Holder, SERVER};
use crate::client::Client;
use crate::commands::echo::{Answer, Request};
use crate::commands::net_load::ServerTurns;
use crate::cpu;
use crate::echo::canned_hit;
use crate::link::client::Answers;
use crate::link::{Bounce, Counted, Driver, Passed, Plan, Tally, Volley};
use crate::load::{Engine, Requests};
use crate::process::{self, Server};
use crate::segments::address_of;
use crate::target::Target;
use crate::workload::{KeyFormat, Values};

/// Most connections of the load, which all have one address.
pub(super) const CONNECTIONS_MAX: usize = 1 << 15;

/// The port of all servers.
const PORT: u16 = 11211;

/// The networks that the clients are in.
const CLIENTS: &str = "10.0.0.0/8";

/// Seed of all random choices.
const SEED: u64 = 1;

/// One side.
pub(super) struct Stage<'a> {
    flags: &'a Flags,
    side: Side,
    /// None if this process is the server.
    server: Option<Server>,
    server_mac: Mac,
    cable: Cable,
}

impl<'a> Stage<'a> {
    /// Lays a cable, starts the server at its end and fills it.
    pub(super) fn prepare(flags: &'a Flags, side: Side) -> anyhow::Result<Stage<'a>> {
        let cable = Cable::lay(Holder::Shared, 1)?;
        let server_mac = cable.enter_server(|| Interface::read(DEVICE))??.mac;
        let load_mac = cable.enter(|| Interface::read(DEVICE))??.mac;
        let client = IpAddr::from(address_of(0).0);
        cable.lead(CLIENTS, client, load_mac)?;
        let mut stage = Stage {
            flags,
            side,
            server: None,
            server_mac,
            cable,
        };
        if let Some((program, arguments)) = stage.command()? {
            let target = Target::Tcp(SocketAddr::new(SERVER, PORT));
            let cores = [flags.cores.server_core];
            let cable = Some(&stage.cable);
            let server = Server::start_at(&program, &cores, arguments, target, cable);
            let server = server.with_context(|| side.name())?;
            if side != Side::Stack {
                stage.fill(&server)?;
            }
            server.pause()?;
            stage.server = Some(server);
        }
        Ok(stage)
    }

    pub(super) fn side(&self) -> Side {
        self.side
    }

    /// The program that serves, with its arguments.
    fn command(&self) -> anyhow::Result<Option<(PathBuf, Vec<OsString>)>> {
        let shape = &self.flags.shape;
        let net = format!("xdp:{DEVICE}");
        let connections = (shape.connections + 64).to_string();
        if self.side == Side::Stack {
            let answer = Answer {
                request: Request::Get,
                key_size: shape.key_size,
                value_size: shape.value_size,
                keys_per_get: 1,
                mirror: false,
            };
            let words = ["net-echo", "--net", &net, "--connections", &connections];
            let mut arguments: Vec<OsString> = words.map(OsString::from).into();
            arguments.extend(["--port".into(), PORT.to_string().into()]);
            arguments.extend(answer.arguments());
            return Ok(Some((std::env::current_exe()?, arguments)));
        }
        let (listen, more): (IpAddr, &[&str]) = match self.side {
            Side::Bare | Side::Stack => return Ok(None),
            Side::Coua => ([127, 0, 0, 1].into(), &["--net", &net, "--poll", "busy"]),
            Side::Kernel => (SERVER, &[]),
        };
        let more = ["-c", &connections].into_iter().chain(more.iter().copied());
        let flags = process::Flags {
            memory: self.flags.memory,
            item_size_max: None,
            more: more.map(str::to_owned).collect(),
        };
        let program = self.flags.coua.path()?;
        let arguments = flags.arguments(SocketAddr::new(listen, PORT));
        Ok(Some((program, arguments)))
    }

    /// Stores every key.
    fn fill(&self, server: &Server) -> anyhow::Result<()> {
        let shape = &self.flags.shape;
        let keys = KeyFormat::new(shape.key_size, shape.keys)?;
        let values = std::sync::Arc::new(Values::new(shape.value_size));
        let requests = Requests::filling(keys, values, 0..shape.keys);
        self.at_load(|| {
            Engine::connect(server.target(), 16, 16, &requests)?.finish()?;
            Ok(())
        })
    }

    /// Runs `work` in the load's network namespace, on its core.
    fn at_load<T: Send>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        cpu::pinned(self.flags.cores.load_core, || self.cable.enter(work))??
    }

    /// Puts the load on it, once.
    pub(super) fn measure(&self) -> anyhow::Result<Sample> {
        let card = self.at_load(|| self.load_card())?;
        let passed = Rc::new(Cell::new(Passed::default()));
        let server = (server_address(), self.server_mac);
        let card = Counted::new(card, server, Rc::clone(&passed));
        cpu::pinned(self.flags.cores.load_core, || match &self.server {
            Some(server) => {
                server.resume()?;
                let sample = self.measure_server(server, card, &passed);
                server.pause()?;
                sample
            }
            None => self.measure_bare(card, &passed),
        })?
    }

    /// The load's end of the cable; it receives what is for the clients.
    fn load_card(&self) -> anyhow::Result<XdpNic> {
        let (address, first) = address_of(0);
        let (_, last) = address_of(self.flags.shape.connections - 1);
        let options = af_xdp::Options {
            addresses: vec![address.into()],
            active_ports: Some(first..=last),
            ..af_xdp::Options::new(DEVICE)
        };
        only(af_xdp::open(&options)?.nics)
    }

    /// The server's end, for the bare echo.
    fn bare_card(&self) -> anyhow::Result<XdpNic> {
        let options = af_xdp::Options {
            tcp_ports: vec![PORT],
            ..af_xdp::Options::new(DEVICE)
        };
        only(af_xdp::open(&options)?.nics)
    }

    fn measure_bare(&self, mut card: impl Nic, passed: &Cell<Passed>) -> anyhow::Result<Sample> {
        let (flags, shape) = (self.flags, &self.flags.shape);
        let mut nic = self.cable.enter_server(|| self.bare_card())??;
        let request = format!("get {}\r\n", "k".repeat(shape.key_size)).repeat(shape.depth);
        let reply = canned_hit(shape.key_size, shape.value_size, 1).repeat(shape.depth);
        let at_once = shape
            .connections
            .min((shape.outstanding / shape.depth).max(1));
        let to = (server_address(), PORT, self.server_mac);
        let features = card.features();
        let mut volley = Volley::new(at_once, features, to, request.as_bytes(), reply.len())?;
        let bounce = Bounce::new(reply)?;
        let (tally, is_over) = (Tally::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let serve = || -> anyhow::Result<()> {
                cpu::pin(flags.cores.server_core)?;
                bounce.serve(&mut nic, &tally, &is_over);
                Ok(())
            };
            let server = scope.spawn(serve);
            let mut load = || -> anyhow::Result<Sample> {
                volley.run(&mut card, flags.timing.warm_up)?;
                let (frames, times) = (passed.get(), tally.times());
                let volleys = volley.run(&mut card, flags.timing.seconds)?;
                let now = tally.times();
                let (busy, idle) = (now.0 - times.0, now.1 - times.1);
                let frames = since(frames, passed.get());
                let requests = volleys.replies * shape.depth as u64;
                let mut sample = Sample::new(requests, volleys.elapsed, frames);
                sample.server_busy = Some(busy as f64 / (busy + idle).max(1) as f64);
                sample.server_ns = Some(busy as f64 / volleys.replies as f64);
                sample.load_busy = share_of(volleys.elapsed, volleys.idle);
                sample.again = volleys.lost;
                ensure!(requests > 0, "nothing comes back from the bare echo");
                Ok(sample)
            };
            let sample = load();
            is_over.store(true, Relaxed);
            server
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            sample
        })
    }

    fn measure_server(
        &self,
        server: &Server,
        card: impl Nic,
        passed: &Cell<Passed>,
    ) -> anyhow::Result<Sample> {
        let (flags, shape) = (self.flags, &self.flags.shape);
        let answers = match self.side {
            Side::Stack => Answers::Same,
            _ => Answers::Cache,
        };
        let plan = Plan {
            settings: shape.settings(SocketAddr::new(SERVER, PORT), answers, SEED)?,
            rate: None,
            warm_up: flags.timing.warm_up,
            time: flags.timing.seconds,
        };
        let (mut frames, mut looks) = (Vec::new(), Vec::new());
        let stretch = Driver::run(card, &plan, || {
            // The frames of the `stats` request itself go through the kernel and are not counted.
            if self.side == Side::Coua {
                let ask = || -> anyhow::Result<_> {
                    Ok(Client::connect(server.target())?.stats_of("net")?)
                };
                looks.push(self.cable.enter(ask)??);
            }
            frames.push(passed.get());
            Ok(())
        })?;
        let [before, after] = frames[..] else {
            anyhow::bail!("the load has not looked twice");
        };
        let measured = &stretch.measured;
        let passed = since(before, after);
        let mut sample = Sample::new(measured.replies, measured.elapsed, passed);
        let turns = ServerTurns::between(&looks);
        sample.server_busy = turns.map(|turns| turns.busy);
        sample.server_ns = turns.map(|turns| turns.frame_ns);
        sample.load_busy = share_of(measured.elapsed, stretch.idle);
        sample.again = stretch.retransmitted;
        Ok(sample)
    }
}

fn server_address() -> Address {
    SERVER.into()
}

fn only(nics: Vec<XdpNic>) -> anyhow::Result<XdpNic> {
    nics.into_iter().next().context("a worker has a card")
}

fn since(before: Passed, after: Passed) -> Passed {
    Passed {
        sent: after.sent - before.sent,
        received: after.received - before.received,
    }
}

fn share_of(elapsed: Duration, idle: Duration) -> f64 {
    1.0 - idle.as_secs_f64() / elapsed.as_secs_f64()
}
