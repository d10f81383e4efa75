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
    /// Requests in flight a connection.
    pub(crate) depth: usize,
    /// Threads on each machine; all together no more than connections.
    pub(crate) threads: usize,
    /// First core of this machine's threads, which take one each from there on; not bound where none.
    pub(crate) core: Option<usize>,
    /// Further machines.
    pub(crate) agents: Vec<SocketAddr>,
    /// A stack of our own to speak TCP with, each thread on a queue of its own; the kernel's sockets
    /// where none. Not with agents.
    pub(crate) net: Option<Net>,
    /// Tell who was away when replies took long, of this machine's threads; with the server's process,
    /// where it is here.
    pub(crate) gaps: Option<Option<Pid>>,
}

impl Setup {
    /// This machine and its agents.
    pub(super) fn machines(&self) -> usize {
        1 + self.agents.len()
    }

    /// The part of a machine, of which 0 is this one.
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
