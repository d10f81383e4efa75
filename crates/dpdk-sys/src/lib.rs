//! Bindings to the part of DPDK that coua uses.
//!
//! DPDK's fast path consists of inline functions, and its control structures change from release to
//! release. `shim.c` turns the functions into ones with symbols and the structures into flat ones. It
//! asserts at compile time that [`Mbuf`] has DPDK's layout. The crate is empty without the feature
//! `dpdk`.
//!
//! A function is `safe` where DPDK checks its arguments: DPDK knows its ports and queues by number and
//! refuses others. Negative results are `-errno`.
//!
//! # Not here
//! Safe types over these functions: `coua_transport::userspace::dpdk`.
#![cfg(feature = "dpdk")]
#![expect(unsafe_code, reason = "declares the functions of the C shim")]

use std::ffi::{c_char, c_int, c_void};

/// Bytes that stay free before the frame in an mbuf from a pool.
pub const HEADROOM: u16 = 128;

/// What [`coua_port_next`] returns if there is no further port.
pub const NO_PORT: u16 = u16::MAX;

/// What a card found out about a received frame ([`Mbuf::ol_flags`]).
///
/// Each checksum has two flags. Both together mean that the frame lacks the checksum, but its data
/// are right. Neither means that the card has not checked.
pub mod received {
    /// The checksum of TCP or UDP is wrong.
    pub const L4_BAD: u64 = 1 << 3;
    /// The checksum of IPv4 is wrong.
    pub const IP_BAD: u64 = 1 << 4;
    /// The card took a VLAN tag out of the frame; it stands beside the frame now.
    pub const VLAN_STRIPPED: u64 = 1 << 6;
    /// The checksum of IPv4 is right.
    pub const IP_GOOD: u64 = 1 << 7;
    /// The checksum of TCP or UDP is right.
    pub const L4_GOOD: u64 = 1 << 8;
}

/// What a card is asked to do to a frame that it sends ([`Mbuf::ol_flags`]).
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

/// What a card can do to received frames ([`PortFacts::rx_offloads`]).
pub mod rx_offload {
    /// Checks the checksum of IPv4.
    pub const IPV4_CHECKSUM: u64 = 1 << 1;
    /// Checks the checksum of UDP.
    pub const UDP_CHECKSUM: u64 = 1 << 2;
    /// Checks the checksum of TCP.
    pub const TCP_CHECKSUM: u64 = 1 << 3;
}

/// What a card can do to frames that it sends ([`PortFacts::tx_offloads`]).
pub mod tx_offload {
    /// Fills in the checksum of IPv4.
    pub const IPV4_CHECKSUM: u64 = 1 << 1;
    /// Fills in the checksum of UDP.
    pub const UDP_CHECKSUM: u64 = 1 << 2;
    /// Fills in the checksum of TCP.
    pub const TCP_CHECKSUM: u64 = 1 << 3;
    /// Cuts the payload of TCP into segments.
    pub const TCP_SEGMENTS: u64 = 1 << 5;
    /// Returns sent mbufs without looking at each one. All mbufs of a queue must be from one pool.
    pub const FAST_FREE: u64 = 1 << 16;
}

/// DPDK's buffer for a frame or a part of one: the fields that coua uses.
///
/// ```text
/// buf_addr →┌──────────┬───────────────┬──────┐
///           │ data_off │ data_len      │ free │  buf_len in all
///           └──────────┴───────────────┴──────┘
/// ```
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Mbuf {
    /// The beginning of the buffer.
    pub buf_addr: *mut u8,
    reserved_8: u64,
    /// Bytes before the frame.
    pub data_off: u16,
    /// The number of owners.
    pub refcnt: u16,
    /// The number of mbufs that make up the frame.
    pub nb_segs: u16,
    reserved_22: u16,
    /// Flags of [`received`] and [`sent`].
    pub ol_flags: u64,
    reserved_32: u32,
    /// Bytes of the whole frame, over all its mbufs.
    pub pkt_len: u32,
    /// Bytes of the frame in this mbuf.
    pub data_len: u16,
    reserved_42: u16,
    reserved_44: [u16; 5],
    /// Bytes of the buffer.
    pub buf_len: u16,
    reserved_56: [u64; 2],
    /// Lengths of headers and of a segment's payload: Ethernet in bits 0 to 6, IP from bit 7, TCP
    /// from bit 16, the payload from bit 24.
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

/// A port's identity and abilities.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PortFacts {
    /// Its name, ended by a zero.
    pub name: [u8; 64],
    /// The name of its driver, ended by a zero.
    pub driver: [u8; 64],
    /// Flags of [`rx_offload`].
    pub rx_offloads: u64,
    /// Flags of [`tx_offload`].
    pub tx_offloads: u64,
    /// Its NUMA node; negative if that does not matter.
    pub numa_node: i32,
    /// The longest IP packet in bytes, as set now.
    pub mtu: u16,
    /// The longest IP packet in bytes that can be set.
    pub mtu_max: u16,
    /// The most receive queues that it can have.
    pub rx_queues_max: u16,
    /// The most transmit queues that it can have.
    pub tx_queues_max: u16,
    /// 1 if its driver says that it can spread frames over its queues by a hash that covers at least
    /// the addresses; else 0.
    pub has_rss: u8,
    /// 1 if that hash can also cover TCP ports, for IPv4 and IPv6; else 0.
    pub hashes_ports: u8,
    /// Its MAC address.
    pub mac: [u8; 6],
    reserved: [u8; 4],
}

