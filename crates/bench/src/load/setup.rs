//! What a team of load threads is made of.

use std::net::SocketAddr;

use coua::flags::Net;
use rustix::process::Pid;

use crate::target::Target;

/// What a team is made of.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The server.
    pub(crate) target: Target,
    /// Connections, over all threads and machines.
    pub(crate) connections: usize,
    /// Requests in flight on each connection.
    pub(crate) depth: usize,
    /// Threads on each machine; all together no more than connections.
    pub(crate) threads: usize,
    /// First core of this machine's threads; each thread takes the next one. Threads are not bound
    /// if none.
    pub(crate) core: Option<usize>,
    /// Further machines.
    pub(crate) agents: Vec<SocketAddr>,
    /// A stack of our own to speak TCP with, on which each thread has its own queue; the kernel's
    /// sockets if none. Not with agents.
    pub(crate) net: Option<Net>,
    /// Whether to tell, for this machine's threads, who had no CPU when replies took long; with the
    /// server's process if it runs here.
    pub(crate) gaps: Option<Option<Pid>>,
}

impl Setup {
    /// This machine and its agents.
    pub(super) fn machines(&self) -> usize {
        1 + self.agents.len()
    }

    /// The part of one machine; this one is 0.
    pub(super) fn for_machine(&self, machine: usize) -> Setup {
        Setup {
            connections: part(self.connections, machine, self.machines()),
            agents: Vec::new(),
            ..self.clone()
        }
    }
}

/// One of several parts of a count.
pub(super) fn part(count: usize, share: usize, shares: usize) -> usize {
    count / shares + usize::from(share < count % shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_whole() {
        for (count, shares) in [(64, 3), (3, 3), (7, 2)] {
            let parts = (0..shares).map(|share| part(count, share, shares));
            assert_eq!(parts.sum::<usize>(), count);
        }
    }
}
