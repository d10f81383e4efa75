//! `-d`, `-P` and signals: what a service manager relies on.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::process::{Client, Folder, Process, coua, poll};
use crate::support::Server;

/// A server in the background, known by its number alone. Dropping it ends it.
struct Background {
    pid: Pid,
}

impl Background {
    fn of_file(path: &std::path::Path) -> Background {
        let text = fs::read_to_string(path).expect("the file is there when the command ends");
        let number = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        let pid = number.and_then(Pid::from_raw);
        Background {
            pid: pid.unwrap_or_else(|| panic!("no number: {text}")),
        }
    }

    fn runs(&self) -> bool {
        // One that has ended and that nobody has waited for is still there, as a zombie.
        let path = format!("/proc/{}/stat", self.pid);
        let stat = fs::read_to_string(path).unwrap_or_default();
        let state = stat.rsplit(") ").next().unwrap_or_default();
        test_kill_process(self.pid).is_ok() && !state.starts_with('Z')
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = kill_process(self.pid, Signal::KILL);
    }
}

/// As systemd does for services of `Type=notify` with a watchdog, reloads included.
#[test]
fn a_service_manager_hears_of_reload_watchdog_and_end() {
    let folder = Folder::new();
    let manager = UnixDatagram::bind(folder.path("notify")).expect("a fresh path");
    let patience = Some(Duration::from_secs(30));
    manager.set_read_timeout(patience).expect("it is a time");
    let hear = |word: &str| {
        let mut said = [0; 256];
        loop {
            let len = manager.recv(&mut said).expect("it says something");
            let text = String::from_utf8_lossy(&said[..len]).into_owned();
            if text.starts_with(word) {
                return text;
            }
            assert!(text.starts_with("WATCHDOG=1"), "{text} before {word}");
        }
    };
    let mut command = coua(&["-e", &folder.text("memory")]);
    command.env("NOTIFY_SOCKET", folder.path("notify"));
    command.env("WATCHDOG_USEC", "200000");
    let server = Process::start(command);
    hear("READY=1");
    hear("WATCHDOG=1");
    server.signal(Signal::USR2);
    let text = hear("RELOADING=1");
    let moment = text
        .lines()
        .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    assert!(
        moment.is_some_and(|text| text.parse::<u64>().is_ok()),
        "{text}"
    );
    hear("READY=1");
    hear("WATCHDOG=1");
    server.signal(Signal::TERM);
    hear("STOPPING=1");
    assert!(server.end().status.success());
}

/// As systemd does for services of `Type=notify`.
#[test]
fn a_service_manager_hears_when_the_server_serves() {
    let folder = Folder::new();
    let manager = UnixDatagram::bind(folder.path("notify")).expect("a fresh path");
    let patience = Some(Duration::from_secs(30));
    manager.set_read_timeout(patience).expect("it is a time");
    let mut command = coua(&["-s", "socket"]);
    command.current_dir(folder.path(""));
    command.env("NOTIFY_SOCKET", folder.path("notify"));
    let server = Process::start(command);
    let mut said = [0; 64];
    let len = manager.recv(&mut said).expect("it says something");
    assert!(said[..len].starts_with(b"READY=1\n"));
    UnixStream::connect(folder.path("socket")).expect("it serves");
    // Nor does it mind one that has gone.
    drop((server, manager));
    let mut command = coua(&[]);
    command.env("NOTIFY_SOCKET", folder.path("notify"));
    let server = Process::start(command);
    server.hear("NOTIFY_SOCKET");
    assert_eq!(Client::connect(server.address()).ask("mn\r\n"), "MN");
}

#[test]
fn the_background_command_ends_when_the_server_listens() {
    let folder = Folder::new();
    let pid_file = folder.path("pid");
    let mut command = coua(&["-d", "-P", "pid", "-s", "socket"]);
    command.current_dir(folder.path(""));
    let said = Process::start(command).end();
    assert_eq!(said.status.code(), Some(0), "{}", said.said);
    let server = Background::of_file(&pid_file);
    assert!(server.runs() && folder.path("socket").exists());
    let cwd = fs::read_link(format!("/proc/{}/cwd", server.pid)).expect("it runs");
    assert_eq!(cwd.to_str(), Some("/"));
    for stream in 0..3 {
        let path = format!("/proc/{}/fd/{stream}", server.pid);
        let target = fs::read_link(path).expect("it is open");
        assert_eq!(target.to_str(), Some("/dev/null"), "stream {stream}");
    }
    kill_process(server.pid, Signal::TERM).expect("it runs");
    poll("the end of the server", || (!server.runs()).then_some(()));
    assert!(!pid_file.exists(), "the file stays behind");
    assert!(!folder.path("socket").exists(), "the socket stays behind");
}

