//! The two rings of a packet socket: slots of memory that the kernel and this process hand back and
//! forth (`TPACKET_V2`).
//!
//! ```text
//! ┌ slot ───────────────────────────────────────────────────────────────────────────────────┐
//! │ 0       4        8              12     14    16 … 32                                     │
//! │ status  len      captured len   start  …     …     room                                  │
//! │                                                    received: address, padding, frame     │
//! │                                                    sent: frame                           │
//! └─────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! # Invariants
//! The status says which side owns a slot. The other side accesses nothing but the status.
//! - Receiving: the kernel fills the slot and then writes `USER`. This side reads it and then
//!   writes `KERNEL`. The `taken` slots from `next` on were seen to be `USER` and have not been
//!   given back.
//! - Sending: this side fills a slot that is `AVAILABLE` and then writes `SEND_REQUEST`. The kernel
//!   writes `AVAILABLE` when it no longer needs the bytes.
//!
//! # Concurrency
//! A status is read with Acquire and written with Release. If these were Relaxed, this side could
//! read bytes of a frame that the kernel has not written yet; and the kernel could overwrite bytes
//! that are still being read, or send bytes that are not there yet.
#![expect(
    unsafe_code,
    reason = "maps rings that the kernel shares and hands out slots of them"
)]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{
    TP_STATUS_AVAILABLE, TP_STATUS_CSUMNOTREADY, TP_STATUS_KERNEL, TP_STATUS_SEND_REQUEST,
    TP_STATUS_USER, TP_STATUS_VLAN_TPID_VALID, TP_STATUS_VLAN_VALID, sockaddr_ll, tpacket2_hdr,
};

use super::syscall;

/// Where the room of a slot begins: a frame to be sent starts here; a received one has an address
/// before it.
const ROOM: usize = libc::TPACKET2_HDRLEN - size_of::<sockaddr_ll>();
/// Bytes that the kernel is asked to leave free before a frame (`PACKET_RESERVE`): a VLAN tag.
const RESERVE: i32 = 4;
/// What the slot of a received frame holds besides the IP packet: addresses, padding, the reserve,
/// two VLAN tags.
const BESIDE_PACKET: usize = 128;
/// Slots for receiving.
pub(super) const RECEIVED_SLOTS: usize = 1024;
const SENT_SLOTS: usize = 512;
/// Bytes that the kernel allocates at once, unless a slot is longer.
const BLOCK_LEN: usize = 64 << 10;

const _: () = assert!(ROOM == 32);

/// What the kernel reports about a frame in a slot. Offsets count from where the slot's room
/// begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Where the frame begins.
    pub(super) start: usize,
    /// Bytes of the frame that are in the slot.
    pub(super) captured_len: usize,
    /// Bytes of the whole frame.
    pub(super) len: usize,
    /// The VLAN tag that the kernel has removed from the frame: type and value.
    pub(super) tag: Option<(u16, u16)>,
    /// Its checksums are not filled in, because it was made on this machine.
    pub(super) is_unfinished: bool,
    /// It was sent by this machine.
    pub(super) is_outgoing: bool,
}

/// Makes both rings of a fresh packet socket, for IP packets of at most `mtu` bytes.
pub(super) fn make(socket: impl AsFd, mtu: u16) -> io::Result<(ReceivedRing, SentRing)> {
    let socket = socket.as_fd();
    let slot_len = (usize::from(mtu) + BESIDE_PACKET).next_power_of_two();
    let version = libc::tpacket_versions::TPACKET_V2 as i32;
    syscall::set_option(socket, libc::PACKET_VERSION, &version)?;
    syscall::set_option(socket, libc::PACKET_RESERVE, &RESERVE)?;
    // The kernel drops a malformed frame instead of stopping the ring.
    syscall::set_option(socket, libc::PACKET_LOSS, &1)?;
    let received = request(slot_len, RECEIVED_SLOTS);
    syscall::set_option(socket, libc::PACKET_RX_RING, &received)?;
    let sent = request(slot_len, SENT_SLOTS);
    syscall::set_option(socket, libc::PACKET_TX_RING, &sent)?;
    let mapping = Mapping::new(socket, slot_len * (RECEIVED_SLOTS + SENT_SLOTS))?;
    let mapping = Arc::new(mapping);
    let slots = |first: usize, count: usize| Slots {
        mapping: Arc::clone(&mapping),
        first: first * slot_len,
        slot_len,
        count,
    };
    Ok((
        ReceivedRing {
            slots: slots(0, RECEIVED_SLOTS),
            next: 0,
            taken: 0,
        },
        SentRing {
            slots: slots(RECEIVED_SLOTS, SENT_SLOTS),
            next: 0,
        },
    ))
}

/// The most bytes of the socket's send buffer that frames on their way out can take.
pub(super) fn sent_bytes_max(mtu: u16) -> usize {
    2 * SENT_SLOTS * (usize::from(mtu) + BESIDE_PACKET).next_power_of_two()
}

/// The slots that the kernel fills.
pub(super) struct ReceivedRing {
    slots: Slots,
    next: usize,
    taken: usize,
}

