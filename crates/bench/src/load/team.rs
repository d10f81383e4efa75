//! Load threads that work together: each has its part of the connections and of the requests.
//!
//! Threads live as long as the team, so that stretches of load follow each other on the same
//! connections. An order goes to all of them at once; the answer is the sum of what they measured.
//! If there are agents, connections, requests and rates are first divided among the machines. One
//! thread here speaks for each agent, and is a member like the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::agents::Agent;
use super::engine::Engine;
use super::error::Error;
use super::measured::Measured;
use super::open_loop::OpenLoop;
use super::order::Order;
use super::own_stack::OwnStack;
use super::requests::Requests;
use super::setup::{Setup, part};
use crate::cpu;
use crate::target::Target;

/// Threads with their connections open.
#[derive(Debug)]
pub(crate) struct Team {
    members: Vec<Member>,
    machines: usize,
    answers: Receiver<Result<Measured, Error>>,
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Member {
    machine: usize,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    progress: Arc<AtomicU64>,
}

impl Member {
    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Team {
    /// Time between two reports of progress.
    const LOOK: Duration = Duration::from_millis(500);

    /// Starts the threads, here and at the agents, and opens all connections; nothing is sent yet.
    pub(crate) fn gather(setup: &Setup, requests: &Requests) -> Result<Team, Error> {
        let (answer, answers) = channel();
        let mut team = Team {
            members: Vec::with_capacity(setup.threads + setup.agents.len()),
            machines: setup.machines(),
            answers,
            stop: Arc::default(),
        };
        // Agents prepare while this machine does.
        let mut agents_ready = Vec::with_capacity(setup.agents.len());
        for (index, &address) in setup.agents.iter().enumerate() {
            let machine = index + 1;
            let part = setup.for_machine(machine);
            let requests = requests.for_share(machine, team.machines);
            agents_ready.push(team.enlist(machine, &answer, move |progress, stop| {
                let mut agent = Agent::prepare(address, &part, &requests, progress, stop)?;
                Ok(move |order| agent.carry_out(order))
            }));
        }
        let here = setup.for_machine(0);
        let requests = match team.machines {
            1 => requests.clone(),
            machines => requests.for_share(0, machines),
        };
        let mut all_ready = agents_ready;
        for (share, stack) in stacks(&here)?.into_iter().enumerate() {
            let (here, requests) = (here.clone(), requests.for_share(share, here.threads));
            all_ready.push(team.enlist(0, &answer, move |progress, stop| {
                let mut engine = prepare(&here, share, stack, &requests)?;
                engine.attend(progress, stop);
                Ok(move |order| obey(&mut engine, share, here.threads, order))
            }));
        }
        let mut is_stopped = false;
        for ready in all_ready {
            match ready.recv().map_err(|_| Error::Thread)? {
                // Another member's error has the reason.
                Err(Error::Stopped) => is_stopped = true,
                outcome => outcome?,
            }
        }
        match is_stopped {
            true => Err(Error::Stopped),
            false => Ok(team),
        }
    }

    /// Starts a member, which prepares and then carries out orders. The channel that is returned gets
    /// the outcome of its preparation.
    fn enlist<P, W>(
        &mut self,
        machine: usize,
        answer: &Sender<Result<Measured, Error>>,
        prepare: P,
    ) -> Receiver<Result<(), Error>>
    where
        P: FnOnce(Arc<AtomicU64>, Arc<AtomicBool>) -> Result<W, Error> + Send + 'static,
        W: FnMut(Order) -> Result<Measured, Error>,
    {
        let (orders, todo) = channel();
        let (ready, is_ready) = channel();
        let progress = Arc::<AtomicU64>::default();
        let (counter, stop, answer) = (progress.clone(), self.stop.clone(), answer.clone());
        let thread = std::thread::spawn(move || match prepare(counter, stop) {
            Ok(mut work) => {
                // The team no longer listens if another member has failed before.
                if ready.send(Ok(())).is_ok() {
                    work_off(&mut work, &todo, &answer);
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        });
        self.members.push(Member {
            machine,
            orders: Some(orders),
            thread: Some(thread),
            progress,
        });
        is_ready
    }

    /// The flag that, once set, ends whatever the team does.
    pub(super) fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Has all members carry out the order, and adds up what they measured. Calls `watch` twice a
    /// second with the replies so far and the time that has passed.
    pub(crate) fn carry_out(
        &mut self,
        order: Order,
        mut watch: impl FnMut(u64, Duration),
    ) -> Result<Measured, Error> {
        for member in &self.members {
            member.progress.store(0, Ordering::Relaxed);
            let orders = member.orders.as_ref().ok_or(Error::Thread)?;
            let order = order.for_machine(member.machine, self.machines);
            orders.send(order).map_err(|_| Error::Thread)?;
        }
        let started = Instant::now();
        let mut total = Measured::new();
        let mut left = self.members.len();
        while left > 0 {
            let ended = self.members.iter().any(Member::has_ended);
            match self.answers.recv_timeout(Self::LOOK) {
                Ok(answer) => {
                    total.add(&answer?);
                    left -= 1;
                }
                // A member that had ended before this wait left no answer.
                Err(RecvTimeoutError::Timeout) if ended => return Err(Error::Thread),
                Err(RecvTimeoutError::Timeout) => {
                    let replies = self.members.iter();
                    let replies = replies.map(|member| member.progress.load(Ordering::Relaxed));
                    watch(replies.sum(), started.elapsed());
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Thread),
            }
        }
        Ok(total)
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for member in &mut self.members {
            member.orders = None;
        }
        for member in &mut self.members {
            if let Some(thread) = member.thread.take() {
                // A thread that has panicked has said so itself.
                let _ = thread.join();
            }
        }
    }
}

/// A stack for each of this machine's threads, or none for each.
fn stacks(setup: &Setup) -> Result<Vec<Option<OwnStack>>, Error> {
    match (&setup.net, &setup.target) {
        (Some(net), Target::Tcp(to)) => {
            let stacks = OwnStack::open_all(net, *to, setup.threads, setup.connections)?;
            Ok(stacks.into_iter().map(Some).collect())
        }
        _ => Ok((0..setup.threads).map(|_| None).collect()),
    }
}

fn prepare(
    setup: &Setup,
    share: usize,
    stack: Option<OwnStack>,
    requests: &Requests,
) -> Result<Engine, Error> {
    if let Some(core) = setup.core {
        cpu::pin(core + share)?;
    }
    let connections = part(setup.connections, share, setup.threads);
    let mut engine = match (stack, &setup.target) {
        (Some(stack), Target::Tcp(to)) => {
            Engine::connect_by(stack, *to, connections, setup.depth, requests)?
        }
        _ => Engine::connect(&setup.target, connections, setup.depth, requests)?,
    };
    if let Some(server) = setup.gaps {
        engine.watch(server)?;
    }
    Ok(engine)
}

fn obey(engine: &mut Engine, share: usize, shares: usize, order: Order) -> Result<Measured, Error> {
    match order {
        Order::Closed(time) => engine.run(time).and_then(|mut measured| {
            engine.drain(&mut measured)?;
            Ok(measured)
        }),
        Order::Open(pace, time) => {
            OpenLoop::new(engine).and_then(|mut open| open.run(&pace, share, shares, time))
        }
        Order::Finish => engine.finish(),
    }
}

fn work_off(
    work: &mut impl FnMut(Order) -> Result<Measured, Error>,
    todo: &Receiver<Order>,
    answers: &Sender<Result<Measured, Error>>,
) {
    while let Ok(order) = todo.recv() {
        let answer = work(order);
        let over = answer.is_err();
        if answers.send(answer).is_err() || over {
            return;
        }
    }
}
