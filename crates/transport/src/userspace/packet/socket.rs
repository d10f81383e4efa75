//! A packet socket as a network card.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use coua_tcp::nic::{BURST_LEN, Features, Frame, LINK_HEADER_LEN, Mac, Nic, Offload};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with, sockopt};

use super::device::{Device, MTU_MIN};
use super::ring::{self, Arrival, ReceivedRing, SentRing};
use super::syscall;

/// The two MAC addresses at the beginning of a frame.
const MACS_LEN: usize = 12;
/// A VLAN tag, which follows them.
const TAG_LEN: usize = 4;

/// Why a packet socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The process lacks a right.
    #[error(
        "a packet socket needs the capability CAP_NET_RAW: run as root, or grant it to the program with `setcap cap_net_raw+ep`"
    )]
    NoPermission,
    /// There is no such interface.
    #[error("there is no network interface `{device}` in this network namespace")]
    NoDevice {
        /// The name that was asked for.
        device: String,
    },
    /// The interface is switched off.
    #[error(
        "the network interface `{device}` is down: switch it on with `ip link set {device} up`"
    )]
    DeviceDown {
        /// Its name.
        device: String,
    },
    /// Frames of the interface do not begin with an Ethernet header.
    #[error("the network interface `{device}` does not carry Ethernet frames")]
    NotEthernet {
        /// Its name.
        device: String,
    },
    /// The MTU of the interface is too small.
    #[error(
        "the MTU of the network interface `{device}` is {mtu}, and at least 1280 are needed: `ip link set {device} mtu 1500`"
    )]
    MtuTooSmall {
        /// Its name.
        device: String,
        /// Its MTU in bytes.
        mtu: u16,
    },
    /// The kernel has no memory for the rings.
    #[error("the kernel has no memory for the rings of a packet socket on `{device}`")]
    NoMemory {
        /// The interface's name.
        device: String,
    },
    /// Any other failure.
    #[error("a packet socket on `{device}` could not be set up")]
    System {
        /// The interface's name.
        device: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What has happened to a socket's frames since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounters {
    /// Frames received.
    pub received: u64,
    /// Frames that arrived while the ring was full.
    pub received_without_room: u64,
    /// Frames that were longer than the MTU allows, or too short to be a frame.
    pub received_unfit: u64,
    /// Frames handed to the kernel.
    pub sent: u64,
}

/// One queue of a network interface, through a packet socket with rings in shared memory.
///
/// Receiving needs no system call; a [`Nic::flush`] needs one. Nothing is offloaded. Only a frame
/// that was made on this machine, and whose checksums are not filled in, is [`Frame::is_verified`].
/// What the kernel says about the checksums of other frames is ignored: it does not include the
/// IPv4 header, and old kernels also say it of checksums that nobody has compared.
///
/// VLAN tags that the kernel has removed are put back. A frame of full length can be sent with one
/// additional tag of type 802.1Q. Other tags count as part of the packet, and the kernel drops
/// frames that are too long.
///
/// The descriptor is readable while frames are waiting. It becomes readable again only after all
/// frames have been released. A socket survives that its interface is switched off and on. If that
/// has happened, or the interface is gone, [`PacketSocket::take_error`] says so.
pub struct PacketSocket {
    socket: OwnedFd,
    received: ReceivedRing,
    sent: SentRing,
    features: Features,
    burst: [FrameRange; BURST_LEN],
    burst_len: usize,
    slot_is_open: bool,
    has_unsent: bool,
    counters: PacketCounters,
}

/// Where a frame of the burst is.
#[derive(Clone, Copy, Default)]
struct FrameRange {
    slot: u16,
    start: u16,
    end: u32,
    is_verified: bool,
}

