//! A worker that a simulation drives, turn by turn.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use coua_transport::{Events, Poller};

use super::{Worker, WorkerBuffers, WorkerSockets};
use crate::shared::Shared;

impl Worker {
    /// As [`Worker::new`], with a poller of the simulation's.
    ///
    /// # Errors
    /// As of [`Worker::new`].
    pub fn simulated(
        poller: Poller,
        index: usize,
        shared: Arc<Shared>,
        sockets: WorkerSockets,
    ) -> io::Result<Worker> {
        Worker::with_poller(poller, index, shared, sockets, WorkerBuffers::new())
    }

    /// Lets the worker fall asleep, and says for how long at most; zero where it stays awake. The
    /// next turn begins when that time has passed, or when its poller is ready.
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
    /// Where the poller cannot wait, which a simulated one always can.
    pub fn take_turn(&mut self, events: &mut Events) -> io::Result<()> {
        self.turn(events)
    }
}
