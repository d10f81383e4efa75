//! Servers that are measured in turns.

use anyhow::Context;
use serde::Serialize;

use super::ground::Ground;
use super::recipe::{Needs, Recipe, Running};
use super::stack::{Links, LoadStack};
use crate::cable::Cable;
use crate::commands::fill;
use crate::commands::load_flags::{LoadFlags, TeamFlags};
use crate::commands::rates::Rates;
use crate::commands::run::{Bench, Outcome, Sample, Search, Sweep};
use crate::cpu;
use crate::load::{Dialect, Measured, Setup};
use crate::report::{self, require};
use crate::target::Target;

/// Servers that are started and filled. Only the one that is being measured runs, since others may
/// poll.
pub(crate) struct Contest<'a> {
    team: &'a TeamFlags,
    /// The load's own stack, if any, for all servers except those on memif links.
    load_stack: Option<LoadStack>,
    links: Option<Links>,
    load_cores: Vec<usize>,
    contestants: Vec<Contestant>,
}

struct Contestant {
    name: String,
    version: Option<String>,
    running: Running,
    /// Its number among the memif links, if it is on one.
    link: Option<usize>,
}

/// The outcome of one server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Side {
    /// Its name in the report.
    pub(crate) name: String,
    /// The program with its arguments.
    pub(super) command: String,
    /// The version that it reports, if any.
    pub(super) version: Option<String>,
    /// Requests a second of each repetition. In a search for the highest rate it is that rate, or 0
    /// if none held.
    pub(crate) requests_per_second: Vec<f64>,
    /// The searches for the highest rate, one for each repetition.
    pub(super) searches: Vec<Search>,
    /// The measurements, and the verdict on them.
    pub(crate) outcome: Outcome,
    /// All latencies of all measurements.
    #[serde(skip)]
    pub(crate) merged: Measured,
}

impl<'a> Contest<'a> {
    /// Requests in flight per connection while items are stored.
    const FILLING_DEPTH: u32 = 32;

