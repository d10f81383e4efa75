//! `-o drop_privileges`: all that clients and operators ask for still works, and what an attacker would
//! do does not.

#[path = "../support/certificates.rs"]
#[allow(dead_code, reason = "these tests need a part of it")]
mod certificates;
#[path = "../support/process.rs"]
#[allow(dead_code, reason = "these tests need a part of it")]
mod process;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "these tests need the program alone")]
mod support;

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::thread;
use std::time::Duration;

use certificates::{Authority, ask, encrypt};
use process::{Client, Folder, Process, coua};
use rustix::process::Signal;

/// What tells the test below that it is to be a child that enters the sandbox.
const CHILD: &str = "COUA_TEST_SANDBOX";

/// Every thread of the process has filters and can gain no rights. A daemon enters them a moment after its
/// command has ended.
fn assert_is_filtered(process: u32) {
    process::poll("the filters", || {
        let status = fs::read_to_string(format!("/proc/{process}/status"));
        let status = status.expect("it runs");
        status.contains("\nSeccomp:\t2\n").then_some(())
    });
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let mut count = 0;
    for task in tasks {
        let path = task.expect("an entry").path().join("status");
        // A thread may have ended meanwhile.
        let Ok(status) = fs::read_to_string(path) else {
            continue;
        };
        assert!(status.contains("\nSeccomp:\t2\n"), "{status}");
        assert!(status.contains("\nNoNewPrivs:\t1\n"), "{status}");
        count += 1;
    }
    assert!(count >= 3, "{count} threads");
}

#[test]
fn all_commands_work() {
    let folder = Folder::new();
    let users = folder.path("users");
    fs::write(&users, "name:secret\n").expect("it can be written");
    let memory = folder.text("memory");
    let mut command = coua(&[
        "-o",
        "drop_privileges,slow_us=1000000,poison_command",
        "-A",
        "-e",
        &memory,
        "-Y",
        &users.display().to_string(),
        "--metrics",
        "127.0.0.1:0",
        "--memory-max",
        "128",
    ]);
    command.env("RUST_BACKTRACE", "0");
    let mut server = Process::start(command);
    let address = server.address();
    server.hear("system calls are filtered");
    assert_is_filtered(server.child.id());

    let login = "set auth 0 0 11\r\nname secret\r\n";
    let mut client = Client::connect(address);
    assert_eq!(client.ask(login), "STORED");
    let value = "x".repeat(700_000);
    for (request, answer) in [
        ("set a 0 0 1\r\n5\r\n", "STORED"),
        ("incr a 2\r\n", "7"),
        ("delete a\r\n", "DELETED"),
        ("ms m 2 T90\r\nab\r\n", "HD"),
        ("mg m s\r\n", "HD s2"),
        ("touch m 7\r\n", "TOUCHED"),
        (&format!("set large 0 0 700000\r\n{value}\r\n"), "STORED"),
        ("verbosity 1\r\n", "OK"),
        ("cache_memlimit 100\r\n", "OK"),
        ("cache_memlimit 64\r\n", "OK"),
        ("lru_crawler crawl all\r\n", "OK"),
        ("flush_all 10000\r\n", "OK"),
        ("version\r\n", "VERSION 1.6.45"),
    ] {
        let answered = client.ask(request);
        assert!(answered.starts_with(answer), "{request:.40}: {answered}");
    }
    client.send("get large\r\n");
    assert_eq!(client.line(), "VALUE large 0 700000");
    assert_eq!(client.line(), value);
    assert_eq!(client.line(), "END");
    for question in [
        "stats",
        "stats settings",
        "stats conns",
        "stats threads",
        "stats latency",
        "stats hotkeys",
        "stats net",
        "stats memory_errors",
        "lru_crawler metadump all",
    ] {
        client.send(&format!("{question}\r\n"));
        while client.line() != "END" {}
    }
    assert_eq!(client.stat("stats settings", "drop_privileges"), "yes");
    let mut watcher = Client::connect(address);
    assert_eq!(watcher.ask(login), "STORED");
    assert_eq!(watcher.ask("watch mutations\r\n"), "OK");
    assert_eq!(client.ask("set w 0 0 1\r\nx\r\n"), "STORED");
    assert!(watcher.line().contains("key=w"));

    // Many values, so that memory is taken, cleaned and evicted.
    for number in 0..400 {
        let request = format!("set key{number} 0 0 700000\r\n{value}\r\n");
        assert_eq!(client.ask(&request), "STORED");
    }

    // The file is read again, by a thread that was there before.
    fs::write(&users, "other:password\n").expect("it can be written");
    server.signal(Signal::HUP);
    server.hear("has 1 passwords");
    let mut other = Client::connect(address);
    assert_eq!(other.ask("set auth 0 0 14\r\nother password\r\n"), "STORED");
    assert!(scrape(&server).contains("coua_build_info"));
    // No other program takes its place.
    server.signal(Signal::USR2);
    server.hear("-o drop_privileges forbids to execute a program");
    assert_is_filtered(server.child.id());
    assert!(server.runs());
    client.send("shutdown\r\n");
    let end = server.end();
    assert!(end.status.success(), "{}", end.said);
    assert!(
        end.said.contains("left for the next process"),
        "{}",
        end.said
    );
    assert!(!end.said.contains("not permitted"), "{}", end.said);
}

