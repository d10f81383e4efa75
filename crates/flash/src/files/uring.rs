//! io_uring: requests and completions in memory that the kernel shares.
//!
//! # Invariants
//! - A buffer is in `slots` from before the kernel sees its address until its completion was taken, or for ever.
//! - Memory that is registered belongs to regions that the queue keeps until the ring is gone.
#![expect(unsafe_code, reason = "hands the kernel memory by its address")]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::squeue::Entry;
use io_uring::types::{Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::event::{EventfdFlags, eventfd};

use super::probe_buffer;
use super::target::{DISCARD, Target};
use crate::device::{
    Armed, Command, Completion, Failure, Identity, Queue, Rejected, Rejection, Request, Transfer,
};
use crate::slots::{InFlight, Slots};
use crate::{Buffer, Region};

/// The file's place among the registered ones.
const FILE: Fixed = Fixed(0);

/// The kernel registers no longer piece of memory at once.
const REGISTERED_LEN_MAX: usize = 1 << 30;

/// How long a queue that is dropped waits for the kernel.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// How a target's rings are set up: as it was seen to work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    is_polled: bool,
    /// The kernel runs completions when the process next calls it, and says that there are some.
    is_cooperative: bool,
    has_registered: bool,
}

/// Finds out how io_uring works on a target, in words too.
///
/// # Errors
/// Where it does not.
pub(super) fn probe(
    target: &Arc<Target>,
    regions: &[Arc<Region>],
    is_polled: bool,
) -> io::Result<(Setup, String)> {
    let mut setup = Setup {
        is_polled,
        is_cooperative: true,
        has_registered: !regions.is_empty(),
    };
    if Ring::build(setup, 2).is_err() {
        setup.is_cooperative = false;
        // The error that counts: what is refused without the newer flags.
        Ring::build(setup, 2)?;
    }
    let mut said = String::from(if is_polled {
        "io_uring, polled"
    } else {
        "io_uring"
    });
    if setup.has_registered {
        let ring = Ring::build(setup, 2)?;
        if let Err(why) = Ring::register_memory(&ring, regions) {
            setup.has_registered = false;
            said.push_str(&format!("; memory not registered: {why}"));
        }
    }
    read_once(setup, target, regions)?;
    Ok((setup, said))
}

/// Reads the first sector. Polled, it is also written again as it is: a file refuses polling only where a request
/// reaches the device, which one for a hole or for what was never written does not.
fn read_once(setup: Setup, target: &Target, regions: &[Arc<Region>]) -> io::Result<()> {
    let mut ring = Ring::open(setup, target, regions, 2)?;
    let len = target.sector_len;
    let mut buffer = probe_buffer();
    target.file.read_exact_at(&mut buffer[..len], 0)?;
    let mut transfer = Transfer {
        sector: 0,
        len,
        buffer,
    };
    if setup.is_polled {
        let buffer = run_once(&mut ring, Command::Write(transfer), len)?;
        transfer = Transfer {
            sector: 0,
            len,
            buffer,
        };
    }
    run_once(&mut ring, Command::Read(transfer), len).map(drop)
}