impl PortFacts {
    /// Facts that say nothing, for [`coua_port_facts`] to fill in.
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

/// How a port is to be set up.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PortPlan {
    /// Flags of [`rx_offload`].
    pub rx_offloads: u64,
    /// Flags of [`tx_offload`].
    pub tx_offloads: u64,
    /// The number of queues of each kind.
    pub queues: u16,
    /// The longest IP packet in bytes.
    pub mtu: u16,
    /// The length of a receive queue in frames. Comes back as what the card takes.
    pub rx_descriptors: u16,
    /// The length of a transmit queue in frames. Comes back as what the card takes.
    pub tx_descriptors: u16,
    /// 1 to spread frames by a hash of the addresses (RSS); else 0.
    pub wants_rss: u8,
    /// 1 for a hash that is the same for both directions of a connection; else 0.
    pub wants_symmetric_key: u8,
    /// 1 if workers will sleep on its interrupts; else 0.
    pub wants_interrupts: u8,
    /// Zeros.
    pub reserved: [u8; 5],
}

const _: () = assert!(size_of::<PortPlan>() == 32);

/// What a port's RSS hash covers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PortHash {
    /// 1 if it covers addresses, of at least some frames; else 0.
    pub is_over_addresses: u8,
    /// 1 if it also covers TCP ports, for IPv4 and IPv6; else 0.
    pub is_over_ports: u8,
    /// 1 if it is the same for both directions of a connection; else 0.
    pub is_symmetric: u8,
}

/// The kind of frames that a flow rule matches.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// 1 for IPv6, 0 for IPv4.
    pub is_ipv6: u8,
    /// 1 for UDP, 0 for TCP.
    pub is_udp: u8,
}

/// Which TCP or UDP port a flow rule looks at, and what it must be.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMatch {
    /// What the bits of the mask must be. The other bits are zero.
    pub value: u16,
    /// The bits that are compared.
    pub mask: u16,
    /// 1 to look at the destination port, 0 to look at the source port.
    pub is_own: u8,
    reserved: u8,
}

impl PortMatch {
    /// Matches ports whose bits in `mask` equal those of `value`.
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

/// The state of a port's link.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkState {
    /// Megabits a second; 0 or all ones if the card does not know.
    pub speed_mbps: u32,
    /// 1 if the link is up; else 0.
    pub is_up: u32,
}

/// A port's error counters since it was started.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PortErrors {
    /// Frames dropped because the receive queue was full.
    pub rx_missed: u64,
    /// Frames that arrived damaged.
    pub rx_errors: u64,
    /// Times that no mbuf was free for a frame.
    pub rx_no_buffer: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
}

