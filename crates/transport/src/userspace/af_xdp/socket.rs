//! One AF_XDP socket: one receive queue of a card, with its own memory and rings.
#![expect(
    unsafe_code,
    reason = "takes over chunks that the kernel has received into"
)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::sleep;

use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with, sockopt,
};

use super::error::OpenError;
use super::interface::Interface;
use super::options::Options;
use super::ring::{Consumer, Descriptor, Producer};
use super::sockopt::{set_busy_poll, set_copies_per_call};
use super::transmit::Transmit;
use super::umem::{Chunk, Umem};
use super::{Counters, RETRIES, RETRY_EVERY};

/// A received frame.
pub(super) struct Arrived {
    /// The number of the socket that it came to, among those of its worker.
    pub(super) socket: usize,
    /// Where it is.
    chunk: Chunk,
    start: usize,
    len: usize,
}

/// One socket.
///
/// # Invariants
/// Each chunk for receiving is in the fill ring, in the card, in the receive ring, or in an
/// [`Arrived`]. The fill ring has two entries for each chunk, so that all chunks can return at any
/// time. The kernel moves its index late: in the worst case it has taken everything that was in the
/// ring when it last looked, and all of that has come back since.
pub(super) struct Socket {
    fd: OwnedFd,
    fill: Producer<u64>,
    receive: Consumer<Descriptor>,
    transmit: Option<Transmit>,
    umem: Umem,
    is_zero_copy: bool,
    is_busy_polling: bool,
    wakeups: u64,
}

