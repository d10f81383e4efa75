//! Where the servers of the steps run, and how a client reaches them.
//!
//! On loopback, like any program; or at the other end of a cable, on the server's own TCP/IP stack,
//! with the client on the kernel's:
//!
//! ```text
//! ┌ namespace ────┐                ┌ namespace ────┐
//! │ server   eth0 ├────── veth ────┤ eth0   client │
//! └───────────────┘                └───────────────┘
//! ```

use std::path::Path;
use std::process::{Command, id};

use anyhow::Result;

use super::guard::Guard;
use crate::commands::{program, read, succeeds, under};
use crate::server::Server;

/// What the interfaces of a cable are called in both namespaces.
const DEVICE: &str = "eth0";
/// The addresses of server and client.
const ADDRESSES: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
/// The port of servers that have a network for themselves.
const PORT: u16 = 11211;
/// Receive and transmit queues of an interface, for as many workers.
const QUEUES: &str = "numrxqueues 2 numtxqueues 2";
/// DPDK on a packet socket at an end of a cable, for as many workers. It does not use huge pages:
/// ordinary memory is slower, but every machine has enough of it.
const DPDK: &str = "--no-pci --no-telemetry --no-huge --no-shconf -m 256 --log-level=lib.eal:4 \
                    --vdev=net_af_packet0,iface=eth0,qpairs=2";

/// Where servers run.
pub(crate) enum Site {
    /// At a free port on loopback.
    Loopback,
    /// On their own stack.
    Cable(Cable),
    /// At a free port on loopback, with flags that keep strangers out and the server in.
    Guarded(Guard),
}

impl Site {
    /// Starts a server and waits for its first answer.
    pub(crate) fn start(&self, path: &Path, flags: &[&str]) -> Result<Server> {
        match self {
            Site::Loopback => Server::start(path, flags),
            Site::Cable(cable) => cable.start(path, flags),
            Site::Guarded(guard) => guard.start(path, flags),
        }
    }

    /// The host of its servers, for a client.
    pub(crate) fn host(&self) -> &'static str {
        match self {
            Site::Loopback | Site::Guarded(_) => "127.0.0.1",
            Site::Cable(_) => ADDRESSES[0],
        }
    }

    /// The command as it runs where the clients are.
    pub(crate) fn client(&self, command: Command) -> Command {
        match self {
            Site::Loopback => command,
            Site::Cable(cable) => within(&cable.clients, &command),
            Site::Guarded(guard) => guard.client(command),
        }
    }

    /// Whether clients can be served there in a dialect.
    pub(crate) fn takes(&self, dialect: &str) -> bool {
        match self {
            Site::Guarded(guard) => guard.takes(dialect),
            _ => true,
        }
    }

    /// Looks for what must not have happened to its servers.
    ///
    /// # Errors
    /// If it has.
    pub(crate) fn conclude(&self) -> Result<()> {
        match self {
            Site::Guarded(guard) => guard.conclude(),
            _ => Ok(()),
        }
    }
}

/// Two network namespaces with a cable between them. Dropping it deletes both.
pub(crate) struct Cable {
    servers: String,
    clients: String,
    driver: &'static str,
}

impl Cable {
    /// Whether this process may make network namespaces and has the programs for it.
    pub(crate) fn can_be_laid() -> bool {
        let name = format!("coua-probe-{}", id());
        let made = succeeds(program("ip").args(["netns", "add", &name]));
        made && succeeds(program("ip").args(["netns", "del", &name]))
            && succeeds(program("ethtool").arg("--version"))
    }

    /// Makes a cable for servers with `--net DRIVER:eth0`, or with `--net dpdk` on a packet socket
    /// there.
    pub(crate) fn lay(driver: &'static str) -> Result<Cable> {
        let [servers, clients] =
            ["servers", "clients"].map(|side| format!("coua-{side}-{driver}-{}", id()));
        // From here on they are deleted in any case.
        let cable = Cable {
            servers,
            clients,
            driver,
        };
        let (ours, theirs) = (&cable.servers, &cable.clients);
        for namespace in [ours, theirs] {
            ip(&format!("netns add {namespace}"))?;
        }
        ip(&format!(
            "-n {ours} link add {DEVICE} {QUEUES} type veth peer name {DEVICE} netns {theirs} {QUEUES}"
        ))?;
        for namespace in [ours, theirs] {
            ip(&format!("-n {namespace} link set {DEVICE} up"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
            // On a cable within the machine, the kernel leaves checksums out and segments uncut.
            let mut offloads = program("ethtool");
            offloads.args(["-K", DEVICE, "tx", "off", "tso", "off", "gso", "off"]);
            read(&mut within(namespace, &offloads))?;
        }
        ip(&format!(
            "-n {theirs} addr add {}/24 dev {DEVICE}",
            ADDRESSES[1]
        ))?;
        if cable.takes_address() {
            ip(&format!(
                "-n {ours} addr add {}/24 dev {DEVICE}",
                ADDRESSES[0]
            ))?;
        }
        Ok(cable)
    }

    /// Whether the driver takes over the interface's address, and leaves ARP to the kernel.
    fn takes_address(&self) -> bool {
        self.driver == "xdp"
    }

    fn start(&self, path: &Path, flags: &[&str]) -> Result<Server> {
        let mut command = program(path);
        command.args(["-u", "root", "-p", &PORT.to_string()]);
        match self.driver {
            "dpdk" => command.args(["--net", "dpdk", "--dpdk-args", DPDK]),
            driver => command.args(["--net", &format!("{driver}:{DEVICE}")]),
        };
        if !self.takes_address() {
            command.args(["--address", &format!("{}/24", ADDRESSES[0])]);
        }
        command.args(flags);
        let mut command = within(&self.servers, &command);
        Server::start_as(&mut command, PORT, || self.is_answered())
    }

    /// Whether a client gets an answer from the server.
    fn is_answered(&self) -> bool {
        let talk = format!(
            r#"exec 3<>/dev/tcp/{}/{PORT} && printf 'mn\r\n' >&3 && read -r -t 2 answer <&3 && [ "$answer" = $'MN\r' ]"#,
            ADDRESSES[0]
        );
        let mut command = program("timeout");
        command.args(["2", "bash", "-c", &talk]);
        succeeds(&mut within(&self.clients, &command))
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in [&self.servers, &self.clients] {
            // If it was never made, there is nothing to delete.
            succeeds(program("ip").args(["netns", "del", name]));
        }
    }
}

/// The same command in a network namespace.
fn within(namespace: &str, command: &Command) -> Command {
    under("ip", &["netns", "exec", namespace], command)
}

fn ip(words: &str) -> Result<()> {
    read(program("ip").args(words.split_whitespace()))?;
    Ok(())
}
