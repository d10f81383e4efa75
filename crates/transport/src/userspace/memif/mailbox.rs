//! How the worker that handles the control channel gives the others their rings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use super::receive::Consumer;
use super::transmit::Producer;

/// A queue's part of a connection.
pub(super) struct QueueLink {
    /// The ring that it receives from.
    pub(super) consumer: Consumer,
    /// The ring that it sends into.
    pub(super) producer: Producer,
    /// Becomes readable when the peer has sent something.
    pub(super) arrival: Event,
    /// Tells the peer that something has been sent.
    pub(super) departure: Event,
}

/// The mailbox of one queue.
///
/// # Concurrency
/// `version` is stored with Release after the link has been put into the box. The queue loads it
/// with Acquire, and looks into the box only if it has changed. So the lock is free then, unless a
/// peer comes or goes at that moment.
pub(super) struct Mailbox {
    version: AtomicU32,
    link: Mutex<Option<QueueLink>>,
    bell: Event,
    is_broken: AtomicBool,
}

impl Mailbox {
    /// An empty one.
    pub(super) fn new() -> io::Result<Mailbox> {
        Ok(Mailbox {
            version: AtomicU32::new(0),
            link: Mutex::new(None),
            bell: Event::new()?,
            is_broken: AtomicBool::new(false),
        })
    }

    /// Gives the queue another link, or none.
    pub(super) fn post(&self, link: Option<QueueLink>) {
        let before = std::mem::replace(&mut *self.lock(), link);
        self.is_broken.store(false, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
        self.bell.ring();
        drop(before);
    }

    /// A number that changes with each post.
    #[inline]
    pub(super) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// Takes what was posted.
    pub(super) fn take(&self) -> Option<QueueLink> {
        self.lock().take()
    }

    /// Becomes readable with each post.
    pub(super) fn bell(&self) -> &Event {
        &self.bell
    }

    /// The queue reports that its link cannot be used.
    pub(super) fn complain(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Whether it has reported that; true once.
    pub(super) fn take_complaint(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed) && self.is_broken.swap(false, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<QueueLink>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event descriptor. It is never read: whoever waits for it waits for edges.
pub(super) struct Event {
    fd: OwnedFd,
}

impl Event {
    /// A new one.
    pub(super) fn new() -> io::Result<Event> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Event { fd })
    }

    /// One from a peer; `None` if the descriptor is something else, which might block.
    pub(super) fn of_peer(fd: OwnedFd) -> Option<Event> {
        use std::os::fd::AsRawFd;

        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let is_event = match rustix::fs::readlink(link, Vec::new()) {
            Ok(name) => name.as_bytes() == b"anon_inode:[eventfd]",
            // Without /proc this cannot be found out.
            Err(_) => true,
        };
        let flags = rustix::fs::fcntl_getfl(&fd).ok()?;
        rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK).ok()?;
        is_event.then_some(Event { fd })
    }

    /// Wakes whoever waits for it.
    pub(super) fn ring(&self) {
        let rung = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        if rung == Err(rustix::io::Errno::AGAIN) {
            // Nobody has read it, and its counter is full: reading resets it.
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
