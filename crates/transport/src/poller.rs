//! The epoll set of one worker.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::datagrams::Datagrams;
use crate::kernel::epoll::{self, Event, EventFlags, readiness, wait_for};
use crate::readiness::{Readiness, Token};
#[cfg(feature = "simulated")]
use crate::simulated;
use crate::source::Source;
use crate::stream::Stream;
use crate::userspace::{
    DatagramEnd, Mac, SharedStackDriver, StackDriver, StackDriverCounters, StackSetup, StreamEnd,
};

/// The most descriptors that one wait reports.
const EVENTS_PER_WAIT: usize = 512;

/// The card of the stack in user space, and the bell that other workers ring. They are not reported
/// to the caller.
const CARD_TOKEN: Token = Token(u64::MAX - 1);

/// An epoll set, and a stack in user space if there is one.
pub struct Poller {
    set: Set,
    host: Option<SharedStackDriver>,
}

enum Set {
    Kernel(OwnedFd),
    #[cfg(feature = "simulated")]
    Simulated(simulated::PollerEnd),
}

/// Room for the events of one wait. It stays on the thread that made it.
pub struct Events {
    room: Box<[MaybeUninit<Event>]>,
    userspace: Vec<Readiness>,
    #[cfg(feature = "simulated")]
    simulated: Vec<Readiness>,
}

impl Events {
    /// Makes room.
    pub fn new() -> Events {
        Events {
            room: vec![MaybeUninit::uninit(); EVENTS_PER_WAIT].into_boxed_slice(),
            userspace: Vec::new(),
            #[cfg(feature = "simulated")]
            simulated: Vec::new(),
        }
    }
}

impl Default for Events {
    fn default() -> Events {
        Events::new()
    }
}

