//! The system call `bpf`: a map of sockets, the program, and the link that attaches it to a card.
//!
//! The kernel frees each of them when its last descriptor is closed. When a link is freed, its
//! program is detached from the card. So a server leaves nothing behind, however it ends.
#![expect(unsafe_code, reason = "the system call bpf takes addresses as numbers")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::filter::Instruction;

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const PROGRAM_LOAD: libc::c_long = 5;
#[cfg(test)]
const PROGRAM_TEST_RUN: libc::c_long = 10;
const LINK_CREATE: libc::c_long = 28;

const MAP_OF_XDP_SOCKETS: u32 = 17;
const PROGRAM_OF_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The card's driver runs the program. Without this flag the kernel may run it itself, which is
/// slow.
const BY_THE_DRIVER: u32 = 1 << 2;

/// The most bytes of the verifier's log that are kept.
const LOG_LEN: usize = 64 << 10;

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_len: u32,
    value_len: u32,
    entries_max: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instructions_len: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

/// Makes the system call.
///
/// # Safety
/// `attributes` starts like the kernel's `union bpf_attr` for `command`. Each address in it is that
/// of memory that is valid for what the command does with it.
unsafe fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    let attributes: *mut T = attributes;
    // SAFETY: the kernel reads and writes no more than the given size; the caller vouches for the
    // rest.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As [`bpf`], for commands that make a descriptor.
///
/// # Safety
/// As of [`bpf`]; and `command` returns a new descriptor.
unsafe fn bpf_descriptor<T>(command: libc::c_long, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for it.
    let descriptor = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just made it, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn address_of<T>(of: *const T) -> u64 {
    of.expose_provenance() as u64
}

fn number_of(descriptor: BorrowedFd<'_>) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

const NAME: [u8; 16] = *b"coua\0\0\0\0\0\0\0\0\0\0\0\0";

/// The sockets of a card, by receive queue.
pub(super) struct SocketMap {
    fd: OwnedFd,
}

impl SocketMap {
    /// An empty map for queues 0 to `queues - 1`.
    pub(super) fn new(queues: u32) -> io::Result<SocketMap> {
        let mut attributes = MapCreate {
            kind: MAP_OF_XDP_SOCKETS,
            key_len: 4,
            value_len: 4,
            entries_max: queues,
            name: NAME,
            ..MapCreate::default()
        };
        // SAFETY: the layout is that of this command, which has no addresses and makes a
        // descriptor.
        let fd = unsafe { bpf_descriptor(MAP_CREATE, &mut attributes) }?;
        Ok(SocketMap { fd })
    }

    /// Sends a queue's frames to a socket. The kernel removes a closed socket from the map.
    pub(super) fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = number_of(socket);
        let mut attributes = MapUpdate {
            map: number_of(self.fd.as_fd()),
            padding: 0,
            key: address_of(&raw const queue),
            value: address_of(&raw const value),
            flags: 0,
        };
        // SAFETY: key and value have four bytes each, as the map was made for; both are only read.
        unsafe { bpf(MAP_UPDATE, &mut attributes) }?;
        Ok(())
    }

    /// The map's descriptor, for the program that redirects into it.
    pub(super) fn descriptor(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// A program that the kernel has verified and loaded.
pub(super) struct Program {
    fd: OwnedFd,
}

/// Why the kernel refuses a program.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Its error.
    pub(super) source: io::Error,
    /// What the verifier objects to; empty if it did not get that far.
    pub(super) complaint: String,
}

impl Program {
    /// Has the kernel verify and compile the program.
    pub(super) fn load(instructions: &[Instruction]) -> Result<Program, Refusal> {
        /// While a signal is pending, the verifier gives up; it accepts the program at a later try.
        const TRIES: usize = 5;
        let again = Some(Errno::AGAIN.raw_os_error());
        let loaded = (1..TRIES)
            .map(|_| Program::load_with(instructions, &mut []))
            .find(|loaded| !matches!(loaded, Err(error) if error.raw_os_error() == again));
        match loaded.unwrap_or_else(|| Program::load_with(instructions, &mut [])) {
            Ok(program) => Ok(program),
            Err(source) => {
                let refused = [Errno::ACCESS, Errno::INVAL].map(|errno| errno.raw_os_error());
                let mut log = Vec::new();
                if source
                    .raw_os_error()
                    .is_some_and(|code| refused.contains(&code))
                {
                    log.resize(LOG_LEN, 0);
                    let _ = Program::load_with(instructions, &mut log);
                }
                let complaint = complaint(&log);
                Err(Refusal { source, complaint })
            }
        }
    }

    fn load_with(instructions: &[Instruction], log: &mut [u8]) -> io::Result<Program> {
        let len = |len: usize| u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput);
        let license = c"MIT OR Apache-2.0";
        let mut attributes = ProgramLoad {
            kind: PROGRAM_OF_XDP,
            instructions_len: len(instructions.len())?,
            instructions: address_of(instructions.as_ptr()),
            license: address_of(license.as_ptr()),
            name: NAME,
            ..ProgramLoad::default()
        };
        if !log.is_empty() {
            attributes.log_level = 1;
            attributes.log_len = len(log.len())?;
            attributes.log = log.as_mut_ptr().expose_provenance() as u64;
        }
        // SAFETY: the layout is that of this command, which makes a descriptor. Instructions and
        // licence are only read, the log is writable, and each is as long as stated.
        let fd = unsafe { bpf_descriptor(PROGRAM_LOAD, &mut attributes) }?;
        Ok(Program { fd })
    }

    /// What the program returns for a frame that begins with the Ethernet header.
    #[cfg(test)]
    pub(super) fn answer(&self, frame: &[u8]) -> io::Result<u32> {
        #[repr(C)]
        struct TestRun {
            program: u32,
            answer: u32,
            input_len: u32,
            output_len: u32,
            input: u64,
            output: u64,
            repeat: u32,
            duration_ns: u32,
        }
        let mut attributes = TestRun {
            program: number_of(self.fd.as_fd()),
            answer: 0,
            input_len: u32::try_from(frame.len()).expect("a frame is short"),
            output_len: 0,
            input: address_of(frame.as_ptr()),
            output: 0,
            repeat: 1,
            duration_ns: 0,
        };
        // SAFETY: the layout is that of this command; the input is only read and is as long as
        // stated.
        unsafe { bpf(PROGRAM_TEST_RUN, &mut attributes) }?;
        Ok(attributes.answer)
    }
}

/// A program that is attached to a card until this is dropped.
pub(super) struct AttachedProgram {
    _fd: OwnedFd,
}

impl AttachedProgram {
    /// Has the interface's driver run the program on each frame that arrives.
    pub(super) fn new(program: &Program, interface: u32) -> io::Result<AttachedProgram> {
        let mut attributes = LinkCreate {
            program: number_of(program.fd.as_fd()),
            interface,
            kind: ATTACH_XDP,
            flags: BY_THE_DRIVER,
        };
        // SAFETY: the layout is that of this command, which has no addresses and makes a
        // descriptor.
        let fd = unsafe { bpf_descriptor(LINK_CREATE, &mut attributes) }?;
        Ok(AttachedProgram { _fd: fd })
    }
}

/// The verifier's last line before its statistics: what it objects to.
fn complaint(log: &[u8]) -> String {
    let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines().filter(|line| !line.starts_with("processed "));
    lines.next_back().unwrap_or_default().to_owned()
}
