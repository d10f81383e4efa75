//! Clients driven on a card, by the clock.

use std::time::{Duration, Instant};

use anyhow::ensure;
use coua_tcp::nic::Nic;

use super::client::{Clients, Pace, Settings, Stretch};
use crate::cpu;

/// What load to put on a server, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What clients there are and what they ask for.
    pub(crate) settings: Settings,
    /// Requests per second; `None` for as many as the server answers.
    pub(crate) rate: Option<f64>,
    /// Load before the measurement.
    pub(crate) warm_up: Duration,
    /// The measurement.
    pub(crate) time: Duration,
}

/// Clients that take turn after turn.
pub(crate) struct Driver<N> {
    clients: Clients,
    nic: N,
    started: Instant,
}

impl<N: Nic> Driver<N> {
    /// How long opening all connections may take.
    const OPENING: Duration = Duration::from_secs(60);

    /// How long the last replies may take.
    const ENDING: Duration = Duration::from_secs(10);

    /// How long to try to send resets if the card has no room.
    const RESETTING: Duration = Duration::from_secs(2);

    /// Carries out the plan, and ends the connections.
    ///
    /// `look` is called under load, at the beginning and at the end of the measurement.
    ///
    /// # Errors
    /// If the server cannot be reached, or a reply is wrong.
    pub(crate) fn run(
        nic: N,
        plan: &Plan,
        look: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Stretch> {
        let clients = Clients::new(plan.settings.clone(), &nic)?;
        let mut driver = Driver {
            clients,
            nic,
            started: Instant::now(),
        };
        let measured = driver.measure(plan, look);
        driver.end();
        measured
    }

    fn measure(
        &mut self,
        plan: &Plan,
        mut look: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Stretch> {
        self.turn_while(Self::OPENING, |clients| !clients.are_open())?;
        ensure!(
            self.clients.are_open(),
            "the server did not accept all connections in time"
        );
        let depth = plan.settings.depth as f64;
        let pace = |driver: &Self| match plan.rate {
            Some(rate) => Pace::open(driver.now(), rate / depth),
            None => Pace::Closed,
        };
        let first = pace(self);
        self.clients.begin(first);
        self.turn_while(plan.warm_up, |_| true)?;
        look()?;
        // The time that `look` takes is not part of a turn.
        let now = self.now();
        self.clients.turn(&mut self.nic, now)?;
        let second = pace(self);
        self.clients.begin(second);
        let (begun, cpu_before) = (Instant::now(), cpu::of_this_thread());
        self.turn_while(plan.time, |_| true)?;
        let mut stretch = self.clients.begin(Pace::Rest);
        stretch.measured.elapsed = begun.elapsed();
        stretch.measured.client_cpu = cpu::of_this_thread() - cpu_before;
        look()?;
        self.turn_while(Self::ENDING, Clients::is_waiting)?;
        Ok(stretch)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Takes turns for a time, but no longer than a condition holds.
    fn turn_while(
        &mut self,
        time: Duration,
        is_so: impl Fn(&Clients) -> bool,
    ) -> anyhow::Result<()> {
        let until = self.now() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
        loop {
            let now = self.now();
            if now >= until || !is_so(&self.clients) {
                return Ok(());
            }
            self.clients.turn(&mut self.nic, now)?;
        }
    }

    fn end(&mut self) {
        let begun = Instant::now();
        while !self.clients.reset_all(&mut self.nic) && begun.elapsed() < Self::RESETTING {}
        // Time for the server to read the last of them before the link is gone.
        std::thread::sleep(Duration::from_millis(20));
        self.nic.flush();
    }
}
