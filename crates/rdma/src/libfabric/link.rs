//! A client's connection that waits for its replies: the protocol's client on a network of its own.

#![allow(unsafe_code, reason = "a link may go from thread to thread")]

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Error;
use super::driver::{Driver, DriverEvent, Rights, Setup};
use crate::client::{Client, ClientEvent, ClientMemory, NotNow, Submission, Ticket, Value};
use crate::fabric::{Completion, Fabric};
use crate::limits::{FRAME_LEN, Measured};
use crate::server::RemoteMemory;
use crate::upgrade::{Greeting, Offer};
use crate::wire::REQUEST_LEN;

/// How long it looks for a reply before it sleeps.
const SPIN: Duration = Duration::from_micros(30);

/// Requests by which the round trip is measured.
const PROBES: usize = 8;

/// What a network is taken to carry in a microsecond: about 25 Gbit/s. It only decides how much of a long value goes out
/// before the server reads the rest.
const BYTES_PER_US: u64 = 3000;

/// Why a request has no reply.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LinkError {
    /// It was not sent: the command, the value or the reply is longer than the network carries.
    #[error("too long for RDMA")]
    TooLong,
    /// It was executed, and its reply is longer than there was room for.
    #[error("a reply of {len} bytes, for which there was no room")]
    ReplyTooLong {
        /// How long it is.
        len: usize,
    },
    /// The connection has ended, and it is not known whether the request was executed.
    #[error("the connection over RDMA has ended")]
    Lost,
    /// The time is over; the reply may still come.
    #[error("no reply over RDMA in time")]
    TimedOut,
    /// There is no connection, and nothing was sent.
    #[error("{0}")]
    Network(#[from] Error),
    /// The server has refused the connection, or did not answer in time.
    #[error("the server does not take the connection over RDMA")]
    Refused,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("is_closed", &self.is_closed)
            .finish_non_exhaustive()
    }
}

/// A client's connection.
pub struct Link {
    driver: Driver,
    client: Client,
    driver_events: Vec<DriverEvent>,
    events: Vec<ClientEvent>,
    /// Requests whose replies have come and were not asked for yet.
    done: Vec<(Ticket, Result<usize, LinkError>)>,
    is_closed: bool,
}

