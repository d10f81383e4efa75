//! The seam: a device with sectors, and the queues by which workers reach it.

use std::io;
use std::os::fd::BorrowedFd;

use crate::{Buffer, Region};

/// A device, shared by all workers.
pub trait BlockDevice: Send + Sync {
    /// What it is and what it can do.
    fn identity(&self) -> &Identity;

    /// A queue for one worker, with room for `depth` requests or what the device allows.
    ///
    /// # Errors
    /// Where the device or the kernel has no more, or the device is gone.
    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, OpenError>;

    /// Memory for requests of who has none of its own yet: while a volume is opened, closed or recovered. A driver that
    /// reaches only what was mapped when it was opened has mapped some for that.
    fn opening_memory(&self) -> Buffer {
        Region::allocate(OPENING_LEN)
    }
}

/// Bytes of [`BlockDevice::opening_memory`].
pub(crate) const OPENING_LEN: usize = 2 << 20;

/// One worker's way to a device.
///
/// A turn is: [`Queue::push`] for each request, [`Queue::submit`] once, [`Queue::poll`]. Requests complete in any order,
/// also those of one sector: who wants an order waits. Each request that was pushed completes exactly once, with the
/// buffer that it came with; one that cannot be carried out any more completes with [`Failure::Removed`].
///
/// A write that has completed is what later reads see. It is safe from a loss of power only when a [`Command::Flush`]
/// that was pushed after its completion has completed as well.
///
/// A queue that is dropped first waits a bounded time for what is under way. Buffers that a device might still write
/// to after that are never given back: their memory is lost, but not reused.
pub trait Queue: Send {
    /// How many more requests can be pushed now.
    fn room(&self) -> usize;

    /// How many were pushed and have not been polled.
    fn in_flight(&self) -> usize;

    /// Takes a request, without telling the device yet.
    ///
    /// # Errors
    /// With the request, where there is no room or the device cannot carry it out.
    fn push(&mut self, request: Request) -> Result<(), Rejected>;

    /// Whether it uses memory of which the machine has lost and replaced pages since it was mapped. If not, such
    /// requests are refused: the device would go on with the lost ones.
    fn follows_replaced_pages(&self) -> bool {
        true
    }

    /// Tells the device of everything that was pushed: one doorbell or system call. `now_ns` is monotonic.
    fn submit(&mut self, now_ns: u64);

    /// Appends completions to `into` until nothing has completed or its capacity is used; it does not allocate. Gives
    /// how many. It is also where timeouts are noticed, so a worker that waits calls it now and then.
    fn poll(&mut self, now_ns: u64, into: &mut Vec<Completion>) -> usize;

    /// What becomes readable while the queue is armed and something completes, where the driver has such.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Asks for the descriptor to be signalled; the next [`Queue::poll`] ends that. A worker calls it before it sleeps.
    fn arm(&mut self) -> Armed;
}

/// What a worker may do after [`Queue::arm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// Completions are there: poll.
    Ready,
    /// Sleep: the descriptor becomes readable.
    Sleep,
    /// Nothing will signal: poll again soon.
    Poll,
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// How users know it: a path, or an address and a serial number.
    pub name: String,
    /// How it is reached, and what could not be had, in words for a log.
    pub driver: String,
    /// How many sectors it has.
    pub sectors: u64,
    /// Bytes of a sector: 512 to 4096, a power of two. A write of one sector is never torn.
    pub sector_len: usize,
    /// The longest transfer in bytes: whole sectors.
    pub transfer_len_max: usize,
    /// Whether writes may be lost at a loss of power unless they are flushed.
    pub has_volatile_cache: bool,
}

impl Identity {
    /// Its bytes.
    #[expect(clippy::len_without_is_empty, reason = "no device is empty")]
    pub fn len(&self) -> u64 {
        self.sectors.saturating_mul(self.sector_len as u64)
    }

    /// Whether the device can carry a command out, by what is known of it.
    pub fn allows(&self, command: &Command) -> bool {
        match command {
            Command::Read(transfer) | Command::Write(transfer) => {
                transfer.len > 0
                    && transfer.len <= transfer.buffer.len()
                    && transfer.len <= self.transfer_len_max
                    && transfer.len.is_multiple_of(self.sector_len)
                    // What O_DIRECT and every controller can do.
                    && transfer.buffer.base().as_ptr().addr().is_multiple_of(self.sector_len)
                    && self.has(transfer.sector, (transfer.len / self.sector_len) as u64)
            }
            Command::Flush => true,
            Command::Discard { sector, sectors } => *sectors > 0 && self.has(*sector, *sectors),
        }
    }

