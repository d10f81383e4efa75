//! Threads that read and write in a kernel's place that has no io_uring: slower, and works everywhere.
//!
//! # Concurrency
//! A queue and its threads share two lists, each under a mutex that is held for a push or a pop. A worker takes each
//! once a burst.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};

use super::target::{DISCARD, Target};
use crate::device::{
    Armed, Command, Completion, Failure, Identity, Queue, Rejected, Rejection, Request,
};
use crate::slots::InFlight;

/// Threads of a queue: enough to keep a device busy that a kernel serves.
const THREADS: usize = 4;

/// A queue that threads serve.
pub(super) struct ThreadsQueue {
    identity: Identity,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    staged: Vec<Request>,
    depth: usize,
    in_flight: usize,
    is_armed: bool,
}

struct Shared {
    target: Arc<Target>,
    todo: Mutex<Todo>,
    wake: Condvar,
    done: Mutex<VecDeque<Completion>>,
    /// Whether the worker wants to be woken. Set before it looks at `done` for the last time, and read after
    /// something was put there, both under its mutex: so one of both sees the other.
    is_armed: AtomicBool,
    event: OwnedFd,
}

struct Todo {
    requests: VecDeque<Request>,
    is_closed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ThreadsQueue {
    /// Starts the threads.
    pub(super) fn open(
        identity: Identity,
        target: Arc<Target>,
        depth: usize,
    ) -> io::Result<ThreadsQueue> {
        let shared = Arc::new(Shared {
            target,
            todo: Mutex::new(Todo {
                requests: VecDeque::with_capacity(depth),
                is_closed: false,
            }),
            wake: Condvar::new(),
            done: Mutex::new(VecDeque::with_capacity(depth)),
            is_armed: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let mut queue = ThreadsQueue {
            identity,
            shared,
            threads: Vec::with_capacity(THREADS),
            staged: Vec::with_capacity(depth),
            depth,
            in_flight: 0,
            is_armed: false,
        };
        for _ in 0..THREADS {
            let shared = Arc::clone(&queue.shared);
            let thread = std::thread::Builder::new().name("flash".to_owned());
            queue.threads.push(thread.spawn(move || shared.serve())?);
        }
        Ok(queue)
    }
}

impl Shared {
    fn serve(&self) {
        while let Some(request) = self.next() {
            let done = self.carry_out(request);
            let mut list = lock(&self.done);
            list.push_back(done);
            if self.is_armed.swap(false, Ordering::Relaxed) {
                // A counter that is full is readable already.
                let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
            }
        }
    }

    fn next(&self) -> Option<Request> {
        let mut todo = lock(&self.todo);
        loop {
            if let Some(request) = todo.requests.pop_front() {
                return Some(request);
            }
            if todo.is_closed {
                return None;
            }
            todo = self.wake.wait(todo).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn carry_out(&self, mut request: Request) -> Completion {
        let (file, sector_len) = (&self.target.file, self.target.sector_len as u64);
        let result = match &mut request.command {
            Command::Read(transfer) => {
                let into = &mut transfer.buffer[..transfer.len];
                file.read_exact_at(into, transfer.sector * sector_len)
            }
            Command::Write(transfer) => {
                let bytes = &transfer.buffer[..transfer.len];
                file.write_all_at(bytes, transfer.sector * sector_len)
            }
            Command::Flush => rustix::fs::fdatasync(file).map_err(io::Error::from),
            Command::Discard { sector, sectors } => {
                let (from, len) = (*sector * sector_len, *sectors * sector_len);
                rustix::fs::fallocate(file, DISCARD, from, len).map_err(io::Error::from)
            }
        };
        let result = result.map_err(|error| self.target.judged(Failure::of(&error)));
        InFlight::of(request.token, request.command).completed(result)
    }
}

impl Queue for ThreadsQueue {
    fn room(&self) -> usize {
        self.depth - self.in_flight
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn push(&mut self, request: Request) -> Result<(), Rejected> {
        let why = if self.room() == 0 {
            Rejection::Full
        } else if !self.identity.allows(&request.command) {
            Rejection::Refused
        } else {
            self.in_flight += 1;
            self.staged.push(request);
            return Ok(());
        };
        Err(Rejected { request, why })
    }

    fn submit(&mut self, _: u64) {
        if self.staged.is_empty() {
            return;
        }
        let count = self.staged.len();
        lock(&self.shared.todo)
            .requests
            .extend(self.staged.drain(..));
        if count == 1 {
            self.shared.wake.notify_one();
        } else {
            self.shared.wake.notify_all();
        }
    }

    fn poll(&mut self, _: u64, into: &mut Vec<Completion>) -> usize {
        if std::mem::take(&mut self.is_armed) {
            self.shared.is_armed.store(false, Ordering::Relaxed);
            let _ = rustix::io::read(&self.shared.event, &mut [0; 8]);
        }
        let room = into.capacity() - into.len();
        let mut done = lock(&self.shared.done);
        let count = room.min(done.len());
        into.extend(done.drain(..count));
        self.in_flight -= count;
        count
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.event.as_fd())
    }

    fn arm(&mut self) -> Armed {
        self.is_armed = true;
        let done = lock(&self.shared.done);
        self.shared.is_armed.store(true, Ordering::Relaxed);
        if done.is_empty() {
            Armed::Sleep
        } else {
            Armed::Ready
        }
    }
}

impl Drop for ThreadsQueue {
    /// The threads have the buffers: nothing has to be waited for, but files are closed when this returns.
    fn drop(&mut self) {
        lock(&self.shared.todo).is_closed = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // A thread cannot panic; were it to, its requests are lost with it.
            let _ = thread.join();
        }
    }
}
