//! Why an interface cannot be opened.

use std::io;

/// Why an interface cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The process lacks a right.
    #[error(
        "no permission to {action}: run as root, or give the program CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and \
         CAP_IPC_LOCK (setcap cap_net_admin,cap_net_raw,cap_bpf,cap_ipc_lock+ep FILE)"
    )]
    Permission {
        /// What was refused.
        action: &'static str,
    },
    /// There is no interface of this name.
    #[error("there is no network interface {interface} here; `ip link` lists those that there are")]
    NoSuchInterface {
        /// The name.
        interface: String,
    },
    /// It is not an Ethernet interface.
    #[error("{interface} is no Ethernet interface; AF_XDP here takes Ethernet frames only")]
    NotEthernet {
        /// The name.
        interface: String,
    },
    /// It is down.
    #[error("{interface} is down; `ip link set {interface} up` brings it up")]
    Down {
        /// The name.
        interface: String,
    },
    /// Its driver cannot run XDP programs.
    #[error(
        "the driver of {interface} has no XDP; take another card, --net dpdk, or the kernel's sockets"
    )]
    NoXdp {
        /// The name.
        interface: String,
    },
    /// Another program is on the card.
    #[error(
        "another XDP program{} is attached to {interface}; `ip link set {interface} xdp off` or the end of the \
         process that attached it removes it", .id.map(|id| format!(" (id {id})")).unwrap_or_default()
    )]
    AnotherProgram {
        /// The interface.
        interface: String,
        /// The kernel's number for the program, if the kernel reports it.
        id: Option<u32>,
    },
    /// A frame may be longer than a chunk.
    #[error(
        "the MTU of {interface} is {mtu}, frames here hold {mtu_max}; `ip link set {interface} mtu {mtu_max}`"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// The greatest MTU that is possible.
        mtu_max: u32,
    },
    /// VLAN tags would be lost.
    #[error(
        "{interface} strips VLAN tags, which AF_XDP cannot see, and tagged frames are expected on it; \
         `ethtool -K {interface} rxvlan off` keeps them in the frames"
    )]
    StripsTags {
        /// The interface.
        interface: String,
    },
    /// The card merges segments into frames longer than a chunk.
    #[error(
        "{interface} has {feature} on, which makes frames too long for AF_XDP; `ethtool -K {interface} {flag} off`"
    )]
    Merges {
        /// The interface.
        interface: String,
        /// The offload.
        feature: &'static str,
        /// What `ethtool` calls the offload.
        flag: &'static str,
    },
    /// There are fewer queues than workers.
    #[error(
        "{interface} has {queues} receive queues for {workers} workers; start fewer workers, or have the card use \
         more queues (`ethtool -L {interface} combined {workers}`)"
    )]
    TooFewQueues {
        /// The interface.
        interface: String,
        /// How many of the queues that were asked for exist.
        queues: u32,
        /// Workers that were asked for.
        workers: usize,
    },
    /// A queue was asked for that the interface does not have.
    #[error("{interface} has receive queues 0 to {last}; queue {queue} was asked for")]
    NoSuchQueue {
        /// The interface.
        interface: String,
        /// The first queue that was asked for and does not exist.
        queue: u32,
        /// The last queue that exists.
        last: u32,
    },
    /// There is no address to serve.
    #[error(
        "{interface} has no IP address and none was given; `ip address add …`, or name the addresses to serve"
    )]
    NoAddress {
        /// The interface.
        interface: String,
    },
    /// There is no port to serve.
    #[error("no port to take over TCP or UDP was given")]
    NoPort,
    /// There are more addresses or ports than the filter takes.
    #[error("{count} {what} for the filter, which takes {max}; name fewer")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// A ring's length is not a power of two or is out of bounds.
    #[error("a ring of {len} frames; it takes a power of two from 64 to 65536")]
    RingLen {
        /// The length.
        len: u32,
    },
    /// The caller supplied less memory than is needed.
    #[error(
        "{given} bytes of memory were given for the frames of {interface}, which take {needed}"
    )]
    MemoryGiven {
        /// The interface.
        interface: String,
        /// Bytes that were given.
        given: usize,
        /// Bytes that it takes.
        needed: usize,
    },
    /// There is not enough memory.
    #[error("no memory for {needed} bytes of frames; give shorter rings, or free memory")]
    Memory {
        /// Bytes of one queue.
        needed: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// There are not enough reserved pages of 2 MiB.
    #[error("no huge pages for {needed} bytes of frames; raise vm.nr_hugepages by {} a queue, or do without", .needed.div_ceil(2 << 20))]
    ReservedPages {
        /// Bytes of one queue.
        needed: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The process may not lock so much memory.
    #[error(
        "the process may lock {limit} bytes of memory and {needed} a queue are needed; raise RLIMIT_MEMLOCK \
         (`ulimit -l`, LimitMEMLOCK=), or give the program CAP_IPC_LOCK"
    )]
    LockedMemory {
        /// Bytes of one queue.
        needed: usize,
        /// The limit in bytes.
        limit: u64,
    },
    /// Another socket has the queue.
    #[error(
        "queue {queue} of {interface} has another AF_XDP socket; end the process that has it, or take other queues"
    )]
    QueueTaken {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The driver does not let the queue be used.
    #[error("the driver of {interface} does not give queue {queue} to an AF_XDP socket: {source}")]
    Bind {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel has no AF_XDP, or an old version of it.
    #[error(
        "this kernel has no AF_XDP sockets that serve here (CONFIG_XDP_SOCKETS, 5.9 or newer): {source}"
    )]
    NoSockets {
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refuses the filter.
    #[error("the kernel does not take the XDP filter: {source}; it says: {complaint}")]
    Filter {
        /// What its verifier objects to.
        complaint: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The driver refuses the filter.
    #[error(
        "the driver of {interface} does not take an XDP program: {source}; the kernel's log may say why (`dmesg`)"
    )]
    Attach {
        /// The interface.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel does not answer a question.
    #[error("the kernel does not {action}: {source}")]
    System {
        /// What it was asked to do.
        action: &'static str,
        /// What it said.
        source: io::Error,
    },
}
