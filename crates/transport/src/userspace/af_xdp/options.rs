//! What is to be opened, and how.

use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};

/// What is to be opened, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The interface's name, in the network namespace of the thread that opens it.
    pub interface: String,
    /// The receive queues to take; `None` for all. Frames that arrive on other queues go to the
    /// kernel, which answers TCP with RST.
    pub queues: Option<Range<u32>>,
    /// How many [`super::XdpNic`] to make. Queues are dealt out in turn, so that no worker has more
    /// than one queue more than another.
    pub workers: usize,
    /// Destination addresses to take, at most 64; if empty, the addresses that the interface has
    /// now.
    pub addresses: Vec<IpAddr>,
    /// Destination ports to take over TCP, at most 64.
    pub tcp_ports: Vec<u16>,
    /// Destination ports to take over UDP, at most 64.
    pub udp_ports: Vec<u16>,
    /// Destination ports to take over both TCP and UDP, for connections that are opened from here.
    /// The kernel must not give these ports to anyone (`net.ipv4.ip_local_reserved_ports`).
    pub active_ports: Option<RangeInclusive<u16>>,
    /// Frames with VLAN tags are to be served, so a card that strips tags is refused. A card that
    /// strips tags and has VLAN interfaces of the kernel is always refused.
    pub vlans: bool,
    /// Frames that each queue can hold for receiving: a power of two, 64 to 65536.
    pub receive_len: u32,
    /// Frames that each worker can have on the way out: a power of two, 64 to 65536.
    pub transmit_len: u32,
    /// Never use zero-copy: for drivers whose zero-copy is broken.
    pub copy: bool,
    /// Put frames into pages of 2 MiB that the system has reserved (`vm.nr_hugepages`), so that the
    /// card's accesses need fewer translations. Otherwise they are in whatever pages there are.
    pub reserved_pages: bool,
    /// Let the worker's own system calls run the driver, instead of interrupts.
    pub busy_poll: Option<BusyPoll>,
}

impl Options {
    /// All queues of an interface for one worker; no ports yet.
    pub fn new(interface: impl Into<String>) -> Options {
        Options {
            interface: interface.into(),
            queues: None,
            workers: 1,
            addresses: Vec::new(),
            tcp_ports: Vec::new(),
            udp_ports: Vec::new(),
            active_ports: None,
            vlans: false,
            receive_len: 2048,
            transmit_len: 2048,
            copy: false,
            reserved_pages: false,
            busy_poll: None,
        }
    }

    /// Chunks of memory for a queue, which transmits or only receives.
    pub(super) fn chunks(&self, transmits: bool) -> u32 {
        self.receive_len + if transmits { self.transmit_len } else { 0 }
    }
}

/// How to busy-poll. It pays if the card delays its interrupts for it: write 2 to
/// `/sys/class/net/INTERFACE/napi_defer_hard_irqs` and 200000 to `gro_flush_timeout` beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// The kernel's `SO_BUSY_POLL`, in microseconds. A value above the system's setting needs
    /// CAP_NET_ADMIN.
    pub duration_us: u32,
    /// The most frames that one call fetches, 1 to 64.
    pub budget: u16,
}

impl Default for BusyPoll {
    fn default() -> BusyPoll {
        BusyPoll {
            duration_us: 20,
            budget: 64,
        }
    }
}
