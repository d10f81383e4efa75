//! What coua calls of DPDK, as C functions with symbols.
//!
//! DPDK's fast path is inline functions and its control structures change from release to release,
//! so `shim.c` makes functions of the first and flat structures of the second, and asserts at
//! compile time that [`Mbuf`] is where DPDK has it. The crate is empty without the feature `dpdk`.
//!
//! Functions are `safe` where DPDK checks all that they are given: it knows its ports and queues by
//! number and refuses others. Negative results are `-errno`.
//!
//! # Not here
//! Safe types over it: `coua_transport::userspace::dpdk`.
#![cfg(feature = "dpdk")]
#![expect(unsafe_code, reason = "declares the functions of the C shim")]

use std::ffi::{c_char, c_int, c_void};

/// Bytes that stay free before the frame in an mbuf from a pool.
pub const HEADROOM: u16 = 128;

/// No port, from [`coua_port_next`].
pub const NO_PORT: u16 = u16::MAX;

/// What a card has found out about a frame ([`Mbuf::ol_flags`]).
///
/// Of each pair of flags for a checksum both together say that it is not in the frame, but that
/// the data are right; none says that nobody has looked.
pub mod received {
    /// The checksum of TCP or UDP is wrong.
    pub const L4_BAD: u64 = 1 << 3;
    /// The checksum of IPv4 is wrong.
    pub const IP_BAD: u64 = 1 << 4;
    /// A VLAN tag was in the frame and is beside it now.
    pub const VLAN_STRIPPED: u64 = 1 << 6;
    /// The checksum of IPv4 is right.
    pub const IP_GOOD: u64 = 1 << 7;
    /// The checksum of TCP or UDP is right.
    pub const L4_GOOD: u64 = 1 << 8;
}

/// What a card is asked to do to a frame ([`Mbuf::ol_flags`]).
pub mod sent {
    /// Cut the payload of TCP into segments.
    pub const TCP_SEGMENTS: u64 = 1 << 50;
    /// Fill in the checksum of TCP.
    pub const TCP_CHECKSUM: u64 = 1 << 52;
    /// Fill in the checksum of UDP.
    pub const UDP_CHECKSUM: u64 = 3 << 52;
    /// Fill in the checksum of IPv4.
    pub const IP_CHECKSUM: u64 = 1 << 54;
    /// The packet is IPv4.
    pub const IPV4: u64 = 1 << 55;
    /// The packet is IPv6.
    pub const IPV6: u64 = 1 << 56;
}

/// What a card can do to frames that come ([`PortFacts::rx_offloads`]).
pub mod rx_offload {
    /// Checks the checksum of IPv4.
    pub const IPV4_CHECKSUM: u64 = 1 << 1;
    /// Checks the checksum of UDP.
    pub const UDP_CHECKSUM: u64 = 1 << 2;
    /// Checks the checksum of TCP.
    pub const TCP_CHECKSUM: u64 = 1 << 3;
}

/// What a card can do to frames that leave ([`PortFacts::tx_offloads`]).
pub mod tx_offload {
    /// Fills in the checksum of IPv4.
    pub const IPV4_CHECKSUM: u64 = 1 << 1;
    /// Fills in the checksum of UDP.
    pub const UDP_CHECKSUM: u64 = 1 << 2;
    /// Fills in the checksum of TCP.
    pub const TCP_CHECKSUM: u64 = 1 << 3;
    /// Cuts the payload of TCP into segments.
    pub const TCP_SEGMENTS: u64 = 1 << 5;
    /// Gives sent mbufs back without a look at each, where all of a queue come from one pool.
    pub const FAST_FREE: u64 = 1 << 16;
}

