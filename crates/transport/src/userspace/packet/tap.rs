//! A TAP device as a network card.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use coua_tcp::nic::{BURST_LEN, Features, Frame, LINK_HEADER_LEN, Mac, Nic, Offload};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::device::{Device, MTU_MIN};
use super::syscall;

const DEVICE: &str = "/dev/net/tun";
/// Bytes of an Ethernet header; anything shorter is not a frame.
const FRAME_LEN_MIN: usize = 14;

/// Why a TAP device cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The process lacks a right.
    #[error(
        "a TAP device needs the capability CAP_NET_ADMIN, or one made for this user with `ip tuntap add mode tap user … name {device}`"
    )]
    NoPermission {
        /// The name of the interface.
        device: String,
    },
    /// The kernel has no TAP devices.
    #[error("/dev/net/tun is missing: load the kernel module `tun`")]
    NoTun,
    /// Another process has opened it.
    #[error("another program has the TAP device `{device}` open")]
    Busy {
        /// The name of the interface.
        device: String,
    },
    /// The interface is not a TAP device, or has another number of queues.
    #[error(
        "the interface `{device}` is not a TAP device, or one queue was asked for and it was made with `multi_queue`, or several and it was made without"
    )]
    Different {
        /// The name of the interface.
        device: String,
    },
    /// The MTU of the interface is too small.
    #[error(
        "the MTU of the TAP device `{device}` is {mtu}, and at least 1280 are needed: `ip link set {device} mtu 1500`"
    )]
    MtuTooSmall {
        /// The name of the interface.
        device: String,
        /// Its MTU in bytes.
        mtu: u16,
    },
    /// Any other failure.
    #[error("the TAP device `{device}` could not be set up")]
    System {
        /// The name of the interface.
        device: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What has happened to a TAP queue's frames since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapCounters {
    /// Frames received.
    pub received: u64,
    /// Frames that were longer than the MTU at the time of opening allows, or too short to be a
    /// frame.
    pub received_unfit: u64,
    /// Frames that the kernel took.
    pub sent: u64,
    /// Frames that the kernel did not take: the interface is down, or its queue is full.
    pub refused: u64,
}

/// One queue of a TAP device. What the kernel sends to the interface is received here; what is sent
/// here, the kernel receives from the interface.
///
/// It costs one system call for each frame, and one more for each burst. Nothing is offloaded in
/// either direction: the kernel fills in all checksums.
///
/// The interface exists while a queue of it is open, or until it is deleted if it was made by `ip
/// tuntap add`. The caller has to switch it on and give the kernel's end an address. The interface
/// has a MAC address of its own; the stack has another one.
///
/// The descriptor is readable while frames are waiting.
pub struct Tap {
    queue: OwnedFd,
    features: Features,
    slot_len: usize,
    burst: Box<[u8]>,
    lens: [usize; BURST_LEN],
    burst_len: usize,
    slot: Box<[u8]>,
    slot_is_open: bool,
    counters: TapCounters,
}

impl Tap {
    /// Opens `queues` queues of the TAP device of that name, which is created if it does not exist.
    /// The kernel sends each flow to the queue on which it last received from that flow.
    ///
    /// # Errors
    /// [`TapError`]: the process may not make or open the device, or the kernel refuses it.
    ///
    /// # Panics
    /// If `queues` is 0.
    pub fn open(device: &str, mac: Mac, queues: usize) -> Result<Vec<Tap>, TapError> {
        assert!(queues > 0, "a queue at least");
        (0..queues)
            .map(|_| Tap::open_one(device, mac, queues > 1))
            .collect()
    }

    fn open_one(name: &str, mac: Mac, is_one_of_several: bool) -> Result<Tap, TapError> {
        let failed = |source| failed(name, source);
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let queue =
            rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        syscall::attach_tap(&queue, name, is_one_of_several).map_err(failed)?;
        // Any socket can ask about interfaces, and one of this family can always be made.
        let any = socket_with(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|errno| failed(errno.into()))?;
        let mtu = Device::find(&any, name).map_err(failed)?.mtu;
        if mtu < MTU_MIN {
            return Err(TapError::MtuTooSmall {
                device: name.to_owned(),
                mtu,
            });
        }
        let slot_len = LINK_HEADER_LEN + usize::from(mtu);
        Ok(Tap {
            queue,
            features: Features {
                mac,
                mtu,
                fills_checksums: false,
                segmentation_len_max: 0,
            },
            slot_len,
            // One byte more than fits shows that a frame is too long.
            burst: vec![0; BURST_LEN * (slot_len + 1)].into_boxed_slice(),
            lens: [0; BURST_LEN],
            burst_len: 0,
            slot: vec![0; slot_len].into_boxed_slice(),
            slot_is_open: false,
            counters: TapCounters::default(),
        })
    }

    /// What has happened so far.
    pub fn counters(&self) -> TapCounters {
        self.counters
    }
}

impl Nic for Tap {
    fn features(&self) -> Features {
        self.features
    }

    fn receive(&mut self) -> usize {
        self.burst_len = 0;
        for _ in 0..BURST_LEN {
            let space = &mut self.burst[self.burst_len * (self.slot_len + 1)..][..=self.slot_len];
            match rustix::io::read(&self.queue, space) {
                Ok(len) if (FRAME_LEN_MIN..=self.slot_len).contains(&len) => {
                    self.lens[self.burst_len] = len;
                    self.burst_len += 1;
                }
                Ok(_) => self.counters.received_unfit += 1,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.counters.received += self.burst_len as u64;
        self.burst_len
    }

    fn frame(&self, at: usize) -> Frame<'_> {
        let len = self.lens[..self.burst_len][at];
        Frame {
            bytes: &self.burst[at * (self.slot_len + 1)..][..len],
            is_verified: false,
        }
    }

    fn release(&mut self) {
        self.burst_len = 0;
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        self.slot_is_open = true;
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize, offload: Offload) {
        assert!(self.slot_is_open, "a slot is open");
        debug_assert_eq!(offload, Offload::None, "nothing was promised");
        self.slot_is_open = false;
        let frame = &self.slot[..len];
        let result = loop {
            match rustix::io::write(&self.queue, frame) {
                Err(Errno::INTR) => {}
                result => break result,
            }
        };
        match result {
            Ok(_) => self.counters.sent += 1,
            Err(_) => self.counters.refused += 1,
        }
    }

    fn flush(&mut self) {}
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

fn failed(device: &str, source: io::Error) -> TapError {
    let device = device.to_owned();
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => TapError::NoPermission { device },
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => TapError::NoTun,
        Some(libc::EBUSY) => TapError::Busy { device },
        Some(libc::EINVAL) => TapError::Different { device },
        _ => TapError::System { device, source },
    }
}