impl Poller {
    /// Makes an empty set.
    ///
    /// # Errors
    /// Where the process or the system has no descriptor left.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller {
            set: Set::Kernel(epoll::create()?),
            host: None,
        })
    }

    /// Drives a stack in user space too. Its connections to be accepted are reported under `token`.
    ///
    /// # Errors
    /// If the card's descriptor or the bell cannot be waited for.
    pub fn host(&mut self, setup: StackSetup, token: Token) -> io::Result<()> {
        let host = StackDriver::new(setup);
        host.borrow_mut().listen(token);
        if let (Set::Kernel(epoll), Some(fd)) = (&self.set, host.borrow().card().descriptor()) {
            epoll::add(epoll, fd, CARD_TOKEN, EventFlags::IN)?;
        }
        if let (Set::Kernel(epoll), Some(fd)) = (&self.set, host.borrow().bell()) {
            epoll::add(epoll, fd, CARD_TOKEN, EventFlags::IN | EventFlags::ET)?;
        }
        self.host = Some(host);
        Ok(())
    }

    /// The next connection that a client has opened to the stack in user space.
    pub fn accept(&self) -> Option<Stream> {
        let end = StreamEnd::accept(self.host.as_ref()?)?;
        Some(Stream::userspace(end))
    }

    /// Has the stack in user space answer no more openings. Connections that are open already are
    /// still to be accepted.
    pub fn ignore_openings(&self) {
        if let Some(host) = &self.host {
            host.borrow_mut().ignore_openings();
        }
    }

    /// Whether the stack in user space still sends what closed connections were given. The kernel
    /// does that by itself.
    pub fn sends_for_closed(&self) -> bool {
        let host = self.host.as_ref();
        host.is_some_and(|host| host.borrow().has_sending_orphans())
    }

    /// Begins to open a connection to `to` through the stack in user space, from a port that
    /// `may_use` allows. Call it within a turn, that is, after a [`wait`](Self::wait). Nothing can
    /// be sent until [`Stream::is_open`] says so.
    ///
    /// # Errors
    /// If there is no stack, no route to `to`, or no room for the connection.
    pub fn connect(&self, to: SocketAddr, may_use: impl FnMut(u16) -> bool) -> io::Result<Stream> {
        let host = self.host.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        Ok(Stream::userspace(StreamEnd::connect(host, to, may_use)?))
    }

    /// Tells the stack in user space the MAC address of a neighbour that it asked for, if the
    /// kernel receives the answer.
    pub fn introduce(&self, neighbour: IpAddr, mac: Mac) {
        if let Some(host) = &self.host {
            host.borrow_mut().introduce(neighbour, mac);
        }
    }

    /// The datagrams of the stack in user space, if it receives any.
    pub fn datagrams(&self) -> Option<Datagrams> {
        let host = self.host.as_ref()?;
        host.borrow()
            .takes_datagrams()
            .then(|| Datagrams::userspace(DatagramEnd::new(host)))
    }

    /// The datagrams of the stack in user space, for a client: those to the ports from which it
    /// [asks](Datagrams::ask). `None` without a stack.
    pub fn client_datagrams(&self) -> Option<Datagrams> {
        let host = self.host.as_ref()?;
        Some(Datagrams::userspace(DatagramEnd::new(host)))
    }

    /// The counters of the stack in user space, if there is one.
    pub fn counters(&self) -> Option<StackDriverCounters> {
        self.host.as_ref().map(|host| host.borrow().counters())
    }

    /// How long the stack in user space has slept; zero without one.
    pub fn slept(&self) -> Duration {
        let host = self.host.as_ref();
        host.map_or(Duration::ZERO, |host| host.borrow().slept())
    }

    /// The error that ended the trace of the stack in user space, if there was one; returned once.
    pub fn take_trace_error(&self) -> Option<io::Error> {
        self.host.as_ref()?.borrow_mut().take_trace_error()
    }

    /// Ends a turn: what was sent through the stack in user space leaves. Does nothing without one.
    pub fn end_turn(&self) {
        if let Some(host) = &self.host {
            host.borrow_mut().end_turn();
        }
    }

    /// Registers a connection, edge-triggered, for all events.
    ///
    /// # Errors
    /// If the connection is already in the set or belongs to another stack, or if the kernel has no
    /// memory.
    pub fn add_stream<'s>(&self, source: impl Into<Source<'s>>, token: Token) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        self.add(source.into(), token, flags)
    }

    /// Registers a listener or a waker, level-triggered: what one turn leaves is reported again.
    ///
    /// `shared` says that other workers wait for the same socket; then not all of them are woken.
    ///
    /// # Errors
    /// As of [`Poller::add_stream`].
    pub fn add_source<'s>(
        &self,
        source: impl Into<Source<'s>>,
        token: Token,
        shared: bool,
    ) -> io::Result<()> {
        let flags = if shared {
            EventFlags::IN | EventFlags::EXCLUSIVE
        } else {
            EventFlags::IN
        };
        self.add(source.into(), token, flags)
    }

    fn add(&self, source: Source<'_>, token: Token, flags: EventFlags) -> io::Result<()> {
        match (&self.set, source) {
            (Set::Kernel(epoll), Source::Kernel(fd)) => epoll::add(epoll, fd, token, flags),
            (_, Source::Userspace(id)) => {
                let host = self.host.as_ref().ok_or(io::ErrorKind::Unsupported)?;
                host.borrow_mut().register(id, token);
                Ok(())
            }
            (_, Source::UserspaceDatagrams) => {
                let host = self.host.as_ref().ok_or(io::ErrorKind::Unsupported)?;
                host.borrow_mut().report_datagrams(token);
                Ok(())
            }
            (_, Source::Nothing) => Err(io::ErrorKind::Unsupported.into()),
            #[cfg(feature = "simulated")]
            (Set::Simulated(end), Source::Simulated(id)) => end.add(id, token),
            #[cfg(feature = "simulated")]
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Removes a descriptor from the set. Closing it does so too.
    ///
    /// # Errors
    /// If it is not in the set.
    pub fn remove<'s>(&self, source: impl Into<Source<'s>>) -> io::Result<()> {
        match (&self.set, source.into()) {
            (Set::Kernel(epoll), Source::Kernel(fd)) => epoll::delete(epoll, fd),
            // A connection is removed when its stream is dropped.
            (_, Source::Userspace(_) | Source::UserspaceDatagrams | Source::Nothing) => Ok(()),
            #[cfg(feature = "simulated")]
            (Set::Simulated(end), Source::Simulated(id)) => end.remove(id),
            #[cfg(feature = "simulated")]
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Waits until something is ready or `timeout` has passed, and reports at most a few hundred
    /// descriptors; the next wait reports the rest. An interrupting signal reports nothing. Calls
    /// `before_sleep` if the thread may sleep, but not if it keeps polling a card.
    ///
    /// # Errors
    /// If the kernel refuses to wait, which cannot happen by using this type.
    pub fn wait<'e, S: FnOnce()>(
        &self,
        events: &'e mut Events,
        timeout: Duration,
        before_sleep: S,
    ) -> io::Result<impl Iterator<Item = Readiness> + Clone + use<'e, S>> {
        events.userspace.clear();
        #[cfg(feature = "simulated")]
        events.simulated.clear();
        let ready: &[Event] = match (&self.set, &self.host) {
            (Set::Kernel(epoll), None) => {
                if !timeout.is_zero() {
                    before_sleep();
                }
                wait_for(epoll, &mut events.room, timeout)?
            }
            (Set::Kernel(epoll), Some(host)) => wait_beside(
                epoll,
                host,
                &mut events.room,
                &mut events.userspace,
                timeout,
                before_sleep,
            )?,
            #[cfg(feature = "simulated")]
            (Set::Simulated(end), _) => {
                if !timeout.is_zero() {
                    before_sleep();
                }
                end.wait(&mut events.simulated);
                &[]
            }
        };
        let ready = ready.iter().map(readiness);
        let ready = ready.filter(|ready| ready.token != CARD_TOKEN);
        let ready = ready.chain(events.userspace.iter().copied());
        #[cfg(feature = "simulated")]
        let ready = ready.chain(events.simulated.iter().copied());
        Ok(ready)
    }
}