/// DPDK's buffer for a frame or a part of one, as far as it is touched here.
///
/// ```text
/// buf_addr →┌──────────┬───────────────┬──────┐
///           │ data_off │ data_len      │ free │  buf_len in all
///           └──────────┴───────────────┴──────┘
/// ```
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Mbuf {
    /// Where the buffer begins.
    pub buf_addr: *mut u8,
    reserved_8: u64,
    /// Bytes before the frame.
    pub data_off: u16,
    /// How many own it.
    pub refcnt: u16,
    /// Of how many mbufs the frame is made.
    pub nb_segs: u16,
    reserved_22: u16,
    /// Flags of [`received`] and [`sent`].
    pub ol_flags: u64,
    reserved_32: u32,
    /// Bytes of the frame, in all its mbufs.
    pub pkt_len: u32,
    /// Bytes of the frame in this mbuf.
    pub data_len: u16,
    reserved_42: u16,
    reserved_44: [u16; 5],
    /// Bytes of the buffer.
    pub buf_len: u16,
    reserved_56: [u64; 2],
    /// Lengths of headers and segments: Ethernet in bits 0 to 6, IP from 7 on, TCP from 16 on and
    /// the payload of a segment from 24 on.
    pub tx_offload: u64,
    reserved_80: [u64; 6],
}

const _: () = assert!(size_of::<Mbuf>() == 128);
const _: () = assert!(std::mem::offset_of!(Mbuf, ol_flags) == 24);
const _: () = assert!(std::mem::offset_of!(Mbuf, buf_len) == 54);
const _: () = assert!(std::mem::offset_of!(Mbuf, tx_offload) == 72);

/// A pool of mbufs.
#[repr(C)]
#[derive(Debug)]
pub struct Mempool {
    _private: [u8; 0],
}

/// What a port is and can do.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PortFacts {
    /// Its name, with a zero at its end.
    pub name: [u8; 64],
    /// The name of its driver, with a zero at its end.
    pub driver: [u8; 64],
    /// Flags of [`rx_offload`].
    pub rx_offloads: u64,
    /// Flags of [`tx_offload`].
    pub tx_offloads: u64,
    /// The NUMA node that it is at, negative where that does not matter.
    pub numa_node: i32,
    /// Bytes of the longest IP packet, as it is now.
    pub mtu: u16,
    /// Bytes of the longest IP packet that can be set.
    pub mtu_max: u16,
    /// How many receive queues it can have.
    pub rx_queues_max: u16,
    /// How many transmit queues it can have.
    pub tx_queues_max: u16,
    /// Whether its driver says that it can spread what comes over its queues by a hash, of addresses
    /// at least, 0 or 1.
    pub has_rss: u8,
    /// Whether that can be over the ports of TCP too, in IPv4 as in IPv6, 0 or 1.
    pub hashes_ports: u8,
    /// Its own address.
    pub mac: [u8; 6],
    reserved: [u8; 4],
}

impl PortFacts {
    /// Nothing known.
    pub const fn new() -> PortFacts {
        PortFacts {
            name: [0; 64],
            driver: [0; 64],
            rx_offloads: 0,
            tx_offloads: 0,
            numa_node: 0,
            mtu: 0,
            mtu_max: 0,
            rx_queues_max: 0,
            tx_queues_max: 0,
            has_rss: 0,
            hashes_ports: 0,
            mac: [0; 6],
            reserved: [0; 4],
        }
    }
}

impl Default for PortFacts {
    fn default() -> PortFacts {
        PortFacts::new()
    }
}

const _: () = assert!(size_of::<PortFacts>() == 168);

/// What a port is to be.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PortPlan {
    /// Flags of [`rx_offload`].
    pub rx_offloads: u64,
    /// Flags of [`tx_offload`].
    pub tx_offloads: u64,
    /// How many queues, of each kind.
    pub queues: u16,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
    /// Frames of a receive queue; comes back as what the card can have.
    pub rx_descriptors: u16,
    /// Frames of a transmit queue; comes back as what the card can have.
    pub tx_descriptors: u16,
    /// Whether to spread by a hash of the addresses, 0 or 1.
    pub wants_rss: u8,
    /// Whether by the same for both directions of a connection, 0 or 1.
    pub wants_symmetric_key: u8,
    /// Whether it will be slept on, 0 or 1.
    pub wants_interrupts: u8,
    /// Zeros.
    pub reserved: [u8; 5],
}

