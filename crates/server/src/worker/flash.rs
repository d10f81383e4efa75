//! Flash as a worker's turn meets it: polled once, told of what was begun, waited for.

use std::io;
use std::time::Duration;

use coua_flash::Armed;
use coua_flash::log::WorkerVolume;
use coua_transport::{Poller, Source};

use super::{DEVICE_TOKEN, Worker, list_session};
use crate::session::Listed;

/// A worker's part of the flash.
pub struct WorkerFlash {
    /// Its handle to the volume.
    pub volume: WorkerVolume,
    /// How many reads it may have under way, or hold the records of.
    pub reads: usize,
}

impl WorkerFlash {
    /// Gives it to the store's worker, and has the poller wait for its queues.
    pub(super) fn attach(self, store: &mut coua_store::Worker, poller: &Poller) -> io::Result<()> {
        store.attach_flash(self.volume);
        for descriptor in store.flash_descriptors() {
            poller.add_source(Source::Kernel(descriptor), DEVICE_TOKEN, false)?;
        }
        Ok(())
    }
}

impl Worker {
    /// Sees to what has happened on flash since the last turn: sessions whose reads have ended go on.
    #[inline]
    pub(super) fn poll_flash(&mut self, since_start: Duration) {
        if self.has_flash {
            self.poll_volume(nanoseconds(since_start));
        }
    }

    #[inline(never)]
    fn poll_volume(&mut self, now_ns: u64) {
        self.give_back();
        self.store.poll_flash(now_ns, &mut self.flash_reads);
        for read in self.flash_reads.drain(..) {
            let ended = self.fetches.end(read, &mut self.sessions);
            if let Some(id) = ended
                && let Some(session) = self.sessions.get(id)
                && session.listed == Listed::ForFlash
            {
                session.listed = Listed::Nowhere;
                list_session(session, id, &mut self.ready);
            }
        }
        self.give_back();
    }

    /// Gives the memory of records back that nobody needs any more.
    fn give_back(&mut self) {
        for fetched in self.fetches.take_returned() {
            self.store.give_back(fetched);
        }
    }

    /// Tells the devices of what was begun.
    #[inline]
    pub(super) fn submit_flash(&mut self, since_start: Duration) {
        if self.has_flash {
            self.store.submit_flash(nanoseconds(since_start));
        }
    }

    /// How long the worker may sleep, as far as flash is concerned, if everything else lets it for `most`.
    #[inline]
    pub(super) fn arm_flash(&mut self, most: Duration) -> Duration {
        if !self.has_flash || most.is_zero() {
            return most;
        }
        match self.store.arm_flash() {
            Armed::Sleep => most,
            Armed::Ready | Armed::Poll => Duration::ZERO,
        }
    }

    /// Whether the worker must not leave yet: a read could still end.
    pub(super) fn flash_is_busy(&self) -> bool {
        self.has_flash && !self.fetches.is_idle()
    }
}

fn nanoseconds(since_start: Duration) -> u64 {
    u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX)
}
