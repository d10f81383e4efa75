//! Servers under test: started on cores of their own, waited for until they accept connections, and
//! killed when dropped or when this process ends.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error as ThisError;

use crate::cable::Cable;
use crate::client::Client;
use crate::cpu;
use crate::guard;
use crate::owner::Owner;
use crate::target::Target;

/// A running server; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pid: Pid,
    target: Target,
}

impl Server {
    /// How long a server may take until it accepts connections; touching its memory for the first
    /// time is a part of that.
    const START: Duration = Duration::from_secs(60);

    /// Starts `program` on `core` with the flags in [`Flags`], which memcached has too.
    pub(crate) fn start(program: &Path, core: usize, flags: &Flags) -> Result<Server, Error> {
        let address = free_address()?;
        Self::start_at(
            program,
            &[core],
            flags.arguments(address),
            Target::Tcp(address),
            None,
        )
    }

    /// Starts `program` on the cores, with arguments that make it listen at `target`; at the
    /// server's end of a cable if one is given.
    pub(crate) fn start_at(
        program: &Path,
        cores: &[usize],
        arguments: Vec<OsString>,
        target: Target,
        cable: Option<&Cable>,
    ) -> Result<Server, Error> {
        let connects = |target: &Target| match cable {
            Some(cable) => cable.enter(|| target.connect().is_ok()).unwrap_or(false),
            None => target.connect().is_ok(),
        };
        let launcher = cable.map(Cable::launcher);
        let launcher = launcher.as_ref().map_or(&[][..], |words| &words[..]);
        Self::spawn(launcher, program, cores, arguments, target, connects)
    }

    /// Starts this very program on `core` as the echo that the arguments describe; its address is
    /// added to them.
    pub(crate) fn start_echo(core: usize, arguments: Vec<OsString>) -> Result<Server, Error> {
        let address = free_address()?;
        let mut all: Vec<OsString> =
            vec!["echo".into(), "--listen".into(), address.to_string().into()];
        all.extend(arguments);
        let program = std::env::current_exe()?;
        Self::start_at(&program, &[core], all, Target::Tcp(address), None)
    }

    /// Starts this very program on `core`, with arguments that make it create `socket`, by which
    /// the other end of a link finds it. The program may take a moment longer until it answers
    /// there.
    pub(crate) fn start_at_link(
        core: usize,
        arguments: Vec<OsString>,
        socket: &Path,
    ) -> Result<Server, Error> {
        let target = Target::Unix(socket.into());
        let program = std::env::current_exe()?;
        Self::spawn(&[], &program, &[core], arguments, target, |_| {
            socket.exists()
        })
    }