impl PacketSocket {
    /// Opens `queues` sockets on the interface. The kernel spreads frames over them by a hash of
    /// addresses and ports that is the same for both directions, so each flow goes to one socket.
    /// Frames without a flow, such as ARP, go to any socket.
    ///
    /// The stack's MAC address is `mac`, or else that of the interface. The interface is told to
    /// accept frames to `mac` as well, and all group addresses, for neighbour discovery.
    ///
    /// # Errors
    /// [`PacketError`]: the interface does not exist, the process lacks a right, or the kernel
    /// refuses the rings.
    ///
    /// # Panics
    /// If `queues` is 0.
    pub fn open(
        device: &str,
        mac: Option<Mac>,
        queues: usize,
    ) -> Result<Vec<PacketSocket>, PacketError> {
        assert!(queues > 0, "a queue at least");
        let mut sockets = Vec::with_capacity(queues);
        let mut group = None;
        for _ in 0..queues {
            let socket = PacketSocket::open_one(device, mac)?;
            if queues > 1 {
                let joined = join(&socket.socket, group);
                group = Some(joined.map_err(|source| failed(device, source))?);
            }
            sockets.push(socket);
        }
        if queues > 1 {
            // Frames that came before all sockets had joined may belong to flows of other sockets.
            sockets.iter_mut().for_each(PacketSocket::drain);
        }
        Ok(sockets)
    }

    fn drain(&mut self) {
        for _ in 0..ring::RECEIVED_SLOTS / BURST_LEN {
            self.receive();
        }
        self.release();
        self.counters = PacketCounters::default();
    }

    fn open_one(name: &str, mac: Option<Mac>) -> Result<PacketSocket, PacketError> {
        let failed = |source| failed(name, source);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // Without a protocol it receives nothing until it is bound.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .map_err(|errno| failed(errno.into()))?;
        let device = Device::find(&socket, name).map_err(failed)?;
        check(name, device)?;
        // Without it, each frame that is sent costs a copy.
        let _ = syscall::set_option(&socket, libc::PACKET_IGNORE_OUTGOING, &1);
        let (received, sent) = ring::make(&socket, device.mtu).map_err(failed)?;
        let room = ring::sent_bytes_max(device.mtu);
        if sockopt::set_socket_send_buffer_size_force(&socket, room).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(&socket, room);
        }
        listen(&socket, device, mac).map_err(failed)?;
        syscall::bind(&socket, device.index).map_err(failed)?;
        Ok(PacketSocket {
            socket,
            received,
            sent,
            features: Features {
                mac: mac.unwrap_or(device.mac),
                mtu: device.mtu,
                fills_checksums: false,
                segmentation_len_max: 0,
            },
            burst: [FrameRange::default(); BURST_LEN],
            burst_len: 0,
            slot_is_open: false,
            has_unsent: false,
            counters: PacketCounters::default(),
        })
    }

    /// What has happened so far. It asks the kernel.
    pub fn counters(&mut self) -> PacketCounters {
        // The kernel resets its counters with each answer.
        if let Ok(news) =
            syscall::option::<libc::tpacket_stats>(&self.socket, libc::PACKET_STATISTICS)
        {
            self.counters.received_without_room += u64::from(news.tp_drops);
        }
        self.counters
    }

    /// The error of the interface since the last call, if there was one: `ENETDOWN` if the
    /// interface was switched off or is gone. Until this is called, polling reports an error.
    pub fn take_error(&self) -> Option<io::Error> {
        match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => None,
            Ok(Err(errno)) | Err(errno) => Some(errno.into()),
        }
    }

    /// Notes where the frame of the last taken slot is, unless it is malformed.
    fn place(&mut self, slot: usize, arrival: Arrival) {
        let link_len = MACS_LEN + 2;
        let is_whole = arrival.captured_len == arrival.len && arrival.len >= link_len;
        if arrival.is_outgoing {
            return;
        }
        if !is_whole || arrival.start < TAG_LEN {
            self.counters.received_unfit += 1;
            return;
        }
        let (mut start, end) = (arrival.start, arrival.start + arrival.len);
        if let Some((kind, value)) = arrival.tag {
            let room = self.received.room_mut(slot);
            room.copy_within(start..start + MACS_LEN, start - TAG_LEN);
            room[start + MACS_LEN - TAG_LEN..][..2].copy_from_slice(&kind.to_be_bytes());
            room[start + MACS_LEN - 2..][..2].copy_from_slice(&value.to_be_bytes());
            start -= TAG_LEN;
        }
        let (Ok(slot), Ok(start), Ok(end)) = (slot.try_into(), start.try_into(), end.try_into())
        else {
            return;
        };
        self.burst[self.burst_len] = FrameRange {
            slot,
            start,
            end,
            is_verified: arrival.is_unfinished,
        };
        self.burst_len += 1;
    }

    /// Lets the kernel send what was committed. Frames that it has no room for stay in the ring.
    fn push(&mut self) {
        while send(&self.socket, &[], SendFlags::DONTWAIT) == Err(Errno::INTR) {}
        self.has_unsent = self.sent.is_waiting();
    }
}

