//! Files and block devices through io_uring.
#![expect(unsafe_code, reason = "vouches for the memory that entries name")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use io_uring::types::{Fixed, FsyncFlags};
use io_uring::{cqueue, opcode, squeue};

use super::probe_buffer;
use super::target::{DISCARD, Target};
use crate::Region;
use crate::device::{
    Armed, Command, Completion, Identity, Queue, Rejected, Rejection, Request, Transfer,
};
use crate::ring::{self, Kind, Ring, Setup};
use crate::slots::InFlight;

/// The file's place among the registered ones.
const FILE: Fixed = Fixed(0);

/// Reads, writes, flushes and discards of a file.
pub(super) struct Files;

impl Kind for Files {
    type Entry = squeue::Entry;
    type Done = cqueue::Entry;

    fn with_user_data(entry: squeue::Entry, id: u64) -> squeue::Entry {
        entry.user_data(id)
    }

    fn said(done: &cqueue::Entry) -> (u64, i32) {
        (done.user_data(), done.result())
    }

    fn judged(request: &InFlight, result: i32) -> io::Result<()> {
        match usize::try_from(result) {
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
            // The end of a file that became shorter, or a disk that is full.
            Ok(count) if request.buffer.is_some() && count != request.len => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Ok(_) => Ok(()),
        }
    }
}

/// Finds out how io_uring works on a target, in words too: reads the first sector. Polled, it is also written again as
/// it is: a file refuses polling only where a request reaches the device, which one for a hole or for what was never
/// written does not.
///
/// # Errors
/// Where it does not.
pub(super) fn probe(
    target: &Target,
    regions: &[Arc<Region>],
    is_polled: bool,
) -> io::Result<(Setup, String)> {
    ring::probe(target.file.as_fd(), regions, is_polled, |ring| {
        let len = target.sector_len;
        let mut buffer = probe_buffer();
        target.file.read_exact_at(&mut buffer[..len], 0)?;
        if is_polled {
            let command = Command::Write(Transfer {
                sector: 0,
                len,
                buffer,
            });
            push(ring, Request { token: 0, command }, len);
            ring.wait()?;
        }
        let command = Command::Read(Transfer {
            sector: 0,
            len,
            buffer: probe_buffer(),
        });
        push(ring, Request { token: 0, command }, len);
        ring.wait().map(drop)
    })
}

/// A queue for one worker.
pub(super) fn open(
    setup: &Setup,
    identity: Identity,
    target: Arc<Target>,
    regions: &[Arc<Region>],
    depth: usize,
) -> io::Result<UringQueue> {
    let ring = Ring::open(*setup, target.file.as_fd(), regions, depth)?;
    // What cannot be polled goes another way: flushes and discards.
    let unpolled = if setup.is_polled {
        let setup = Setup {
            is_polled: false,
            has_registered: false,
            ..*setup
        };
        Some(Ring::open(setup, target.file.as_fd(), &[], depth)?)
    } else {
        None
    };
    Ok(UringQueue {
        identity,
        ring,
        unpolled,
        depth,
        target,
    })
}

/// Rings of one worker.
pub(super) struct UringQueue {
    identity: Identity,
    ring: Ring<Files>,
    unpolled: Option<Ring<Files>>,
    depth: usize,
    target: Arc<Target>,
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
            let is_transfer = matches!(request.command, Command::Read(_) | Command::Write(_));
            let ring = match &mut self.unpolled {
                Some(unpolled) if !is_transfer => unpolled,
                _ => &mut self.ring,
            };
            push(ring, request, self.identity.sector_len);
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
        for done in &mut into[before..] {
            done.result = done.result.map_err(|failure| self.target.judged(failure));
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

/// Puts a request that the device allows into the ring.
fn push(ring: &mut Ring<Files>, request: Request, sector_len: usize) {
    let sector_len = sector_len as u64;
    let Request { token, command } = request;
    let entry = match &command {
        Command::Read(transfer) => {
            let (base, len) = (transfer.buffer.base().as_ptr(), io_len(transfer));
            let from = transfer.sector * sector_len;
            match ring.registered_piece(&transfer.buffer, transfer.len) {
                Some(piece) => opcode::ReadFixed::new(FILE, base, len, piece)
                    .offset(from)
                    .build(),
                None => opcode::Read::new(FILE, base, len).offset(from).build(),
            }
        }
        Command::Write(transfer) => {
            let (base, len) = (transfer.buffer.base().as_ptr(), io_len(transfer));
            let from = transfer.sector * sector_len;
            match ring.registered_piece(&transfer.buffer, transfer.len) {
                Some(piece) => opcode::WriteFixed::new(FILE, base, len, piece)
                    .offset(from)
                    .build(),
                None => opcode::Write::new(FILE, base, len).offset(from).build(),
            }
        }
        Command::Flush => opcode::Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build(),
        Command::Discard { sector, sectors } => opcode::Fallocate::new(FILE, *sectors * sector_len)
            .offset(*sector * sector_len)
            .mode(DISCARD.bits().cast_signed())
            .build(),
    };
    let request = InFlight::of(token, command);
    // SAFETY: the entry names the buffer of the request, and a length that was compared with it.
    unsafe { ring.push(request, entry) };
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a transfer is at most 1 MiB long"
)]
fn io_len(transfer: &Transfer) -> u32 {
    transfer.len as u32
}
