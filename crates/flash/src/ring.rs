//! io_uring: requests and completions in memory that the kernel shares, for files and for NVMe commands.
//!
//! # Invariants
//! - A buffer is in `slots` from before the kernel sees its address until its completion was taken, or for ever.
//! - Memory that is registered belongs to regions that the ring keeps until it is gone.
#![expect(unsafe_code, reason = "hands the kernel memory by its address")]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, squeue};
use rustix::event::{EventfdFlags, eventfd};

use crate::device::{Armed, Completion, Failure};
use crate::slots::{InFlight, Slots};
use crate::{Buffer, Region};

/// The kernel registers no longer piece of memory at once.
const REGISTERED_LEN_MAX: usize = 1 << 30;

/// How long the kernel is waited for by who opens or drops a ring.
const WAIT: Duration = Duration::from_secs(5);

/// What a ring carries.
pub(crate) trait Kind {
    /// What is asked.
    type Entry: squeue::EntryMarker;
    /// What is answered.
    type Done: cqueue::EntryMarker;

    /// Says by which number the answer shall name the request.
    fn with_user_data(entry: Self::Entry, id: u64) -> Self::Entry;

    /// That number and the result.
    fn said(done: &Self::Done) -> (u64, i32);

    /// What a result means for a request.
    fn judged(request: &InFlight, result: i32) -> io::Result<()>;
}

/// How rings are set up: as was seen to work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) is_polled: bool,
    /// The kernel runs completions when the process next calls it, and says that there are some.
    pub(crate) is_cooperative: bool,
    pub(crate) has_registered: bool,
}

/// Finds out how rings work on a file, in words too. `attempt` sends requests of the kind through a ring.
///
/// # Errors
/// Where they do not.
pub(crate) fn probe<K: Kind>(
    file: BorrowedFd<'_>,
    regions: &[Arc<Region>],
    is_polled: bool,
    attempt: impl FnOnce(&mut Ring<K>) -> io::Result<()>,
) -> io::Result<(Setup, String)> {
    let mut setup = Setup {
        is_polled,
        is_cooperative: true,
        has_registered: !regions.is_empty(),
    };
    if Ring::<K>::build(setup, 2).is_err() {
        setup.is_cooperative = false;
        // The error that counts: what is refused without the newer flags.
        Ring::<K>::build(setup, 2)?;
    }
    let mut said = String::from(if is_polled {
        "io_uring, polled"
    } else {
        "io_uring"
    });
    let mut ring = Ring::open(setup, file, regions, 2)?;
    if let Some(why) = ring.not_registered.take() {
        setup.has_registered = false;
        said.push_str(&format!("; memory not registered: {why}"));
    }
    attempt(&mut ring)?;
    Ok((setup, said))
}

/// One ring, and the requests that the kernel has.
pub(crate) struct Ring<K: Kind> {
    setup: Setup,
    /// Dropped before what the kernel was told to use, or never.
    ring: ManuallyDrop<IoUring<K::Entry, K::Done>>,
    pub(crate) slots: Slots,
    pub(crate) event: Option<OwnedFd>,
    is_armed: bool,
    pub(crate) to_submit: usize,
    /// Where registered pieces begin, and how long they are, by the kernel's number.
    registered: Vec<(usize, usize)>,
    /// Why there are none of those, where there should be some: what a user may lock has a limit.
    not_registered: Option<io::Error>,
    _regions: Vec<Arc<Region>>,
}

impl<K: Kind> Ring<K> {
    fn build(setup: Setup, depth: usize) -> io::Result<IoUring<K::Entry, K::Done>> {
        let mut builder = IoUring::<K::Entry, K::Done>::builder();
        if setup.is_polled {
            builder.setup_iopoll();
        }
        if setup.is_cooperative && !setup.is_polled {
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }
        builder.setup_clamp().dontfork();
        let depth = u32::try_from(depth).map_err(|_| io::ErrorKind::InvalidInput)?;
        builder.build(depth)
    }

    /// A ring for `depth` requests to a file. Memory that the kernel does not register is looked up for each request.
    pub(crate) fn open(
        setup: Setup,
        file: BorrowedFd<'_>,
        regions: &[Arc<Region>],
        depth: usize,
    ) -> io::Result<Ring<K>> {
        let ring = Ring::<K>::build(setup, depth)?;
        if (ring.params().sq_entries() as usize) < depth {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        let (mut registered, mut not_registered) = (Vec::new(), None);
        if setup.has_registered {
            match Ring::<K>::register_memory(&ring, regions) {
                Ok(pieces) => registered = pieces,
                Err(why) => not_registered = Some(why),
            }
        }
        let mut event = None;
        if !setup.is_polled {
            let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            ring.submitter().register_eventfd(descriptor.as_raw_fd())?;
            event = Some(descriptor);
        }
        let mut ring = Ring {
            setup,
            ring: ManuallyDrop::new(ring),
            slots: Slots::new(depth),
            event,
            is_armed: false,
            to_submit: 0,
            registered,
            not_registered,
            _regions: regions.to_vec(),
        };
        // A worker that polls does not want to pay for signals.
        ring.ring.completion().disable_eventfd();
        Ok(ring)
    }

    /// Registers regions, in pieces that the kernel takes.
    fn register_memory(
        ring: &IoUring<K::Entry, K::Done>,
        regions: &[Arc<Region>],
    ) -> io::Result<Vec<(usize, usize)>> {
        let mut pieces = Vec::new();
        for region in regions {
            for from in (0..region.len()).step_by(REGISTERED_LEN_MAX) {
                let len = REGISTERED_LEN_MAX.min(region.len() - from);
                pieces.push((region.address() + from, len));
            }
        }
        let vectors: Vec<libc::iovec> = pieces
            .iter()
            .map(|&(from, len)| libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(from),
                iov_len: len,
            })
            .collect();
        // SAFETY: the regions are kept beside the ring, or the ring is dropped by the caller before they are.
        unsafe { ring.submitter().register_buffers(&vectors) }?;
        Ok(pieces)
    }

