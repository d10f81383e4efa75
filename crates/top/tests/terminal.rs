//! `coua-top` on a pseudo-terminal, beside a server in this process: what it shows, its keys, how it leaves
//! the terminal; and as lines.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZero;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use coua::flags::{self, Invocation};
use coua::server::{Server, Sockets};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

const ROWS: NonZero<u16> = NonZero::new(40).expect("above zero");
const COLUMNS: NonZero<u16> = NonZero::new(130).expect("above zero");

/// A server in this process.
struct Cache {
    server: Option<Server>,
    address: SocketAddr,
    metrics: SocketAddr,
}

impl Cache {
    fn start() -> Cache {
        let words = "coua -l 127.0.0.1 -p -1 -m 64 -t 2 --metrics 127.0.0.1:0";
        let asked = flags::read(words.split(' ').map(Into::into));
        let Ok(Invocation::Serve(settings)) = asked else {
            panic!("not a server: {words}");
        };
        let sockets = Sockets::open(&settings).expect("free ports");
        let server = Server::start(*settings, sockets, None).expect("memory");
        let (address, metrics) = {
            let listening = &server.shared().listening;
            (
                listening.addresses[0],
                listening.metrics.expect("an address"),
            )
        };
        Cache {
            server: Some(server),
            address,
            metrics,
        }
    }

    /// Asks for a key often.
    fn load(&self) {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let text = "get hotkey\r\nset other 0 0 1\r\nx\r\n".repeat(1000) + "mn\r\n";
        stream.write_all(text.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        let mut part = [0; 1 << 16];
        while !answer.ends_with(b"MN\r\n") {
            let len = stream.read(&mut part).expect("it answers");
            answer.extend_from_slice(&part[..len]);
        }
    }
}

/// The program on a terminal of its own, whose picture is known.
struct Terminal {
    child: Child,
    keys: File,
    picture: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    fn start(arguments: &[&str]) -> Terminal {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let keys = keys.expect("a terminal");
        grantpt(&keys)
            .and_then(|()| unlockpt(&keys))
            .expect("it is ours");
        let name = ptsname(&keys, Vec::new()).expect("it has a name");
        let size = Winsize {
            ws_row: ROWS.get(),
            ws_col: COLUMNS.get(),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&keys, size).expect("a size");
        let name = name.into_string().expect("text");
        let end = File::options()
            .read(true)
            .write(true)
            .open(name)
            .expect("its other end");
        let stream = || Stdio::from(end.try_clone().expect("a descriptor"));
        // With a session of its own, so that the size is not that of the terminal of whoever tests.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_coua-top")]);
        command.args(arguments).env("TERM", "xterm-256color");
        command.stdin(stream()).stdout(stream()).stderr(stream());
        let child = command.spawn().expect("setsid is there");
        let keys = File::from(keys);
        let mut shown = keys.try_clone().expect("a descriptor");
        let picture = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let own = Arc::clone(&picture);
        thread::spawn(move || {
            let mut part = [0; 4096];
            // It ends with an error when nobody has the other end any more.
            while let Ok(len @ 1..) = shown.read(&mut part) {
                own.lock().expect("no panic").process(&part[..len]);
            }
        });
        Terminal {
            child,
            keys,
            picture,
        }
    }

    fn text(&self) -> String {
        self.picture.lock().expect("no panic").screen().contents()
    }

    fn press(&mut self, key: &str) {
        self.keys.write_all(key.as_bytes()).expect("it reads");
    }

