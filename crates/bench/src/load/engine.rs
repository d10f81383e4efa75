//! The event loop of one load thread.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use thiserror::Error as ThisError;

use super::connection::Connection;
use super::measured::Measured;
use super::replies::Shape;
use super::requests::Requests;
use crate::cpu;
use crate::target::Target;

/// Connections of one thread. Stretches of load follow each other on the same connections without a
/// gap, so that a warm-up is a stretch whose measurement is thrown away.
#[derive(Debug)]
pub(crate) struct Engine {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    shape: Shape,
    depth: usize,
}

impl Engine {
    /// Time without any reply after which a server counts as dead.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// Opens `connections` connections, each with its share of the keys; nothing is sent yet.
    pub(crate) fn connect(
        target: &Target,
        connections: usize,
        depth: usize,
        shape: Shape,
        requests: &Requests,
    ) -> Result<Engine, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let mut open = Vec::with_capacity(connections);
        for index in 0..connections {
            let stream = target.connect()?;
            stream.set_nonblocking(true)?;
            let events = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(
                &epoll,
                &stream,
                epoll::EventData::new_u64(index as u64),
                events,
            )
            .map_err(io::Error::from)?;
            open.push(Connection::new(
                stream,
                requests.for_share(index, connections),
                shape,
            ));
        }
        Ok(Engine {
            epoll,
            connections: open,
            shape,
            depth,
        })
    }

    /// Keeps all connections busy for a time; what is in flight at the end belongs to the next
    /// stretch.
    pub(crate) fn run(&mut self, time: Duration) -> Result<Measured, Error> {
        let deadline = Instant::now() + time;
        self.drive(|now, _| now < deadline)
    }

    /// Sends all that is left of a workload that has an end, and waits for its replies.
    pub(crate) fn finish(&mut self) -> Result<Measured, Error> {
        self.drive(|_, busy| busy)
    }

    /// Goes on while `more` says so, which is asked before each wait; `busy` is whether anything is
    /// in flight.
    fn drive(&mut self, more: impl Fn(Instant, bool) -> bool) -> Result<Measured, Error> {
        let mut measured = Measured::new();
        let (started, cpu_before) = (Instant::now(), cpu::of_this_thread());
        for connection in &mut self.connections {
            if connection.idle() {
                connection.begin(self.depth)?;
            }
        }
        let mut busy = self
            .connections
            .iter()
            .filter(|connection| !connection.idle())
            .count();
        let mut events = Vec::with_capacity(self.connections.len().max(1));
        let mut heard_at = Instant::now();
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        loop {
            let now = Instant::now();
            if !more(now, busy > 0) {
                break;
            }
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&second),
            ) {
                Ok(0) if now - heard_at > Self::PATIENCE => return Err(Error::Silent),
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => heard_at = now,
                Err(error) => return Err(Error::Io(error.into())),
            }
            for event in &events {
                let index = usize::try_from(event.data.u64()).expect("an index was registered");
                let connection = &mut self.connections[index];
                connection.send()?;
                if connection.idle() {
                    continue;
                }
                connection.receive(self.shape, &mut measured)?;
                if connection.idle() {
                    connection.begin(self.depth)?;
                    busy -= usize::from(connection.idle());
                }
            }
        }
        measured.elapsed = started.elapsed();
        measured.client_cpu = cpu::of_this_thread() - cpu_before;
        Ok(measured)
    }
}

/// Why a load ended early.
#[derive(Debug, ThisError)]
pub(crate) enum Error {
    /// The connection could not be made, or broke.
    #[error("the connection to the server failed: {0}")]
    Io(#[from] io::Error),
    /// No reply for ten seconds.
    #[error("the server has not answered for 10 s")]
    Silent,
    /// A reply that does not belong to its request.
    #[error("the server answered out of step: {0:?}")]
    Unexpected(Box<str>),
}

impl Error {
    /// Keeps the beginning of what came.
    pub(super) fn unexpected(bytes: &[u8]) -> Error {
        let shown = &bytes[..bytes.len().min(120)];
        Error::Unexpected(String::from_utf8_lossy(shown).into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::Client;
    use crate::fake;
    use crate::load::verify::{Verified, verify};
    use crate::workload::{KeyFormat, Popularity, Sampler, Values};

    const SHAPE_KEY: usize = 6;

    fn parts(value_size: usize) -> (KeyFormat, Arc<Values>, Shape) {
        let keys = KeyFormat::new(SHAPE_KEY, 1000).unwrap();
        (
            keys,
            Arc::new(Values::new(value_size)),
            Shape::new(SHAPE_KEY, value_size),
        )
    }

    #[test]
    fn what_is_filled_is_found_and_right() {
        let target = fake::serve();
        // Values larger than a read, so that replies come in parts.
        let (keys, values, shape) = parts(70_000);
        let filling = Requests::filling(keys, values.clone(), 0..50);
        let filled = Engine::connect(&target, 3, 4, shape, &filling)
            .unwrap()
            .finish()
            .unwrap();
        assert_eq!((filled.replies, filled.gets, filled.refused), (50, 0, 0));
        let mut client = Client::connect(&target).unwrap();
        let verified = verify(&mut client, keys, &values, 0..60).unwrap();
        assert_eq!(
            verified,
            Verified {
                right: 50,
                missing: 10,
                wrong: 0
            }
        );
        let strange = verify(&mut client, keys, &Values::new(1), 0..50).unwrap();
        assert_eq!(strange.wrong, 50);
    }

    #[test]
    fn a_stretch_counts_what_came_back() {
        let target = fake::serve();
        let (keys, values, shape) = parts(10);
        let filling = Requests::filling(keys, values.clone(), 0..500);
        Engine::connect(&target, 2, 8, shape, &filling)
            .unwrap()
            .finish()
            .unwrap();
        let sampler = Sampler::new(Popularity::Uniform, 1000, 1);
        let requests = Requests::new(keys, values, sampler, 5, 0.0);
        let mut engine = Engine::connect(&target, 4, 3, shape, &requests).unwrap();
        engine.run(Duration::from_millis(5)).unwrap();
        let measured = engine.run(Duration::from_millis(50)).unwrap();
        assert!(measured.replies >= 12, "{measured:?}");
        assert_eq!(measured.replies, measured.gets);
        assert_eq!(measured.latency_ns.len(), measured.replies);
        // Half of the keys are there.
        let found = measured.hits as f64 / measured.gets as f64 / 5.0;
        assert!((0.3..0.7).contains(&found), "{found}");
    }

    #[test]
    fn an_error_of_the_server_ends_the_load() {
        let target = fake::serve();
        let (keys, values, _) = parts(10);
        let filling = Requests::filling(keys, values.clone(), 0..500);
        let wrong_shape = Shape::new(SHAPE_KEY, 9);
        Engine::connect(&target, 1, 8, wrong_shape, &filling)
            .unwrap()
            .finish()
            .unwrap();
        let requests = Requests::new(keys, values, Sampler::Sequence(0..10), 1, 0.0);
        let outcome = Engine::connect(&target, 1, 1, wrong_shape, &requests)
            .unwrap()
            .finish();
        assert!(matches!(outcome, Err(Error::Unexpected(_))), "{outcome:?}");
    }
}