#[test]
fn the_background_command_fails_where_the_server_does() {
    let taken = Server::coua(&[]);
    let folder = Folder::new();
    let port = taken.address.port().to_string();
    let end = Process::start(coua(&["-d", "-P", &folder.text("pid"), "-p", &port])).end();
    let line = end.one_line(71);
    assert!(line.contains(&taken.address.to_string()), "{line}");
    assert!(!folder.path("pid").exists());
    // Flags are checked before there is a process in the background.
    let end = Process::start(coua(&["-d", "-m", "x"])).end();
    assert!(end.one_line(64).contains("-m"));
    // The one whose port it is has not noticed.
    assert_eq!(Client::new(taken.connect()).ask("mn\r\n"), "MN");
}

#[test]
fn verbose_servers_in_the_background_go_on_talking() {
    let folder = Folder::new();
    let pid_file = folder.text("pid");
    let mut process = Process::start(coua(&["-d", "-vv", "-P", &pid_file]));
    let address = process.address();
    poll("the end of the command", || (!process.runs()).then_some(()));
    let server = Background::of_file(&folder.path("pid"));
    assert_eq!(Client::connect(address).ask("get gone\r\n"), "END");
    process.hear("get gone");
    assert!(server.runs());
}

#[test]
fn the_file_with_the_number_is_written_in_the_foreground_too() {
    let folder = Folder::new();
    let path = folder.path("pid");
    fs::write(&path, format!("{}\n", std::process::id())).expect("it can be written");
    let process = Process::start(coua(&["-P", &folder.text("pid")]));
    // The test is a process that runs.
    process.hear("-P");
    process.listening();
    let await_number = |process: &Process| {
        let own = format!("{}\n", process.child.id());
        poll("the server's number", || {
            (fs::read_to_string(&path).ok()? == own).then_some(())
        });
    };
    await_number(&process);
    process.signal(Signal::TERM);
    assert_eq!(process.end().status.code(), Some(0));
    assert!(!path.exists());
    // It is left alone where it names another process.
    let process = Process::start(coua(&["-P", &folder.text("pid")]));
    await_number(&process);
    fs::write(&path, "1\n").expect("it can be written");
    process.signal(Signal::TERM);
    assert_eq!(process.end().status.code(), Some(0));
    assert_eq!(fs::read_to_string(&path).expect("still there"), "1\n");
}

#[test]
fn signals_stop_the_server_with_success() {
    for signal in [Signal::TERM, Signal::INT, Signal::USR1] {
        let process = Process::start(coua(&[]));
        let mut client = Client::connect(process.address());
        assert_eq!(client.ask("set k 0 0 1\r\nv\r\n"), "STORED");
        process.signal(signal);
        assert_eq!(client.line(), "", "{signal:?}: the connection stays open");
        let end = process.end();
        assert_eq!(end.status.code(), Some(0), "{signal:?}: {}", end.said);
    }
}

#[test]
fn hanging_up_does_no_harm() {
    let process = Process::start(coua(&[]));
    let address: SocketAddr = process.address();
    let mut client = Client::connect(address);
    assert_eq!(client.ask("set k 0 0 1\r\nv\r\n"), "STORED");
    for _ in 0..2 {
        process.signal(Signal::HUP);
    }
    process.hear("no file of users to read again");
    assert_eq!(client.ask("get k\r\n"), "VALUE k 0 1");
    process.signal(Signal::TERM);
    assert_eq!(process.end().status.code(), Some(0));
}

#[test]
fn shutdown_is_a_right_to_be_given() {
    let process = Process::start(coua(&["-A"]));
    let mut client = Client::connect(process.address());
    client.send("shutdown\r\n");
    assert_eq!(client.line(), "");
    assert_eq!(process.end().status.code(), Some(0));
    let process = Process::start(coua(&[]));
    let mut client = Client::connect(process.address());
    assert_eq!(
        client.ask("shutdown\r\n"),
        "SERVER_ERROR: shutdown not enabled"
    );
    assert_eq!(client.ask("mn\r\n"), "MN");
}

/// The folder is root's, and the server another user's when it listens.
#[test]
fn the_file_with_the_number_may_lie_in_a_folder_of_roots() {
    if !crate::support::is_root() {
        return;
    }
    let folder = Folder::new();
    let path = folder.path("pid");
    let flags = ["-d", "-u", "nobody", "-P", &folder.text("pid")];
    let end = Process::start(coua(&flags)).end();
    assert_eq!(end.status.code(), Some(0), "{}", end.said);
    let server = Background::of_file(&path);
    assert!(server.runs());
    kill_process(server.pid, Signal::TERM).expect("it runs");
    poll("the end of the server", || (!server.runs()).then_some(()));
    let left = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(left, "", "it names a process that is gone");
}