    fn has(&self, sector: u64, sectors: u64) -> bool {
        let end = sector.checked_add(sectors);
        end.is_some_and(|end| end <= self.sectors)
    }
}

/// Something that a device shall do.
#[derive(Debug)]
pub struct Request {
    /// Comes back with the completion. Its meaning is the caller's.
    pub token: u64,
    /// What to do.
    pub command: Command,
}

/// What a device can do.
#[derive(Debug)]
pub enum Command {
    /// Read into the buffer.
    Read(Transfer),
    /// Write from the buffer.
    Write(Transfer),
    /// Make everything that was written durable.
    Flush,
    /// Tell the device that what stands in these sectors is of no use. They may read as anything that ever stood
    /// there, or as zeros.
    Discard {
        /// The first.
        sector: u64,
        /// How many.
        sectors: u64,
    },
}

impl Command {
    /// Its buffer, where it has one.
    pub fn into_buffer(self) -> Option<Buffer> {
        match self {
            Command::Read(transfer) | Command::Write(transfer) => Some(transfer.buffer),
            Command::Flush | Command::Discard { .. } => None,
        }
    }
}

/// Sectors in one piece, and the memory for them.
#[derive(Debug)]
pub struct Transfer {
    /// The first sector.
    pub sector: u64,
    /// Bytes, from the beginning of the buffer: whole sectors.
    pub len: usize,
    /// The memory, aligned to a sector. What is behind `len` is not touched.
    pub buffer: Buffer,
}

/// A request that was not taken.
#[derive(Debug)]
pub struct Rejected {
    /// It comes back with its buffer.
    pub request: Request,
    /// Why.
    pub why: Rejection,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// There is no room until others have completed.
    Full,
    /// Outside of the device, not of whole sectors, too long, not aligned, or in memory that the driver did not map.
    Refused,
    /// The device is gone.
    Removed,
}

/// A request that is done.
#[derive(Debug)]
pub struct Completion {
    /// The request's.
    pub token: u64,
    /// The request's memory. After a read that failed its content is undefined, but initialized.
    pub buffer: Option<Buffer>,
    /// Whether it was carried out.
    pub result: Result<(), Failure>,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The device cannot read or write these sectors. Others may be well.
    #[error("an error of the medium")]
    Media,
    /// The device is gone, and with it every request.
    #[error("the device was removed")]
    Removed,
    /// The device did not answer in time. The request may have been carried out or not.
    #[error("the device did not answer in time")]
    TimedOut,
    /// The device or the kernel does not do this.
    #[error("the device refused the request")]
    Refused,
    /// The machine has lost a part of the memory that was to be written.
    #[error("memory was lost")]
    MemoryLost,
}

impl Failure {
    /// What an error of a system call comes to.
    pub(crate) fn of(error: &io::Error) -> Failure {
        match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN | libc::ENOMEDIUM) => {
                Failure::Removed
            }
            Some(libc::ETIME | libc::ETIMEDOUT) => Failure::TimedOut,
            Some(
                libc::EINVAL
                | libc::EOPNOTSUPP
                | libc::ENOSPC
                | libc::EDQUOT
                | libc::EFBIG
                | libc::EFAULT
                | libc::EPERM
                | libc::EACCES
                | libc::EROFS,
            ) => Failure::Refused,
            _ => Failure::Media,
        }
    }
}

/// Why a device or a queue was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system said no.
    #[error("{what}: {error}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// What it said.
        error: io::Error,
    },
    /// It is neither a regular file nor a block device, or no device that the driver drives.
    #[error("it is not a device of the right kind")]
    WrongKind,
    /// Another process uses it.
    #[error("another process uses it")]
    InUse,
    /// It has no room for a single sector, or not what was asked for.
    #[error("it is too small")]
    TooSmall,
    /// It has sectors that coua does not use: shorter than 512 bytes, longer than 4096, or with metadata.
    #[error("its sectors are not of 512 to 4096 bytes, or have metadata")]
    SectorLen,
    /// It did not become ready, or did not answer, in time.
    #[error("it did not become ready in time")]
    TimedOut,
    /// It says what its specification does not allow.
    #[error("it breaks its specification: {0}")]
    Misbehaves(&'static str),
    /// It is gone.
    #[error("it was removed")]
    Removed,
}

impl OpenError {
    /// For `map_err`.
    pub(crate) fn at<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> OpenError {
        move |error| OpenError::System {
            what,
            error: error.into(),
        }
    }
}
