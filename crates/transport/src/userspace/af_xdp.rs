//! AF_XDP: frames directly from and to the queues of a card that the kernel still drives.
//!
//! A [filter program](filter) on the card redirects frames for the server's ports to sockets, one
//! for each receive queue. All other frames go to the kernel as before. So the system keeps its
//! addresses, ARP, neighbour discovery, routes and everything on other ports.
//!
//! ```text
//! card ─ queue 0 ─ filter ┬─ to the server's ports → socket 0 ┐
//!        queue 1 ─ filter ┼─ to the server's ports → socket 1 ┴→ XdpNic of a worker
//!                         └─ everything else → the kernel
//! ```
//!
//! [`open`] checks the interface, makes one [`XdpNic`] for each worker, and attaches the filter
//! last. The filter is detached when the last [`XdpNic`] is dropped; if the process ends in any
//! other way, the kernel detaches it. Attaching may interrupt the link of a physical card for a
//! second or two.
//!
//! # Rights
//! [`open`] needs CAP_NET_RAW for the sockets, CAP_BPF and CAP_NET_ADMIN for the filter, and
//! CAP_IPC_LOCK (or enough RLIMIT_MEMLOCK) for the memory. They are not needed afterwards.
//!
//! # Not here
//! - Filtering by source: the stack does that.
//! - ARP and neighbours: the kernel has them, and [`super::neighbours`] asks it.
//! - Changes of the card: if it is renamed, reconfigured or removed while it is open, frames stop
//!   coming and nothing is reported.
//! - Checksums: AF_XDP neither verifies them nor fills them in. A peer on the same machine has to
//!   fill them in: `ethtool -K PEER tx off`.

mod bpf;
mod error;
mod ethtool;
mod filter;
mod interface;
mod mmap;
mod nic;
mod options;
mod ring;
mod socket;
mod sockopt;
mod transmit;
mod umem;

use std::io;
use std::net::IpAddr;
use std::ops::Add;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use coua_tcp::nic::Features;
use rustix::io::Errno;

use bpf::{AttachedProgram, Program, Refusal, SocketMap};
pub use error::OpenError;
use filter::Rules;
pub use interface::{Address, Interface};
pub use nic::XdpNic;
pub use options::{BusyPoll, Options};
use socket::Socket;
use umem::{Chunk, Umem};

/// The queue or the program of an earlier process may stay in use for a moment after its end: how
/// often to try again, and how long to wait in between.
const RETRIES: usize = 200;
const RETRY_EVERY: Duration = Duration::from_millis(10);

/// The most addresses, and the most ports of each protocol, that a filter takes.
const RULES_MAX: usize = 64;

/// What was opened.
pub struct Opened {
    /// The interface, as it was found.
    pub interface: Interface,
    /// The addresses whose frames are taken.
    pub addresses: Vec<IpAddr>,
    /// One for each worker.
    pub nics: Vec<XdpNic>,
}

/// What an interface has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received frames that were dropped because they did not fit or because there was no memory.
    pub dropped: u64,
    /// Received frames that were dropped because the worker had not taken earlier ones.
    pub receive_ring_full: u64,
    /// How often the driver found no memory to receive into.
    pub fill_ring_empty: u64,
    /// Receive descriptors that the kernel refused; always 0.
    pub invalid_received: u64,
    /// Transmit descriptors that the kernel refused, for example of frames longer than the MTU.
    pub invalid_sent: u64,
    /// System calls made to receive or send.
    pub wakeups: u64,
}

impl Add for Counters {
    type Output = Counters;

    fn add(self, other: Counters) -> Counters {
        Counters {
            dropped: self.dropped + other.dropped,
            receive_ring_full: self.receive_ring_full + other.receive_ring_full,
            fill_ring_empty: self.fill_ring_empty + other.fill_ring_empty,
            invalid_received: self.invalid_received + other.invalid_received,
            invalid_sent: self.invalid_sent + other.invalid_sent,
            wakeups: self.wakeups + other.wakeups,
        }
    }
}

/// Opens an interface, and allocates memory for the frames.
///
/// Blocks for up to a few seconds while an earlier process lets go of the card.
///
/// # Errors
/// If the interface, the kernel or the rights of the process do not allow it.
pub fn open(options: &Options) -> Result<Opened, OpenError> {
    open_with(options, None)
}

/// Like [`open`], with memory for the frames that the caller supplies: at least [`memory_len`]
/// bytes, starting at a page boundary. All of it should already be backed by pages.
///
/// # Errors
/// The same as of [`open`].
///
/// # Panics
/// If the memory does not begin at a page boundary.
pub fn open_in(options: &Options, memory: &'static mut [u8]) -> Result<Opened, OpenError> {
    open_with(options, Some(memory))
}