    /// Waits until the picture has a text, and does something meanwhile.
    fn wait_for(&self, part: &str, mut meanwhile: impl FnMut()) {
        let deadline = Instant::now() + PATIENCE;
        while !self.text().contains(part) {
            assert!(Instant::now() < deadline, "no {part} in\n{}", self.text());
            meanwhile();
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The status with which it ends.
    fn end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status.code();
            }
            assert!(
                Instant::now() < deadline,
                "it does not end:\n{}",
                self.text()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_is_shown_until_q_is_pressed() {
    let mut cache = Cache::start();
    let metrics = cache.metrics.to_string();
    let mut terminal = Terminal::start(&[&metrics, "--interval", "0.2"]);
    terminal.wait_for("hotkey", || cache.load());
    for part in [
        &*metrics,
        "coua 0.",
        "hit ratio",
        "p99.9",
        "of 64.0 MiB",
        "workers",
        "errors",
        "every 0.2 s",
    ] {
        terminal.wait_for(part, || cache.load());
    }
    // Gets that all miss.
    terminal.wait_for("hit ratio 0.0 %", || cache.load());
    {
        let picture = terminal.picture.lock().expect("no panic");
        assert!(picture.screen().alternate_screen() && picture.screen().hide_cursor());
    }
    terminal.press("+");
    terminal.wait_for("every 0.4 s", || {});
    terminal.press("-");
    terminal.wait_for("every 0.2 s", || {});
    terminal.press(" ");
    terminal.wait_for("paused", || {});
    terminal.press(" ");
    if let Some(server) = cache.server.take() {
        server.stop();
    }
    terminal.wait_for("ending", || {});
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
    let picture = terminal.picture.lock().expect("no panic");
    let screen = picture.screen();
    assert!(
        !screen.alternate_screen() && !screen.hide_cursor(),
        "the terminal is as before"
    );
}

#[test]
fn a_server_that_does_not_answer_is_told() {
    // Nobody listens there.
    let mut terminal = Terminal::start(&["127.0.0.1:1"]);
    terminal.wait_for("http://127.0.0.1:1/status.json", || {});
    terminal.press("\u{3}");
    assert_eq!(terminal.end(), Some(0));
}

fn once(server: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coua-top"));
    let output = command
        .args(["--once", "--interval", "0.2", server])
        .output();
    let output = output.expect("it can be run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn lines_are_for_files() {
    let cache = Cache::start();
    cache.load();
    let (status, text, _) = once(&cache.metrics.to_string());
    assert_eq!(status, Some(0));
    assert!(
        text.contains("\nmemory ") && text.contains("\nhot key        hotkey "),
        "{text}"
    );
    let (status, _, complaint) = once("127.0.0.1:1");
    assert_eq!(
        (status, complaint.lines().count()),
        (Some(1), 1),
        "{complaint}"
    );
    let output = Command::new(env!("CARGO_BIN_EXE_coua-top"))
        .output()
        .expect("it can be run");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no terminal: give --once"));
}

/// Whoever stands at the other end is not trusted with the terminal, nor with this machine's memory.
#[test]
fn the_manual_and_completions_are_made_from_the_flags() {
    let said = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_coua-top"))
            .args(words)
            .output();
        let output = output.expect("the program runs");
        assert!(output.status.success(), "{words:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let manual = said(&["--man"]);
    assert!(
        manual.contains(".TH coua-top 1") && manual.contains("--metrics"),
        "{manual}"
    );
    for shell in ["bash", "zsh", "fish"] {
        assert!(said(&["--completions", shell]).contains("once"), "{shell}");
    }
}

#[test]
fn hostile_answers_do_no_harm() {
    let answer = |body: &'static str, times: usize| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut stream = stream;
                let mut part = [0; 4096];
                let _ = stream.read(&mut part);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
                // It stops where nobody reads.
                let _ = (0..times).try_for_each(|_| stream.write_all(body.as_bytes()));
            }
        });
        address
    };
    for (body, times) in [
        ("{}", 1),
        ("null", 1),
        ("[[[[", 1 << 14),
        ("            ", 1 << 20),
    ] {
        let (status, _, complaint) = once(&answer(body, times));
        assert_eq!(
            (status, complaint.lines().count()),
            (Some(1), 1),
            "{complaint}"
        );
    }
    let steering = r#"{"version":"\u001b]0;x\u0007","uptime_ms":18446744073709551615,"stopping":false,"cpu_seconds":1e308,
        "resident_bytes":0,"workers":[],"commands":{"get_hits":0,"get_misses":0,"sets":0,"delete_hits":0},
        "latency":{"le_ns":[],"counts":[18446744073709551615,1]},"connections":{"open":0,"max":0,"accepted":0},
        "items":0,"items_bytes":0,"memory_limit":0,"memory_held_back":0,"memory":{"segments":0,"free":9,"index":0,
        "tables":0,"connections":0,"stacks":0},"removed":{"evicted":0,"reclaimed":0,"crawled":0},"evicted_idle_s":0,
        "errors":{"\u001b[2J":5},"hot_keys":[{"key":"\u001b[31m","rate":1e300,"bytes_rate":0,"share":-1}]}"#;
    let address = answer(steering, 1);
    let (status, text, _) = once(&address);
    assert_eq!(status, Some(0));
    assert!(!text.contains('\u{1b}') && text.contains("]0;x"), "{text}");
    let mut terminal = Terminal::start(&[&address, "--interval", "0.2"]);
    terminal.wait_for("hot keys", || {});
    terminal.wait_for("[2J", || {});
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));
}
