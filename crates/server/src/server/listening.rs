//! What the server listens on: each worker's sockets, the flag to change if one cannot be made, and
//! the file with the ports.

use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;

use coua_transport::tls::ClientCertificate;
use coua_transport::userspace::StackSetup;
use coua_transport::{DatagramSocket, ListenError, Listener, TcpOptions};
use rustix::io::Errno;

use super::{StartError, userspace};
use crate::flags::{Listen, Settings};
use crate::hand_over::{Adopted, Inherited};
use crate::metrics::Endpoint;
use crate::shared::{Listening, ListeningSocket};
use crate::worker::WorkerSockets;

/// Listening sockets that no worker has yet.
pub struct Sockets {
    /// By worker.
    pub(super) by_worker: Vec<WorkerSockets>,
    /// All of them.
    pub(super) listening: Listening,
    /// Where scrapes are answered.
    pub(super) metrics: Option<Endpoint>,
    /// What the program before has left and is not listened on yet.
    inherited: Inherited,
    /// A service manager has given sockets, in place of what the flags name.
    are_given: bool,
}

impl Sockets {
    /// Listens for TCP and UDP as the settings say, and opens the card that they name.
    ///
    /// # Errors
    /// [`StartError`]: an address or a card cannot be used.
    pub fn open(settings: &Settings) -> Result<Sockets, StartError> {
        let mut sockets = Sockets {
            by_worker: (0..settings.workers)
                .map(|_| WorkerSockets::default())
                .collect(),
            listening: Listening::default(),
            metrics: None,
            inherited: Inherited::default(),
            are_given: false,
        };
        if let Some(address) = settings.metrics {
            let refused = |source| StartError::Metrics { address, source };
            let endpoint = Endpoint::open(address).map_err(refused)?;
            sockets.listening.metrics = Some(endpoint.address());
            sockets.metrics = Some(endpoint);
        }
        let options = TcpOptions {
            backlog: settings.backlog,
        };
        let mut inherited = Inherited::take();
        let given = std::mem::take(&mut inherited.given);
        sockets.are_given = !given.is_empty();
        let (listen, listen_udp) = match sockets.are_given {
            true => (&[][..], &[][..]),
            false => (&settings.listen[..], &settings.listen_udp[..]),
        };
        sockets.take_given(given, settings)?;
        listen_each(listen, |listen| {
            let address = listen.address;
            let mut listeners = inherited.listening_on(address);
            if listeners.is_empty() {
                listeners = Listener::tcp(address, settings.workers, options)?;
            }
            let kept = listeners
                .iter()
                .filter_map(|socket| socket.duplicate().ok());
            sockets.listening.kept.own.extend(kept);
            sockets.add(listeners, address, listen.tls);
            Ok(())
        })?;
        listen_each(listen_udp, |listen| {
            let address = listen.address;
            let mut datagrams = inherited.receiving_at(address);
            if datagrams.is_empty() {
                datagrams = DatagramSocket::bind(address, settings.workers)?;
            }
            let kept = datagrams
                .iter()
                .filter_map(|socket| socket.duplicate().ok());
            sockets.listening.kept.own.extend(kept);
            sockets.add_datagrams(datagrams, address);
            Ok(())
        })?;
        sockets.inherited = inherited;
        if let Some(net) = &settings.net {
            let setups = userspace::open(net, settings)?;
            let name = userspace::name(&net.driver);
            for address in userspace::addresses(&setups, net.port) {
                sockets.note(-1, format!("{name}:{address}"), false);
                sockets.listening.addresses.push(address);
            }
            for address in net
                .udp_port
                .into_iter()
                .flat_map(|port| userspace::addresses(&setups, port))
            {
                sockets.note(-1, format!("{name}-udp:{address}"), true);
                sockets.listening.udp_addresses.push(address);
            }
            for (worker, setup) in sockets.by_worker.iter_mut().zip(setups) {
                worker.setup = Some(setup);
            }
        }
        Ok(sockets)
    }

