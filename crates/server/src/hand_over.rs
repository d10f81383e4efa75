//! Sockets that this process did not make: another version of the program takes this one's place
//! without an outage (`SIGUSR2`), and a service manager opens sockets for the program (systemd's
//! socket activation).
//!
//! On `SIGUSR2` the process executes the new program in its own place. It keeps its number and its
//! sockets; new connections and datagrams wait in their queues meanwhile. The memory lies in a file
//! (`-e`) and is taken over from there, as after any end. Clients lose their connections, connect
//! once more, and find their items.
//!
//! ```text
//!  SIGUSR2 ─▶ does the program start? ─▶ slow ones finish ─▶ all finish ─▶ execve ─▶ take over ─▶ serve
//!             (no: go on as before)       (all are served)    └─ new ones wait in the sockets' queues ─┘
//! ```
//! Sockets that the process has made come back where the flags name their addresses. Those that a
//! service manager has given take the place of all that flags name, in each program anew.
#![allow(
    unsafe_code,
    reason = "descriptors that the process before, or who started this one, has left open"
)]

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, io};

use coua_transport::{DatagramSocket, Listener};
use rustix::io::FdFlags;
use rustix::thread::CapabilitySet;

use crate::flags::{Driver, FlashPath, Settings};
use crate::process;

/// The environment variable with the process's own number and the descriptors that are left open,
/// those of its own making and those that it was given: `123:7,8:3`.
const SOCKETS: &str = "COUA_SOCKETS";

/// The environment variables by which a service manager names the descriptors that it has opened.
/// Other descriptors may have these numbers in the next program.
const OF_MANAGER: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// Why no other program can take the place of one with these settings, and what to do instead.
pub fn obstacle(settings: &Settings) -> Option<&'static str> {
    if settings.memory_file.is_none() {
        return Some("without -e the new program would begin empty: restart coua, or give it -e");
    }
    if settings.drops_privileges {
        return Some("-o drop_privileges forbids to execute a program: restart coua");
    }
    let file = settings.auth_file.as_ref();
    if file.is_some_and(|path| File::open(path).is_err()) {
        return Some(
            "the user (-u) may not read the file of -Y again: restart coua, which keeps what is in \
             -e, or let that user read it",
        );
    }
    let places = settings.flash.iter().flat_map(|flash| &flash.places);
    if places.into_iter().any(|place| !can_open(place)) {
        return Some(
            "the user (-u) may not open a device of flash again: restart coua, which keeps what is in -e \
             and on flash, or let that user open it",
        );
    }
    match settings.net.as_ref().map(|net| &net.driver) {
        Some(Driver::Dpdk { .. }) => Some(
            "a process cannot open DPDK's ports twice: restart coua, which keeps what is in -e",
        ),
        Some(Driver::Tap(_)) => Some(
            "the device of --net tap would go, with its addresses: restart coua, which keeps what \
             is in -e",
        ),
        Some(Driver::Xdp(_) | Driver::Packet(_)) if !can_open_cards() => Some(
            "the user (-u) may not open the card of --net again: restart coua, which keeps what is \
             in -e, or have it started as that user with CAP_NET_RAW and CAP_NET_ADMIN in its \
             ambient set",
        ),
        _ => None,
    }
}

/// Whether the next program in this process may open a device of flash.
fn can_open(place: &FlashPath) -> bool {
    match place.path() {
        Some(path) => File::options().read(true).write(true).open(path).is_ok(),
        None => rustix::process::geteuid().is_root(),
    }
}

/// Whether the next program in this process may open network cards. Other rights end at `execve`.
fn can_open_cards() -> bool {
    rustix::process::geteuid().is_root()
        || rustix::thread::capability_is_in_ambient_set(CapabilitySet::NET_RAW).unwrap_or(false)
}

/// The program that takes this one's place.
pub struct Successor {
    program: PathBuf,
    /// Where the paths of the command line count from: a server in the background leaves its folder.
    folder: Option<PathBuf>,
}

/// Sockets that are left to the successor.
#[derive(Default)]
pub struct Kept {
    /// Those of this process's making.
    pub own: Vec<OwnedFd>,
    /// Those that a service manager has given.
    pub given: Vec<OwnedFd>,
}

