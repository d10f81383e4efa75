//! A team of load threads at work, and the server beside it.

use std::time::Duration;

use anyhow::{Context, ensure};

use super::{Load, Sample, Search};
use crate::commands::load_flags::{LoadFlags, gather};
use crate::cpu;
use crate::load::{Dialect, Measured, Order, Pace, Requests, Setup, Team, find_max};
use crate::owner::Owner;
use crate::report::{self, ProgressLine};

/// One load on one server: warm-ups, searches and measurements follow each other on the same
/// connections, in any order.
pub(crate) struct Bench<'a> {
    flags: &'a LoadFlags,
    load: Load,
    team: Team,
    /// Cores that the load threads can use.
    cores: usize,
    owner: Option<Owner>,
    line: ProgressLine,
    merged: Option<Measured>,
}

impl<'a> Bench<'a> {
    /// The longest that the closed loop before a search takes.
    const GUESS: Duration = Duration::from_secs(2);
    /// The search ends when the highest rate that holds and the lowest that does not are this close, as
    /// a fraction.
    const PRECISION: f64 = 0.02;

    /// Opens the connections in the calling thread's network, and on its cores unless the setup
    /// names others. `owner` is the server's process, if it can be seen.
    pub(crate) fn prepare(
        flags: &'a LoadFlags,
        setup: &Setup,
        dialect: Dialect,
        owner: Option<Owner>,
    ) -> anyhow::Result<Bench<'a>> {
        let items = &flags.items;
        let plan = items.plan(dialect, flags.mix.as_ref(), flags.keys_per_get)?;
        let popularity = items.popularity(flags.popularity);
        let sampler = items.sampler(popularity, flags.trace.as_ref())?;
        let load = Load::new(flags, setup, &plan, popularity);
        let requests = Requests::planned(plan.into(), sampler, items.seed);
        let gaps = flags.gaps.then(|| owner.map(Owner::pid));
        let team = gather(
            &Setup {
                gaps,
                ..setup.clone()
            },
            &requests,
        )?;
        let cores = match setup.core {
            Some(_) => setup.threads,
            None => setup.threads.min(cpu::allowed()?.len()),
        };
        Ok(Bench {
            flags,
            load,
            team,
            cores,
            owner,
            line: ProgressLine::new(),
            merged: None,
        })
    }

    /// The load in words.
    pub(crate) fn load(&self) -> Load {
        self.load.clone()
    }

    /// All measurements together; none before the first.
    pub(crate) fn merged(&self) -> Option<&Measured> {
        self.merged.as_ref()
    }

    fn order(&self, rate: Option<f64>, time: Duration, round: u64) -> Order {
        match rate {
            None => Order::Closed(time),
            Some(rate) => {
                let pace = Pace {
                    rate,
                    arrivals: self.flags.arrivals,
                    seed: self.flags.items.seed + round,
                };
                Order::Open(pace, time)
            }
        }
    }

    fn carry_out(&mut self, order: Order, what: &str) -> anyhow::Result<Measured> {
        let line = &mut self.line;
        Ok(self.team.carry_out(order, |replies, elapsed| {
            let seconds = elapsed.as_secs_f64();
            let rate = replies as f64 / seconds;
            line.show(format_args!("{what}, {seconds:.0} s: {rate:.0} requests/s"));
        })?)
    }

    /// Finds the highest rate that holds.
    pub(crate) fn search(&mut self) -> anyhow::Result<Search> {
        let time = self.flags.seconds;
        self.carry_out(Order::Closed(self.flags.warm_up), "warm-up")?;
        let guess = self.carry_out(Order::Closed(time.min(Self::GUESS)), "first guess")?;
        ensure!(guess.replies > 0, "the server answered no request");
        let bound = self.flags.bound;
        let mut round = 0;
        let found = find_max(&bound, guess.rate(), Self::PRECISION, |rate| {
            round += 1;
            let order = self.order(Some(rate), time, round);
            let measured = self.carry_out(order, &format!("trying {rate:.0} requests/s"))?;
            let (is, rate) = (bound.of(&measured), measured.rate());
            report::progress(format_args!("{rate:.0} requests/s: {bound}, is {is:.1?}"));
            anyhow::Ok(measured)
        })?;
        Ok(Search::new(&bound, &found))
    }

    /// Load before a measurement, at `rate` requests a second, or in a closed loop if none.
    pub(crate) fn warm_up(&mut self, rate: Option<f64>) -> anyhow::Result<()> {
        let order = self.order(rate, self.flags.warm_up, 0);
        self.carry_out(order, "warm-up")?;
        Ok(())
    }

    /// Measures once; `round` counts from 1 and `what` is shown as progress.
    pub(crate) fn measure(
        &mut self,
        rate: Option<f64>,
        round: u64,
        what: &str,
    ) -> anyhow::Result<Sample> {
        let before = self.owner.map(Owner::usage).transpose();
        let before = before.context("the CPU time of the server's process cannot be read")?;
        let order = self.order(rate, self.flags.seconds, round);
        let measured = self.carry_out(order, what)?;
        let after = self.owner.map(Owner::usage).transpose()?;
        let usage = before
            .zip(after)
            .map(|(before, after)| after.since(&before));
        let sample = Sample::new(&measured, self.cores, usage);
        match &mut self.merged {
            Some(merged) => merged.add(&measured.without_seconds()),
            None => self.merged = Some(measured.without_seconds()),
        }
        Ok(sample)
    }
}