impl ReceivedRing {
    /// Takes the next slot that the kernel has filled, if there is one.
    pub(super) fn take(&mut self) -> Option<Arrival> {
        let at = self.next + self.taken;
        if self.taken == self.slots.count
            || self.slots.status(at).load(Ordering::Acquire) & TP_STATUS_USER == 0
        {
            return None;
        }
        self.taken += 1;
        Some(self.slots.arrival(at))
    }

    /// The room of a taken slot; `at` counts from the first one that has not been given back.
    pub(super) fn room(&self, at: usize) -> &[u8] {
        assert!(at < self.taken, "a slot that is taken");
        // SAFETY: a taken slot belongs to this side.
        unsafe { self.slots.room(self.next + at) }
    }

    /// Like `room`, to change it.
    pub(super) fn room_mut(&mut self, at: usize) -> &mut [u8] {
        assert!(at < self.taken, "a slot that is taken");
        // SAFETY: a taken slot belongs to this side, and the ring is borrowed for as long as the
        // room.
        unsafe { self.slots.room_mut(self.next + at) }
    }

    /// Gives all taken slots back.
    pub(super) fn give_back(&mut self) {
        for at in 0..self.taken {
            let status = self.slots.status(self.next + at);
            status.store(TP_STATUS_KERNEL, Ordering::Release);
        }
        self.next = (self.next + self.taken) % self.slots.count;
        self.taken = 0;
    }
}

/// The slots that the kernel sends from.
pub(super) struct SentRing {
    slots: Slots,
    next: usize,
}

impl SentRing {
    /// The room of the next slot, unless the kernel still needs it.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        let status = self.slots.status(self.next).load(Ordering::Acquire);
        // SAFETY: an available slot belongs to this side, and the ring is borrowed for as long as
        // the room.
        (status == TP_STATUS_AVAILABLE).then(|| unsafe { self.slots.room_mut(self.next) })
    }

    /// Passes the slot of the last `room` to the kernel, with a frame of `len` bytes.
    pub(super) fn pass_on(&mut self, len: usize) {
        let status = self.slots.status(self.next);
        let is_ours = status.load(Ordering::Relaxed) == TP_STATUS_AVAILABLE;
        assert!(is_ours && len <= self.slots.room_len(), "a slot to fill");
        self.slots.set_len(self.next, len);
        self.slots
            .status(self.next)
            .store(TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.next = (self.next + 1) % self.slots.count;
    }

    /// Whether the kernel has not started on the last slot that was passed on.
    pub(super) fn is_waiting(&self) -> bool {
        let last = self.next + self.slots.count - 1;
        self.slots.status(last).load(Ordering::Acquire) == TP_STATUS_SEND_REQUEST
    }
}

/// Slots of the mapping as a ring: an index may exceed their number.
struct Slots {
    mapping: Arc<Mapping>,
    first: usize,
    slot_len: usize,
    count: usize,
}

impl Slots {
    fn room_len(&self) -> usize {
        self.slot_len - ROOM
    }

    fn slot(&self, at: usize) -> NonNull<u8> {
        let offset = self.first + (at % self.count) * self.slot_len;
        assert!(offset + self.slot_len <= self.mapping.len);
        // SAFETY: the offset lies in the mapping.
        unsafe { self.mapping.start.add(offset) }
    }

    fn header(&self, at: usize) -> NonNull<tpacket2_hdr> {
        // A slot's length is a power of two, so a slot is aligned as the page is.
        self.slot(at).cast()
    }

    fn status(&self, at: usize) -> &AtomicU32 {
        // SAFETY: the status is the first word of a slot. It is aligned, is mapped for as long as
        // `self` lives, and both sides access it only by atomic operations.
        unsafe { self.slot(at).cast().as_ref() }
    }

    fn arrival(&self, at: usize) -> Arrival {
        // SAFETY: the slot belongs to this side, and the kernel has filled in its header.
        let header = unsafe { self.header(at).read() };
        let address = self
            .slot(at)
            .cast::<[u8; ROOM + size_of::<sockaddr_ll>()]>();
        // SAFETY: a slot is longer than this, and belongs to this side.
        let head = unsafe { address.read() };
        let kind = head[ROOM + std::mem::offset_of!(sockaddr_ll, sll_pkttype)];
        let has = |flag: u32| header.tp_status & flag != 0;
        let tag_type = if has(TP_STATUS_VLAN_TPID_VALID) {
            header.tp_vlan_tpid
        } else {
            syscall::short(libc::ETH_P_8021Q)
        };
        let captured_len = usize::try_from(header.tp_snaplen).unwrap_or(0);
        let start = usize::from(header.tp_mac).saturating_sub(ROOM);
        Arrival {
            start,
            captured_len: captured_len.min(self.room_len().saturating_sub(start)),
            len: usize::try_from(header.tp_len).unwrap_or(usize::MAX),
            tag: has(TP_STATUS_VLAN_VALID).then_some((tag_type, header.tp_vlan_tci)),
            is_unfinished: has(TP_STATUS_CSUMNOTREADY),
            is_outgoing: kind == libc::PACKET_OUTGOING,
        }
    }

