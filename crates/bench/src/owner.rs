//! The process that listens at an address of this machine, and how busy it is.
//!
//! `/proc/net` tells the inode of the socket that listens; the process is the one that has a
//! descriptor for it.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::process::Pid;

use crate::cpu;
use crate::target::Target;

/// The server's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner(Pid);

/// CPU time of the server, by thread.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    by_thread: HashMap<u32, Duration>,
    /// Cores on which it may run.
    cores: usize,
}

/// CPU time between two looks at a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// Of all threads.
    pub(crate) all: Duration,
    /// Of the thread that used most.
    pub(crate) busiest_thread: Duration,
    /// Cores on which it may run.
    pub(crate) cores: usize,
}

impl Owner {
    /// The process of this id.
    pub(crate) fn of_pid(pid: u32) -> Option<Owner> {
        let raw = i32::try_from(pid).ok()?;
        Pid::from_raw(raw).map(Owner)
    }

    /// The process that listens at the target; none where the target is on another machine, or the
    /// process belongs to another user.
    pub(crate) fn of_target(target: &Target) -> Option<Owner> {
        let inode = match target {
            Target::Tcp(address) if is_local(address) => ["tcp", "tcp6", "udp", "udp6"]
                .iter()
                .find_map(|table| listener(&read_table(table), address.port())),
            Target::Tcp(_) => None,
            Target::Unix(path) => listener_at(&read_table("unix"), path.to_str()?),
        };
        holder(&format!("socket:[{}]", inode?))
    }

    /// Its process.
    pub(crate) fn pid(self) -> Pid {
        self.0
    }

    /// CPU time so far.
    pub(crate) fn usage(self) -> io::Result<Usage> {
        Ok(Usage {
            by_thread: cpu::of_threads(self.0)?,
            cores: cpu::allowed_to(Some(self.0))?.len(),
        })
    }
}

impl Usage {
    /// CPU time since then.
    pub(crate) fn since(&self, before: &Usage) -> Spent {
        let spent = self.by_thread.iter().map(|(id, now)| {
            let before = before.by_thread.get(id).copied().unwrap_or_default();
            now.saturating_sub(before)
        });
        let spent: Vec<Duration> = spent.collect();
        Spent {
            all: spent.iter().sum(),
            busiest_thread: spent.iter().copied().max().unwrap_or_default(),
            cores: self.cores,
        }
    }
}

fn is_local(address: &SocketAddr) -> bool {
    UdpSocket::bind((address.ip(), 0)).is_ok()
}

fn read_table(name: &str) -> String {
    std::fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default()
}

/// The inode of the socket that listens at a port, in a table of TCP or UDP: `sl local remote state
/// queues timer retransmits uid timeout inode`. A UDP socket that has no peer is in state 7.
fn listener(table: &str, port: u16) -> Option<u64> {
    let suffix = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let listens = matches!(words.get(3), Some(&"0A" | &"07"));
        let here = words.get(1)?.ends_with(&suffix);
        (listens && here).then(|| words.get(9)?.parse().ok())?
    })
}

/// The inode of the unix socket that listens at a path: `num references protocol flags type state
/// inode path`; flag 0x10000 is a listener's.
fn listener_at(table: &str, path: &str) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let here = words.get(7) == Some(&path) && words.get(3) == Some(&"00010000");
        here.then(|| words.get(6)?.parse().ok())?
    })
}

/// The process that has a descriptor whose link reads so.
fn holder(link: &str) -> Option<Owner> {
    let processes = std::fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let descriptors = std::fs::read_dir(process.path().join("fd")).ok()?;
        let holds = descriptors.flatten().any(|descriptor| {
            std::fs::read_link(descriptor.path()).is_ok_and(|to| to.as_os_str() == link)
        });
        holds.then(|| Owner::of_pid(pid))?
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_owner_of_a_listener_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::Tcp(listener.local_addr().unwrap());
        let owner = Owner::of_target(&target).unwrap();
        assert_eq!(owner.0, rustix::process::getpid());
        let before = owner.usage().unwrap();
        let spent = owner.usage().unwrap().since(&before);
        assert!(spent.all >= spent.busiest_thread && spent.cores > 0);
        drop(listener);
        assert!(Owner::of_target(&target).is_none());
    }

    #[test]
    fn another_machine_has_no_owner_here() {
        // An address for documentation, which no machine has.
        assert!(Owner::of_target(&"192.0.2.1:11211".parse().unwrap()).is_none());
    }
}