impl Successor {
    /// The program that this process was started as. To be asked at the start: an upgrade replaces
    /// the file.
    ///
    /// # Errors
    /// Where the system does not tell.
    pub fn find() -> io::Result<Successor> {
        Ok(Successor {
            program: env::current_exe()?,
            folder: env::current_dir().ok(),
        })
    }

    /// Whether the program is there and can be executed, and whether it takes the file of `--config` as
    /// that is now.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, settings: &Settings) -> io::Result<()> {
        let mut command = match settings.sources.file() {
            None => Command::new(&self.program),
            Some(_) => process::with_same_arguments(&self.program),
        };
        command.arg(match settings.sources.file() {
            None => "-V",
            Some(_) => "--check",
        });
        if let Some(folder) = self.folder.as_ref().filter(|folder| folder.is_dir()) {
            command.current_dir(folder);
        }
        let output = command.output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(match said.lines().next() {
            Some(line) => line.trim_start_matches("coua: ").to_owned(),
            None => output.status.to_string(),
        }))
    }

    /// Becomes the program, and leaves it the sockets. Returns only if that fails.
    pub fn take_place(&self, kept: &Kept) -> io::Error {
        let (own, given) = match (left_open(&kept.own), left_open(&kept.given)) {
            (Ok(own), Ok(given)) => (own, given),
            (Err(error), _) | (_, Err(error)) => return error,
        };
        if let Some(folder) = &self.folder {
            // If the user may not enter it any more, paths that begin at the root still do.
            let _ = env::set_current_dir(folder);
        }
        let mut command = process::with_same_arguments(&self.program);
        for name in OF_MANAGER {
            command.env_remove(name);
        }
        command
            .env(SOCKETS, format!("{}:{own}:{given}", std::process::id()))
            .exec()
    }
}

/// Has the descriptors outlive this program. Gives their numbers.
fn left_open(sockets: &[OwnedFd]) -> io::Result<String> {
    let mut numbers = Vec::new();
    for socket in sockets {
        rustix::io::fcntl_setfd(socket, FdFlags::empty())?;
        numbers.push(socket.as_raw_fd().to_string());
    }
    Ok(numbers.join(","))
}

/// Whether this program has taken the place of another one in its process.
pub fn is_successor() -> bool {
    let text = env::var(SOCKETS).unwrap_or_default();
    numbers_in(&text, std::process::id()).is_some()
}

/// Sockets that were open when this program began.
#[derive(Default)]
pub struct Inherited {
    /// Those that the program before has made.
    own: Adopted,
    /// Those that a service manager has given.
    pub given: Adopted,
}

/// Sockets by what they are for.
#[derive(Default)]
pub struct Adopted {
    /// They take connections.
    pub listeners: Vec<Listener>,
    /// They receive datagrams.
    pub datagrams: Vec<DatagramSocket>,
}

impl Inherited {
    /// Takes them; a second call finds none. What is no socket that takes connections or datagrams
    /// is closed, and the log says so.
    pub fn take() -> Inherited {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Inherited::default();
        }
        let text = env::var(SOCKETS).unwrap_or_default();
        let (own, mut given) = numbers_in(&text, std::process::id()).unwrap_or_default();
        match sd_notify::listen_fds() {
            Ok(numbers) => given.extend(numbers.filter(|number| !own.contains(number))),
            Err(error) => tracing::warn!("LISTEN_FDS: {error}; nothing is taken from there"),
        }
        Inherited {
            own: Adopted::of(own),
            given: Adopted::of(given),
        }
    }

    /// The sockets of TCP that listen on `address`; port 0 stands for any port.
    pub fn listening_on(&mut self, address: SocketAddr) -> Vec<Listener> {
        take_bound(&mut self.own.listeners, Listener::address, address)
    }

    /// The sockets that receive datagrams at `address`; port 0 stands for any port.
    pub fn receiving_at(&mut self, address: SocketAddr) -> Vec<DatagramSocket> {
        take_bound(&mut self.own.datagrams, DatagramSocket::address, address)
    }

    /// The unix socket that listens at `path`, if that still leads to it.
    pub fn listening_at(&mut self, path: &Path) -> Option<Listener> {
        if !path.exists() {
            return None;
        }
        let listeners = &mut self.own.listeners;
        let is_there = |listener: &Listener| listener.path().as_deref() == Some(path);
        let at = listeners.iter().position(is_there)?;
        Some(listeners.swap_remove(at))
    }
}

