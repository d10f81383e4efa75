//! What is to be opened, and how.

use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};

/// What is to be opened, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The interface's name in the network namespace of the thread that opens it.
    pub interface: String,
    /// The receive queues to take; all of the interface where `None`. Frames that come in on a
    /// queue that is not taken go to the kernel, which answers TCP with RST.
    pub queues: Option<Range<u32>>,
    /// How many [`super::XdpNic`] to make. Queues are dealt out one by one, so that each gets as
    /// many as the others, or one more.
    pub workers: usize,
    /// Destination addresses to take; where empty, those that the interface has now. At most 64.
    pub addresses: Vec<IpAddr>,
    /// Destination ports to take over TCP, at most 64.
    pub tcp_ports: Vec<u16>,
    /// Destination ports to take over UDP, at most 64.
    pub udp_ports: Vec<u16>,
    /// Destination ports to take over both, for connections that are opened from here: ports
    /// that the kernel gives to nobody (`net.ipv4.ip_local_reserved_ports`).
    pub active_ports: Option<RangeInclusive<u16>>,
    /// Frames with VLAN tags are to be served, so a card that would strip the tags is refused. One
    /// that has VLAN interfaces of the kernel's on it is refused in any case.
    pub vlans: bool,
    /// Frames that each queue can hold for receiving: a power of two, 64 to 65536.
    pub receive_len: u32,
    /// Frames that each worker can have on the way out: a power of two, 64 to 65536.
    pub transmit_len: u32,
    /// Never zero-copy, for a driver whose zero-copy is broken.
    pub copy: bool,
    /// Frames lie in 2 MiB pages that the system keeps (`vm.nr_hugepages`), so that the card's
    /// accesses need fewer translations. Where not, in such pages as there are.
    pub reserved_pages: bool,
    /// Have the worker's own system calls run the driver, instead of interrupts.
    pub busy_poll: Option<BusyPoll>,
}

impl Options {
    /// All queues of an interface for one worker, that take no port yet.
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

    /// Chunks of memory of a queue that transmits, and of one that does not.
    pub(super) fn chunks(&self, transmits: bool) -> u32 {
        self.receive_len + if transmits { self.transmit_len } else { 0 }
    }
}

/// How busy polling is done. It pays where the card's interrupts wait for it: write 2 to
/// `/sys/class/net/INTERFACE/napi_defer_hard_irqs` and 200000 to `gro_flush_timeout` beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// The kernel's `SO_BUSY_POLL`, in microseconds. Above the system's own setting it takes
    /// CAP_NET_ADMIN.
    pub duration_us: u32,
    /// Frames that one call brings in at most, 1 to 64.
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
