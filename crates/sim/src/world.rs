//! The whole run: workers and clients act in an order that the seed chooses, and time passes when
//! none of them can do anything.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use coua::clock::Clock;
use coua::server::simulated;
use coua::worker::Worker;
use coua_transport::Events;
use coua_transport::simulated::{Got, Manner, Network};

use crate::Summary;
use crate::audit;
use crate::client::{Client, Role};
use crate::dice::Dice;
use crate::filler;
use crate::model::Flushes;
use crate::plan::Plan;
use crate::scene::{Record, Scene};

/// A run that takes more rounds than this never ends.
const ROUNDS_MAX: u64 = 400_000;

/// After so many rounds in which no client got anywhere, none ever will.
const IDLE_ROUNDS_MAX: u64 = 4_000;

/// Rounds in which the server must notice that all clients have left.
const ROUNDS_TO_CLOSE: u64 = 4_000;

/// Rounds in which memory must be full.
const ROUNDS_TO_FILL: u64 = 20_000;

/// No time jumps from this second on: the wall clock's seconds have 32 bits.
const JUMPS_END_MS: u64 = 40 * 365 * 24 * 3_600_000;

/// A worker and when it wakes.
struct Driven {
    worker: Worker,
    poller: usize,
    wakes_at_ms: u64,
}

/// See the module.
pub(crate) struct World {
    pub(crate) scene: Scene,
    dice: Dice,
    workers: Vec<Driven>,
    events: Events,
    clients: Vec<Client>,
    witness: Client,
    /// Turns of each worker.
    turns: Vec<u64>,
    idle_rounds: u64,
}

impl World {
    pub(crate) fn new(seed: u64, is_loud: bool) -> Result<World, String> {
        let mut dice = Dice::new(seed);
        let plan = Rc::new(Plan::new(&mut dice));
        let network = Network::new(dice.number(), plan.exhausted_one_in);
        let elapsed = Arc::new(AtomicU64::new(0));
        let start = Duration::from_secs(plan.laxity.started.into());
        let clock = Clock::simulated(start, Arc::clone(&elapsed));
        let (shared, driven) =
            simulated::start(plan.settings.clone(), &network, clock, dice.number())
                .map_err(|error| format!("it does not start: {error}"))?;
        let workers: Vec<Driven> = driven
            .into_iter()
            .map(|(worker, poller)| Driven {
                worker,
                poller,
                wakes_at_ms: 0,
            })
            .collect();
        let flushes = Flushes::default();
        let clients = (1..=plan.clients)
            .map(|number| {
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                Client::new(
                    number,
                    Role::Actor,
                    dice.part(),
                    Rc::clone(&plan),
                    Rc::clone(&flushes),
                )
            })
            .collect();
        let witness = Client::new(0, Role::Witness, dice.part(), Rc::clone(&plan), flushes);
        let world = World {
            scene: Scene {
                plan,
                network,
                shared,
                clock: elapsed,
                round: Cell::new(0),
                closed_by_server: Cell::new(0),
                record: Record::new(is_loud),
            },
            turns: vec![0; workers.len()],
            dice,
            workers,
            events: Events::new(),
            clients,
            witness,
            idle_rounds: 0,
        };
        let (flags, clients) = (&world.scene.plan.flags, world.clients.len());
        world
            .scene
            .say(|| format!("{clients} clients, {}", flags.join(" ")));
        Ok(world)
    }

    /// Runs until all clients have left and the server has noticed.
    pub(crate) fn run(&mut self) -> Result<Summary, String> {
        self.fill()?;
        while !self.clients.iter().all(Client::is_gone) {
            self.round()?;
        }
        self.witness.dismiss();
        let mut rounds_left = ROUNDS_TO_CLOSE;
        while self.scene.network.connections() > 0 || !self.witness.is_gone() {
            self.round()?;
            rounds_left -= 1;
            if rounds_left == 0 {
                let open = self.scene.network.connections();
                return Err(format!("{open} connections are still open"));
            }
        }
        // What the last connections held is freed at the end of this turn or of the next.
        for _ in 0..4 {
            self.scene.advance(1);
            for at in 0..self.workers.len() {
                self.take_turn(at)?;
            }
        }
        audit::at_the_end(&self.scene, &self.clients)?;
        let counts = self.scene.shared.counts();
        Ok(Summary {
            hash: self.scene.record.hash(),
            rounds: self.scene.round.get(),
            turns: self.turns.iter().sum(),
            requests: counts.requests,
            answers: self.clients.iter().map(|client| client.answers).sum(),
            turns_waited_max: self.witness.turns_waited_max,
            evictions: self.scene.shared.store.stats().totals.evicted,
            shed: counts.connections_shed,
            deferred: counts.requests_deferred,
            idle_kicks: counts.idle_kicks,
            rejected: counts.rejected_connections,
            refused: counts.store_no_memory,
        })
    }