const _: () = assert!(size_of::<PortPlan>() == 32);

/// What a port's RSS hashes, and how.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PortHash {
    /// Addresses, of some frames at least, 0 or 1.
    pub is_over_addresses: u8,
    /// The ports of TCP too, in IPv4 as in IPv6, 0 or 1.
    pub is_over_ports: u8,
    /// With the key that is the same for both directions of a connection, 0 or 1.
    pub is_symmetric: u8,
}

/// The frames that a rule is for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Of IPv6 rather than IPv4, 0 or 1.
    pub is_ipv6: u8,
    /// Of UDP rather than TCP, 0 or 1.
    pub is_udp: u8,
}

/// Which port of TCP or UDP a rule looks at, and for what.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMatch {
    /// What the bits of the mask are to be; the others are zero.
    pub value: u16,
    /// The bits that count.
    pub mask: u16,
    /// Looks at the port that a frame is to rather than the one that it is from, 0 or 1.
    pub is_own: u8,
    reserved: u8,
}

impl PortMatch {
    /// The ports of which the bits of `mask` are those of `value`.
    pub const fn new(value: u16, mask: u16, is_own: u8) -> PortMatch {
        PortMatch {
            value: value & mask,
            mask,
            is_own,
            reserved: 0,
        }
    }
}

const _: () = assert!(size_of::<PortMatch>() == 6);

/// Whether there is a cable.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkState {
    /// Megabits a second; 0 or all ones where the card does not know.
    pub speed_mbps: u32,
    /// Whether frames can go, 0 or 1.
    pub is_up: u32,
}

/// What has gone wrong at a port since it was started.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PortErrors {
    /// Frames that came while the receive queue was full.
    pub rx_missed: u64,
    /// Frames that came damaged.
    pub rx_errors: u64,
    /// Times that there was no mbuf for a frame.
    pub rx_no_buffer: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
}