#[test]
fn datagrams_unix_sockets_and_daemons_work() {
    let folder = Folder::new();
    let socket = folder.text("socket");
    let pid_file = folder.text("pid");
    let mut command = coua(&[
        "-o",
        "drop_privileges",
        "-s",
        &socket,
        "-d",
        "-P",
        &pid_file,
    ]);
    let started = command.status().expect("it starts");
    assert!(started.success());
    let text = fs::read_to_string(&pid_file).expect("the pid file");
    let number: i32 = text.trim().parse().expect("a number");
    let daemon = Daemon(rustix::process::Pid::from_raw(number).expect("a process"));
    assert_is_filtered(number.cast_unsigned());
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
    stream.write_all(b"mn\r\n").expect("it reads");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"MN\r\n");
    rustix::process::kill_process(daemon.0, Signal::TERM).expect("it runs");
    // It removes what it has made.
    process::poll("the end", || (!folder.path("pid").exists()).then_some(()));
    assert!(!folder.path("socket").exists());

    let port = support::free_address().port().to_string();
    let server = Process::start(coua(&["-o", "drop_privileges", "-U", &port]));
    server.hear("system calls are filtered");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let to: SocketAddr = format!("127.0.0.1:{port}").parse().expect("an address");
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a timeout");
    client
        .send_to(b"\0\x01\0\0\0\x01\0\0mn\r\n", to)
        .expect("it is sent");
    let mut room = [0; 100];
    let len = client.recv(&mut room).expect("an answer");
    assert_eq!(&room[8..len], b"MN\r\n");
}

/// A process in the background. Dropping it ends the process.
struct Daemon(rustix::process::Pid);

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = rustix::process::kill_process(self.0, Signal::KILL);
    }
}

/// New certificates are read while the filters hold.
#[test]
fn tls_and_new_certificates_work() {
    let authority = Authority::new();
    for name in ["server", "next"] {
        authority.certify(name);
    }
    let options = authority.options("server", ",drop_privileges");
    let server = Process::start(coua(&["-Z", "-o", &options]));
    let address = server.address();
    server.hear("system calls are filtered");
    let connect = || {
        let stream = TcpStream::connect(address).expect("the kernel accepts");
        encrypt(stream, &authority.client(None))
    };
    let mut client = connect();
    ask(&mut client, b"set a 0 0 1\r\nx\r\n", b"STORED\r\n");
    authority.replace("server", "next");
    ask(&mut client, b"refresh_certs\r\n", b"OK\r\n");
    server.hear("refresh_certs: certificates read from");
    ask(&mut connect(), b"get a\r\n", b"VALUE a 0 1\r\nx\r\nEND\r\n");
    assert_is_filtered(server.child.id());
}

/// Sends the server's metrics page a request.
fn scrape(server: &Process) -> String {
    let line = server.hear("metrics on http://");
    let address = line.split("http://").nth(1).expect("an address");
    let address = address.split('/').next().expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    page
}

/// How a child of this program ends that enters the sandbox and does this.
fn end_of_child(deed: &str) -> std::process::ExitStatus {
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(own);
    command.args(["--exact", "a_child_in_the_sandbox", "--nocapture"]);
    command.env(CHILD, deed);
    command.status().expect("it starts")
}

#[test]
fn executing_a_program_kills() {
    for deed in ["execute", "execute in a thread"] {
        let end = end_of_child(deed);
        assert_eq!(end.signal(), Some(libc_sigsys()), "{deed}: {end}");
    }
}

#[test]
fn what_the_server_does_not_need_is_refused() {
    let end = end_of_child("try");
    assert!(end.success(), "{end}");
}

/// The number of SIGSYS.
fn libc_sigsys() -> i32 {
    Signal::SYS.as_raw()
}

/// Does nothing unless another test has started it.
#[test]
fn a_child_in_the_sandbox() {
    let Ok(deed) = std::env::var(CHILD) else {
        return;
    };
    let waiting = thread::spawn(|| {
        // It is there before the filter.
        thread::park();
        Command::new("/bin/true").exec()
    });
    coua::sandbox::enter().expect("the kernel has seccomp");
    match deed.as_str() {
        "execute" => {
            let error = Command::new("/bin/true").exec();
            panic!("it lives on: {error}");
        }
        "execute in a thread" => {
            waiting.thread().unpark();
            let error = waiting.join();
            panic!("it lives on: {error:?}");
        }
        _ => {}
    }
    let is_refused = |what: &str, done: io::Result<()>| {
        let error = done.expect_err(what);
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{what}");
    };
    let path = std::env::temp_dir().join("coua-sandbox-test");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path);
    is_refused("a file to write to", file.map(drop));
    is_refused("a folder", fs::create_dir(&path));
    is_refused("a listener", TcpListener::bind("127.0.0.1:0").map(drop));
    is_refused("a connection", TcpStream::connect("127.0.0.1:9").map(drop));
    // These are needed.
    fs::read("/proc/self/status").expect("files can be read");
    UnixDatagram::unbound().expect("a service manager can be told");
    let sum = thread::spawn(|| {
        vec![1_u8; 1 << 20]
            .iter()
            .map(|&one| u64::from(one))
            .sum::<u64>()
    });
    assert_eq!(sum.join().expect("threads can be started"), 1 << 20);
    let late = thread::spawn(|| fs::create_dir("/tmp/coua-sandbox-late"));
    let late = late.join().expect("it does not panic");
    is_refused("in a thread that was started since", late);
    std::process::exit(0);
}
