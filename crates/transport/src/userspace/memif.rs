//! Frames over memory that is shared with another process on the same machine: memif 2.0, the link
//! of VPP, of DPDK and of libmemif.
//!
//! ```text
//! MemifNic of a worker ── ring, buffers ──→ peer        the memory belongs to the client, which
//!                      ←─ ring, buffers ──              connects; the server listens. coua can be either.
//! control channel ═══ unix socket ═══════ peer
//! ```
//! On such a link, copying costs less than waiting for cache lines that the other core holds. So
//! all lines of a burst are prefetched before they are copied, and the lines of the replies while
//! the replies are made. Indices move once for each burst, and no frame is parsed in shared memory.
//!
//! # Concurrency
//! Each [`MemifNic`] belongs to a worker. The first one of a link handles the control channel while
//! it receives, and gives the others their rings through a [mailbox].
//!
//! # Trust
//! A process that may connect to the socket is trusted like a neighbour on an Ethernet and no
//! further. All numbers that it writes are checked, frames are copied before they are parsed, and
//! only memory that cannot shrink is mapped. A peer can still stop the link. With an event
//! descriptor that blocks when it is full, it can also stop a worker. So only its owner may open
//! the socket.
//!
//! # Not here
//! - Chained buffers on the client's own rings (a buffer holds a frame of the MTU), metadata,
//!   private headers, IP mode.
//! - Spreading connections over queues: the peer's queue `i` is queue `i` here.

mod channel;
mod client;
mod control;
mod frames;
mod layout;
mod look;
mod mailbox;
mod message;
mod news;
mod nic;
mod options;
mod receive;
mod region;
mod ring;
mod server;
#[cfg(test)]
mod tests;
mod transmit;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use coua_tcp::nic::{Features, LINK_HEADER_LEN, Mac};
use rustix::io::Errno;
use rustix::net::SocketType;

use client::Client;
use control::{Control, End};
use layout::Layout;
use mailbox::Mailbox;
pub use news::{News, Report};
pub use nic::{MemifNic, QueueCounters};
pub use options::{OptionError, Options};
use server::Server;

use crate::kernel::unix::unix_socket;

/// Access bits of a server's socket: whoever may connect is on the network.
const SOCKET_MODE: u32 = 0o600;

/// How many clients may wait at the socket.
const BACKLOG: i32 = 8;

/// Which end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It listens at the socket.
    Server,
    /// It connects, and owns the memory.
    Client,
}

/// Why a link cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process listens at the socket.
    #[error(
        "another server listens at {path}; give another socket, or role=client to connect to it"
    )]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("cannot listen at {path}: {source}; give a path in a folder that may be written to")]
    Socket {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The rings would take too much memory.
    #[error(
        "rings of {len} entries for {queues} workers take more than 1 GiB; give a shorter ring="
    )]
    TooLong {
        /// Entries of each ring.
        len: u16,
        /// Workers.
        queues: usize,
    },
    /// The process or the system has no descriptor left.
    #[error("no descriptors for a memif link: {source}; raise the limit (ulimit -n)")]
    System {
        /// What the system said.
        source: io::Error,
    },
}

/// Opens a link. It does not wait for a peer: peers come and go.
///
/// `mac` is the MAC address unless the options name one. The worker of the first queue calls
/// `report` with the link's news, while it receives.
///
/// # Errors
/// If a server cannot make its socket. (A client waits until there is one.)
///
/// # Panics
/// If no queue was asked for.
pub fn open(options: &Options, mac: Mac, report: Report) -> Result<Vec<MemifNic>, OpenError> {
    assert!(options.queues > 0, "a queue at least");
    let system = |source| OpenError::System { source };
    let frame_len = LINK_HEADER_LEN + usize::from(options.mtu);
    let end = match options.role {
        Role::Server => End::Server(Server::new(listen(options)?, options)),
        Role::Client => {
            let log2_len = u8::try_from(options.ring_len.trailing_zeros()).unwrap_or(u8::MAX);
            let layout = Layout::new(options.queues, log2_len, frame_len);
            layout.ok_or(OpenError::TooLong {
                len: options.ring_len,
                queues: options.queues,
            })?;
            End::Client(Client::new(options, frame_len).map_err(system)?)
        }
    };
    let mailboxes = (0..options.queues).map(|_| Mailbox::new().map(Arc::new));
    let mailboxes: Vec<_> = mailboxes.collect::<io::Result<_>>().map_err(system)?;
    let control = Control::new(end, mailboxes.clone(), report).map_err(system)?;
    let features = Features {
        mac: options.mac.unwrap_or(mac),
        mtu: options.mtu,
        fills_checksums: false,
        segmentation_len_max: 0,
    };
    let mut control = Some(control);
    let nics = mailboxes
        .into_iter()
        .map(|mailbox| MemifNic::new(features, mailbox, control.take()));
    nics.collect::<io::Result<_>>().map_err(system)
}

fn listen(options: &Options) -> Result<std::os::fd::OwnedFd, OpenError> {
    let path = &options.socket;
    let listener = unix_socket(path, SocketType::SEQPACKET, SOCKET_MODE, BACKLOG);
    listener.map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::ADDRINUSE) => OpenError::InUse { path: path.clone() },
        _ => OpenError::Socket {
            path: path.clone(),
            source,
        },
    })
}