impl Link {
    /// Connects to who has made an offer. The server is lent `lent_len` bytes of memory, which all requests under way
    /// share.
    ///
    /// # Errors
    /// [`LinkError::Network`] if this side has no such network; [`LinkError::Refused`].
    pub fn connect(offer: &Offer, lent_len: usize, patience: Duration) -> Result<Link, LinkError> {
        let deadline = Instant::now() + patience;
        let mut driver = Driver::client(Setup {
            provider: offer.provider.clone(),
            address: offer.address,
            credits: 0,
            peers_max: 1,
        })?;
        let credits = offer.limits.credits;
        let (lent, remote) = driver.add_memory(lent_len, Rights::ReadAndWrite)?;
        let (frames, _) = driver.add_memory(credits * FRAME_LEN, Rights::None)?;
        let greeting = Greeting {
            token: offer.token,
            memory: RemoteMemory {
                key: remote.key,
                address: remote.address,
                len: lent_len as u64,
            },
        };
        driver.connect(&greeting.encode())?;
        let mut driver_events = Vec::new();
        let peer = loop {
            driver.poll(&mut driver_events);
            match driver_events.pop() {
                Some(DriverEvent::Connected { peer }) => break peer,
                Some(DriverEvent::Completion(Completion::Closed { .. })) => {
                    return Err(LinkError::Refused);
                }
                Some(_) => continue,
                None => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LinkError::Refused);
            }
            sleep(&driver, left);
        };
        let memory = ClientMemory {
            lent,
            remote,
            frames: (0..credits)
                .map(|nth| frames.part(nth * FRAME_LEN, FRAME_LEN))
                .collect(),
        };
        let measured = Measured {
            round_trip_ns: 10_000,
            bytes_per_us: BYTES_PER_US,
            copied_per_us: 8_000,
        };
        let mut link = Link {
            driver,
            client: Client::new(peer, offer.limits, measured, memory),
            driver_events,
            events: Vec::new(),
            done: Vec::new(),
            is_closed: false,
        };
        link.measure(measured, deadline)?;
        Ok(link)
    }

    /// Measures the round trip.
    fn measure(&mut self, assumed: Measured, deadline: Instant) -> Result<(), LinkError> {
        let mut shortest = Duration::MAX;
        for _ in 0..PROBES {
            let began = Instant::now();
            let ticket = self.submit(b"mn\r\n", None, 64, deadline)?;
            self.wait(ticket, deadline)?;
            self.release(ticket);
            shortest = shortest.min(began.elapsed());
        }
        self.client.set_measured(Measured {
            round_trip_ns: u64::try_from(shortest.as_nanos()).unwrap_or(u64::MAX),
            ..assumed
        });
        Ok(())
    }

    /// Bytes that it carries as a command, at most.
    pub const COMMAND_LEN_MAX: usize = FRAME_LEN - REQUEST_LEN;

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The longest value that it carries apart from its command.
    pub fn value_len_max(&self) -> usize {
        self.client.limits().value_len_max
    }

    /// Sends a request; waits for others that are under way if there are too many. A `value` that does not stand in the
    /// command is followed by the end of its line, which the server adds.
    ///
    /// # Errors
    /// [`LinkError::TooLong`] and nothing was sent; [`LinkError::Lost`].
    pub fn submit(
        &mut self,
        command: &[u8],
        value: Option<&[u8]>,
        reply_max: usize,
        deadline: Instant,
    ) -> Result<Ticket, LinkError> {
        let submission = Submission {
            command,
            value: value.map(Value::Bytes),
            reply_max,
        };
        loop {
            match self.client.submit(&mut self.driver, &submission) {
                Ok(ticket) => {
                    while let Some(value) = value
                        && self.client.feed(&mut self.driver, ticket, value)
                    {
                        self.poll();
                    }
                    return Ok(ticket);
                }
                Err(NotNow::TooLong) => return Err(LinkError::TooLong),
                Err(NotNow::Gone) => return Err(LinkError::Lost),
                // Without any under way there is never room.
                Err(NotNow::Busy) if self.client.under_way() == 0 && self.driver.works() == 0 => {
                    return Err(LinkError::TooLong);
                }
                Err(NotNow::Busy) => self.turn(deadline)?,
            }
        }
    }

    /// Waits for a request's reply, and says how long it is. It stays until [`Link::release`].
    ///
    /// # Errors
    /// [`LinkError::ReplyTooLong`] and [`LinkError::Lost`], of which nothing is to be released; [`LinkError::TimedOut`],
    /// behind which it may be waited for again, or [`Link::give_up`].
    pub fn wait(&mut self, ticket: Ticket, deadline: Instant) -> Result<usize, LinkError> {
        loop {
            if let Some(at) = self.done.iter().position(|(done, _)| *done == ticket) {
                return self.done.swap_remove(at).1;
            }
            if self.is_closed {
                return Err(LinkError::Lost);
            }
            self.turn(deadline)?;
        }
    }

    /// A reply that has come, of the length that [`Link::wait`] has said.
    pub fn reply(&self, ticket: Ticket, len: usize) -> &[u8] {
        let span = self.client.reply(ticket, len);
        span.map_or(&[], |span| self.driver.bytes(span))
    }

    /// Frees the memory of a reply.
    pub fn release(&mut self, ticket: Ticket) {
        self.client.release(ticket);
    }

    /// Asks no more for a reply.
    pub fn give_up(&mut self, ticket: Ticket) {
        self.done.retain(|(done, _)| *done != ticket);
        self.client.give_up(ticket);
    }

    /// Waits until something has happened.
    fn turn(&mut self, deadline: Instant) -> Result<(), LinkError> {
        let began = Instant::now();
        loop {
            if self.poll() {
                return Ok(());
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(LinkError::TimedOut);
            }
            if now - began >= SPIN {
                sleep(&self.driver, deadline - now);
            }
        }
    }

    /// Deals with what has happened. True if there was something.
    fn poll(&mut self) -> bool {
        let mut driver_events = std::mem::take(&mut self.driver_events);
        self.driver.poll(&mut driver_events);
        let has_any = !driver_events.is_empty();
        for event in driver_events.drain(..) {
            if let DriverEvent::Completion(completion) = event {
                self.client
                    .take(&mut self.driver, completion, &mut self.events);
            }
        }
        self.driver_events = driver_events;
        for event in self.events.drain(..) {
            match event {
                ClientEvent::Done { ticket, len } => self.done.push((ticket, Ok(len))),
                ClientEvent::TooLong { ticket, len } => {
                    self.done
                        .push((ticket, Err(LinkError::ReplyTooLong { len })));
                }
                ClientEvent::Lost { ticket } => self.done.push((ticket, Err(LinkError::Lost))),
                ClientEvent::Closed => self.is_closed = true,
                ClientEvent::Progress { .. } | ClientEvent::Misbehaved { .. } => {}
            }
        }
        has_any
    }
}

// SAFETY: libfabric's objects may be used by any thread, one at a time; all of them are the link's own. What the driver
// counts references to is lent to nobody outside of the link.
unsafe impl Send for Link {}

/// Sleeps until a driver has something to do, or the time is over.
fn sleep(driver: &Driver, most: Duration) {
    if !driver.may_sleep() {
        return;
    }
    let descriptors = driver.descriptors();
    let mut polled = descriptors
        .each_ref()
        .map(|fd| PollFd::new(fd, PollFlags::IN));
    // Signals and odd times end the sleep early, which does no harm.
    let most = Timespec::try_from(most).ok();
    let _ = poll(&mut polled, most.as_ref());
}