/// Reads an interface and says what keeps it from being opened, without taking it.
///
/// # Errors
/// What is in the way. What only opening shows, such as a driver without XDP, is not found.
pub fn look(interface: &str) -> Result<Interface, OpenError> {
    let found = Interface::read(interface)?;
    found.check(&Options::new(interface))?;
    match interface::program(interface) {
        Ok(Some(id)) => Err(OpenError::AnotherProgram {
            interface: found.name,
            id,
        }),
        _ => Ok(found),
    }
}

/// Bytes of memory that the frames of an interface take, for all workers together.
///
/// # Errors
/// If the interface cannot be opened with these options.
pub fn memory_len(options: &Options) -> Result<usize, OpenError> {
    let interface = Interface::read(&options.interface)?;
    let plan = OpenPlan::new(&interface, options)?;
    Ok(plan.memory_len(options))
}

fn open_with(
    options: &Options,
    mut memory: Option<&'static mut [u8]>,
) -> Result<Opened, OpenError> {
    let interface = Interface::read(&options.interface)?;
    let plan = OpenPlan::new(&interface, options)?;
    if let Some(memory) = &memory {
        let (given, needed) = (memory.len(), plan.memory_len(options));
        if given < needed {
            return Err(OpenError::MemoryGiven {
                interface: interface.name,
                given,
                needed,
            });
        }
    }
    wait_for_predecessor(&interface)?;

    let sockets = SocketMap::new(plan.queues_end).map_err(bpf_error)?;
    let instructions = filter::program(&plan.rules, sockets.descriptor());
    let program = Program::load(&instructions).map_err(refusal_error)?;
    let mut workers = Vec::new();
    for queues in &plan.workers {
        let mut of_worker = Vec::new();
        for (at, queue) in queues.iter().enumerate() {
            let transmits = at == 0;
            let umem = plan.umem(options, transmits, &mut memory)?;
            let socket = Socket::open(&interface, *queue, options, umem, transmits)?;
            sockets.insert(*queue, socket.as_fd()).map_err(bpf_error)?;
            of_worker.push(socket);
        }
        workers.push(of_worker);
    }
    // Last, so that no frame is redirected before there is a socket to take it.
    let link = attach(&program, &interface)?;

    let attachment = Arc::new(Attachment { _link: link });
    let features = Features {
        mac: interface.mac,
        mtu: u16::try_from(interface.mtu).expect("no more than a chunk holds"),
        fills_checksums: false,
        segmentation_len_max: 0,
    };
    let nics = workers
        .into_iter()
        .map(|sockets| XdpNic::new(sockets, features, Arc::clone(&attachment)))
        .collect::<io::Result<Vec<XdpNic>>>()
        .map_err(|source| OpenError::System {
            action: "make an epoll set",
            source,
        })?;
    Ok(Opened {
        interface,
        addresses: plan.rules.addresses,
        nics,
    })
}

/// The filter on the card, for as long as one worker has a queue.
struct Attachment {
    _link: AttachedProgram,
}

/// What follows from the options and the interface.
struct OpenPlan {
    rules: Rules,
    /// The queues of each worker.
    workers: Vec<Vec<u32>>,
    /// One more than the last queue.
    queues_end: u32,
    chunk_len: usize,
}

impl OpenPlan {
    fn new(interface: &Interface, options: &Options) -> Result<OpenPlan, OpenError> {
        interface.check(options)?;
        for len in [options.receive_len, options.transmit_len] {
            if !len.is_power_of_two() || !(64..=65536).contains(&len) {
                return Err(OpenError::RingLen { len });
            }
        }
        let queues = options.queues.clone().unwrap_or(0..interface.queues);
        if queues.end > interface.queues {
            return Err(OpenError::NoSuchQueue {
                interface: interface.name.clone(),
                queue: queues.start.max(interface.queues),
                last: interface.queues - 1,
            });
        }
        if options.workers == 0 || queues.len() < options.workers {
            return Err(OpenError::TooFewQueues {
                interface: interface.name.clone(),
                queues: queues.end.saturating_sub(queues.start),
                workers: options.workers,
            });
        }
        let mut workers = vec![Vec::new(); options.workers];
        for (queue, worker) in queues.clone().zip((0..options.workers).cycle()) {
            workers[worker].push(queue);
        }
        let chunk_len = umem::chunk_len(interface.mtu as usize).expect("the MTU was checked");
        Ok(OpenPlan {
            rules: rules(interface, options)?,
            workers,
            queues_end: queues.end,
            chunk_len,
        })
    }

    /// Bytes of memory for one queue.
    fn queue_len(&self, options: &Options, transmits: bool) -> usize {
        options.chunks(transmits) as usize * self.chunk_len
    }