    /// Starts all servers and stores the items in them.
    pub(crate) fn prepare(
        recipes: &[Recipe],
        ground: &Ground,
        team: &'a TeamFlags,
        load: &LoadFlags,
        load_stack: Option<LoadStack>,
    ) -> anyhow::Result<Contest<'a>> {
        for recipe in recipes {
            require!(
                recipe.is_echo() == (team.dialect == Dialect::Mirror),
                "{}: --dialect mirror and the server echo go together",
                recipe.name()
            );
        }
        let links = recipes.iter().filter(|recipe| recipe.needs_link()).count();
        for recipe in recipes {
            let queues = recipe.answering_queues();
            let queues = queues.filter(|_| load_stack.is_some() || recipe.needs_link());
            require!(
                queues.is_none_or(|queues| queues >= team.threads as usize),
                "{}: it answers on a queue for each of its threads, so that a load of {threads} \
                 --threads on a stack of its own needs -t {threads}",
                recipe.name(),
                threads = team.threads
            );
        }
        let load_queues = load_stack.map_or(0, |_| team.threads as usize);
        let needs = Needs::of(team).with_load_queues(load_queues);
        let cabled = ground.veth || load_stack.is_some() || recipes.iter().any(Recipe::needs_cable);
        if cabled {
            Cable::check_rights()?;
        }
        let mut contest = Contest {
            team,
            load_stack,
            links: (links > 0).then(Links::new).transpose()?,
            load_cores: ground.load_cores()?,
            contestants: Vec::new(),
        };
        let mut next_link = 0..links;
        for recipe in recipes {
            let name = recipe.name();
            let link = recipe.needs_link().then(|| next_link.next()).flatten();
            let socket = contest.links.as_ref().zip(link);
            let socket = socket.map(|(links, link)| links.socket(link));
            let running = recipe
                .start_at_link(ground, cabled, needs, socket.as_deref())
                .with_context(|| name.to_owned())?;
            report::progress(format_args!("{name}: `{}`", running.command));
            let version = recipe.has_version().then(|| {
                let ask = || anyhow::Ok(running.server.client()?.version()?);
                contest.at_load(&running, ask)
            });
            let contestant = Contestant {
                name: name.to_owned(),
                version: version.transpose()?,
                running,
                link,
            };
            if !recipe.is_echo() {
                let filled = contest.fill(&contestant, load);
                filled.with_context(|| format!("{name}: items cannot be stored"))?;
            }
            contestant.running.server.pause()?;
            contest.contestants.push(contestant);
        }
        Ok(contest)
    }

    /// Runs `work` where the load is: in its network namespace, on its cores.
    fn at_load<T: Send>(
        &self,
        running: &Running,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        cpu::bound(&self.load_cores, || running.at_clients(work)?)?
    }

    fn setup(&self, running: &Running, depth: u32) -> anyhow::Result<Setup> {
        self.team.setup(running.target(), &[], depth)
    }

    /// How the load reaches a server: by the kernel's sockets, or a stack of its own.
    fn load_setup(&self, contestant: &Contestant, depth: u32) -> anyhow::Result<Setup> {
        let setup = self.setup(&contestant.running, depth)?;
        Ok(match (&self.links, contestant.link, &setup.target) {
            (Some(links), Some(link), Target::Tcp(address)) => Setup {
                target: Target::Tcp(Links::server(address.port())),
                net: Some(links.load_end(link)),
                ..setup
            },
            _ => Setup {
                net: self.load_stack.map(LoadStack::net),
                ..setup
            },
        })
    }

    fn fill(&self, contestant: &Contestant, load: &LoadFlags) -> anyhow::Result<()> {
        let setup = self.setup(&contestant.running, Self::FILLING_DEPTH)?;
        let counts = load.mix.as_ref().is_some_and(|mix| mix.counts());
        let measured = self.at_load(&contestant.running, || {
            fill::store(&setup, &load.items, self.team.dialect, counts)
        })?;
        fill::all_stored(&load.items, &measured)
    }

    /// Puts a load on all servers in turns, `rounds` times at each of several rates.
    pub(crate) fn sweep(
        &self,
        load: &LoadFlags,
        rates: &Rates,
        rounds: u32,
    ) -> anyhow::Result<Sweep> {
        let names = self.contestants.iter().map(|one| one.name.clone());
        let mut servers: Vec<(String, Vec<Outcome>)> = names.map(|name| (name, vec![])).collect();
        for rate in rates.each() {
            report::progress(format_args!("{rate} requests/s"));
            let sides = self.measure(&load.at_rate(rate), rounds)?;
            for ((_, outcomes), side) in servers.iter_mut().zip(sides) {
                outcomes.push(side.outcome);
            }
        }
        Ok(Sweep::new(servers))
    }

    /// Puts a load on all servers in turns, A B A B, `rounds` times. The items are those that were
    /// stored.
    pub(crate) fn measure(&self, load: &LoadFlags, rounds: u32) -> anyhow::Result<Vec<Side>> {
        let benches = self.contestants.iter().map(|contestant| {
            let running = &contestant.running;
            let setup = self.load_setup(contestant, load.depth)?;
            let owner = running.server.owner();
            running.server.resume()?;
            let bench = self.at_load(running, || {
                Bench::prepare(load, &setup, self.team.dialect, owner)
            });
            running.server.pause()?;
            bench.with_context(|| contestant.name.clone())
        });
        let mut benches = benches.collect::<anyhow::Result<Vec<Bench>>>()?;
        let mut measured: Vec<(Vec<Sample>, Vec<Search>)> = self
            .contestants
            .iter()
            .map(|_| Default::default())
            .collect();
        for round in 1..=rounds {
            let turns = self.contestants.iter().zip(&mut benches);
            for ((contestant, bench), (samples, searches)) in turns.zip(&mut measured) {
                let server = &contestant.running.server;
                let what = format!("{}, {round} of {rounds}", contestant.name);
                server.resume()?;
                let outcome = turn(bench, load, round, &what);
                server.pause()?;
                let (sample, search) = outcome.with_context(|| contestant.name.clone())?;
                report::progress(format_args!(
                    "{what}: {:.0} requests/s",
                    headline(&sample, search.as_ref())
                ));
                samples.push(sample);
                searches.extend(search);
            }
        }
        let sides = self.contestants.iter().zip(benches).zip(measured);
        let sides = sides.map(|((contestant, bench), (samples, searches))| {
            let rates = samples
                .iter()
                .enumerate()
                .map(|(round, sample)| headline(sample, searches.get(round)));
            let requests_per_second = rates.collect();
            let search = searches.last().cloned();
            let rate = search.as_ref().map_or(load.rate, |search| search.rate);
            let merged = bench.merged().cloned();
            Side {
                name: contestant.name.clone(),
                command: contestant.running.command.clone(),
                version: contestant.version.clone(),
                requests_per_second,
                searches,
                outcome: Outcome::new(bench.load(), rate, search, samples),
                merged: merged.unwrap_or_else(Measured::new),
            }
        });
        Ok(sides.collect())
    }
}

/// One server's turn.
fn turn(
    bench: &mut Bench<'_>,
    load: &LoadFlags,
    round: u32,
    what: &str,
) -> anyhow::Result<(Sample, Option<Search>)> {
    let search = load.find_max.then(|| bench.search()).transpose()?;
    let rate = search.as_ref().map_or(load.rate, |search| search.rate);
    bench.warm_up(rate)?;
    Ok((bench.measure(rate, round.into(), what)?, search))
}

fn headline(sample: &Sample, search: Option<&Search>) -> f64 {
    search.map_or(sample.requests_per_second, |search| {
        search.rate.unwrap_or(0.0)
    })
}