impl Nic for PacketSocket {
    fn features(&self) -> Features {
        self.features
    }

    fn receive(&mut self) -> usize {
        self.release();
        if self.has_unsent {
            self.push();
        }
        for slot in 0..BURST_LEN {
            let Some(arrival) = self.received.take() else {
                break;
            };
            self.place(slot, arrival);
        }
        if self.burst_len == 0 {
            self.received.give_back();
        }
        self.counters.received += self.burst_len as u64;
        self.burst_len
    }

    fn frame(&self, at: usize) -> Frame<'_> {
        let place = self.burst[..self.burst_len][at];
        let room = self.received.room(usize::from(place.slot));
        Frame {
            bytes: &room[usize::from(place.start)..place.end as usize],
            is_verified: place.is_verified,
        }
    }

    fn release(&mut self) {
        self.received.give_back();
        self.burst_len = 0;
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        let len = LINK_HEADER_LEN + usize::from(self.features.mtu);
        let room = self.sent.room()?;
        self.slot_is_open = true;
        Some(&mut room[..len])
    }

    fn commit(&mut self, len: usize, offload: Offload) {
        assert!(self.slot_is_open, "a slot is open");
        assert!(len <= LINK_HEADER_LEN + usize::from(self.features.mtu));
        debug_assert_eq!(offload, Offload::None, "nothing was promised");
        self.sent.pass_on(len);
        self.slot_is_open = false;
        self.has_unsent = true;
        self.counters.sent += 1;
    }

    fn flush(&mut self) {
        if self.has_unsent {
            self.push();
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn check(name: &str, device: Device) -> Result<(), PacketError> {
    let name = name.to_owned();
    if !device.is_ethernet {
        Err(PacketError::NotEthernet { device: name })
    } else if !device.is_up {
        Err(PacketError::DeviceDown { device: name })
    } else if device.mtu < MTU_MIN {
        Err(PacketError::MtuTooSmall {
            device: name,
            mtu: device.mtu,
        })
    } else {
        Ok(())
    }
}

/// Makes the interface accept frames to groups, and to a MAC address that is not its own.
fn listen(socket: impl AsFd, device: Device, mac: Option<Mac>) -> io::Result<()> {
    let membership = |kind: i32, address: Mac| {
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&address.0);
        let request = libc::packet_mreq {
            mr_ifindex: device.index,
            mr_type: syscall::short(kind),
            mr_alen: 6,
            mr_address: bytes,
        };
        syscall::set_option(&socket, libc::PACKET_ADD_MEMBERSHIP, &request)
    };
    membership(libc::PACKET_MR_ALLMULTI, Mac::default())?;
    match mac {
        Some(mac) if mac != device.mac => membership(libc::PACKET_MR_UNICAST, mac),
        _ => Ok(()),
    }
}

/// Joins the group of sockets with that number, or makes a new group. Returns its number.
fn join(socket: impl AsFd, group: Option<u16>) -> io::Result<u16> {
    let kind = libc::PACKET_FANOUT_HASH;
    let new = if group.is_none() {
        libc::PACKET_FANOUT_FLAG_UNIQUEID
    } else {
        0
    };
    let with = |flags: u32| {
        let request = u32::from(group.unwrap_or(0)) | (kind | flags) << 16;
        syscall::set_option(&socket, libc::PACKET_FANOUT, &request.cast_signed())
    };
    // Older kernels do not know the flag.
    with(new | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING).or_else(|_| with(new))?;
    let joined: i32 = syscall::option(&socket, libc::PACKET_FANOUT)?;
    Ok((joined & 0xffff) as u16)
}

fn failed(device: &str, source: io::Error) -> PacketError {
    let device = device.to_owned();
    match source.raw_os_error() {
        Some(libc::EPERM) => PacketError::NoPermission,
        Some(libc::ENODEV | libc::ENXIO) => PacketError::NoDevice { device },
        Some(libc::ENOMEM) => PacketError::NoMemory { device },
        _ => PacketError::System { device, source },
    }
}