    /// The registered piece that a transfer lies in; none where the kernel has to look for the memory anew, since
    /// pages of it are no longer those that were registered.
    pub(crate) fn registered_piece(&self, buffer: &Buffer, len: usize) -> Option<u16> {
        if buffer.has_replaced_pages() {
            return None;
        }
        let from = buffer.base().as_ptr().addr();
        let holds = |&(base, piece_len): &(usize, usize)| {
            from.checked_sub(base)
                .is_some_and(|offset| offset + len <= piece_len)
        };
        let index = self.registered.iter().position(holds)?;
        u16::try_from(index).ok()
    }

    /// Puts a request into the ring; it has room, since it has as many entries as there are slots.
    ///
    /// # Safety
    /// The entry names no other memory than that of the request, and no more of it than the request has.
    pub(crate) unsafe fn push(&mut self, request: InFlight, entry: K::Entry) {
        let id = self.slots.insert(request);
        let entry = K::with_user_data(entry, u64::from(id));
        // SAFETY: the memory that the entry names is in `slots`, and stays there until it completes.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the ring has room for each slot");
        self.to_submit += 1;
    }

    /// One system call for all that was pushed.
    pub(crate) fn submit(&mut self) {
        // EAGAIN, EBUSY and EINTR leave entries in the ring for the next time.
        if let Ok(count) = self.ring.submit() {
            self.to_submit = self.to_submit.saturating_sub(count);
        }
    }

    /// The next completion: its request, and what the kernel says of it.
    pub(crate) fn next(&mut self) -> Option<(InFlight, i32)> {
        let mut completions = self.ring.completion();
        loop {
            let (id, result) = K::said(&completions.next()?);
            if let Some(request) = self.slots.take(id) {
                return Some((request, result));
            }
        }
    }

    /// Waits for one request that was pushed, and gives its buffer.
    pub(crate) fn wait(&mut self) -> io::Result<Option<Buffer>> {
        let deadline = Instant::now() + WAIT;
        loop {
            self.submit();
            if let Some((request, result)) = self.next() {
                return K::judged(&request, result).map(|()| request.buffer);
            }
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Appends completions.
    pub(crate) fn poll(&mut self, into: &mut Vec<Completion>) {
        if std::mem::take(&mut self.is_armed) {
            self.ring.completion().disable_eventfd();
            if let Some(event) = &self.event {
                let _ = rustix::io::read(event, &mut [0; 8]);
            }
        }
        if self.wants_call() {
            self.submit();
        }
        while into.len() < into.capacity() {
            let Some((request, result)) = self.next() else {
                return;
            };
            let result = K::judged(&request, result).map_err(|error| Failure::of(&error));
            into.push(request.completed(result));
        }
    }

    /// Whether completions come only when the kernel is called, or entries are left from a call before.
    fn wants_call(&mut self) -> bool {
        if self.to_submit > 0 || self.setup.is_polled {
            return true;
        }
        let submission = self.ring.submission();
        submission.taskrun() || submission.cq_overflow()
    }

    /// See [`crate::Queue::arm`].
    pub(crate) fn arm(&mut self) -> Armed {
        self.is_armed = true;
        self.ring.completion().enable_eventfd();
        // What completed before the kernel saw that is here; what completes later is signalled.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if self.wants_call() || !self.ring.completion().is_empty() {
            Armed::Ready
        } else {
            Armed::Sleep
        }
    }
}

impl<K: Kind> Drop for Ring<K> {
    fn drop(&mut self) {
        let deadline = Instant::now() + WAIT;
        while self.slots.in_flight() > 0 && Instant::now() < deadline {
            let some = Timespec::new().nsec(10_000_000);
            let args = SubmitArgs::new().timespec(&some);
            let _ = self.ring.submitter().submit_with_args(1, &args);
            while self.next().is_some() {}
        }
        if self.slots.in_flight() > 0 {
            // The kernel may still write there: the ring and the memory are never given back.
            self.slots.leak();
            std::mem::forget(std::mem::take(&mut self._regions));
            return;
        }
        // The kernel lets go of a ring after a while, of what is registered at once: the file can be opened again, and
        // the memory does not count twice against what a user may lock.
        let _ = self.ring.submitter().unregister_files();
        let _ = self.ring.submitter().unregister_buffers();
        // SAFETY: it is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
    }
}