    /// Fills memory with items that no client asks for.
    fn fill(&mut self) -> Result<(), String> {
        let scene = &self.scene;
        if scene.plan.filling == 0 {
            return Ok(());
        }
        let is_binary = scene.plan.speak_binary == Some(true);
        let bytes = filler::requests(&mut self.dice, scene.plan.filling, is_binary);
        let peer = scene.network.connect(Manner::AMPLE);
        let (mut sent, mut received) = (0, Vec::new());
        for round in 0.. {
            if !received.is_empty() {
                break;
            }
            if round == ROUNDS_TO_FILL {
                return Err(format!("memory is not full after {round} rounds"));
            }
            sent += peer
                .send(&bytes[sent..])
                .ok_or("it does not take the filling")?;
            self.scene.network.pass_time();
            self.scene.advance(1);
            for at in 0..self.workers.len() {
                self.take_turn(at)?;
            }
            if peer.receive(&mut received, 1 << 20) == Got::Ended {
                return Err("it closes the connection that fills it".to_owned());
            }
        }
        let stats = self.scene.shared.store.stats();
        self.scene
            .say(|| format!("filled with {} items, {} bytes", stats.items, stats.bytes));
        Ok(())
    }

    /// Lets each of them act once, in any order.
    fn round(&mut self) -> Result<(), String> {
        let round = self.scene.round.get() + 1;
        self.scene.round.set(round);
        if round > ROUNDS_MAX {
            return Err(format!(
                "it is not over after {round} rounds: {}",
                self.describe()
            ));
        }
        self.scene.network.pass_time();
        let (mut progress, mut has_work) = (false, false);
        let (workers, clients) = (self.workers.len(), self.clients.len());
        let mut actors: Vec<usize> = (0..=workers + clients).collect();
        self.dice.shuffle(&mut actors);
        for actor in actors {
            if actor < workers {
                has_work |= self.let_work(actor)?;
            } else if self.dice.one_in(4) {
                // It is about something else.
            } else if let Some(client) = self.clients.get_mut(actor - workers) {
                progress |= client.step(&self.scene, &self.turns)?;
            } else {
                self.witness.step(&self.scene, &self.turns)?;
            }
        }
        self.idle_rounds = if progress { 0 } else { self.idle_rounds + 1 };
        if self.idle_rounds > IDLE_ROUNDS_MAX {
            return Err(format!("nothing happens any more: {}", self.describe()));
        }
        self.pass_time(progress || has_work);
        Ok(())
    }

    /// Lets a worker take a turn if it is awake. True if it did.
    fn let_work(&mut self, at: usize) -> Result<bool, String> {
        let driven = &self.workers[at];
        let is_awake = driven.wakes_at_ms <= self.scene.now_ms()
            || self.scene.network.is_ready(driven.poller)
            // A signal may wake it at any moment.
            || self.dice.one_in(100);
        if !is_awake || self.dice.one_in(5) {
            return Ok(false);
        }
        self.take_turn(at)?;
        Ok(true)
    }

    fn take_turn(&mut self, at: usize) -> Result<(), String> {
        let driven = &mut self.workers[at];
        driven
            .worker
            .take_turn(&mut self.events)
            .map_err(|error| format!("worker {at}: {error}"))?;
        self.turns[at] += 1;
        let sleep = driven.worker.fall_asleep();
        let ms = u64::try_from(sleep.as_millis()).unwrap_or(u64::MAX);
        driven.wakes_at_ms = self.scene.now_ms() + ms;
        Ok(())
    }

    fn pass_time(&mut self, is_busy: bool) {
        let now = self.scene.now_ms();
        let jump_one_in = self.scene.plan.jump_one_in;
        if jump_one_in > 0 && now < JUMPS_END_MS && self.dice.one_in(jump_one_in) {
            const HOUR: u64 = 3_600_000;
            let ms = match self.dice.below(20) {
                0 => HOUR * 24 * 365,
                1 => HOUR * 24 * 31,
                2 => HOUR,
                _ => self.dice.size(1, 100_000) as u64,
            };
            self.scene.say(|| format!("{ms} ms pass at once"));
            self.scene.advance(ms);
        } else if is_busy {
            self.scene.advance(self.dice.below(3) as u64);
        } else {
            let wake = self.workers.iter().map(|driven| driven.wakes_at_ms).min();
            let ms = wake.unwrap_or(now).saturating_sub(now);
            self.scene.advance(ms.clamp(1, 1000));
        }
    }

    fn describe(&self) -> String {
        let present = self.clients.iter().filter(|client| !client.is_gone());
        let clients: Vec<String> = present.map(Client::describe).collect();
        format!(
            "{} connections are open\n{}",
            self.scene.shared.registry.open(),
            clients.join("\n")
        )
    }
}
