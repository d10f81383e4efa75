//! The connections to one server.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::blocking::connection::{Connection, Deadline};
use crate::error::Cause;

/// The connections to one server: some in use, some idle, a bounded number in all.
#[derive(Debug)]
pub(super) struct Pool {
    state: Mutex<State>,
    /// A connection became idle, or one more may be opened.
    freed: Condvar,
    max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// The one used last is at the end.
    idle: Vec<Connection>,
    /// Idle, in use and being opened.
    open: usize,
    /// Threads that wait for one. Waking nobody is a system call too.
    waiting: usize,
    /// Counts how often all connections were given up.
    generation: u64,
}

/// A connection in use. It goes back when dropped, if it can be used again.
#[derive(Debug)]
pub(super) struct Lease<'p> {
    pool: &'p Pool,
    /// Taken when the lease ends.
    connection: Option<Connection>,
    generation: u64,
}

/// The right to open a connection.
struct Opening<'p>(&'p Pool);

impl Pool {
    pub(super) fn new(max: usize) -> Pool {
        Pool {
            state: Mutex::default(),
            freed: Condvar::new(),
            max,
        }
    }

    /// Lends an idle connection, or one that `open` makes, or waits for one. `lost` is told of each idle one that turns
    /// out to be of no use.
    pub(super) fn lend(
        &self,
        deadline: &mut Deadline,
        open: impl FnOnce() -> Result<Connection, Cause>,
        lost: impl Fn(),
    ) -> Result<Lease<'_>, Cause> {
        let mut state = self.lock();
        loop {
            if let Some(mut connection) = state.idle.pop() {
                let generation = state.generation;
                drop(state);
                if connection.is_usable(deadline) {
                    let connection = Some(connection);
                    let pool = self;
                    return Ok(Lease {
                        pool,
                        connection,
                        generation,
                    });
                }
                drop(connection);
                lost();
                state = self.lock();
                state.open -= 1;
                continue;
            }
            if state.open < self.max {
                break;
            }
            let Ok(rest) = deadline.rest() else {
                return Err(Cause::Busy(deadline.timeout));
            };
            state.waiting += 1;
            let waited = self.freed.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
        state.open += 1;
        let generation = state.generation;
        drop(state);
        let opening = Opening(self);
        let connection = open()?;
        std::mem::forget(opening);
        deadline.is_fresh = false;
        Ok(Lease {
            pool: self,
            connection: Some(connection),
            generation,
        })
    }

    /// Closes what is idle, and what comes back of that which is in use: the server has closed one
    /// connection, and most likely all of them.
    pub(super) fn give_up(&self) {
        let mut state = self.lock();
        state.generation += 1;
        let idle = std::mem::take(&mut state.idle);
        state.open -= idle.len();
        drop(state);
        self.freed.notify_all();
        // Closing is a system call each, and nobody waits for it.
        drop(idle);
    }

    /// Every state that a panic can leave behind is a valid one.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn closed_one(&self) {
        let mut state = self.lock();
        state.open -= 1;
        self.wake(state);
    }

    /// Tells one thread that waits, if any does, of what has changed.
    fn wake(&self, state: MutexGuard<'_, State>) {
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.freed.notify_one();
        }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.closed_one();
    }
}

impl Deref for Lease<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
            .as_ref()
            .expect("it is there until the drop")
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection
            .as_mut()
            .expect("it is there until the drop")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        if !connection.conversation.is_idle() {
            drop(connection);
            return self.pool.closed_one();
        }
        let mut state = self.pool.lock();
        if state.generation != self.generation {
            drop(state);
            drop(connection);
            return self.pool.closed_one();
        }
        state.idle.push(connection);
        self.pool.wake(state);
    }
}
