//! An agent: it serves one driver after another, each with its own team.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::agents::{Fault, ToAgent, ToDriver, VERSION, Wire};
use super::order::Order;
use super::team::Team;

/// An agent that waits for drivers.
#[derive(Debug)]
pub(crate) struct Service {
    listener: TcpListener,
    core: Option<usize>,
}

impl Service {
    /// How long a driver waits until the previous one is gone; after that it is refused.
    const TURNOVER: Duration = Duration::from_secs(5);

    /// Listens. With `core`, load threads are bound to the cores from that one on.
    pub(crate) fn bind(address: SocketAddr, core: Option<usize>) -> io::Result<Service> {
        let listener = TcpListener::bind(address)?;
        Ok(Service { listener, core })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves drivers, one at a time, until the listener fails. Calls `tell` with what happens.
    pub(crate) fn serve(&self, tell: fn(String)) -> io::Result<()> {
        let mut busy: Option<JoinHandle<()>> = None;
        loop {
            let (stream, driver) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            if busy.as_ref().is_some_and(|busy| !ends(busy)) {
                tell(format!("driver {driver} is refused: another one is served"));
                turn_away(stream);
                continue;
            }
            let core = self.core;
            busy = Some(std::thread::spawn(move || {
                tell(format!("driver {driver} has come"));
                match serve_driver(stream, core) {
                    Ok(()) => tell(format!("driver {driver} has left")),
                    Err(reason) => tell(format!("driver {driver} is given up: {reason}")),
                }
            }));
        }
    }
}

/// Whether the driver that is being served is gone or will soon be.
fn ends(busy: &JoinHandle<()>) -> bool {
    let began = Instant::now();
    while !busy.is_finished() && began.elapsed() < Service::TURNOVER {
        std::thread::sleep(Duration::from_millis(10));
    }
    busy.is_finished()
}

fn turn_away(stream: TcpStream) {
    // A driver that is already gone needs no answer.
    if let Ok(wire) = Wire::new(stream) {
        wire.refuse("it serves another driver");
    }
}

/// Serves a driver until it leaves, or tells it and the caller why it is given up.
fn serve_driver(stream: TcpStream, core: Option<usize>) -> Result<(), String> {
    let mut wire = Wire::new(stream).map_err(|error| error.to_string())?;
    let Err(fault) = converse(&mut wire, core);
    match fault {
        Fault::Left => Ok(()),
        fault => {
            let reason = fault.to_string();
            wire.refuse(&reason);
            Err(reason)
        }
    }
}

/// Goes on until a fault; the usual one is that the driver leaves.
fn converse(wire: &mut Wire, core: Option<usize>) -> Result<Infallible, Fault> {
    let never = AtomicBool::new(false);
    match wire.receive(Some(Wire::PATIENCE), &never)? {
        ToAgent::Hello { version: VERSION } => {}
        ToAgent::Hello { version } => {
            return Err(Fault::Wrong(format!(
                "the agent speaks version {VERSION} of the protocol, and the driver {version}"
            )));
        }
        _ => return Err(Fault::Wrong("the first line must be a hello".to_owned())),
    }
    wire.send(&ToDriver::Hello { version: VERSION })?;
    let ToAgent::Job(job) = wire.receive(Some(Wire::PATIENCE), &never)? else {
        return Err(Fault::Wrong("the second line must be a job".to_owned()));
    };
    let bytes = job.payload().map_err(Fault::Wrong)?;
    let payload = wire.receive_payload(bytes, &never)?;
    let (mut setup, requests) = job.read(&payload).map_err(Fault::Wrong)?;
    drop(payload);
    setup.core = core;
    let mut team = Team::gather(&setup, &requests)
        .map_err(|error| Fault::Wrong(format!("{}: {error}", setup.target)))?;
    wire.send(&ToDriver::Ready)?;
    loop {
        let ToAgent::Order(order) = wire.receive(None, &never)? else {
            return Err(Fault::Wrong("after a job come orders".to_owned()));
        };
        carry_out(&mut team, order.checked().map_err(Fault::Wrong)?, wire)?;
    }
}

/// Carries out an order, and stops early if the driver is gone.
fn carry_out(team: &mut Team, order: Order, wire: &mut Wire) -> Result<(), Fault> {
    let stop = team.stop();
    let mut gone = None;
    let measured = team.carry_out(order, |replies, _| {
        if let Err(fault) = wire.send(&ToDriver::Progress { replies }) {
            gone = Some(fault);
            stop.store(true, Ordering::Relaxed);
        }
    });
    if let Some(fault) = gone {
        return Err(fault);
    }
    let measured = measured.map_err(|error| Fault::Wrong(error.to_string()))?;
    let histogram = measured.latencies();
    let done = ToDriver::Done {
        measured: Box::new(measured),
        histogram: histogram.len(),
    };
    wire.send(&done)?;
    wire.send_payload(&histogram)
}