unsafe extern "C" {
    /// Starts DPDK for this process. The arguments must live as long as the process, and EAL may
    /// reorder them.
    pub fn coua_eal_start(argc: c_int, argv: *mut *mut c_char) -> c_int;
    /// Gives the thread an identity of its own in DPDK; 1 where it had none, 0 where it had.
    pub safe fn coua_thread_register() -> c_int;
    /// Takes it back. For threads for which [`coua_thread_register`] gave 1.
    pub safe fn coua_thread_unregister();
    /// Has EAL's interrupt thread call `run` with `with` each time round its loop, for ever, which
    /// does not wait from then on.
    pub fn coua_call_each_round(run: extern "C" fn(*mut c_void), with: *mut c_void) -> c_int;

    /// The first port that is not below `from`; [`NO_PORT`] where there is none.
    pub safe fn coua_port_next(from: u16) -> u16;
    /// Tells what a port is.
    pub safe fn coua_port_facts(port: u16, facts: &mut PortFacts) -> c_int;
    /// Sets a stopped port up.
    pub safe fn coua_port_configure(port: u16, plan: &mut PortPlan) -> c_int;
    /// Tells what a port that was set up for RSS hashes; fails where its driver does not say.
    pub safe fn coua_port_hash(port: u16, hash: &mut PortHash) -> c_int;
    /// Makes a rule on a started port: some traffic is spread by a hash of addresses and ports over
    /// the queues below `queues`.
    pub safe fn coua_rule_hash(port: u16, traffic: &Traffic, queues: u16) -> c_int;
    /// Makes a rule on a started port: what of some traffic has such a port comes to `queue`.
    pub safe fn coua_rule_queue(port: u16, traffic: &Traffic, of: &PortMatch, queue: u16) -> c_int;
    /// Takes all rules of a port back.
    pub safe fn coua_rules_clear(port: u16) -> c_int;
    /// Sets a receive queue of a stopped port up. The pool must live until the port is closed.
    pub fn coua_rx_queue_setup(
        port: u16,
        queue: u16,
        descriptors: u16,
        pool: *mut Mempool,
    ) -> c_int;
    /// Sets a transmit queue of a stopped port up.
    pub safe fn coua_tx_queue_setup(port: u16, queue: u16, descriptors: u16) -> c_int;
    /// Sets the longest IP packet.
    pub safe fn coua_port_set_mtu(port: u16, mtu: u16) -> c_int;
    /// Has frames to all group addresses come.
    pub safe fn coua_port_receive_groups(port: u16) -> c_int;
    /// Starts a port that is set up.
    pub safe fn coua_port_start(port: u16) -> c_int;
    /// Stops a port. No burst may run on any of its queues.
    pub fn coua_port_stop(port: u16) -> c_int;
    /// Closes a stopped port; its number may then mean another.
    pub fn coua_port_close(port: u16) -> c_int;
    /// Tells whether there is a cable, without waiting.
    pub safe fn coua_port_link(port: u16, link: &mut LinkState) -> c_int;
    /// Tells what has gone wrong.
    pub safe fn coua_port_counters(port: u16, errors: &mut PortErrors) -> c_int;

    /// Adds a receive queue's interrupt to an epoll set.
    pub safe fn coua_interrupt_add(port: u16, queue: u16, epoll: c_int) -> c_int;
    /// Takes it out again.
    pub safe fn coua_interrupt_remove(port: u16, queue: u16, epoll: c_int) -> c_int;
    /// Has the queue interrupt at the next frame.
    pub safe fn coua_interrupt_enable(port: u16, queue: u16) -> c_int;
    /// Has it not.
    pub safe fn coua_interrupt_disable(port: u16, queue: u16) -> c_int;
    /// Takes what the set has to report. It must hold nothing but interrupts of this kind.
    pub fn coua_interrupt_consume(epoll: c_int) -> c_int;

    /// Makes a pool of `count` mbufs of `room_len` bytes each, headroom included; null and `failed`
    /// where there is no memory or the name is taken.
    pub fn coua_pool_create(
        name: *const c_char,
        count: u32,
        cache_len: u32,
        room_len: u16,
        numa_node: c_int,
        failed: *mut c_int,
    ) -> *mut Mempool;
    /// Frees a pool whose mbufs are all back, and gives 1; else 0.
    pub fn coua_pool_free_if_full(pool: *mut Mempool) -> c_int;

    /// Takes `count` mbufs, or none.
    pub fn coua_alloc_bulk(pool: *mut Mempool, mbufs: *mut *mut Mbuf, count: u32) -> c_int;
    /// Gives `count` mbufs back to their pools.
    pub fn coua_free_bulk(mbufs: *mut *mut Mbuf, count: u32);
    /// Takes frames that have come, at most `count`.
    pub fn coua_rx_burst(port: u16, queue: u16, mbufs: *mut *mut Mbuf, count: u16) -> u16;
    /// Hands frames to the card, which owns as many from the first on as it says.
    pub fn coua_tx_burst(port: u16, queue: u16, mbufs: *mut *mut Mbuf, count: u16) -> u16;
    /// Makes frames ready for what the card is asked to do to them; how many could be, from the
    /// first on.
    pub fn coua_tx_prepare(port: u16, queue: u16, mbufs: *mut *mut Mbuf, count: u16) -> u16;
    /// Brings a frame of several mbufs into its first.
    pub fn coua_gather(mbuf: *mut Mbuf) -> c_int;
    /// Puts a stripped VLAN tag back in.
    pub fn coua_vlan_restore(mbuf: *mut Mbuf) -> c_int;
}
