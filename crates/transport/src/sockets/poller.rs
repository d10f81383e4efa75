//! The epoll set of one worker.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

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

/// An epoll set.
pub struct Poller {
    epoll: OwnedFd,
}

/// Room for one wait's events. It stays on the thread that made it.
pub struct Events {
    room: Box<[MaybeUninit<Event>]>,
}

impl Events {
    /// Makes room.
    pub fn new() -> Events {
        Events {
            room: vec![MaybeUninit::uninit(); EVENTS_PER_WAIT].into_boxed_slice(),
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
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
        })
    }

    /// Registers a connection, edge triggered, for everything that can happen to it.
    pub fn add_stream(&self, fd: &impl AsFd, token: Token) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            fd,
            EventData::new_u64(token.0),
            flags,
        )?)
    }

    /// Registers a listener or a waker, level triggered: what one turn leaves, the next is told of.
    ///
    /// `shared` says that other workers wait for the same socket; then not all of them are woken.
    pub fn add_source(&self, fd: &impl AsFd, token: Token, shared: bool) -> io::Result<()> {
        let flags = if shared {
            EventFlags::IN | EventFlags::EXCLUSIVE
        } else {
            EventFlags::IN
        };
        Ok(epoll::add(
            &self.epoll,
            fd,
            EventData::new_u64(token.0),
            flags,
        )?)
    }

    /// Takes a descriptor out of the set. Closing it does so too.
    pub fn remove(&self, fd: &impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until something is ready or `timeout` has passed, and reports at most a few hundred
    /// descriptors; the rest comes with the next wait. An interrupting signal reports nothing.
    pub fn wait<'e>(
        &self,
        events: &'e mut Events,
        timeout: Duration,
    ) -> io::Result<impl Iterator<Item = Readiness> + use<'e>> {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let ready: &[Event] = match epoll::wait(&self.epoll, &mut *events.room, Some(&timeout)) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => &[],
            Err(errno) => return Err(errno.into()),
        };
        Ok(ready.iter().map(|event| {
            let (data, flags) = (event.data, event.flags);
            let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            Readiness {
                token: Token(data.u64()),
                readable: broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP),
                writable: broken || flags.contains(EventFlags::OUT),
                end_of_stream: broken || flags.contains(EventFlags::RDHUP),
            }
        }))
    }
}
