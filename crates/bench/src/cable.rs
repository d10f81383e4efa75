//! A cable between two network namespaces: a server at one end, on the kernel's TCP or on a stack of
//! its own, and its clients at the other.
//!
//! ```text
//! ┌ server's ─────────────┐             ┌ load's ───────────────┐
//! │ eth0     10.77.0.1/24 ├──── veth ───┤ 10.77.0.2/24     eth0 │
//! └───────────────────────┘             └───────────────────────┘
//! ```
//!
//! Neither namespace reaches the machine's own networks. A thread is in one namespace, and so are
//! the sockets that it opens and the threads that it starts.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use coua_tcp::nic::Mac;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use thiserror::Error as ThisError;

/// Where `ip netns` keeps its namespaces.
const FOLDER: &str = "/run/netns";
/// The prefix of their names, before the number of the process and a counter.
const PREFIX: &str = "coua-bench-";

/// The name of each end of a cable.
pub(crate) const DEVICE: &str = "eth0";
/// The server's address.
pub(crate) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
/// The server's address with its network.
pub(crate) const SERVER_NETWORK: &str = "10.77.0.1/24";
const LOAD_NETWORK: &str = "10.77.0.2/24";

/// Whether the kernel may choose another queue for a connection when it retransmits.
const TX_REHASH: &str = "/proc/sys/net/core/txrehash";

/// Who has the server's address: its kernel, or its own stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The kernel, and the server uses its TCP. Segmentation and checksums are left to the kernel,
    /// as on loopback.
    Kernel,
    /// The kernel, with AF_XDP beside it at either end. Frames have their final size and checksum,
    /// as on a cable that leads out of the machine.
    Shared,
    /// The server's own stack alone; frames as with [`Shared`](Self::Shared).
    Server,
}

/// Two namespaces that a veth pair joins; they are deleted when this is dropped.
#[derive(Debug)]
pub(crate) struct Cable {
    server: Namespace,
    load: Namespace,
}

impl Cable {
    /// Fails if this process may not lay a cable.
    pub(crate) fn check_rights() -> Result<(), Error> {
        match rustix::process::geteuid().is_root() {
            true => Ok(()),
            false => Err(Error::Rights),
        }
    }

    /// Lays a cable with `queues` queues on each side.
    pub(crate) fn lay(holder: Holder, queues: usize) -> Result<Cable, Error> {
        Cable::check_rights()?;
        let cable = Cable {
            server: Namespace::new()?,
            load: Namespace::new()?,
        };
        let ends = [&cable.server, &cable.load];
        for end in ends {
            end.keep_flows_on_their_queues()?;
        }
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        let other = &cable.load.0;
        cable.server.ip(&format!(
            "link add {DEVICE} {queues} type veth peer name {DEVICE} {queues} netns {other}"
        ))?;
        for end in ends {
            end.ip("link set lo up")?;
            end.ip(&format!("link set {DEVICE} up"))?;
        }
        cable
            .load
            .ip(&format!("addr add {LOAD_NETWORK} dev {DEVICE}"))?;
        if holder != Holder::Server {
            cable
                .server
                .ip(&format!("addr add {SERVER_NETWORK} dev {DEVICE}"))?;
        }
        if holder != Holder::Kernel {
            for end in ends {
                end.run("ethtool", &format!("-K {DEVICE} tx off tso off gso off"))?;
            }
        }
        Ok(cable)
    }

    /// The words that start a program in the server's namespace, before the program's own.
    pub(crate) fn launcher(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.server.0]
    }

    /// Runs `work` on a thread in the load's namespace, on the cores of this thread, and waits for
    /// it.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.load.enter(work)
    }

    /// Like [`enter`](Self::enter), in the server's namespace.
    pub(crate) fn enter_server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.server.enter(work)
    }

    /// Routes a network's packets from the server's kernel to one MAC address, without ARP: the
    /// other end does not answer it.
    pub(crate) fn lead(&self, network: &str, host: IpAddr, mac: Mac) -> Result<(), Error> {
        let words = format!("neigh replace {host} lladdr {mac} dev {DEVICE}");
        self.server
            .ip(&format!("route replace {network} dev {DEVICE}"))?;
        self.server.ip(&words)
    }
}

/// A network namespace, by its name.
#[derive(Debug)]
struct Namespace(String);

