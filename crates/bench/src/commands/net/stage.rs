//! The servers of a case, and the load on them.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::Flags;
use super::cases::{Case, PING_LEN};
use super::outcome::{CaseOutcome, Rate, Sample, Side};
use crate::commands::echo::{Answer, Request};
use crate::commands::net_load;
use crate::commands::programs::Versions;
use crate::cpu;
use crate::guard;
use crate::load::{
    Arrivals, Dialect, Engine, Order, Pace, Plan as LoadPlan, Requests, Setup, Team,
};
use crate::process::{self, Folder, Server};
use crate::report;
use crate::target::Target;
use crate::workload::{KeyFormat, Mix, Popularity, Sampler, Ttls, Values};

/// Connections of the load on the kernel's TCP, each with one request at a time.
const KERNEL_CONNECTIONS: usize = 64;

/// The least memory that any server takes for an item beside its key and value, to choose the number
/// of keys and the size of memory.
const ITEM_OVERHEAD: u64 = 30;

/// How long the echo on a link may take from creating its socket to its first frame.
const SETTLING: Duration = Duration::from_millis(500);

/// The server's address on the link.
const ADDRESS: &str = "10.0.0.1";

/// Most connections of a server on a link.
const CONNECTIONS_MAX: usize = 70_000;

/// Servers of one case, filled.
pub(super) struct Stage<'a> {
    flags: &'a Flags,
    case: &'a Case,
    key_count: u32,
    coua: Server,
    memcached: Server,
    echo: Option<Server>,
    kernel_echo: Option<Server>,
    folder: Folder,
    requests: Requests,
}

/// What is stored before the measurement.
struct Filling {
    /// `-m`, in MiB.
    memory: u64,
    key_count: u32,
    /// How often every key is set.
    passes: u32,
}

impl Filling {
    /// Where sets are measured, memory is twice what the items take, and all of it is written
    /// beforehand: the first touch of a page costs as much as hundreds of sets.
    fn of(flags: &Flags, case: &Case) -> anyhow::Result<Filling> {
        const PASSES: u32 = 3;
        let item = ITEM_OVERHEAD + (flags.key_size + case.value_size) as u64;
        if case.is_full {
            let held = (flags.full_memory << 20) / item;
            return Ok(Filling {
                memory: flags.full_memory,
                key_count: u32::try_from(2 * held)
                    .context("--full-memory: so much memory holds too many keys")?,
                passes: 1,
            });
        }
        let twice = (2 * item * u64::from(case.keys)).div_ceil(1 << 20);
        let is_written = case.sets > 0.0;
        Ok(Filling {
            memory: if is_written { twice } else { flags.memory },
            key_count: case.keys,
            passes: if is_written { PASSES } else { 1 },
        })
    }
}