    /// Gives a worker a queue of a card that somebody else has opened.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn give_setup(&mut self, worker: usize, setup: StackSetup) {
        self.by_worker[worker].setup = Some(setup);
    }

    /// Listens on the unix socket, if the settings name one. It belongs to the user that the process
    /// is at that moment.
    ///
    /// # Errors
    /// [`StartError`]: there can be no socket at that path.
    pub fn open_unix(&mut self, settings: &Settings) -> Result<(), StartError> {
        let mut inherited = std::mem::take(&mut self.inherited);
        let Some(socket) = settings.unix_socket.as_ref().filter(|_| !self.are_given) else {
            return Ok(());
        };
        let listener = match inherited.listening_at(&socket.path) {
            Some(listener) => listener,
            None => {
                // What is not wanted any more may be at that path.
                drop(inherited);
                Listener::unix(&socket.path, settings.unix_mask, settings.backlog)?
            }
        };
        self.listening.kept.own.extend(listener.duplicate().ok());
        self.listening.unix_path = Some(socket.path.clone());
        self.add_unix(listener, socket.path.display())
    }

    /// Takes what a service manager has given. Each socket serves all workers, but one for datagrams
    /// a single one.
    fn take_given(&mut self, given: Adopted, settings: &Settings) -> Result<(), StartError> {
        let tls = settings.tls.as_ref().map(|tls| tls.of_clients);
        if !given.datagrams.is_empty() && (tls.is_some() || settings.users.is_some()) {
            return Err(StartError::GivenDatagrams);
        }
        for listener in given.listeners {
            self.listening.kept.given.extend(listener.duplicate().ok());
            match (listener.address(), listener.path()) {
                (Some(address), _) => {
                    let listeners = self.share(listener)?;
                    self.add(listeners, address, tls);
                }
                (None, path) => {
                    let path = path.unwrap_or_default();
                    self.add_unix(listener, path.display())?;
                }
            }
        }
        for socket in given.datagrams {
            self.listening.kept.given.extend(socket.duplicate().ok());
            if let Some(address) = socket.address() {
                self.add_datagrams(vec![socket], address);
            }
        }
        Ok(())
    }

    fn add_unix(&mut self, listener: Listener, path: impl Display) -> Result<(), StartError> {
        let listeners = self.share(listener)?;
        self.note(listeners[0].descriptor(), format!("unix:{path}"), false);
        self.give(listeners, None);
        Ok(())
    }

    fn share(&self, listener: Listener) -> Result<Vec<Listener>, StartError> {
        let shared = listener.shared_by(self.by_worker.len());
        shared.map_err(|source| StartError::System {
            action: "share a listening socket",
            source,
        })
    }

    /// Begins to write the card's frames to files, if the settings say so. The files belong to the
    /// user that the process is at that moment.
    ///
    /// # Errors
    /// [`StartError`]: a file cannot be made or written to.
    pub fn trace(&mut self, settings: &Settings) -> Result<(), StartError> {
        let Some(file) = settings.net.as_ref().and_then(|net| net.trace.as_ref()) else {
            return Ok(());
        };
        for (number, worker) in self.by_worker.iter_mut().enumerate() {
            let mut path = file.clone();
            if settings.workers > 1 {
                path.as_mut_os_string().push(format!(".{number}"));
            }
            if let Some(setup) = worker.setup.take() {
                worker.setup = Some(userspace::traced(setup, &path)?);
            }
        }
        Ok(())
    }

    fn add(&mut self, listeners: Vec<Listener>, asked: SocketAddr, tls: Option<ClientCertificate>) {
        let address = listeners[0].address().unwrap_or(asked);
        let kind = if address.is_ipv4() { "tcp" } else { "tcp6" };
        for listener in &listeners {
            self.note(listener.descriptor(), format!("{kind}:{address}"), false);
        }
        self.listening.addresses.push(address);
        self.give(listeners, tls);
    }

    fn add_datagrams(&mut self, datagrams: Vec<DatagramSocket>, asked: SocketAddr) {
        let address = datagrams[0].address().unwrap_or(asked);
        let kind = if address.is_ipv4() { "udp" } else { "udp6" };
        for socket in &datagrams {
            self.note(socket.descriptor(), format!("{kind}:{address}"), true);
        }
        self.listening.udp_addresses.push(address);
        self.listening
            .udp_inodes
            .extend(datagrams.iter().filter_map(DatagramSocket::inode));
        let workers = self.by_worker.len();
        for (number, socket) in datagrams.into_iter().enumerate() {
            self.by_worker[number % workers].datagrams.push(socket);
        }
    }

    fn note(&mut self, descriptor: i32, address: String, is_udp: bool) {
        self.listening.sockets.push(ListeningSocket {
            descriptor,
            address,
            is_udp,
        });
    }

    fn give(&mut self, listeners: Vec<Listener>, tls: Option<ClientCertificate>) {
        let workers = self.by_worker.len();
        for (number, listener) in listeners.into_iter().enumerate() {
            let worker = &mut self.by_worker[number % workers];
            worker.listeners.push(listener);
            worker.tls.push(tls);
        }
    }
}

