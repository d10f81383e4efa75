//! NVMe commands through the kernel's driver: io_uring on the character device of a namespace, `/dev/ng…`.
//!
//! It goes round the block layer: a command costs less, and is not split, merged or tried again. Who may open the device
//! may send every command, so it is for root or a group of one's own.
#![expect(
    unsafe_code,
    reason = "asks by ioctl, and vouches for the memory that entries name"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use io_uring::types::Fixed;
use io_uring::{cqueue, opcode, squeue};
use rustix::fs::{FlockOperation, flock};

use super::command::{SubmissionEntry, discard_range, judged, opcode as nvme};
use super::identify::{ControllerFacts, IDENTIFY_LEN, NamespaceFacts};
use super::prp::PAGE_LEN;
use crate::device::{
    Armed, BlockDevice, Command, Completion, Failure, Identity, OpenError, Queue, Rejected,
    Rejection, Request, Transfer,
};
use crate::ring::{self, Kind, Ring, Setup};
use crate::slots::InFlight;
use crate::{Buffer, Pool, Region};

/// The file's place among the registered ones.
const FILE: Fixed = Fixed(0);

/// The kernel's limit of one command without more than one page list of its own, whatever the device allows.
const TRANSFER_LEN_MAX: usize = 128 << 10;

/// How long a command may take before the kernel's driver aborts it.
const TIMEOUT_MS: u32 = 10_000;

/// `_IO('N', 0x40)`, `_IOWR('N', 0x41, struct nvme_passthru_cmd)`, `_IOWR('N', 0x80, struct nvme_uring_cmd)`.
const IOCTL_ID: libc::c_ulong = 0x4e40;
const IOCTL_ADMIN: libc::c_ulong = 0xc048_4e41;
const URING_IO: u32 = 0xc048_4e80;

/// `struct nvme_passthru_cmd`, and `struct nvme_uring_cmd` but for its last word.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    dwords_2: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_len: u32,
    data_len: u32,
    dwords_10: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<KernelCommand>() == 72);

/// A namespace behind the kernel's driver.
pub struct PassthroughDevice {
    identity: Identity,
    file: Arc<File>,
    regions: Vec<Arc<Region>>,
    setup: Setup,
    namespace: u32,
    can_discard: bool,
}

impl PassthroughDevice {
    /// Opens a character device of a namespace for this process alone. `is_polled` asks for completions that are polled
    /// at the device, which the kernel's driver must have queues for (`nvme.poll_queues`). For `regions` see
    /// [`crate::files::FileDevice::open`].
    ///
    /// # Errors
    /// Where it is none, the kernel refuses, or its sectors are not usable.
    pub fn open(
        path: &Path,
        is_polled: bool,
        regions: &[Arc<Region>],
    ) -> Result<PassthroughDevice, OpenError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_CLOEXEC);
        let file = options.open(path).map_err(OpenError::at("open"))?;
        let kind = file.metadata().map_err(OpenError::at("stat"))?.file_type();
        if !kind.is_char_device() {
            return Err(OpenError::WrongKind);
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| OpenError::InUse)?;
        // SAFETY: this request takes no argument.
        let namespace = unsafe { libc::ioctl(file.as_raw_fd(), IOCTL_ID) };
        let namespace = u32::try_from(namespace).map_err(|_| OpenError::WrongKind)?;
        let controller = ControllerFacts::read(&identify(&file, 0, 1)?)?;
        let facts = NamespaceFacts::read(&identify(&file, namespace, 0)?)?;
        let of_controller = PAGE_LEN
            .checked_shl(u32::from(controller.transfer_pages_log2))
            .filter(|_| controller.transfer_pages_log2 > 0);
        let mut identity = Identity {
            name: format!(
                "{} ({} {})",
                path.display(),
                controller.model,
                controller.serial
            ),
            driver: String::new(),
            sectors: facts.sectors,
            sector_len: facts.sector_len,
            transfer_len_max: of_controller.unwrap_or(usize::MAX).min(TRANSFER_LEN_MAX),
            has_volatile_cache: controller.has_volatile_cache,
        };
        let attempt = |is_polled, regions: &[Arc<Region>]| {
            ring::probe::<Commands>(file.as_fd(), regions, is_polled, |ring| {
                let buffer = Region::allocate(PAGE_LEN);
                let transfer = Transfer {
                    sector: 0,
                    len: facts.sector_len,
                    buffer,
                };
                let request = Request {
                    token: 0,
                    command: Command::Read(transfer),
                };
                push(ring, request, namespace, facts.sector_len);
                ring.wait().map(drop)
            })
        };
        let opened = match attempt(is_polled, regions) {
            Err(why) if is_polled => attempt(false, regions)
                .map(|(setup, said)| (setup, format!("{said}; not polled: {why}"))),
            other => other,
        };
        let (mut setup, mut said) = opened.map_err(OpenError::at("io_uring"))?;
        if setup.has_registered
            && let Err(why) = burst(&file, setup, namespace, facts.sector_len)
        {
            setup.has_registered = false;
            said.push_str(&format!("; memory not registered: {why}"));
        }
        identity.driver = format!("NVMe commands through {said}");
        Ok(PassthroughDevice {
            identity,
            file: Arc::new(file),
            regions: regions.to_vec(),
            setup,
            namespace,
            can_discard: controller.can_discard,
        })
    }
}

