//! The driver's side: an agent as a member of its team.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::job::{Job, payload_of};
use super::wire::{Fault, ToAgent, ToDriver, VERSION, Wire};
use crate::load::error::Error;
use crate::load::measured::{AgentBusy, Measured};
use crate::load::order::Order;
use crate::load::requests::Requests;
use crate::load::setup::Setup;

/// An agent that is ready.
#[derive(Debug)]
pub(in crate::load) struct Agent {
    address: SocketAddr,
    threads: usize,
    wire: Wire,
    progress: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Agent {
    /// The longest that an agent may take to open its connections.
    const PREPARE: Duration = Duration::from_secs(60);
    /// Key numbers that are encoded at a time.
    const NUMBERS_AT_ONCE: usize = 1 << 16;
    /// Most bytes of the histograms of an order, including those of each second.
    const HISTOGRAM_MAX: usize = 16 << 20;

    /// Has the agent at `address` prepare what `setup` and `requests` describe. Later it counts
    /// replies in `progress`; setting `stop` ends all waiting.
    pub(in crate::load) fn prepare(
        address: SocketAddr,
        setup: &Setup,
        requests: &Requests,
        progress: Arc<AtomicU64>,
        stop: Arc<AtomicBool>,
    ) -> Result<Agent, Error> {
        let failed = |fault: Fault| error(address, &fault);
        let wire = TcpStream::connect_timeout(&address, Wire::PATIENCE).and_then(Wire::new);
        let mut agent = Agent {
            address,
            threads: setup.threads,
            wire: wire.map_err(|error| failed(Fault::Io(error)))?,
            progress,
            stop,
        };
        agent.greet(setup, requests).map_err(failed)?;
        Ok(agent)
    }

    fn greet(&mut self, setup: &Setup, requests: &Requests) -> Result<(), Fault> {
        let hello = ToAgent::Hello { version: VERSION };
        self.wire.send(&hello)?;
        match self.hear(Wire::PATIENCE)? {
            ToDriver::Hello { version: VERSION } => {}
            ToDriver::Hello { version } => {
                return Err(Fault::Wrong(format!(
                    "it speaks version {version} of the protocol, and this program {VERSION}"
                )));
            }
            _ => return Err(unexpected()),
        }
        let (job, numbers) = Job::of(setup, requests).map_err(Fault::Wrong)?;
        let job = ToAgent::Job(Box::new(job));
        self.wire.send(&job)?;
        for numbers in numbers.chunks(Self::NUMBERS_AT_ONCE) {
            self.wire.send_payload(&payload_of(numbers))?;
        }
        match self.hear(Self::PREPARE)? {
            ToDriver::Ready => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Has the agent carry out an order, and returns what it measured.
    pub(in crate::load) fn carry_out(&mut self, order: Order) -> Result<Measured, Error> {
        self.obey(order)
            .map_err(|fault| error(self.address, &fault))
    }

    fn obey(&mut self, order: Order) -> Result<Measured, Fault> {
        self.wire.send(&ToAgent::Order(order))?;
        loop {
            match self.hear(Wire::PATIENCE)? {
                ToDriver::Progress { replies } => self.progress.store(replies, Ordering::Relaxed),
                ToDriver::Done {
                    mut measured,
                    histogram,
                } => {
                    if histogram > Self::HISTOGRAM_MAX {
                        return Err(Fault::Long("16 MiB"));
                    }
                    let bytes = self.wire.receive_payload(histogram, &self.stop)?;
                    measured
                        .read_latencies(&bytes)
                        .ok_or_else(|| Fault::Wrong("its histograms cannot be read".to_owned()))?;
                    self.progress.store(measured.replies, Ordering::Relaxed);
                    let busy = measured.client_busy(self.threads);
                    measured.client_cpu = Duration::ZERO;
                    measured.agents = vec![AgentBusy {
                        agent: self.address.to_string(),
                        busy,
                    }];
                    return Ok(*measured);
                }
                _ => return Err(unexpected()),
            }
        }
    }

    fn hear(&mut self, limit: Duration) -> Result<ToDriver, Fault> {
        match self.wire.receive(Some(limit), &self.stop)? {
            ToDriver::Failed { reason } => Err(Fault::Wrong(reason)),
            message => Ok(message),
        }
    }
}

fn unexpected() -> Fault {
    Fault::Wrong("it spoke out of turn".to_owned())
}

fn error(agent: SocketAddr, fault: &Fault) -> Error {
    match fault {
        Fault::Stopped => Error::Stopped,
        fault => Error::Agent {
            agent,
            why: fault.to_string().into(),
        },
    }
}
