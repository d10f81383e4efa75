//! Ends a worker's sleep from another thread.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::poller::Source;
#[cfg(feature = "simulated")]
use crate::simulated;

/// An event descriptor: [`Waker::wake`] makes it readable, [`Waker::drain`] makes it quiet again.
pub struct Waker {
    bell: Bell,
}

enum Bell {
    Kernel(OwnedFd),
    #[cfg(feature = "simulated")]
    Simulated(simulated::WakerEnd),
}

impl Waker {
    /// Makes a quiet one.
    pub fn new() -> io::Result<Waker> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker {
            bell: Bell::Kernel(fd),
        })
    }

    #[cfg(feature = "simulated")]
    pub(super) fn simulated(end: simulated::WakerEnd) -> Waker {
        Waker {
            bell: Bell::Simulated(end),
        }
    }

    /// Wakes whoever waits for it. May be called from any thread.
    pub fn wake(&self) {
        match &self.bell {
            // A full counter is readable already, which is all that is wanted.
            Bell::Kernel(fd) => drop(rustix::io::write(fd, &1_u64.to_ne_bytes())),
            #[cfg(feature = "simulated")]
            Bell::Simulated(end) => end.set(true),
        }
    }

    /// Forgets the wake-ups so far.
    pub fn drain(&self) {
        match &self.bell {
            // An empty counter is quiet already.
            Bell::Kernel(fd) => drop(rustix::io::read(fd, &mut [0_u8; 8])),
            #[cfg(feature = "simulated")]
            Bell::Simulated(end) => end.set(false),
        }
    }
}

impl<'s> From<&'s Waker> for Source<'s> {
    fn from(waker: &'s Waker) -> Source<'s> {
        match &waker.bell {
            Bell::Kernel(fd) => Source::Kernel(fd.as_fd()),
            #[cfg(feature = "simulated")]
            Bell::Simulated(end) => Source::Simulated(end.id()),
        }
    }
}
