//! Load threads that work together: each has its part of the connections and of the requests.
//!
//! Threads live as long as the team, so that stretches of load follow each other on the same
//! connections. An order goes to all of them at once; the answer is the sum of what they measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::engine::{Engine, Error};
use super::measured::Measured;
use super::open_loop::OpenLoop;
use super::requests::Requests;
use super::schedule::Pace;
use crate::cpu;
use crate::target::Target;

/// What a team is made of.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The server.
    pub(crate) target: Target,
    /// Connections, over all threads.
    pub(crate) connections: usize,
    /// Requests in flight a connection.
    pub(crate) depth: usize,
    /// Threads, no more than connections.
    pub(crate) threads: usize,
    /// First core of the threads, which take one each from there on; not bound where none.
    pub(crate) core: Option<usize>,
}

/// A stretch of load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// All connections busy for a time; replies to what was asked in it count, when they come.
    Closed(Duration),
    /// Requests at their own times for a time; likewise.
    Open(Pace, Duration),
    /// All that a workload with an end has left.
    Finish,
}

/// Threads with their connections open.
#[derive(Debug)]
pub(crate) struct Team {
    members: Vec<Member>,
    answers: Receiver<Result<Measured, Error>>,
}

#[derive(Debug)]
struct Member {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    progress: Arc<AtomicU64>,
}

impl Team {
    /// Time between two looks at how far the threads are.
    const LOOK: Duration = Duration::from_millis(500);

    /// Starts the threads and opens all connections; nothing is sent yet.
    pub(crate) fn gather(setup: &Setup, requests: &Requests) -> Result<Team, Error> {
        let (answer, answers) = channel();
        let (ready, engines_ready) = channel();
        let mut team = Team {
            members: Vec::with_capacity(setup.threads),
            answers,
        };
        for share in 0..setup.threads {
            let (orders, todo) = channel();
            let (setup, answer, ready) = (setup.clone(), answer.clone(), ready.clone());
            let requests = requests.for_share(share, setup.threads);
            let thread = std::thread::spawn(move || match prepare(&setup, share, &requests) {
                Ok(mut engine) => {
                    let told = ready.send(Ok(engine.progress()));
                    if told.is_ok() {
                        obey(&mut engine, share, setup.threads, &todo, &answer);
                    }
                }
                // Nobody listens any more where another thread has failed before.
                Err(error) => drop(ready.send(Err(error))),
            });
            let progress = engines_ready.recv().map_err(|_| Error::Thread)?;
            team.members.push(Member {
                orders: Some(orders),
                thread: Some(thread),
                progress: progress?,
            });
        }
        Ok(team)
    }

    /// Has all threads carry out the order, and adds up what they measured. Twice a second `watch` is
    /// told how many replies there were, and in what time.
    pub(crate) fn carry_out(
        &mut self,
        order: Order,
        mut watch: impl FnMut(u64, Duration),
    ) -> Result<Measured, Error> {
        for member in &self.members {
            member.progress.store(0, Ordering::Relaxed);
            let orders = member.orders.as_ref().ok_or(Error::Thread)?;
            orders.send(order).map_err(|_| Error::Thread)?;
        }
        let started = Instant::now();
        let mut total = Measured::new();
        let mut left = self.members.len();
        while left > 0 {
            match self.answers.recv_timeout(Self::LOOK) {
                Ok(answer) => {
                    total.add(&answer?);
                    left -= 1;
                }
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

fn prepare(setup: &Setup, share: usize, requests: &Requests) -> Result<Engine, Error> {
    if let Some(core) = setup.core {
        cpu::pin(core + share)?;
    }
    let connections =
        setup.connections / setup.threads + usize::from(share < setup.connections % setup.threads);
    Engine::connect(&setup.target, connections, setup.depth, requests)
}

fn obey(
    engine: &mut Engine,
    share: usize,
    shares: usize,
    todo: &Receiver<Order>,
    answers: &Sender<Result<Measured, Error>>,
) {
    while let Ok(order) = todo.recv() {
        let answer = match order {
            Order::Closed(time) => engine.run(time).and_then(|mut measured| {
                engine.drain(&mut measured)?;
                Ok(measured)
            }),
            Order::Open(pace, time) => {
                OpenLoop::new(engine).and_then(|mut open| open.run(&pace, share, shares, time))
            }
            Order::Finish => engine.finish(),
        };
        let over = answer.is_err();
        if answers.send(answer).is_err() || over {
            return;
        }
    }
}
