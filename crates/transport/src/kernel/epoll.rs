//! Epoll sets.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData};
pub(crate) use rustix::event::epoll::{Event, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::readiness::{Readiness, Token};

/// Makes an empty set.
///
/// # Errors
/// If the process or the system has no descriptor left.
pub(crate) fn create() -> io::Result<OwnedFd> {
    Ok(epoll::create(CreateFlags::CLOEXEC)?)
}

/// Reports the events `flags` of `fd` under `token`.
///
/// # Errors
/// If `fd` is already in the set or cannot be waited for, or if the kernel has no memory.
pub(crate) fn add(
    set: &OwnedFd,
    fd: BorrowedFd<'_>,
    token: Token,
    flags: EventFlags,
) -> io::Result<()> {
    Ok(epoll::add(set, fd, EventData::new_u64(token.0), flags)?)
}

/// Removes `fd` from the set.
///
/// # Errors
/// If it is not in the set.
pub(crate) fn delete(set: &OwnedFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(epoll::delete(set, fd)?)
}

/// Waits until something is ready or `timeout` has passed. An interrupting signal reports nothing.
///
/// # Errors
/// If the kernel refuses to wait.
pub(crate) fn wait_for<'e>(
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

/// An event in the form of the seam. After an error everything is ready: using the socket returns
/// it.
pub(crate) fn readiness(event: &Event) -> Readiness {
    let (data, flags) = (event.data, event.flags);
    let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
    Readiness {
        token: Token(data.u64()),
        readable: broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP),
        writable: broken || flags.contains(EventFlags::OUT),
        end_of_stream: broken || flags.contains(EventFlags::RDHUP),
    }
}
