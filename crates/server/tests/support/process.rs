//! Processes whose words on standard error, and whose end, a test looks at.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{coua_program, is_root};

/// How long anything may take that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Calls `found` until it finds something.
///
/// # Panics
/// When it does not for a long time; the message says `what` was waited for.
pub(crate) fn poll<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(it) = found() {
            return it;
        }
        assert!(Instant::now() < deadline, "{what}: not in {PATIENCE:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// coua with flags that are enough to start it on a port of its own.
pub(crate) fn coua(flags: &[&str]) -> Command {
    wrapped(&[], flags)
}

/// As [`coua`], started by another program that takes a command behind its own flags.
pub(crate) fn wrapped(wrapper: &[&str], flags: &[&str]) -> Command {
    let mut command = match wrapper {
        [] => Command::new(coua_program()),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(coua_program());
            command
        }
    };
    command.args(["-l", "127.0.0.1", "-p", "-1", "-m", "64", "-t", "2"]);
    if is_root() {
        command.args(["-u", "root"]);
    }
    command.args(flags);
    command
}

/// A process and what it has written to standard error so far. Dropping it ends the process.
pub(crate) struct Process {
    /// The process, for its id.
    pub(crate) child: Child,
    words: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct End {
    /// With which status.
    pub(crate) status: ExitStatus,
    /// What it wrote to standard error.
    pub(crate) said: String,
}

impl Process {
    /// Starts the command.
    pub(crate) fn start(mut command: Command) -> Process {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let pipe = child.stderr.take().expect("standard error is a pipe");
        let words = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&words);
        let reader = thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let mut heard = heard.lock().expect("no holder panics");
                heard.push_str(&line);
                heard.push('\n');
            }
        });
        Process {
            child,
            words,
            reader: Some(reader),
        }
    }

    /// What it has written to standard error.
    pub(crate) fn said(&self) -> String {
        self.words.lock().expect("no holder panics").clone()
    }

    /// Waits until it serves, and gives its TCP address.
    ///
    /// # Panics
    /// When it ends, or has no TCP address.
    pub(crate) fn address(&self) -> SocketAddr {
        let line = self.listening();
        let text = line.split("tcp:").nth(1).unwrap_or_default();
        let address = text.split_whitespace().next().unwrap_or_default();
        address
            .parse()
            .unwrap_or_else(|_| panic!("no TCP address in {line}"))
    }

    /// Waits until it says where it listens, and gives that line.
    pub(crate) fn listening(&self) -> String {
        self.hear("listening on")
    }

    /// Waits until it says something, and gives the line.
    pub(crate) fn hear(&self, part: &str) -> String {
        let found = poll(part, || {
            // Whoever it has started may go on talking after its end.
            let is_silent = self.reader.as_ref().is_none_or(JoinHandle::is_finished);
            let said = self.said();
            let line = said.lines().find(|line| line.contains(part));
            let line = line.map(|line| Ok(line.to_owned()));
            line.or_else(|| is_silent.then_some(Err(said)))
        });
        found.unwrap_or_else(|said| panic!("it ended without a word of '{part}': {said}"))
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is our child");
    }

    /// Whether it runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Waits until it ends.
    pub(crate) fn end(mut self) -> End {
        let status = poll("the end of the process", || {
            self.child.try_wait().expect("it is our child")
        });
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader does not panic");
        }
        End {
            status,
            said: self.said(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl End {
    /// The one line that it said, where it ended with that status.
    ///
    /// # Panics
    /// When it ended in another way or said more.
    pub(crate) fn one_line(&self, status: i32) -> &str {
        assert_eq!(self.status.code(), Some(status), "{}", self.said);
        let line = self.said.trim_end();
        assert!(
            line.starts_with("coua: ") && line.lines().count() == 1,
            "not one line: {line}"
        );
        line
    }
}

/// A connection that is spoken to line by line.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::new(TcpStream::connect(address).expect("the kernel accepts"))
    }

    /// A client of a connection that is there already.
    pub(crate) fn new(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Client {
            stream: BufReader::new(stream),
        }
    }

    /// Writes a request; a server that has closed the connection need not read it.
    pub(crate) fn send(&mut self, request: &str) {
        let _ = self.stream.get_mut().write_all(request.as_bytes());
    }

    /// The next line of the answer without its end; nothing where the server has hung up.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        match self.stream.read_until(b'\n', &mut line) {
            Ok(_) => String::from_utf8_lossy(&line).trim_end().to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => String::new(),
            Err(error) => panic!("no answer: {error}"),
        }
    }

    /// The first line of the answer to a request.
    pub(crate) fn ask(&mut self, request: &str) -> String {
        self.send(request);
        self.line()
    }

    /// What `stats`, or one of its kin, says of a key.
    pub(crate) fn stat(&mut self, command: &str, key: &str) -> String {
        self.send(&format!("{command}\r\n"));
        let mut value = None;
        loop {
            let line = self.line();
            if let Some(("STAT", rest)) = line.split_once(' ')
                && let Some((name, text)) = rest.split_once(' ')
                && name == key
            {
                value = Some(text.to_owned());
            }
            if line == "END" {
                return value.unwrap_or_else(|| panic!("{command} has no {key}"));
            }
            assert!(!line.is_empty(), "{command} is not answered");
        }
    }
}

/// A folder of a test's own. Dropping it removes the folder.
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes one.
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("coua-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Folder { path }
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A path in it, as a flag takes it.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
