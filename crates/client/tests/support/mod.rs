//! Servers to test against: coua and memcached as programs, and one that does wrong on purpose.
//!
//! coua is the program that `COUA_BIN` names, else the one beside these tests (`cargo build -p coua`).
//! memcached is what `MEMCACHED_BIN` names, else what `scripts/memcached-current` fetches.
#![allow(dead_code, reason = "each test takes what it needs")]

pub(crate) mod certificates;
pub(crate) mod fake;

use std::env;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, socket};
use tempfile::TempDir;

/// How long anything may take that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Which program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    Coua,
    Memcached,
}

/// Over what.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Over {
    Tcp,
    Unix,
}

/// A running server. Dropping it ends the process.
pub(crate) struct Server {
    child: Child,
    /// As a client takes it.
    pub(crate) address: String,
    program: Program,
    flags: Vec<String>,
    _directory: TempDir,
}

impl Server {
    pub(crate) fn start(program: Program, over: Over) -> Server {
        Server::start_with(program, over, &[])
    }

    /// With further flags.
    pub(crate) fn start_with(program: Program, over: Over, further: &[&str]) -> Server {
        let directory = tempfile::tempdir().expect("a directory");
        let (address, mut flags) = match over {
            Over::Tcp => {
                let port = free_port().to_string();
                let flags = ["-l", "127.0.0.1", "-p", &port].map(str::to_owned);
                (format!("127.0.0.1:{port}"), flags.to_vec())
            }
            Over::Unix => {
                let path = directory.path().join("socket").display().to_string();
                (format!("unix:{path}"), vec!["-s".to_owned(), path])
            }
        };
        flags.extend(further.iter().map(|&flag| flag.to_owned()));
        let mut server = Server {
            child: spawn(program, &flags),
            address,
            program,
            flags,
            _directory: directory,
        };
        server.wait();
        server
    }

    /// Ends the process without a farewell.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it anew at the same place, empty.
    pub(crate) fn restart(&mut self) {
        self.kill();
        if let Some(path) = self.address.strip_prefix("unix:") {
            let _ = std::fs::remove_file(path);
        }
        self.child = spawn(self.program, &self.flags);
        self.wait();
    }

    fn wait(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !answers(&self.address) {
            let ended = self.child.try_wait().ok().flatten();
            assert!(ended.is_none(), "{:?} ended: {ended:?}", self.program);
            assert!(
                Instant::now() < deadline,
                "{:?} does not listen",
                self.program
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn answers(address: &str) -> bool {
    match address.strip_prefix("unix:") {
        Some(path) => UnixStream::connect(path).is_ok(),
        // Where nobody listens yet, the kernel may choose this very port for our end.
        None => TcpStream::connect(address).is_ok_and(|stream| {
            let ends = (stream.local_addr(), stream.peer_addr());
            matches!(ends, (Ok(own), Ok(peer)) if own != peer)
        }),
    }
}

fn spawn(program: Program, flags: &[String]) -> Child {
    let path = match program {
        Program::Coua => coua(),
        Program::Memcached => memcached(),
    };
    let mut command = Command::new(&path);
    command.args(["-m", "64", "-t", "2"]).args(flags);
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    child.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn coua() -> PathBuf {
    let own = env::current_exe().expect("a test has a path");
    let beside = own
        .ancestors()
        .nth(2)
        .expect("a target folder")
        .join("coua");
    env::var_os("COUA_BIN").map_or(beside, PathBuf::from)
}

fn memcached() -> PathBuf {
    if let Some(program) = env::var_os("MEMCACHED_BIN") {
        return program.into();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/memcached-current");
    let output = Command::new(script)
        .output()
        .expect("the script can be run");
    assert!(
        output.status.success(),
        "no memcached 1.6.45 could be fetched (set MEMCACHED_BIN to one): {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().into()
}

/// A port outside of the range that the kernel gives to clients.
fn free_port() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + (std::process::id().wrapping_mul(67).wrapping_add(step)) % 20_000;
        let address = ([127, 0, 0, 1], u16::try_from(port).expect("below 30,000"));
        if is_free(address.into()) {
            return port;
        }
    }
}

/// Whether nobody has the address. Nothing listens there meanwhile: a process that another thread starts just now has a copy
/// of all sockets for a moment, and a copy that listens would pass for the server.
fn is_free(address: SocketAddr) -> bool {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    set_socket_reuseaddr(&socket, true).expect("an option");
    bind(&socket, &address).is_ok()
}

/// Calls `found` until it finds something.
pub(crate) fn poll<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(it) = found() {
            return it;
        }
        assert!(Instant::now() < deadline, "{what}: not in {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}