#[cfg(feature = "simulated")]
impl From<simulated::PollerEnd> for Poller {
    fn from(end: simulated::PollerEnd) -> Poller {
        Poller {
            set: Set::Simulated(end),
            host: None,
        }
    }
}

/// Waits for descriptors and for a stack together. Begins a turn of the stack.
fn wait_beside<'e>(
    epoll: &OwnedFd,
    host: &SharedStackDriver,
    room: &'e mut [MaybeUninit<Event>],
    userspace: &mut Vec<Readiness>,
    timeout: Duration,
    before_sleep: impl FnOnce(),
) -> io::Result<&'e [Event]> {
    let mut host = host.borrow_mut();
    host.begin_turn(userspace);
    let sleep = match userspace.is_empty() && !timeout.is_zero() {
        true => host.sleep(timeout),
        false => Duration::ZERO,
    };
    if sleep.is_zero() {
        // Polling the kernel costs as much as a dozen requests.
        return match host.is_time_for_sockets() {
            true => wait_for(epoll, room, sleep),
            false => Ok(&[]),
        };
    }
    // What the stack has to send must leave before it sleeps.
    host.end_turn();
    before_sleep();
    if !host.fall_asleep(userspace) {
        return wait_for(epoll, room, Duration::ZERO);
    }
    // Polling once more may have brought an earlier deadline.
    let sleep = host.sleep(sleep);
    let ready = match host.card().descriptor() {
        Some(_) => wait_for(epoll, room, sleep),
        None => {
            // A short sleep, which the kernel's epoll would round up to a millisecond.
            std::thread::sleep(sleep);
            wait_for(epoll, room, Duration::ZERO)
        }
    };
    host.wake_up();
    host.begin_turn(userspace);
    ready
}
