//! A cache server as a child process: what every black-box test stands on.

use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, socket};

/// How long a server may take from start to its first answer.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A running server. Dropping it ends the process.
pub(crate) struct Server {
    /// Where it listens: loopback, on a port of its own.
    pub(crate) address: SocketAddr,
    /// The process, for its id.
    pub(crate) child: Child,
}

impl Server {
    /// Starts coua, or the program that `COUA_BIN` names in its place, with `flags` beside the address.
    pub(crate) fn coua(flags: &[&str]) -> Self {
        Self::start(&coua_program(), flags)
    }

    /// Starts `program`, tries again while another process takes the port first, and waits for an answer.
    ///
    /// # Panics
    /// When the server does not answer within 20 seconds; the message carries what it wrote to standard error.
    pub(crate) fn start(program: &Path, flags: &[&str]) -> Self {
        let mut last = String::new();
        for _ in 0..5 {
            match Self::try_start(program, flags) {
                Ok(server) => return server,
                Err(why) => last = why,
            }
        }
        panic!(
            "{} {} does not start: {last}",
            program.display(),
            flags.join(" ")
        );
    }

    fn try_start(program: &Path, flags: &[&str]) -> Result<Self, String> {
        let address = free_address();
        let mut command = Command::new(program);
        command
            .args(["-l", "127.0.0.1", "-p", &address.port().to_string()])
            .args(flags);
        if is_root() {
            command.args(["-u", "root"]);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut server = Self { address, child };
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("{status}: {}", server.standard_error()));
            }
            if server.answers(flags.contains(&"binary")) {
                server.discard_standard_error();
                return Ok(server);
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = server.child.kill();
        Err(format!(
            "no answer in {START_LIMIT:?}: {}",
            server.standard_error()
        ))
    }

    /// A new connection, with Nagle's algorithm off.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the server accepts connections");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream
    }

    /// True when the port is served by this child: it answers, and its answer is a memcached's.
    fn answers(&self, in_binary: bool) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.address) else {
            return false;
        };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
        let mut noop = [0; 24];
        noop[..2].copy_from_slice(b"\x80\x0a");
        let (question, expected): (&[u8], &[u8]) = match in_binary {
            true => (&noop, b"\x81\x0a"),
            false => (b"mn\r\n", b"MN\r\n"),
        };
        let mut answer = vec![0; expected.len()];
        stream.write_all(question).is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && answer == expected
    }

    fn standard_error(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            let _ = pipe.read_to_string(&mut text);
        }
        text
    }

    /// Keeps the pipe empty, so that a talkative server never blocks on it.
    fn discard_standard_error(&mut self) {
        if let Some(mut pipe) = self.child.stderr.take() {
            thread::spawn(move || std::io::copy(&mut pipe, &mut std::io::sink()));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program under test.
pub(crate) fn coua_program() -> PathBuf {
    env::var_os("COUA_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_coua")), PathBuf::from)
}

/// A port that no other server of this process gets, outside of the range that the kernel gives to clients.
///
/// Two servers that share a port by `SO_REUSEPORT` would each answer half of a test.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + (std::process::id().wrapping_mul(61).wrapping_add(step)) % 20_000;
        let address =
            SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).expect("under 30,000")));
        if is_free(address) {
            return address;
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

/// Whether the tests run as root, whom a server asks for `-u`.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
}