    fn memory_len(&self, options: &Options) -> usize {
        let queues = self.workers.iter().flat_map(|queues| 0..queues.len());
        queues.map(|at| self.queue_len(options, at == 0)).sum()
    }

    /// Memory for one queue: a part of what the caller supplied, or newly mapped.
    fn umem(
        &self,
        options: &Options,
        transmits: bool,
        given: &mut Option<&'static mut [u8]>,
    ) -> Result<(Umem, Box<dyn Iterator<Item = Chunk>>), OpenError> {
        let chunks = options.chunks(transmits);
        if let Some(memory) = given.take() {
            let (of_queue, rest) = memory.split_at_mut(self.queue_len(options, transmits));
            *given = Some(rest);
            let (umem, chunks) = Umem::lend(of_queue, chunks, self.chunk_len);
            return Ok((umem, Box::new(chunks)));
        }
        match Umem::map(chunks, self.chunk_len, options.reserved_pages) {
            Ok((umem, chunks)) => Ok((umem, Box::new(chunks))),
            Err(source) => {
                let needed = self.queue_len(options, transmits);
                Err(if options.reserved_pages {
                    OpenError::ReservedPages { needed, source }
                } else {
                    OpenError::Memory { needed, source }
                })
            }
        }
    }
}

fn rules(interface: &Interface, options: &Options) -> Result<Rules, OpenError> {
    let addresses: Vec<IpAddr> = if options.addresses.is_empty() {
        interface
            .addresses
            .iter()
            .map(|address| address.ip)
            .collect()
    } else {
        options.addresses.clone()
    };
    for (what, count) in [
        ("addresses", addresses.len()),
        ("TCP ports", options.tcp_ports.len()),
        ("UDP ports", options.udp_ports.len()),
    ] {
        if count > RULES_MAX {
            return Err(OpenError::TooMany {
                what,
                count,
                max: RULES_MAX,
            });
        }
    }
    if addresses.is_empty() {
        return Err(OpenError::NoAddress {
            interface: interface.name.clone(),
        });
    }
    let ranges = |ports: &[u16]| {
        let of_active = options
            .active_ports
            .iter()
            .filter(|range| !range.is_empty());
        let of_server = ports.iter().map(|port| *port..=*port);
        of_server.chain(of_active.cloned()).collect::<Vec<_>>()
    };
    let rules = Rules {
        addresses,
        tcp_ports: ranges(&options.tcp_ports),
        udp_ports: ranges(&options.udp_ports),
    };
    if rules.tcp_ports.is_empty() && rules.udp_ports.is_empty() {
        return Err(OpenError::NoPort);
    }
    Ok(rules)
}

/// Waits, for a bounded time, until no program is attached to the interface.
fn wait_for_predecessor(interface: &Interface) -> Result<(), OpenError> {
    let mut found = None;
    for _ in 0..RETRIES {
        found = interface::program(&interface.name).map_err(|source| OpenError::System {
            action: "tell of XDP programs over netlink",
            source,
        })?;
        if found.is_none() {
            return Ok(());
        }
        sleep(RETRY_EVERY);
    }
    Err(OpenError::AnotherProgram {
        interface: interface.name.clone(),
        id: found.flatten(),
    })
}

fn attach(program: &Program, interface: &Interface) -> Result<AttachedProgram, OpenError> {
    let name = || interface.name.clone();
    AttachedProgram::new(program, interface.index).map_err(|source| {
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::PERM | Errno::ACCESS) => OpenError::Permission {
                action: "attach an XDP program",
            },
            Some(Errno::OPNOTSUPP) => OpenError::NoXdp { interface: name() },
            Some(Errno::NODEV) => OpenError::NoSuchInterface { interface: name() },
            Some(Errno::BUSY | Errno::EXIST) => OpenError::AnotherProgram {
                interface: name(),
                id: interface::program(&interface.name).ok().flatten().flatten(),
            },
            _ => OpenError::Attach {
                interface: name(),
                source,
            },
        }
    })
}

fn bpf_error(source: io::Error) -> OpenError {
    if source.kind() == io::ErrorKind::PermissionDenied {
        return OpenError::Permission {
            action: "make a BPF map",
        };
    }
    OpenError::System {
        action: "make a BPF map of AF_XDP sockets",
        source,
    }
}

fn refusal_error(refusal: Refusal) -> OpenError {
    let Refusal { source, complaint } = refusal;
    if source.raw_os_error() == Some(Errno::PERM.raw_os_error()) {
        return OpenError::Permission {
            action: "load an XDP program",
        };
    }
    OpenError::Filter { complaint, source }
}