    fn set_len(&mut self, at: usize, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let offset = std::mem::offset_of!(tpacket2_hdr, tp_len);
        // SAFETY: the offset lies in the slot.
        let field = unsafe { self.slot(at).add(offset) };
        // SAFETY: the caller owns the slot, the mapping is writable, and the field is aligned.
        unsafe { field.cast().write(len) };
    }

    /// # Safety
    /// The slot belongs to this side until the room is no longer used.
    unsafe fn room(&self, at: usize) -> &[u8] {
        // SAFETY: the offset lies in the slot.
        let start = unsafe { self.slot(at).add(ROOM) };
        // SAFETY: the room lies in the mapping, which was zeroed at first. Only the owner of the
        // slot accesses it.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.room_len()) }
    }

    /// # Safety
    /// As of `room`.
    unsafe fn room_mut(&mut self, at: usize) -> &mut [u8] {
        // SAFETY: the offset lies in the slot.
        let start = unsafe { self.slot(at).add(ROOM) };
        // SAFETY: as in `room`; this `Slots` has handed out no other room.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.room_len()) }
    }
}

/// The memory of both rings, the receive ring first.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: memory does not belong to a thread.
unsafe impl Send for Mapping {}
// SAFETY: shared parts of it are accessed through `Slots`, which have no slot in common.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(socket: impl AsFd, len: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Mapping::of(socket.as_fd().as_raw_fd(), flags, len)
    }

    fn of(fd: RawFd, flags: c_int, len: usize) -> io::Result<Mapping> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a mapping where the kernel finds room affects nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and the last reference to it is being dropped.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

fn request(slot_len: usize, slots: usize) -> libc::tpacket_req {
    let block_len = slot_len.max(BLOCK_LEN);
    let size = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    libc::tpacket_req {
        tp_block_size: size(block_len),
        tp_block_nr: size(slots * slot_len / block_len),
        tp_frame_size: size(slot_len),
        tp_frame_nr: size(slots),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const SLOT_LEN: usize = 256;
    const SLOTS: usize = 4;

    /// Some slots, as both sides have them: each is the other's kernel.
    fn both_sides() -> (Slots, Slots) {
        let len = SLOT_LEN * SLOTS;
        let mapping =
            Arc::new(Mapping::of(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, len).unwrap());
        let side = || Slots {
            mapping: Arc::clone(&mapping),
            first: 0,
            slot_len: SLOT_LEN,
            count: SLOTS,
        };
        (side(), side())
    }

    #[test]
    fn what_is_passed_on_arrives_whole_and_in_order() {
        let count = if cfg!(miri) { 100 } else { 10_000 };
        let (slots, theirs) = both_sides();
        let mut ring = SentRing { slots, next: 0 };
        // What the kernel does with frames that are sent.
        let kernel = thread::spawn(move || {
            for at in 0..count {
                let status = theirs.status(at);
                while status.load(Ordering::Acquire) != TP_STATUS_SEND_REQUEST {
                    thread::yield_now();
                }
                // SAFETY: a slot that is passed on is this side's.
                let room = unsafe { theirs.room(at) };
                let arrival = theirs.arrival(at);
                assert_eq!(room[..8], at.to_ne_bytes());
                assert_eq!(arrival.len, 8 + at % 100);
                status.store(TP_STATUS_AVAILABLE, Ordering::Release);
            }
        });
        for number in 0..count {
            while !kernel.is_finished() && ring.room().is_none() {
                thread::yield_now();
            }
            let room = ring.room().expect("the other side takes slots");
            room[..8].copy_from_slice(&number.to_ne_bytes());
            ring.pass_on(8 + number % 100);
        }
        kernel.join().unwrap();
        assert!(!ring.is_waiting());
    }

    #[test]
    fn what_the_kernel_fills_is_taken_whole_and_in_order() {
        let count = if cfg!(miri) { 100 } else { 10_000 };
        let (slots, mut theirs) = both_sides();
        let mut ring = ReceivedRing {
            slots,
            next: 0,
            taken: 0,
        };
        let kernel = thread::spawn(move || {
            for at in 0..count {
                while theirs.status(at).load(Ordering::Acquire) != TP_STATUS_KERNEL {
                    thread::yield_now();
                }
                // SAFETY: a slot that is given back is this side's.
                let room = unsafe { theirs.room_mut(at) };
                room[..8].copy_from_slice(&at.to_ne_bytes());
                theirs.set_len(at, 8 + at % 100);
                theirs.status(at).store(TP_STATUS_USER, Ordering::Release);
            }
        });
        let mut next = 0;
        while next < count {
            let first = next;
            while let Some(arrival) = ring.take() {
                assert_eq!(arrival.len, 8 + next % 100);
                next += 1;
            }
            for number in first..next {
                assert_eq!(ring.room(number - first)[..8], number.to_ne_bytes());
                ring.room_mut(number - first).fill(0);
            }
            ring.give_back();
            if first == next {
                thread::yield_now();
            }
        }
        kernel.join().unwrap();
    }
}