unsafe extern "C" {
    /// Starts DPDK's environment (EAL) for this process. The arguments must live as long as the
    /// process. EAL may reorder them.
    pub fn coua_eal_start(argc: c_int, argv: *mut *mut c_char) -> c_int;
    /// Registers the calling thread with DPDK. Returns 1 if it was not registered before, else 0.
    pub safe fn coua_thread_register() -> c_int;
    /// Undoes [`coua_thread_register`], for a thread for which it returned 1.
    pub safe fn coua_thread_unregister();
    /// Makes EAL's interrupt thread call `run(with)` in each round of its loop, for ever. The loop no
    /// longer waits then.
    pub fn coua_call_each_round(run: extern "C" fn(*mut c_void), with: *mut c_void) -> c_int;

    /// The first port whose number is `from` or higher; [`NO_PORT`] if there is none.
    pub safe fn coua_port_next(from: u16) -> u16;
    /// Fills in a port's facts.
    pub safe fn coua_port_facts(port: u16, facts: &mut PortFacts) -> c_int;
    /// Sets up a stopped port.
    pub safe fn coua_port_configure(port: u16, plan: &mut PortPlan) -> c_int;
    /// Tells what the hash of a port covers that was set up for RSS. Fails if its driver does not say.
    pub safe fn coua_port_hash(port: u16, hash: &mut PortHash) -> c_int;
    /// Makes a flow rule on a started port: `traffic` is spread over the queues below `queues` by a
    /// hash of addresses and ports.
    pub safe fn coua_rule_hash(port: u16, traffic: &Traffic, queues: u16) -> c_int;
    /// Makes a flow rule on a started port: frames of `traffic` whose port matches go to `queue`.
    pub safe fn coua_rule_queue(port: u16, traffic: &Traffic, of: &PortMatch, queue: u16) -> c_int;
    /// Removes all flow rules of a port.
    pub safe fn coua_rules_clear(port: u16) -> c_int;
    /// Sets up a receive queue of a stopped port. The pool must live until the port is closed.
    pub fn coua_rx_queue_setup(
        port: u16,
        queue: u16,
        descriptors: u16,
        pool: *mut Mempool,
    ) -> c_int;
    /// Sets up a transmit queue of a stopped port.
    pub safe fn coua_tx_queue_setup(port: u16, queue: u16, descriptors: u16) -> c_int;
    /// Sets the longest IP packet, in bytes.
    pub safe fn coua_port_set_mtu(port: u16, mtu: u16) -> c_int;
    /// Makes the port receive frames to all multicast addresses.
    pub safe fn coua_port_receive_groups(port: u16) -> c_int;
    /// Starts a port that was set up.
    pub safe fn coua_port_start(port: u16) -> c_int;
    /// Stops a port. No receive or transmit burst may run on any of its queues.
    pub fn coua_port_stop(port: u16) -> c_int;
    /// Closes a stopped port. Another port may get its number then.
    pub fn coua_port_close(port: u16) -> c_int;
    /// Reads the state of the link, without waiting.
    pub safe fn coua_port_link(port: u16, link: &mut LinkState) -> c_int;
    /// Reads the error counters.
    pub safe fn coua_port_counters(port: u16, errors: &mut PortErrors) -> c_int;

    /// Adds a receive queue's interrupt to an epoll set.
    pub safe fn coua_interrupt_add(port: u16, queue: u16, epoll: c_int) -> c_int;
    /// Removes a receive queue's interrupt from an epoll set.
    pub safe fn coua_interrupt_remove(port: u16, queue: u16, epoll: c_int) -> c_int;
    /// Enables the queue's interrupt, for the next frame.
    pub safe fn coua_interrupt_enable(port: u16, queue: u16) -> c_int;
    /// Disables the queue's interrupt.
    pub safe fn coua_interrupt_disable(port: u16, queue: u16) -> c_int;
    /// Consumes the events of an epoll set that holds nothing but interrupts of receive queues.
    pub fn coua_interrupt_consume(epoll: c_int) -> c_int;

    /// Makes a pool of `count` mbufs with `room_len` bytes each, headroom included. Returns null and
    /// sets `failed` if there is no memory or the name is taken.
    pub fn coua_pool_create(
        name: *const c_char,
        count: u32,
        cache_len: u32,
        room_len: u16,
        numa_node: c_int,
        failed: *mut c_int,
    ) -> *mut Mempool;
    /// Frees a pool and returns 1 if all its mbufs are back; else returns 0.
    pub fn coua_pool_free_if_full(pool: *mut Mempool) -> c_int;

    /// Allocates `count` mbufs, or none.
    pub fn coua_alloc_bulk(pool: *mut Mempool, mbufs: *mut *mut Mbuf, count: u32) -> c_int;
    /// Returns `count` mbufs to their pools.
    pub fn coua_free_bulk(mbufs: *mut *mut Mbuf, count: u32);
    /// Receives at most `count` frames. Returns their number.
    pub fn coua_rx_burst(port: u16, queue: u16, mbufs: *mut *mut Mbuf, count: u16) -> u16;
    /// Sends frames. Returns how many the card took, from the first on; it owns those.
    pub fn coua_tx_burst(port: u16, queue: u16, mbufs: *mut *mut Mbuf, count: u16) -> u16;
    /// Prepares frames for the offloads that they ask for. Returns how many it could prepare, from the
    /// first on.
    pub fn coua_tx_prepare(port: u16, queue: u16, mbufs: *mut *mut Mbuf, count: u16) -> u16;
    /// Copies a frame of several mbufs into its first one.
    pub fn coua_gather(mbuf: *mut Mbuf) -> c_int;
    /// Puts a stripped VLAN tag back into the frame.
    pub fn coua_vlan_restore(mbuf: *mut Mbuf) -> c_int;
}