    /// `launcher` is a command that starts the program and is replaced by it (`exec`).
    fn spawn(
        launcher: &[&str],
        program: &Path,
        cores: &[usize],
        arguments: Vec<OsString>,
        target: Target,
        is_there: impl Fn(&Target) -> bool,
    ) -> Result<Server, Error> {
        let mut words = launcher.iter().map(OsStr::new).chain([program.as_os_str()]);
        let mut command = guard::command(words.next().unwrap_or_default())?;
        command.args(words).args(arguments).stdout(Stdio::null());
        let started = cpu::bound(cores, || command.spawn())?;
        let child = started.map_err(|source| Error::Program {
            program: program.into(),
            source,
        })?;
        let pid = Pid::from_child(&child);
        let mut server = Server { child, pid, target };
        let begun = Instant::now();
        while !is_there(&server.target) {
            if server.child.try_wait()?.is_some() {
                return Err(Error::Ended {
                    program: program.into(),
                });
            }
            if begun.elapsed() > Self::START {
                return Err(Error::Deaf {
                    program: program.into(),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// The address that it listens at.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Its process, to measure how busy it is.
    pub(crate) fn owner(&self) -> Option<Owner> {
        Owner::of_pid(self.child.id())
    }

    /// CPU time of all its threads so far.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        cpu::of_process(self.pid)
    }

    /// Stops all its threads until [`resume`](Self::resume), so that others have its core.
    pub(crate) fn pause(&self) -> io::Result<()> {
        Ok(kill_process(self.pid, Signal::STOP)?)
    }

    /// Lets its threads run again.
    pub(crate) fn resume(&self) -> io::Result<()> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }

    /// A connection for statistics.
    pub(crate) fn client(&self) -> io::Result<Client> {
        Client::connect(&self.target)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Flags that memcached and coua share.
#[derive(Clone, Debug)]
pub(crate) struct Flags {
    /// `-m`, in MiB.
    pub(crate) memory: u64,
    /// `-I`, in bytes; the server's default if none.
    pub(crate) item_size_max: Option<u64>,
    /// Further flags, at the end.
    pub(crate) more: Vec<String>,
}

impl Flags {
    /// The arguments of a server that listens at the address.
    pub(crate) fn arguments(&self, address: SocketAddr) -> Vec<OsString> {
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let memory = self.memory.to_string();
        let mut arguments: Vec<OsString> = [
            "-l", &ip, "-p", &port, "-U", "0", "-t", "1", "-c", "4096", "-m", &memory,
        ]
        .iter()
        .map(OsString::from)
        .collect();
        if let Some(bytes) = self.item_size_max {
            arguments.extend(["-I".into(), bytes.to_string().into()]);
        }
        if rustix::process::geteuid().is_root() {
            // memcached refuses to run as root unless it is told whom to run as.
            arguments.extend(["-u".into(), "nobody".into()]);
        }
        arguments.extend(self.more.iter().map(OsString::from));
        arguments
    }
}

/// The memcached to compare with: the one named, else the unpacked 1.6.45 of this user, else the
/// one in `PATH`.
pub(crate) fn memcached(named: Option<&Path>) -> PathBuf {
    if let Some(path) = named {
        return path.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    let unpacked = cache.map(|cache| cache.join("memcached-current/memcached"));
    unpacked
        .filter(|path| path.exists())
        .unwrap_or_else(|| "memcached".into())
}

/// Resident memory of a process in KiB; 0 if it cannot be read.
pub(crate) fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

/// The coua to measure: the one named, else the one that was built beside this program.
pub(crate) fn coua(named: Option<&Path>) -> io::Result<PathBuf> {
    match named {
        Some(path) => Ok(path.into()),
        None => Ok(std::env::current_exe()?.with_file_name("coua")),
    }
}

/// A folder of this process for sockets; it is deleted when dropped. Servers that give up root's
/// rights create their sockets in it too.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Every user may create files there, and delete only their own.
    const MODE: u32 = 0o1777;

    /// Creates the folder.
    pub(crate) fn new() -> io::Result<Folder> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("coua-bench-{}-{number}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&folder.0)?;
        std::fs::set_permissions(&folder.0, Permissions::from_mode(Self::MODE))?;
        Ok(folder)
    }

    /// The path of a file in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that is left behind does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The file where a server keeps its memory beyond its end (`-e`), and memcached's second file
/// beside it. Both are deleted when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryFile(PathBuf);

impl MemoryFile {
    /// A path in `folder` at which there is no file yet.
    pub(crate) fn new(folder: &Path) -> MemoryFile {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        MemoryFile(folder.join(format!("coua-bench-memory-{}-{number}", std::process::id())))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(self.0.with_extension("meta"));
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Why a server did not start.
#[derive(Debug, ThisError)]
pub(crate) enum Error {
    /// A call of the system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The program cannot be run.
    #[error("{program:?} cannot be started: {source}")]
    Program {
        /// Its path.
        program: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The program ended at once.
    #[error("{program:?} ended before it accepted a connection; see its message above")]
    Ended {
        /// Its path.
        program: PathBuf,
    },
    /// The program runs but accepts no connection.
    #[error("{program:?} accepted no connection within 60 s")]
    Deaf {
        /// Its path.
        program: PathBuf,
    },
}
