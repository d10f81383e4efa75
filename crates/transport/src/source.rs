//! What a poller can wait for.

use std::os::fd::BorrowedFd;

use coua_tcp::stack::ConnectionId;

#[cfg(feature = "simulated")]
use crate::simulated;

/// What a poller can wait for.
#[derive(Clone, Copy, Debug)]
pub enum Source<'s> {
    /// A descriptor.
    Kernel(BorrowedFd<'s>),
    /// A connection of the poller's own stack.
    Userspace(ConnectionId),
    /// All datagrams of the poller's own stack.
    UserspaceDatagrams,
    /// Nothing: it is never waited for, and no poller takes it.
    Nothing,
    /// One end of a simulated network.
    #[cfg(feature = "simulated")]
    Simulated(simulated::SourceId),
}