/// Waits for one request, and gives its buffer.
fn run_once(ring: &mut Ring, command: Command, sector_len: usize) -> io::Result<Buffer> {
    let (request, entry) = ring.prepared(0, command, sector_len);
    ring.push(request, entry);
    let deadline = Instant::now() + DROP_WAIT;
    loop {
        ring.submit();
        if let Some((request, result)) = ring.next() {
            result?;
            return request.buffer.ok_or(io::ErrorKind::InvalidData.into());
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// A queue for one worker.
pub(super) fn open(
    setup: &Setup,
    identity: Identity,
    target: Arc<Target>,
    regions: &[Arc<Region>],
    depth: usize,
) -> io::Result<UringQueue> {
    let ring = Ring::open(*setup, &target, regions, depth)?;
    // What cannot be polled goes another way: flushes and discards.
    let unpolled = if setup.is_polled {
        let setup = Setup {
            is_polled: false,
            has_registered: false,
            ..*setup
        };
        Some(Ring::open(setup, &target, &[], depth)?)
    } else {
        None
    };
    Ok(UringQueue {
        identity,
        ring,
        unpolled,
        depth,
        _target: target,
    })
}

/// Rings of one worker.
pub(super) struct UringQueue {
    identity: Identity,
    ring: Ring,
    unpolled: Option<Ring>,
    depth: usize,
    _target: Arc<Target>,
}

impl Queue for UringQueue {
    fn room(&self) -> usize {
        self.depth - self.in_flight()
    }

    fn in_flight(&self) -> usize {
        let unpolled = self.unpolled.as_ref();
        self.ring.slots.in_flight() + unpolled.map_or(0, |ring| ring.slots.in_flight())
    }

    fn push(&mut self, request: Request) -> Result<(), Rejected> {
        let why = if self.room() == 0 {
            Rejection::Full
        } else if !self.identity.allows(&request.command) {
            Rejection::Refused
        } else {
            let Request { token, command } = request;
            let is_transfer = matches!(command, Command::Read(_) | Command::Write(_));
            let ring = match &mut self.unpolled {
                Some(unpolled) if !is_transfer => unpolled,
                _ => &mut self.ring,
            };
            let (request, entry) = ring.prepared(token, command, self.identity.sector_len);
            ring.push(request, entry);
            return Ok(());
        };
        Err(Rejected { request, why })
    }

    fn submit(&mut self, _: u64) {
        for ring in std::iter::once(&mut self.ring).chain(&mut self.unpolled) {
            if ring.to_submit > 0 {
                ring.submit();
            }
        }
    }

    fn poll(&mut self, _: u64, into: &mut Vec<Completion>) -> usize {
        let before = into.len();
        for ring in std::iter::once(&mut self.ring).chain(&mut self.unpolled) {
            if ring.slots.in_flight() > 0 {
                ring.poll(into);
            }
        }
        into.len() - before
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let event = self.ring.event.as_ref();
        event.map(AsFd::as_fd)
    }

    fn arm(&mut self) -> Armed {
        if self.unpolled.is_some() {
            return Armed::Poll;
        }
        self.ring.arm()
    }
}

/// One ring, and the requests that the kernel has.
struct Ring {
    setup: Setup,
    /// Dropped before what the kernel was told to use, or never.
    ring: ManuallyDrop<IoUring>,
    slots: Slots,
    event: Option<OwnedFd>,
    is_armed: bool,
    to_submit: usize,
    /// Where registered pieces begin, and how long they are, by the kernel's number.
    registered: Vec<(usize, usize)>,
    _regions: Vec<Arc<Region>>,
}

impl Ring {
    fn build(setup: Setup, depth: usize) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
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

    fn open(
        setup: Setup,
        target: &Target,
        regions: &[Arc<Region>],
        depth: usize,
    ) -> io::Result<Ring> {
        let ring = Ring::build(setup, depth)?;
        if (ring.params().sq_entries() as usize) < depth {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        ring.submitter()
            .register_files(&[target.file.as_raw_fd()])?;
        let mut registered = Vec::new();
        if setup.has_registered {
            registered = Ring::register_memory(&ring, regions)?;
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
            _regions: regions.to_vec(),
        };
        // A worker that polls does not want to pay for signals.
        ring.ring.completion().disable_eventfd();
        Ok(ring)
    }

    /// Registers regions, in pieces that the kernel takes.
    fn register_memory(ring: &IoUring, regions: &[Arc<Region>]) -> io::Result<Vec<(usize, usize)>> {
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

    /// A request, and the entry of the ring that asks for it.
    fn prepared(&self, token: u64, command: Command, sector_len: usize) -> (InFlight, Entry) {
        let sector_len = sector_len as u64;
        let entry = match &command {
            Command::Read(transfer) => {
                let (base, len) = (transfer.buffer.base().as_ptr(), io_len(transfer));
                let from = transfer.sector * sector_len;
                match self.registered_piece(&transfer.buffer, transfer.len) {
                    Some(piece) => opcode::ReadFixed::new(FILE, base, len, piece)
                        .offset(from)
                        .build(),
                    None => opcode::Read::new(FILE, base, len).offset(from).build(),
                }
            }
            Command::Write(transfer) => {
                let (base, len) = (transfer.buffer.base().as_ptr(), io_len(transfer));
                let from = transfer.sector * sector_len;
                match self.registered_piece(&transfer.buffer, transfer.len) {
                    Some(piece) => opcode::WriteFixed::new(FILE, base, len, piece)
                        .offset(from)
                        .build(),
                    None => opcode::Write::new(FILE, base, len).offset(from).build(),
                }
            }
            Command::Flush => opcode::Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build(),
            Command::Discard { sector, sectors } => {
                opcode::Fallocate::new(FILE, *sectors * sector_len)
                    .offset(*sector * sector_len)
                    .mode(DISCARD.bits().cast_signed())
                    .build()
            }
        };
        (InFlight::of(token, command), entry)
    }

    /// The registered piece that a transfer lies in.
    fn registered_piece(&self, buffer: &Buffer, len: usize) -> Option<u16> {
        let from = buffer.base().as_ptr().addr();
        let holds = |&(base, piece_len): &(usize, usize)| {
            from.checked_sub(base)
                .is_some_and(|offset| offset + len <= piece_len)
        };
        let index = self.registered.iter().position(holds)?;
        u16::try_from(index).ok()
    }

    /// Puts a request into the ring; it has room, since it has as many entries as there are slots.
    fn push(&mut self, request: InFlight, entry: Entry) {
        let id = self.slots.insert(request);
        let entry = entry.user_data(u64::from(id));
        // SAFETY: the memory that the entry names is in `slots`, and stays there until it completes.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the ring has room for each slot");
        self.to_submit += 1;
    }

    /// One system call for all that was pushed.
    fn submit(&mut self) {
        // EAGAIN, EBUSY and EINTR leave entries in the ring for the next time.
        if let Ok(count) = self.ring.submit() {
            self.to_submit = self.to_submit.saturating_sub(count);
        }
    }

    /// The next completion: its request, and the bytes transferred.
    fn next(&mut self) -> Option<(InFlight, io::Result<usize>)> {
        let mut completions = self.ring.completion();
        loop {
            let entry = completions.next()?;
            let result = usize::try_from(entry.result())
                .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
            if let Some(request) = self.slots.take(entry.user_data()) {
                return Some((request, result));
            }
        }
    }

    fn poll(&mut self, into: &mut Vec<Completion>) {
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
            let is_transfer = request.buffer.is_some();
            let result = match result {
                // The end of a file that became shorter, or a disk that is full.
                Ok(count) if is_transfer && count != request.len => Err(Failure::Media),
                Ok(_) => Ok(()),
                Err(error) => Err(Failure::of(&error)),
            };
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

    fn arm(&mut self) -> Armed {
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

impl Drop for Ring {
    fn drop(&mut self) {
        let deadline = Instant::now() + DROP_WAIT;
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
        // The kernel lets go of a ring after a while, of what is registered at once: the file can be opened again.
        let _ = self.ring.submitter().unregister_files();
        // SAFETY: it is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a transfer is at most 1 MiB long"
)]
fn io_len(transfer: &Transfer) -> u32 {
    transfer.len as u32
}