impl Namespace {
    fn new() -> Result<Namespace, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        if count == 0 {
            delete_leftovers();
        }
        let name = format!("{PREFIX}{}-{count}", std::process::id());
        command("ip", &["netns", "add", &name])?;
        Ok(Namespace(name))
    }

    fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let result = std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let file = File::open(Path::new(FOLDER).join(&self.0))?;
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(work())
            });
            inside.join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Keeps each connection's frames on one queue for as long as it lives.
    ///
    /// A frame that leaves by a queue of a veth device arrives on the queue of the same number at
    /// its peer, and the kernel chooses another queue whenever it retransmits
    /// (`sk_rethink_txhash`). A stack in user space with a queue for each thread then receives
    /// frames of another thread's connection, and resets that. A real card chooses by a frame's
    /// addresses and ports, which do not change.
    fn keep_flows_on_their_queues(&self) -> Result<(), Error> {
        let written = self.enter(|| match std::fs::write(TX_REHASH, "0") {
            // Linux before 5.18 always chooses again, and cannot be told not to.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written,
        });
        written.flatten().map_err(|error| Error::Command {
            line: format!("echo 0 > {TX_REHASH}"),
            said: error.to_string(),
        })
    }

    fn ip(&self, words: &str) -> Result<(), Error> {
        let words = words.split_whitespace();
        let all: Vec<&str> = ["-n", &self.0].into_iter().chain(words).collect();
        command("ip", &all)
    }

    fn run(&self, program: &str, words: &str) -> Result<(), Error> {
        let start = ["netns", "exec", &self.0, program];
        let words = words.split_whitespace();
        let all: Vec<&str> = start.into_iter().chain(words).collect();
        command("ip", &all)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        delete(&self.0);
    }
}

fn command(program: &str, words: &[&str]) -> Result<(), Error> {
    let output = Command::new(program).args(words).output();
    let failed = |said: String| Error::Command {
        line: format!("{program} {}", words.join(" ")),
        said,
    };
    let output = output.map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
    }
}

fn delete(name: &str) {
    // It fails only if the namespace is already gone.
    let _ = command("ip", &["netns", "del", name]);
}

/// Deletes namespaces that killed processes left behind.
fn delete_leftovers() {
    let Ok(entries) = std::fs::read_dir(FOLDER) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let rest = name.strip_prefix(PREFIX);
        let pid = rest.and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            delete(&name);
        }
    }
}

/// Why there is no cable.
#[derive(Debug, ThisError)]
pub(crate) enum Error {
    /// Only root may create network namespaces.
    #[error("a cable between two network namespaces (--veth, or coua --net) needs root")]
    Rights,
    /// A program failed.
    #[error("`{line}` failed: {said}; a cable needs the packages iproute2 and ethtool")]
    Command {
        /// The program with its arguments.
        line: String,
        /// Its own words.
        said: String,
    },
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A stack with a queue for each thread loses a connection whose frames arrive on another
    /// queue.
    #[test]
    fn connections_keep_to_their_queues() {
        let cable = match Cable::lay(Holder::Shared, 2) {
            Err(Error::Rights) => return,
            other => other.unwrap(),
        };
        if !Path::new(TX_REHASH).exists() {
            return;
        }
        for value in [
            cable.enter(|| std::fs::read_to_string(TX_REHASH)),
            cable.enter_server(|| std::fs::read_to_string(TX_REHASH)),
        ] {
            assert_eq!(value.unwrap().unwrap().trim(), "0");
        }
    }

    #[test]
    fn the_load_is_in_a_network_of_its_own() {
        let cable = match Cable::lay(Holder::Shared, 2) {
            // Without root there is no cable to test.
            Err(Error::Rights) => return,
            other => other.unwrap(),
        };
        let heard = cable.enter(|| -> io::Result<[u8; 2]> {
            let listener = TcpListener::bind("10.77.0.2:0")?;
            let mut client = TcpStream::connect(listener.local_addr()?)?;
            client.write_all(b"hi")?;
            let mut heard = [0; 2];
            listener.accept()?.0.read_exact(&mut heard)?;
            Ok(heard)
        });
        assert_eq!(&heard.unwrap().unwrap(), b"hi");
        assert!(TcpListener::bind("10.77.0.2:0").is_err());
        let name = cable.load.0.clone();
        drop(cable);
        assert!(!Path::new(FOLDER).join(name).exists());
    }
}
