//! Servers and the load generator as programs.
//!
//! The server is the program that `COUA_BIN` names, else the `coua` that was built beside this
//! program (`cargo build -p coua`).
#![allow(dead_code, reason = "each test takes what it needs")]

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use serde_json::Value;

/// The server's program.
pub(crate) fn coua() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_coua-bench")).with_file_name("coua");
    std::env::var_os("COUA_BIN").map_or(beside, PathBuf::from)
}

/// A server that ends with the test.
pub(crate) struct Server {
    child: Child,
    /// Where it listens; 0 where only at a socket.
    pub(crate) port: u16,
    socket: PathBuf,
}

impl Server {
    /// One that listens at a port for TCP and UDP, and nowhere else.
    pub(crate) fn at_port() -> Server {
        let port = free_port();
        let text = port.to_string();
        Self::start(&["-l", "127.0.0.1", "-p", &text, "-U", &text], |_| {
            // Where nobody listens yet, the kernel may choose this very port for our end.
            TcpStream::connect(("127.0.0.1", port))
                .is_ok_and(|stream| stream.local_addr().is_ok_and(|own| own.port() != port))
        })
        .with_port(port)
    }

    /// One that listens at a unix socket.
    pub(crate) fn at_socket() -> Server {
        Self::start(&[], Path::exists)
    }

    fn start(flags: &[&str], ready: impl Fn(&Path) -> bool) -> Server {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("coua-bench-test-{}-{number}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let program = coua();
        let mut command = Command::new(&program);
        command.args(["-m", "64", "-t", "1"]).args(flags);
        if flags.is_empty() {
            command.arg("-s").arg(&socket);
        }
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        let child = command.stdout(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let server = Server {
            child,
            port: 0,
            socket,
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !ready(&server.socket) {
            assert!(Instant::now() < deadline, "the server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    fn with_port(mut self, port: u16) -> Server {
        self.port = port;
        self
    }

    /// As `--target` takes it.
    pub(crate) fn target(&self) -> String {
        match self.port {
            0 => format!("unix:{}", self.socket.display()),
            port => format!("127.0.0.1:{port}"),
        }
    }

    /// Runs a command of the load generator on it.
    pub(crate) fn bench(&self, arguments: &str) -> Output {
        bench(&format!("{arguments} --target {}", self.target()))
    }

    /// The outcome for programs, of a command that must succeed.
    pub(crate) fn measure(&self, arguments: &str) -> Value {
        let output = self.bench(&format!("{arguments} --json"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {errors}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Runs the load generator to its end.
pub(crate) fn bench(arguments: &str) -> Output {
    generator(arguments).output().unwrap()
}

/// The same, of arguments that may have blanks in them.
pub(crate) fn bench_of(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coua-bench"));
    command.args(arguments).output().unwrap()
}

/// The load generator with these arguments.
pub(crate) fn generator(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coua-bench"));
    command.args(arguments.split_whitespace());
    command
}

/// A port that nobody has. Nothing listens there meanwhile: a process that another thread starts just now has a copy of all
/// sockets for a moment, and a copy that listens would pass for the server.
fn free_port() -> u16 {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address: SocketAddr = getsockname(&socket).unwrap().try_into().unwrap();
    address.port()
}

/// A count of the first repetition.
pub(crate) fn count(outcome: &Value, name: &str) -> u64 {
    let number = &outcome["repetitions"][0][name];
    number
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {outcome}"))
}