/// Reads several times at once into memory that is registered: Linux 6.1 takes it for one command, and not for more.
fn burst(file: &File, setup: Setup, namespace: u32, sector_len: usize) -> io::Result<()> {
    const READS: usize = 8;
    let memory = Region::allocate(READS * TRANSFER_LEN_MAX);
    let mut ring =
        Ring::<Commands>::open(setup, file.as_fd(), &[Arc::clone(memory.region())], READS)?;
    let mut buffers = Pool::carve(memory, TRANSFER_LEN_MAX);
    while let Some(buffer) = buffers.take() {
        let transfer = Transfer {
            sector: 0,
            len: sector_len,
            buffer,
        };
        let request = Request {
            token: 0,
            command: Command::Read(transfer),
        };
        push(&mut ring, request, namespace, sector_len);
    }
    (0..READS).try_for_each(|_| ring.wait().map(drop))
}

/// Asks a controller of itself or of a namespace.
fn identify(file: &File, namespace: u32, what: u32) -> Result<[u8; IDENTIFY_LEN], OpenError> {
    let mut answer = [0u8; IDENTIFY_LEN];
    let mut command = KernelCommand {
        opcode: nvme::IDENTIFY,
        namespace,
        address: answer.as_mut_ptr().expose_provenance() as u64,
        data_len: 4096,
        ..KernelCommand::default()
    };
    command.dwords_10[0] = what;
    // SAFETY: the kernel reads and writes the structure, and writes 4096 bytes to the answer.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), IOCTL_ADMIN, &raw mut command) };
    match result {
        0 => Ok(answer),
        -1 => Err(OpenError::System {
            what: "identify",
            error: io::Error::last_os_error(),
        }),
        _ => Err(OpenError::Misbehaves("it refuses to identify itself")),
    }
}

impl BlockDevice for PassthroughDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, OpenError> {
        let ring = Ring::open(self.setup, self.file.as_fd(), &self.regions, depth);
        Ok(Box::new(PassthroughQueue {
            identity: self.identity.clone(),
            ring: ring.map_err(OpenError::at("io_uring"))?,
            namespace: self.namespace,
            can_discard: self.can_discard,
            depth,
            _file: Arc::clone(&self.file),
        }))
    }
}

/// NVMe commands in a ring: entries of 128 bytes, answers of 32.
struct Commands;

impl Kind for Commands {
    type Entry = squeue::Entry128;
    type Done = cqueue::Entry32;

    fn with_user_data(entry: squeue::Entry128, id: u64) -> squeue::Entry128 {
        entry.user_data(id)
    }

    fn said(done: &cqueue::Entry32) -> (u64, i32) {
        (done.user_data(), done.result())
    }