impl Adopted {
    fn of(numbers: Vec<RawFd>) -> Adopted {
        let mut adopted = Adopted::default();
        for number in numbers {
            // SAFETY: the program that was this process before, or the service manager that has
            // started it, left the descriptor open and named it with this process's number. Nothing
            // else in this process has taken it: it was open before `main`, and is taken once.
            let fd = unsafe { OwnedFd::from_raw_fd(number) };
            match Listener::adopt(fd).map_err(DatagramSocket::adopt) {
                Ok(listener) => adopted.listeners.push(listener),
                Err(Ok(datagrams)) => adopted.datagrams.push(datagrams),
                Err(Err(_)) => tracing::warn!(
                    "descriptor {number}: closed, it is no socket that listens on TCP, UDP or a path"
                ),
            }
        }
        adopted
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.datagrams.is_empty()
    }
}

/// Takes those sockets out that are bound to an address; port 0 stands for any port, the same of all.
fn take_bound<S>(
    sockets: &mut Vec<S>,
    bound: impl Fn(&S) -> Option<SocketAddr>,
    address: SocketAddr,
) -> Vec<S> {
    let addresses = sockets.iter().filter_map(&bound);
    let mut ports = addresses
        .filter(|bound| bound.ip() == address.ip())
        .map(|bound| bound.port());
    let port = match address.port() {
        0 => ports.next(),
        port => Some(port),
    };
    let Some(port) = port else {
        return Vec::new();
    };
    let wanted = SocketAddr::new(address.ip(), port);
    let is_there = |socket: &mut S| bound(socket) == Some(wanted);
    sockets.extract_if(.., is_there).collect()
}

/// The descriptors that the text names, of the program's own making and given ones, if it is meant
/// for process `own`.
fn numbers_in(text: &str, own: u32) -> Option<(Vec<RawFd>, Vec<RawFd>)> {
    let mut fields = text.split(':');
    if fields.next()?.parse() != Ok(own) {
        return None;
    }
    let mut next = || {
        let texts = fields.next().unwrap_or_default().split(',');
        // Standard streams are not among them, whatever the text says.
        let numbers = texts.filter_map(|text| text.parse().ok());
        let mut numbers: Vec<RawFd> = numbers.filter(|number| *number > 2).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    let made = next();
    let mut given = next();
    given.retain(|number| !made.contains(number));
    Some((made, given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_those_of_this_process() {
        let none: Vec<RawFd> = Vec::new();
        assert_eq!(
            numbers_in("12:7,8,7:", 12),
            Some((vec![7, 8], none.clone()))
        );
        assert_eq!(numbers_in("12:7,8", 12), Some((vec![7, 8], none.clone())));
        assert_eq!(numbers_in("12:7:3,7,4", 12), Some((vec![7], vec![3, 4])));
        assert_eq!(numbers_in("12:7,8", 13), None);
        assert_eq!(numbers_in("12:", 12), Some((none.clone(), none.clone())));
        assert_eq!(numbers_in("12:-1,0,2,x,9", 12), Some((vec![9], none)));
        assert_eq!(numbers_in("", 12), None);
    }

    #[test]
    fn sockets_are_taken_by_their_address() {
        let all = ["127.0.0.1:7", "127.0.0.1:8", "127.0.0.1:7", "[::1]:7"];
        let mut sockets = all.map(|text| text.parse().ok()).to_vec();
        let mut take = |address: &str| {
            let address = address.parse().expect("an address");
            take_bound(&mut sockets, |bound| *bound, address).len()
        };
        assert_eq!(take("127.0.0.2:0"), 0);
        assert_eq!(take("127.0.0.1:0"), 2);
        assert_eq!(take("127.0.0.1:7"), 0);
        assert_eq!(take("127.0.0.1:8"), 1);
        assert_eq!(take("[::1]:7"), 1);
    }
}