/// Listens at each address by `open`. An address that nobody asked for may be left out.
fn listen_each(
    all: &[Listen],
    mut open: impl FnMut(&Listen) -> Result<(), ListenError>,
) -> Result<(), ListenError> {
    let mut taken = Vec::new();
    let mut is_any_open = false;
    for listen in all {
        match open(listen) {
            Ok(()) => is_any_open = true,
            Err(error) if listen.is_optional && is_absent(&error) => {
                tracing::debug!(%error, "left out");
            }
            Err(error) if listen.is_unasked && errno(&error) == Some(Errno::ADDRINUSE) => {
                taken.push(error);
            }
            Err(error) => return Err(error),
        }
    }
    for error in taken {
        if !is_any_open {
            return Err(error);
        }
        tracing::warn!("{error}: coua goes on without it; give the addresses to listen on (-l)");
    }
    Ok(())
}

/// Whether the machine has no address of that kind at all.
fn is_absent(error: &ListenError) -> bool {
    matches!(errno(error), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

/// What the kernel said about an IP address.
fn errno(error: &ListenError) -> Option<Errno> {
    match error {
        ListenError::Tcp { source, .. } | ListenError::Udp { source, .. } => {
            Errno::from_io_error(source)
        }
        ListenError::Unix { .. } => None,
    }
}

/// Which flag to change if the server cannot listen on an address.
pub(super) fn remedy(error: &ListenError) -> String {
    let source = error.source().and_then(<dyn Error>::downcast_ref);
    let errno = source.and_then(Errno::from_io_error);
    let port = match error {
        ListenError::Tcp { .. } => "port (-p)",
        ListenError::Udp { .. } => "port (-U)",
        ListenError::Unix { .. } => return remedy_for_path(errno).to_owned(),
    };
    match errno {
        Some(Errno::MFILE | Errno::NFILE) => TOO_MANY_FILES.to_owned(),
        Some(Errno::ADDRINUSE) => {
            format!("another server has it; give another {port} or address (-l)")
        }
        Some(Errno::ADDRNOTAVAIL) => {
            "this machine has no such address; give one that it has (-l)".to_owned()
        }
        Some(Errno::ACCESS) => {
            format!("ports below 1024 need root's rights; start as root or give another {port}")
        }
        _ => format!("give another address (-l) or {port}"),
    }
}

/// What to do if the process or the system has no descriptor left.
const TOO_MANY_FILES: &str =
    "give fewer threads (-t), or raise the limit on open files (ulimit -n)";

fn remedy_for_path(errno: Option<Errno>) -> &'static str {
    match errno {
        Some(Errno::MFILE | Errno::NFILE) => TOO_MANY_FILES,
        Some(Errno::ADDRINUSE) => {
            "another server has it, or it is not a socket; give another path (-s)"
        }
        _ => "give another path (-s), in a folder that the user (-u) may write to",
    }
}

/// Writes the ports to a file if the environment asks for it, so that tests find a server that took
/// any free port. The file appears whole; if it cannot be made, the log says so.
pub(super) fn write_port_file(listening: &Listening) {
    let Some(path) = std::env::var_os("MEMCACHED_PORT_FILENAME").map(PathBuf::from) else {
        return;
    };
    let mut text = String::new();
    for (protocol, addresses) in [
        ("TCP", &listening.addresses),
        ("UDP", &listening.udp_addresses),
    ] {
        for address in addresses {
            let kind = if address.is_ipv4() { "INET" } else { "INET6" };
            text.push_str(&format!("{protocol} {kind}: {}\n", address.port()));
        }
    }
    let mut unfinished = path.clone().into_os_string();
    unfinished.push(".lck");
    let written =
        std::fs::write(&unfinished, text).and_then(|()| std::fs::rename(&unfinished, &path));
    if let Err(error) = written {
        tracing::warn!(
            "MEMCACHED_PORT_FILENAME: cannot write {}: {error}",
            path.display()
        );
    }
}