    fn judged(_: &InFlight, result: i32) -> io::Result<()> {
        let status = match u16::try_from(result) {
            Ok(status) => status,
            Err(_) if result < 0 => return Err(io::Error::from_raw_os_error(-result)),
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        };
        judged(status).map_err(|failure| match failure {
            Failure::Media => io::Error::from_raw_os_error(libc::EIO),
            Failure::Removed => io::Error::from_raw_os_error(libc::ENODEV),
            Failure::TimedOut => io::Error::from_raw_os_error(libc::ETIMEDOUT),
            Failure::Refused | Failure::MemoryLost => io::Error::from_raw_os_error(libc::EINVAL),
        })
    }
}

/// Puts a request that the device allows into the ring.
fn push(ring: &mut Ring<Commands>, request: Request, namespace: u32, sector_len: usize) {
    let Request { token, mut command } = request;
    let entry = SubmissionEntry::of(&command, namespace, sector_len);
    let mut kernel = KernelCommand {
        opcode: entry.opcode,
        namespace,
        dwords_10: entry.dwords,
        timeout_ms: TIMEOUT_MS,
        ..KernelCommand::default()
    };
    let mut piece = None;
    let mut range = None;
    match &mut command {
        Command::Read(transfer) | Command::Write(transfer) => {
            piece = ring.registered_piece(&transfer.buffer, transfer.len);
            kernel.address = address_of(&transfer.buffer);
            kernel.data_len = u32::try_from(transfer.len).expect("a short transfer");
        }
        Command::Flush => {}
        Command::Discard { sector, sectors } => {
            // The kernel copies ranges; they must be in memory until it has.
            let mut buffer = Region::allocate(PAGE_LEN);
            let words = discard_range(*sector, *sectors).expect("the caller has looked");
            for (into, word) in buffer.chunks_exact_mut(8).zip(words) {
                into.copy_from_slice(&word.to_le_bytes());
            }
            kernel.address = address_of(&buffer);
            kernel.data_len = 16;
            range = Some(buffer);
        }
    }
    let mut bytes = [0; 80];
    // SAFETY: the structure has no padding, and 72 bytes.
    let of_kernel: [u8; 72] = unsafe { std::mem::transmute(kernel) };
    bytes[..72].copy_from_slice(&of_kernel);
    let entry = opcode::UringCmd80::new(FILE, URING_IO)
        .cmd(bytes)
        .buf_index(piece)
        .build();
    let mut request = InFlight::of(token, command);
    request.scratch = range;
    // SAFETY: the entry names the buffer of the request, and a length that was compared with it, or its scratch.
    unsafe { ring.push(request, entry) };
}

fn address_of(buffer: &Buffer) -> u64 {
    buffer.base().as_ptr().expose_provenance() as u64
}

/// A ring of one worker.
struct PassthroughQueue {
    identity: Identity,
    ring: Ring<Commands>,
    namespace: u32,
    can_discard: bool,
    depth: usize,
    _file: Arc<File>,
}

impl Queue for PassthroughQueue {
    fn room(&self) -> usize {
        self.depth - self.in_flight()
    }

    fn in_flight(&self) -> usize {
        self.ring.slots.in_flight()
    }

    fn push(&mut self, request: Request) -> Result<(), Rejected> {
        let can = match &request.command {
            Command::Discard { sectors, .. } => self.can_discard && *sectors <= u64::from(u32::MAX),
            _ => true,
        };
        let why = if self.room() == 0 {
            Rejection::Full
        } else if !can || !self.identity.allows(&request.command) {
            Rejection::Refused
        } else {
            push(
                &mut self.ring,
                request,
                self.namespace,
                self.identity.sector_len,
            );
            return Ok(());
        };
        Err(Rejected { request, why })
    }

    fn submit(&mut self, _: u64) {
        if self.ring.to_submit > 0 {
            self.ring.submit();
        }
    }

    fn poll(&mut self, _: u64, into: &mut Vec<Completion>) -> usize {
        let before = into.len();
        if self.in_flight() > 0 {
            self.ring.poll(into);
        }
        into.len() - before
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.ring.event.as_ref().map(AsFd::as_fd)
    }

    fn arm(&mut self) -> Armed {
        if self.ring.event.is_none() {
            return Armed::Poll;
        }
        self.ring.arm()
    }
}
