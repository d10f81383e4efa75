//! Operations that nobody waits for: they are taken, and what came of them is collected later, by one thread, which
//! also does all the sending and receiving.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use coua_client::tokio::Client;
use coua_client::wire::Status;
use coua_client::{Error, Expiry, Meta, StoreMode, Value};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::failure::{Failure, cause, of_store, status};
use crate::observed::Observed;
use crate::options::Settings;

/// Operations that were taken and not collected, at most.
pub(crate) const WAITING_MAX: usize = 16_384;

/// Operations without waiting.
///
/// # Concurrency
/// Many threads submit; one at a time collects, and moves everything forward meanwhile. What is submitted goes to the
/// runtime's queue and wakes that thread.
pub(crate) struct Queue {
    client: Client,
    handle: Handle,
    runtime: Mutex<Runtime>,
    shared: Arc<Shared>,
    observed: Option<Observed>,
}

#[derive(Default)]
struct Shared {
    done: Mutex<VecDeque<Done>>,
    /// Something is done, or the collector is to return.
    changed: Notify,
    waiting: AtomicUsize,
    is_woken: AtomicBool,
}

/// What came of an operation.
pub(crate) struct Done {
    pub(crate) token: u64,
    pub(crate) result: Result<Outcome, Failure>,
}

pub(crate) enum Outcome {
    Status(i32),
    Number(u64),
    Found(Option<Value>),
    /// For each key what came of it, and the first error.
    Many(Vec<Result<Option<Value>, i32>>, Option<Failure>),
}

/// An operation, with bytes of its own.
pub(crate) enum Work {
    Get(Vec<u8>),
    GetAndTouch(Vec<u8>, Expiry),
    GetMany(Vec<Vec<u8>>),
    Store {
        mode: StoreMode,
        key: Vec<u8>,
        value: Vec<u8>,
        client_flags: u32,
        expiry: Expiry,
    },
    Delete(Vec<u8>),
    Touch(Vec<u8>, Expiry),
    Count {
        key: Vec<u8>,
        is_down: bool,
        delta: u64,
        initial: Option<(u64, Expiry)>,
    },
    FlushAll(Duration),
}

impl Queue {
    pub(crate) fn open(settings: Settings, observed: Option<Observed>) -> Result<Queue, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let no_runtime = |error| Failure::invalid(format!("no memory or descriptors: {error}"));
        let runtime = runtime.map_err(no_runtime)?;
        let client = runtime.block_on(settings.open_async())?;
        Ok(Queue {
            client,
            handle: runtime.handle().clone(),
            runtime: Mutex::new(runtime),
            shared: Arc::default(),
            observed,
        })
    }

    /// Takes an operation, whose end is collected with this token.
    pub(crate) fn submit(&self, token: u64, work: Work) -> Result<(), Failure> {
        let shared = &self.shared;
        if shared.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            shared.waiting.fetch_sub(1, Ordering::Relaxed);
            let message = "too many operations wait";
            return Err(Failure::unsent(cause::BUSY, message));
        }
        let (client, shared) = (self.client.clone(), Arc::clone(shared));
        self.handle.spawn(async move {
            let result = work.run(&client).await;
            locked(&shared.done).push_back(Done { token, result });
            shared.changed.notify_one();
        });
        Ok(())
    }

    /// Moves operations forward until some are done or the time is over, and gives `max` of them at most.
    pub(crate) fn wait(&self, max: usize, limit: Duration) -> Result<Vec<Done>, Failure> {
        let runtime = match self.runtime.try_lock() {
            Ok(runtime) => runtime,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::invalid("another thread waits already"));
            }
        };
        let shared = &self.shared;
        let changed = async {
            loop {
                if shared.is_woken.swap(false, Ordering::Relaxed)
                    || !locked(&shared.done).is_empty()
                {
                    return;
                }
                shared.changed.notified().await;
            }
        };
        // Nothing within the time is no error.
        let _ = runtime.block_on(async { timeout(limit, changed).await });
        let mut done = locked(&shared.done);
        let len = done.len().min(max);
        let taken: Vec<Done> = done.drain(..len).collect();
        drop(done);
        shared.waiting.fetch_sub(taken.len(), Ordering::Relaxed);
        Ok(taken)
    }

    /// Has the collector return.
    pub(crate) fn wake(&self) {
        self.shared.is_woken.store(true, Ordering::Relaxed);
        self.shared.changed.notify_one();
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(observed) = &self.observed {
            observed.end();
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Work {
    async fn run(self, client: &Client) -> Result<Outcome, Failure> {
        let found = |is_there: bool| match is_there {
            true => Outcome::Status(status::OK),
            false => Outcome::Status(status::MISSING),
        };
        let counted = |number: Option<u64>| match number {
            Some(number) => Outcome::Number(number),
            None => Outcome::Status(status::MISSING),
        };
        Ok(match self {
            Work::Get(key) => Outcome::Found(client.gets(key).await?),
            Work::GetAndTouch(key, expiry) => {
                Outcome::Found(client.get_and_touch(key, expiry).await?)
            }
            Work::GetMany(keys) => many(client.get_many_each(&keys).await),
            Work::Store {
                mode,
                key,
                value,
                client_flags,
                expiry,
            } => {
                let stored = client.store(mode, key, value, client_flags, expiry).await?;
                Outcome::Status(of_store(stored))
            }
            Work::Delete(key) => found(client.delete(key).await?),
            Work::Touch(key, expiry) => found(client.touch(key, expiry).await?),
            Work::Count {
                key,
                is_down: false,
                delta,
                initial: None,
            } => counted(client.increment(key, delta).await?),
            Work::Count {
                key,
                is_down: true,
                delta,
                initial: None,
            } => counted(client.decrement(key, delta).await?),
            Work::Count {
                key,
                is_down,
                delta,
                initial: Some((initial, expiry)),
            } => {
                let meta = counting(is_down, delta, initial, expiry);
                let reply = client.meta(key, meta).await?;
                counted(match reply.status {
                    Status::Done => number(reply.value.as_deref()),
                    _ => None,
                })
            }
            Work::FlushAll(delay) => {
                client.flush_all(delay).await?;
                Outcome::Status(status::OK)
            }
        })
    }
}

fn many(results: Vec<Result<Option<Value>, Error>>) -> Outcome {
    let mut first = None;
    let results = results.into_iter().map(|result| {
        result.map_err(|error| {
            let failure = Failure::from(&error);
            let status = failure.status;
            first.get_or_insert(failure);
            status
        })
    });
    let results = results.collect();
    Outcome::Many(results, first)
}

/// Counting where a missing item becomes a number: only meta can.
pub(crate) fn counting(is_down: bool, delta: u64, initial: u64, expiry: Expiry) -> Meta<'static> {
    Meta::arithmetic()
        .value()
        .mode(if is_down { b'D' } else { b'I' })
        .delta(delta)
        .vivify(expiry)
        .initial(initial)
}

pub(crate) fn number(digits: Option<&[u8]>) -> Option<u64> {
    std::str::from_utf8(digits?).ok()?.trim().parse().ok()
}

/// Every state that a panic can leave behind is a valid one.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