impl<'a> Stage<'a> {
    /// Starts all servers and fills the caches.
    pub(super) fn prepare(flags: &'a Flags, case: &'a Case) -> anyhow::Result<Stage<'a>> {
        let Filling {
            memory,
            key_count,
            passes,
        } = Filling::of(flags, case)?;
        report::progress(format_args!("{}: {key_count} keys, -m {memory}", case.name));
        let keys = KeyFormat::new(flags.key_size, key_count)?;
        let values = Arc::new(Values::new(case.value_size));
        let fill = |server: &Server| -> anyhow::Result<()> {
            let requests = Requests::filling(keys, values.clone(), 0..key_count);
            for _ in 0..passes {
                cpu::pinned(flags.cores.load_core, || {
                    Engine::connect(server.target(), 64, 64, &requests)?.finish()
                })??;
            }
            Ok(server.pause()?)
        };
        let mut server_flags = process::Flags {
            memory,
            item_size_max: None,
            more: Vec::new(),
        };
        let memcached = flags.memcached.path();
        let memcached = Server::start(&memcached, flags.cores.server_core, &server_flags)?;
        fill(&memcached)?;
        let folder = Folder::new()?;
        server_flags
            .more
            .extend(coua_flags(flags, case, &folder.path(Side::Coua.name())));
        let coua = flags.coua.path()?;
        let coua = Server::start(&coua, flags.cores.server_core, &server_flags)?;
        fill(&coua)?;
        let sampler = Sampler::new(case.popularity, key_count, 1);
        let requests = Requests::new(keys, values, sampler, 1, case.sets);
        let mut stage = Stage {
            flags,
            case,
            key_count,
            coua,
            memcached,
            echo: None,
            kernel_echo: None,
            folder,
            requests,
        };
        if case.has_echo() {
            stage.echo = Some(stage.start_echo()?);
        }
        if case.has_kernel {
            let echo = Server::start_echo(flags.cores.server_core, stage.answer().arguments())?;
            echo.pause()?;
            stage.kernel_echo = Some(echo);
        }
        Ok(stage)
    }

    fn answer(&self) -> Answer {
        Answer {
            request: match self.case.sets {
                0.0 => Request::Get,
                _ => Request::Set,
            },
            key_size: self.flags.key_size,
            value_size: self.case.value_size,
            keys_per_get: 1,
            mirror: self.case.is_mirrored,
        }
    }

    /// Starts the echo on coua's stack.
    fn start_echo(&self) -> anyhow::Result<Server> {
        let socket = self.folder.path(Side::Echo.name());
        let core = self.flags.cores.server_core.to_string();
        let mut arguments: Vec<OsString> = ["net-echo", "--core", &core].map(Into::into).into();
        arguments.extend(["--link".into(), self.flags.link.name().into()]);
        arguments.extend(["--socket".into(), socket.clone().into()]);
        arguments.extend(self.answer().arguments());
        let server = Server::start_at_link(self.flags.cores.server_core, arguments, &socket)?;
        std::thread::sleep(SETTLING);
        server.pause()?;
        Ok(server)
    }

    /// The versions of coua and of memcached.
    pub(super) fn versions(&self) -> anyhow::Result<Versions> {
        let both = [&self.coua, &self.memcached];
        both.iter().try_for_each(|server| server.resume())?;
        let versions = Versions::of(&self.coua, &self.memcached)?;
        both.iter().try_for_each(|server| server.pause())?;
        Ok(versions)
    }

    /// The sides of this case, in the order of the first round.
    fn sides(&self) -> Vec<Side> {
        let mut sides = vec![Side::Coua, Side::Memcached];
        if self.echo.is_some() {
            sides.push(Side::Echo);
        }
        if self.kernel_echo.is_some() {
            sides.extend([Side::KernelCoua, Side::KernelEcho]);
        }
        sides
    }

    /// Measures all sides in turn, then at fixed rates.
    pub(super) fn measure(&self) -> anyhow::Result<CaseOutcome> {
        let mut outcome = CaseOutcome::new(self.case);
        let mut sides = self.sides();
        for round in 1..=self.flags.timing.rounds {
            let (name, rounds) = (&self.case.name, self.flags.timing.rounds);
            report::progress(format_args!("{name}, {round} of {rounds}"));
            for &side in &sides {
                let sample = self.sample(side, None)?;
                outcome.add(side, None, sample);
            }
            sides.reverse();
        }
        for &rate in &self.flags.rates {
            for round in 1..=self.flags.timing.rounds {
                let (name, rounds) = (&self.case.name, self.flags.timing.rounds);
                report::progress(format_args!("{name} at {rate}, {round} of {rounds}"));
                self.measure_at(rate, &mut outcome)?;
            }
        }
        Ok(outcome)
    }

    fn measure_at(&self, rate: Rate, outcome: &mut CaseOutcome) -> anyhow::Result<()> {
        let per_second = outcome.per_second(rate);
        for side in [Side::Coua, Side::Memcached] {
            let highest = outcome.highest(side);
            // Above what a side can do, its latency grows for as long as it is tried.
            if per_second <= highest * Rate::BEYOND {
                let sample = self.sample(side, Some(per_second))?;
                outcome.add(side, Some(rate), sample);
            }
        }
        Ok(())
    }

    fn sample(&self, side: Side, rate: Option<f64>) -> anyhow::Result<Sample> {
        let server = match side {
            Side::Coua | Side::KernelCoua => Some(&self.coua),
            Side::Memcached => Some(&self.memcached),
            Side::Echo => self.echo.as_ref(),
            Side::KernelEcho => self.kernel_echo.as_ref(),
        };
        let server = server.context("the side is not of this case")?;
        server.resume()?;
        let sample = match side {
            Side::Coua | Side::Echo => self.sample_link(server, side, rate),
            Side::KernelCoua | Side::Memcached | Side::KernelEcho => {
                self.sample_kernel(server, side, rate)
            }
        };
        server.pause()?;
        sample
    }

    /// Measures over the link, in another process: DPDK's environment can start only once in a
    /// process.
    fn sample_link(
        &self,
        server: &Server,
        side: Side,
        rate: Option<f64>,
    ) -> anyhow::Result<Sample> {
        let (flags, case) = (self.flags, self.case);
        let who = match (side, case.is_full) {
            (Side::Echo, _) if case.is_mirrored => "mirror",
            (Side::Echo, _) => "same",
            (_, false) => "cache",
            (_, true) => "full-cache",
        };
        let popularity = case.popularity.to_string();
        let mut command = guard::command(std::env::current_exe()?)?;
        command.args([
            "net-load",
            "--json",
            "--link",
            flags.link.name(),
            "--answers",
            who,
        ]);
        command.arg("--socket").arg(self.folder.path(side.name()));
        for (flag, value) in [
            ("--connections", case.connections),
            ("--depth", case.depth),
            ("--outstanding", flags.outstanding),
            ("--key-size", flags.key_size),
            ("--value-size", case.value_size),
            ("--core", flags.cores.load_core),
        ] {
            command.args([flag, &value.to_string()]);
        }
        command.args(["--keys", &self.key_count.to_string()]);
        command.args(["--popularity", &popularity]);
        for (flag, value) in [
            ("--sets", Some(case.sets)),
            ("--seconds", Some(flags.timing.seconds.as_secs_f64())),
            ("--warm-up", Some(flags.timing.warm_up.as_secs_f64())),
            ("--rate", rate),
        ] {
            if let Some(value) = value {
                command.args([flag, &value.to_string()]);
            }
        }
        if let Target::Tcp(address) = server.target() {
            command.args(["--server", &format!("{ADDRESS}:{}", address.port())]);
            command.args(["--stats", &address.to_string()]);
        }
        let output = command.stderr(Stdio::inherit()).output()?;
        ensure!(
            output.status.success(),
            "the load on {} failed",
            side.name()
        );
        let outcome: net_load::Outcome = serde_json::from_slice(&output.stdout)?;
        Ok(Sample::of_link(&outcome))
    }

    fn sample_kernel(
        &self,
        server: &Server,
        side: Side,
        rate: Option<f64>,
    ) -> anyhow::Result<Sample> {
        let (warm_up, time) = (self.flags.timing.warm_up, self.flags.timing.seconds);
        let order = |time| match rate {
            None => Order::Closed(time),
            Some(rate) => {
                let arrivals = Arrivals::Constant;
                Order::Open(
                    Pace {
                        rate,
                        arrivals,
                        seed: 1,
                    },
                    time,
                )
            }
        };
        let requests = match side {
            Side::KernelEcho if self.case.is_mirrored => ping_pong()?,
            Side::KernelEcho => self.requests.canned(),
            _ => self.requests.clone(),
        };
        let setup = Setup {
            target: server.target().clone(),
            connections: KERNEL_CONNECTIONS,
            depth: 1,
            threads: 1,
            core: Some(self.flags.cores.load_core),
            agents: Vec::new(),
            net: None,
            gaps: None,
        };
        let mut team = Team::gather(&setup, &requests)?;
        team.carry_out(order(warm_up), |_, _| ())?;
        let before = server.cpu()?;
        let measured = team.carry_out(order(time), |_, _| ())?;
        let cpu = server.cpu()?.saturating_sub(before);
        Ok(Sample::of_kernel(&measured, cpu))
    }
}

/// Requests for a mirroring service on the kernel's TCP.
fn ping_pong() -> anyhow::Result<Requests> {
    const KEYS: u32 = 1000;
    let keys = KeyFormat::new(PING_LEN, KEYS)?;
    let plan = LoadPlan {
        dialect: Dialect::Mirror,
        keys: keys.into(),
        values: Arc::new(Values::new(0)),
        mix: Mix::with_sets(0.0),
        ttls: Ttls::never(),
        keys_per_get: 1,
        canned: false,
    };
    let sampler = Sampler::new(Popularity::Uniform, KEYS, 1);
    Ok(Requests::planned(plan.into(), sampler, 1))
}

/// coua's own flags, besides those that memcached gets too.
fn coua_flags(flags: &Flags, case: &Case, socket: &Path) -> Vec<String> {
    let connections = case.connections.min(CONNECTIONS_MAX) + 1024;
    let mut words = flags.link.coua_flags(socket);
    words.extend(
        [
            "-c",
            &connections.to_string(),
            "--poll",
            "busy",
            "--address",
            &format!("{ADDRESS}/8"),
        ]
        .map(str::to_owned),
    );
    words
}
