//! Ends a worker's sleep from another thread.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::kernel::eventfd;
#[cfg(feature = "simulated")]
use crate::simulated;
use crate::source::Source;

/// An event descriptor: [`Waker::wake`] makes it readable, [`Waker::drain`] makes it unreadable.
pub struct Waker {
    bell: Bell,
}

enum Bell {
    Kernel(OwnedFd),
    #[cfg(feature = "simulated")]
    Simulated(simulated::WakerEnd),
}

impl Waker {
    /// A new one, which is not readable.
    ///
    /// # Errors
    /// If the process or the system has no descriptor left.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker {
            bell: Bell::Kernel(eventfd::new()?),
        })
    }

    /// Wakes whoever waits for it. May be called from any thread.
    pub fn wake(&self) {
        match &self.bell {
            Bell::Kernel(fd) => eventfd::set(fd),
            #[cfg(feature = "simulated")]
            Bell::Simulated(end) => end.set(true),
        }
    }

    /// Clears the wake-ups so far.
    pub fn drain(&self) {
        match &self.bell {
            Bell::Kernel(fd) => eventfd::clear(fd),
            #[cfg(feature = "simulated")]
            Bell::Simulated(end) => end.set(false),
        }
    }
}

#[cfg(feature = "simulated")]
impl From<simulated::WakerEnd> for Waker {
    fn from(end: simulated::WakerEnd) -> Waker {
        Waker {
            bell: Bell::Simulated(end),
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
