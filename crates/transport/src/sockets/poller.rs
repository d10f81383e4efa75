//! The epoll set of one worker.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::datagrams::Datagrams;
#[cfg(feature = "simulated")]
use super::simulated;

/// How many descriptors one wait reports at most.
const EVENTS_PER_WAIT: usize = 512;

/// What the caller registered a descriptor under; comes back with its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

/// What has happened to a descriptor since the last report.
#[derive(Clone, Copy, Debug)]
pub struct Readiness {
    /// Which descriptor.
    pub token: Token,
    /// There is something to receive or accept, or an error to be told by receiving.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// The peer sends no more; what it sent before can still be received.
    pub end_of_stream: bool,
}

/// What a poller can wait for.
#[derive(Clone, Copy, Debug)]
pub enum Source<'s> {
    /// A descriptor.
    Kernel(BorrowedFd<'s>),
    /// One end of a simulated network.
    #[cfg(feature = "simulated")]
    Simulated(simulated::SourceId),
}

impl<'s> From<&'s Datagrams> for Source<'s> {
    fn from(socket: &'s Datagrams) -> Source<'s> {
        Source::Kernel(socket.as_fd())
    }
}

/// An epoll set.
pub struct Poller {
    set: Set,
}

enum Set {
    Kernel(OwnedFd),
    #[cfg(feature = "simulated")]
    Simulated(simulated::PollerEnd),
}

/// Room for one wait's events. It stays on the thread that made it.
pub struct Events {
    room: Box<[MaybeUninit<Event>]>,
    #[cfg(feature = "simulated")]
    simulated: Vec<Readiness>,
}

impl Events {
    /// Makes room.
    pub fn new() -> Events {
        Events {
            room: vec![MaybeUninit::uninit(); EVENTS_PER_WAIT].into_boxed_slice(),
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
    pub fn new() -> io::Result<Poller> {
        Ok(Poller {
            set: Set::Kernel(epoll::create(CreateFlags::CLOEXEC)?),
        })
    }

    #[cfg(feature = "simulated")]
    pub(super) fn simulated(end: simulated::PollerEnd) -> Poller {
        Poller {
            set: Set::Simulated(end),
        }
    }

    /// Registers a connection, edge triggered, for everything that can happen to it.
    pub fn add_stream<'s>(&self, source: impl Into<Source<'s>>, token: Token) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        self.add(source.into(), token, flags)
    }

    /// Registers a listener or a waker, level triggered: what one turn leaves, the next is told of.
    ///
    /// `shared` says that other workers wait for the same socket; then not all of them are woken.
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
            (Set::Kernel(epoll), Source::Kernel(fd)) => {
                Ok(epoll::add(epoll, fd, EventData::new_u64(token.0), flags)?)
            }
            #[cfg(feature = "simulated")]
            (Set::Simulated(end), Source::Simulated(id)) => end.add(id, token),
            #[cfg(feature = "simulated")]
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Takes a descriptor out of the set. Closing it does so too.
    pub fn remove<'s>(&self, source: impl Into<Source<'s>>) -> io::Result<()> {
        match (&self.set, source.into()) {
            (Set::Kernel(epoll), Source::Kernel(fd)) => Ok(epoll::delete(epoll, fd)?),
            #[cfg(feature = "simulated")]
            (Set::Simulated(end), Source::Simulated(id)) => end.remove(id),
            #[cfg(feature = "simulated")]
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Waits until something is ready or `timeout` has passed, and reports at most a few hundred
    /// descriptors; the rest comes with the next wait. An interrupting signal reports nothing.
    pub fn wait<'e>(
        &self,
        events: &'e mut Events,
        timeout: Duration,
    ) -> io::Result<impl Iterator<Item = Readiness> + use<'e>> {
        let ready: &[Event] = match &self.set {
            Set::Kernel(epoll) => wait_for(epoll, &mut events.room, timeout)?,
            #[cfg(feature = "simulated")]
            Set::Simulated(end) => {
                end.wait(&mut events.simulated);
                &[]
            }
        };
        let ready = ready.iter().map(readiness);
        #[cfg(feature = "simulated")]
        let ready = ready.chain(events.simulated.drain(..));
        Ok(ready)
    }
}

fn wait_for<'e>(
    epoll: &OwnedFd,
    room: &'e mut [MaybeUninit<Event>],
    timeout: Duration,
) -> io::Result<&'e [Event]> {
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    match epoll::wait(epoll, room, Some(&timeout)) {
        Ok((ready, _)) => Ok(ready),
        Err(Errno::INTR) => Ok(&[]),
        Err(errno) => Err(errno.into()),
    }
}

fn readiness(event: &Event) -> Readiness {
    let (data, flags) = (event.data, event.flags);
    let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
    Readiness {
        token: Token(data.u64()),
        readable: broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP),
        writable: broken || flags.contains(EventFlags::OUT),
        end_of_stream: broken || flags.contains(EventFlags::RDHUP),
    }
}
