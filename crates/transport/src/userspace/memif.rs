//! Frames over memory that is shared with another process on the same machine: memif 2.0, the link
//! of VPP, of DPDK and of libmemif.
//!
//! ```text
//! MemifNic of a worker ── ring, buffers ──→ peer        the memory is the client's, who comes; the
//!                      ←─ ring, buffers ──              server listens. Either may be coua.
//! control channel ═══ unix socket ═══════ peer
//! ```
//! What costs time on such a link is not the copying but the waiting for lines that the other core
//! holds. So a burst's lines are asked for all at once before they are copied, and those of the
//! replies while they are being made; indices move once a burst; and no frame is looked at in
//! shared memory.
//!
//! # Concurrency
//! Each [`MemifNic`] belongs to a worker. The first of a link looks after the control channel while it
//! receives, and gives the others their rings through a [mailbox].
//!
//! # Trust
//! Whoever may connect to the socket is a neighbour on an Ethernet, and no more: all numbers of a
//! peer's are checked, frames are copied before they are looked at, and only memory is mapped that
//! cannot shrink. What a peer can do beside is stop the link, and, by an event descriptor that it
//! makes block and fills up, stop a worker; so the socket is its owner's alone.
//!
//! # Not here
//! Chained buffers on the client's own rings (a buffer holds a frame of the MTU), metadata, private
//! headers, IP mode. Spreading connections over queues: the peer's queue `i` is ours.

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

/// Clients that may wait at the socket.
const BACKLOG: i32 = 8;

/// Which end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It listens at the socket.
    Server,
    /// It comes, and has the memory.
    Client,
}

/// Why a link is not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Somebody listens at the socket.
    #[error(
        "another server listens at {path}; give another socket, or role=client to connect to it"
    )]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// There can be no socket there.
    #[error("cannot listen at {path}: {source}; give a path in a folder that may be written to")]
    Socket {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The rings would be too many or too long.
    #[error(
        "rings of {len} entries for {queues} workers take more than 1 GiB; give a shorter ring="
    )]
    TooLong {
        /// Entries of each.
        len: u16,
        /// Workers.
        queues: usize,
    },
    /// The kernel has no descriptors left.
    #[error("no descriptors for a memif link: {source}; raise the limit (ulimit -n)")]
    System {
        /// What it said.
        source: io::Error,
    },
}

/// Opens a link, and waits for nobody: peers come and go.
///
/// `mac` is the address where the options name none. The news are told by the worker of the first
/// queue, while it receives.
///
/// # Errors
/// Where there can be no socket, for a server; a client waits for one.
///
/// # Panics
/// Where no queue was asked for.
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
