//! coua's store, in bursts.

use std::sync::{Arc, Mutex, PoisonError};

use super::{KeySizes, Operation, Rival, Work};
use crate::hits::coua::now;
use crate::workload::Values;
use coua_store::{
    Access, Ahead, Burst, Config, Expiry, Intent, Key, Put, Refused, Store, StoreError, Stored,
    Worker,
};

/// A store, and a worker for each thread.
pub(crate) struct CouaRival {
    store: Arc<Store>,
    workers: Vec<Mutex<Worker>>,
}

impl CouaRival {
    /// Holds the keys below `keys`, in `memory` bytes including the index. `workers` threads may
    /// work on it.
    pub(crate) fn filled(
        keys: u32,
        sizes: KeySizes,
        values: &Values,
        memory: usize,
        workers: usize,
    ) -> Result<CouaRival, StoreError> {
        let store = Store::new(
            Config {
                memory,
                workers,
                ..Config::default()
            },
            now(),
        )?;
        let mut all: Vec<Worker> = (0..workers).map(|id| store.worker(id)).collect();
        let mut buffer = KeySizes::buffer();
        for number in 0..keys {
            let start = sizes.write(number, &mut buffer);
            store_one(&store, &mut all[0], &buffer[start..], values.of(number));
        }
        all.iter_mut().for_each(Worker::park);
        Ok(CouaRival {
            store,
            workers: all.into_iter().map(Mutex::new).collect(),
        })
    }

    fn bursts<const B: usize>(
        &self,
        worker: &mut Worker,
        operation: Operation,
        work: &mut Work<'_>,
    ) {
        let (now, put) = (now(), Put::set(0, Expiry::NEVER));
        loop {
            let requests = work.next::<B>();
            let keys: [Key<'_>; B] = std::array::from_fn(|at| self.store.key(requests[at].key()));
            let mut waiting = [false; B];
            {
                let burst = &mut worker.burst(now);
                match operation {
                    Operation::Get => look_ahead(burst, &keys, Intent::Read, |burst, at, ahead| {
                        if let Ok(item) = burst.get_ahead(&keys[at], ahead, Access::default())
                            && let Some(value) = item.as_slice()
                        {
                            work.reply(value);
                        }
                    }),
                    Operation::Set => {
                        look_ahead(burst, &keys, Intent::Write, |burst, at, ahead| match burst
                            .store_ahead(
                                &keys[at],
                                ahead,
                                &put,
                                work.values.of(requests[at].number),
                            ) {
                            Stored::Stored { .. } => work.succeeded += 1,
                            Stored::Refused(Refused::Wait) => waiting[at] = true,
                            _ => {}
                        })
                    }
                }
            }
            worker.end(now);
            // A request that found no free segment is repeated in bursts of its own.
            for at in (0..B).filter(|&at| waiting[at]) {
                let stored = store_one(
                    &self.store,
                    worker,
                    keys[at].bytes,
                    work.values.of(requests[at].number),
                );
                work.succeeded += u64::from(stored);
            }
            if work.over(B as u64) {
                worker.park();
                return;
            }
        }
    }
}

/// Looks ahead at all keys of a burst in three steps, then operates on them in order.
#[inline]
fn look_ahead<const B: usize>(
    burst: &mut Burst<'_>,
    keys: &[Key<'_>; B],
    intent: Intent,
    mut operate: impl FnMut(&mut Burst<'_>, usize, Ahead),
) {
    let mut ahead = [Ahead::NONE; B];
    if B > 1 {
        for (key, ahead) in keys.iter().zip(&mut ahead) {
            *ahead = burst.prefetch(key.hash, intent);
        }
        for (key, ahead) in keys.iter().zip(&mut ahead) {
            *ahead = burst.look(key.hash, intent, *ahead);
        }
        for (key, ahead) in keys.iter().zip(&mut ahead) {
            *ahead = burst.look_again(key.hash, intent, *ahead);
        }
    }
    for (at, &ahead) in ahead.iter().enumerate() {
        operate(burst, at, ahead);
    }
}

/// Stores one key, with as many bursts as it takes until a segment is free.
pub(super) fn store_one(store: &Store, worker: &mut Worker, key: &[u8], value: &[u8]) -> bool {
    let (now, put) = (now(), Put::set(0, Expiry::NEVER));
    loop {
        let stored = worker.burst(now).store(&store.key(key), &put, value);
        worker.end(now);
        if !matches!(stored, Stored::Refused(Refused::Wait)) {
            return matches!(stored, Stored::Stored { .. });
        }
    }
}

impl Rival for CouaRival {
    fn name(&self) -> &'static str {
        "coua"
    }

    fn batches(&self) -> &[usize] {
        &[1, 8, 32]
    }

    fn run(&self, thread: usize, operation: Operation, batch: usize, work: &mut Work<'_>) {
        let mut worker = self.workers[thread]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match batch {
            1 => self.bursts::<1>(&mut worker, operation, work),
            8 => self.bursts::<8>(&mut worker, operation, work),
            _ => self.bursts::<32>(&mut worker, operation, work),
        }
    }
}