impl Socket {
    /// Opens the socket of a queue and fills its fill ring, so that it can receive as soon as the
    /// filter redirects frames to it. Only with `transmits` can it send.
    pub(super) fn open(
        interface: &Interface,
        queue: u32,
        options: &Options,
        (umem, chunks): (Umem, impl Iterator<Item = Chunk>),
        transmits: bool,
    ) -> Result<Socket, OpenError> {
        let fd = create()?;
        register(&fd, &umem)?;
        let transmit_len = if transmits { options.transmit_len } else { 0 };
        let rings = rings(&fd, options.receive_len, transmit_len, chunks, &umem);
        let (mut fill, receive, transmit) = rings.map_err(|source| match source.kind() {
            io::ErrorKind::OutOfMemory => OpenError::Memory {
                needed: umem.len(),
                source,
            },
            _ => OpenError::NoSockets { source },
        })?;
        let is_busy_polling = options
            .busy_poll
            .is_some_and(|how| set_busy_poll(fd.as_fd(), how).is_ok());
        if transmits {
            // If the kernel is too old for this, `flush` makes a call for each 32 frames.
            let _ = set_copies_per_call(fd.as_fd(), transmit_len);
        }
        fill.publish();
        bind_to(&fd, interface, queue, options.copy)?;
        let is_zero_copy = sockopt::xdp_options(&fd)
            .is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY));
        Ok(Socket {
            fd,
            fill,
            receive,
            transmit,
            umem,
            is_zero_copy,
            is_busy_polling,
            wakeups: 0,
        })
    }

    /// Whether the card receives into the socket's memory and sends from it without a copy.
    pub(super) fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Whether the kernel accepted the options for busy polling.
    pub(super) fn is_busy_polling(&self) -> bool {
        self.is_busy_polling
    }

    /// Moves received frames to `arrived` until that is full or there are no more.
    #[inline]
    pub(super) fn receive(&mut self, number: usize, arrived: &mut Vec<Arrived>) {
        while arrived.len() < arrived.capacity() {
            let Some(descriptor) = self.receive.pop() else {
                break;
            };
            // SAFETY: the kernel has just given it back in the receive ring.
            let (chunk, start) = unsafe { self.umem.claim(descriptor.address) };
            arrived.push(Arrived {
                socket: number,
                chunk,
                start,
                len: descriptor.len as usize,
            });
        }
        self.receive.give_back();
    }

    /// The bytes of a frame that came to this socket.
    #[inline]
    pub(super) fn frame(&self, arrived: &Arrived) -> &[u8] {
        let range = arrived.start..arrived.start + arrived.len;
        self.umem.bytes(&arrived.chunk, range)
    }

    /// Returns a frame's chunk, to be received into. The kernel sees it after `refill`.
    #[inline]
    pub(super) fn recycle(&mut self, arrived: Arrived) {
        self.fill.push(self.umem.address(&arrived.chunk));
    }

    /// Shows the kernel the chunks that were returned.
    #[inline]
    pub(super) fn refill(&mut self) {
        self.fill.publish();
    }

    /// When nothing has arrived: calls the kernel if that is needed to run the driver, or to send
    /// what is waiting. Returns whether it made a call.
    pub(super) fn prod(&mut self) -> bool {
        let Socket {
            fd, transmit, umem, ..
        } = self;
        if let Some(transmit) = transmit
            && transmit.is_stuck()
        {
            transmit.flush(fd, umem, true);
        }
        let is_needed = self.is_busy_polling || self.fill.needs_wakeup();
        if is_needed {
            self.wakeups += 1;
            // It receives nothing; only the call matters.
            let _ = recv(&self.fd, &mut [0u8; 0][..], RecvFlags::DONTWAIT);
        }
        is_needed
    }

    /// See the contract of `Nic`.
    #[inline]
    pub(super) fn slot(&mut self) -> Option<&mut [u8]> {
        self.transmit.as_mut()?.slot(&mut self.umem)
    }

    /// See the contract of `Nic`.
    #[inline]
    pub(super) fn commit(&mut self, len: usize) {
        let transmit = self.transmit.as_mut().expect("this socket transmits");
        transmit.commit(len, &mut self.umem);
    }

    /// See the contract of `Nic`.
    #[inline]
    pub(super) fn flush(&mut self) {
        if let Some(transmit) = &mut self.transmit {
            transmit.flush(&self.fd, &self.umem, self.is_busy_polling);
        }
    }

    /// What the kernel has counted.
    pub(super) fn counters(&self) -> io::Result<Counters> {
        let kernel = sockopt::xdp_statistics(&self.fd)?;
        let transmit_wakeups = self.transmit.as_ref().map_or(0, Transmit::wakeups);
        Ok(Counters {
            dropped: kernel.rx_dropped,
            receive_ring_full: kernel.rx_ring_full.unwrap_or(0),
            fill_ring_empty: kernel.rx_fill_ring_empty_descs.unwrap_or(0),
            invalid_received: kernel.rx_invalid_descs,
            invalid_sent: kernel.tx_invalid_descs,
            wakeups: self.wakeups + transmit_wakeups,
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn create() -> Result<OwnedFd, OpenError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::XDP, SocketType::RAW, flags, None).map_err(|errno| match errno {
        Errno::PERM | Errno::ACCESS => OpenError::Permission {
            action: "open an AF_XDP socket",
        },
        errno => OpenError::NoSockets {
            source: errno.into(),
        },
    })
}

fn register(fd: &OwnedFd, umem: &Umem) -> Result<(), OpenError> {
    let needed = umem.len();
    sockopt::set_xdp_umem_reg(fd, umem.registration()).map_err(|errno| match errno {
        Errno::NOBUFS => OpenError::LockedMemory {
            needed,
            limit: rustix::process::getrlimit(rustix::process::Resource::Memlock)
                .current
                .unwrap_or(u64::MAX),
        },
        errno => OpenError::Memory {
            needed,
            source: errno.into(),
        },
    })
}

type Rings = (Producer<u64>, Consumer<Descriptor>, Option<Transmit>);

/// Makes and maps the rings, and writes the first `receive_len` chunks to the fill ring.
fn rings(
    fd: &OwnedFd,
    receive_len: u32,
    transmit_len: u32,
    mut chunks: impl Iterator<Item = Chunk>,
    umem: &Umem,
) -> io::Result<Rings> {
    sockopt::set_xdp_umem_fill_ring_size(fd, 2 * receive_len)?;
    // The kernel requires a completion ring even if nothing is sent.
    sockopt::set_xdp_umem_completion_ring_size(fd, transmit_len.max(2))?;
    sockopt::set_xdp_rx_ring_size(fd, receive_len)?;
    if transmit_len > 0 {
        sockopt::set_xdp_tx_ring_size(fd, 2 * transmit_len)?;
    }
    let offsets = sockopt::xdp_mmap_offsets(fd)?;
    let mut fill = Producer::map(
        fd.as_fd(),
        XDP_UMEM_PGOFF_FILL_RING,
        &offsets.fr,
        2 * receive_len,
    )?;
    let receive = Consumer::map(fd.as_fd(), XDP_PGOFF_RX_RING, &offsets.rx, receive_len)?;
    for chunk in chunks.by_ref().take(receive_len as usize) {
        fill.push(umem.address(&chunk));
    }
    let transmit = (transmit_len > 0)
        .then(|| Transmit::map(fd.as_fd(), &offsets, transmit_len, chunks.collect()))
        .transpose()?;
    Ok((fill, receive, transmit))
}

/// Binds the socket to a queue, with zero-copy if the driver supports it and `copy` is not set.
fn bind_to(fd: &OwnedFd, interface: &Interface, queue: u32, copy: bool) -> Result<(), OpenError> {
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    if copy {
        flags |= SocketAddrXdpFlags::XDP_COPY;
    }
    let address = SocketAddrXdp::new(flags, interface.index, queue);
    let mut result = bind(fd, &address);
    // The kernel frees the queue of a closed socket with a delay.
    for _ in 0..RETRIES {
        if result != Err(Errno::BUSY) {
            break;
        }
        sleep(RETRY_EVERY);
        result = bind(fd, &address);
    }
    let name = || interface.name.clone();
    result.map_err(|errno| match errno {
        Errno::BUSY => OpenError::QueueTaken {
            interface: name(),
            queue,
        },
        Errno::PERM | Errno::ACCESS => OpenError::Permission {
            action: "bind an AF_XDP socket",
        },
        Errno::NODEV => OpenError::NoSuchInterface { interface: name() },
        Errno::NETDOWN => OpenError::Down { interface: name() },
        errno => OpenError::Bind {
            interface: name(),
            queue,
            source: errno.into(),
        },
    })
}
