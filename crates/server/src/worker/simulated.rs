//! A worker that a simulation drives, turn by turn.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use coua_transport::{Events, Poller};

use super::{Worker, WorkerBuffers, WorkerSockets};
use crate::shared::Shared;

impl Worker {
    /// As [`Worker::new`], with a simulated poller.
    ///
    /// # Errors
    /// As of [`Worker::new`].
    pub fn simulated(
        poller: Poller,
        index: usize,
        shared: Arc<Shared>,
        sockets: WorkerSockets,
    ) -> io::Result<Worker> {
        Worker::with_poller(poller, index, shared, sockets, WorkerBuffers::new(None))
    }

    /// Puts the worker to sleep, and returns for how long at most: zero if it stays awake. The next
    /// turn begins after that time, or when the poller is ready.
    pub fn fall_asleep(&mut self) -> Duration {
        let timeout = self.timeout();
        if !timeout.is_zero() {
            self.store.park();
        }
        timeout
    }

    /// Takes one turn. A simulated poller does not wait.
    ///
    /// # Errors
    /// If the poller cannot wait; a simulated one always can.
    pub fn take_turn(&mut self, events: &mut Events) -> io::Result<()> {
        self.turn(events)
    }
}
