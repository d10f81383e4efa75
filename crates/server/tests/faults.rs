//! What a machine refuses: each refusal is one clear line and the status that memcached has for it, or the server
//! serves as well as it can.

#[path = "support/process.rs"]
mod process;
mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use process::{Client, Folder, PATIENCE, Process, coua, poll, wrapped};
use rustix::process::Signal;
use support::{Server, coua_program, is_root};

/// What starts a program without the rights that root has beyond others; nothing for others.
fn without_rights() -> &'static [&'static str] {
    if is_root() {
        &["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    } else {
        &[]
    }
}

/// coua under limits of prlimit(1), without the right to raise them.
fn limited(limit: &str, flags: &[&str]) -> Command {
    let wrapper: Vec<&str> = ["prlimit", limit]
        .into_iter()
        .chain(without_rights().iter().copied())
        .collect();
    wrapped(&wrapper, flags)
}

#[test]
fn fewer_descriptors_than_connections_are_refused() {
    let end = Process::start(limited("--nofile=256:256", &["-c", "1024"])).end();
    let line = end.one_line(71);
    assert!(line.contains("-c 1024") && line.contains("256"), "{line}");
    // So few that not even the listeners get theirs.
    for count in ["8:8", "12:12", "16:16", "20:20", "24:24"] {
        let limit = format!("--nofile={count}");
        let end = Process::start(limited(&limit, &["-c", "4", "-t", "8"])).end();
        let line = end.one_line(71);
        assert!(line.contains("-t"), "{count}: {line}");
    }
}

#[test]
fn the_soft_limit_on_descriptors_is_raised() {
    let process = Process::start(limited("--nofile=64:4096", &["-c", "1024"]));
    assert_eq!(Client::connect(process.address()).ask("mn\r\n"), "MN");
    assert!(!process.said().contains("WARN"), "{}", process.said());
}

#[test]
fn connections_wait_for_descriptors_that_there_are_not() {
    let flags = ["-c", "60", "-t", "1"];
    let mut process = Process::start(limited("--nofile=64:64", &flags));
    let address = process.address();
    let warning = process.hear("-c 60 needs");
    assert!(
        warning.contains("WARN") && warning.contains("64"),
        "{warning}"
    );
    let mut clients: Vec<Client> = (0..60).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        client.send("mn\r\n");
    }
    process.hear("cannot accept connections");
    // The first ones are served meanwhile; the last one is as soon as they make room for it.
    let mut last = clients.pop().expect("there are sixty");
    assert_eq!(clients[0].line(), "MN");
    clients.truncate(1);
    assert_eq!(last.line(), "MN");
    assert_eq!(clients[0].ask("mn\r\n"), "MN");
    assert!(process.runs());
}

#[test]
fn too_little_memory_is_refused_or_does() {
    // In steps: every point at which memory can run out during the start is met by one of them.
    let mut refused = 0;
    let mut served = 0;
    for megabytes in (16..=256).step_by(8) {
        let limit = format!("--as={}", megabytes << 20);
        let mut process = Process::start(limited(&limit, &["-m", "64", "-t", "4"]));
        let is_up = poll("a start or a refusal", || {
            let serves = process.said().contains("listening on");
            (serves || !process.runs()).then_some(serves)
        });
        if is_up {
            served += 1;
            assert_eq!(Client::connect(process.address()).ask("mn\r\n"), "MN");
        } else {
            refused += 1;
            let end = process.end();
            let line = end.one_line(71);
            assert!(line.contains("memory") || line.contains("thread"), "{line}");
            assert!(line.contains("-m") || line.contains("-t"), "{line}");
        }
    }
    assert!(
        refused > 0 && served > 0,
        "{refused} refused, {served} served"
    );
}

#[test]
fn memory_beyond_what_there_can_be_is_refused() {
    let end = Process::start(limited("--as=1073741824", &["-m", "64g"])).end();
    let line = end.one_line(71);
    assert!(line.starts_with("coua: -m: "), "{line}");
}

#[test]
fn a_taken_port_is_refused() {
    let other = Server::coua(&[]);
    let port = other.address.port().to_string();
    let end = Process::start(coua(&["-p", &port])).end();
    let line = end.one_line(71);
    assert!(line.contains(&other.address.to_string()), "{line}");
    assert!(line.contains("(-p") && line.contains("in use"), "{line}");
    for _ in 0..20 {
        assert_eq!(Client::new(other.connect()).ask("mn\r\n"), "MN");
    }
}

/// Whether the other server shares its port or not.
#[test]
fn a_taken_port_of_udp_is_refused() {
    let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let address = free.expect("a free port");
    let port = address.port().to_string();
    for threads in ["1", "3"] {
        let other = Process::start(coua(&["-U", &port, "-t", threads]));
        other.address();
        let end = Process::start(coua(&["-U", &port])).end();
        let line = end.one_line(71);
        assert!(line.contains(&address.to_string()), "{line}");
        assert!(
            line.contains("another server has it") && line.contains("(-U)"),
            "{line}"
        );
    }
}

#[test]
fn an_address_of_another_machine_is_refused() {
    // An address that no machine has (RFC 5737).
    let end = Process::start(coua(&["-l", "192.0.2.1"])).end();
    let line = end.one_line(71);
    assert!(
        line.contains("192.0.2.1") && line.contains("(-l)"),
        "{line}"
    );
}

#[test]
fn the_socket_of_a_dead_server_is_taken_over() {
    let folder = Folder::new();
    let (path, flags) = (folder.path("socket"), ["-s", &folder.text("socket")]);
    let process = Process::start(coua(&flags));
    process.listening();
    process.signal(Signal::KILL);
    process.end();
    assert!(path.exists(), "a killed server removes nothing");
    let process = Process::start(coua(&flags));
    process.listening();
    assert_eq!(ask(&path), "MN\r\n");
}

#[test]
fn the_socket_of_a_live_server_is_not_stolen() {
    let folder = Folder::new();
    let (path, flags) = (folder.path("socket"), ["-s", &folder.text("socket")]);
    let mut process = Process::start(coua(&flags));
    process.listening();
    let end = Process::start(coua(&flags)).end();
    let line = end.one_line(71);
    assert!(line.contains("socket") && line.contains("(-s)"), "{line}");
    assert_eq!(ask(&path), "MN\r\n");
    assert!(process.runs());
}

#[test]
fn what_is_no_socket_is_not_replaced() {
    let folder = Folder::new();
    fs::write(folder.path("file"), "precious").expect("it can be written");
    let end = Process::start(coua(&["-s", &folder.text("file")])).end();
    assert!(end.one_line(71).contains("(-s)"), "{}", end.said);
    let kept = fs::read(folder.path("file")).expect("it is there");
    assert_eq!(kept, b"precious");
    let long = folder.text(&"x".repeat(200));
    let end = Process::start(coua(&["-s", &long])).end();
    assert!(end.one_line(71).contains("(-s)"), "{}", end.said);
    let end = Process::start(coua(&["-s", &folder.text("missing/socket")])).end();
    assert!(end.one_line(71).contains("(-s)"), "{}", end.said);
}

fn ask(path: &std::path::Path) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(b"mn\r\n").expect("it reads");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("it answers");
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn cores_that_there_are_not_and_memory_that_may_not_be_locked_are_done_without() {
    let flags = ["--cores", "1023", "-k", "-t", "1"];
    let process = Process::start(limited("--memlock=65536:65536", &flags));
    let address = process.address();
    process.hear("cannot be pinned to core 1023");
    let line = process.hear("-k has no effect");
    assert!(line.contains("ulimit -l"), "{line}");
    let mut client = Client::connect(address);
    assert_eq!(client.ask("set k 0 0 1\r\nv\r\n"), "STORED");
    assert_eq!(client.stat("stats settings", "coua_memory_locked"), "no");
}

#[test]
fn users_are_looked_for_before_anything_else() {
    // The flag in front is for root, and means nothing for others.
    let unknown = Process::start(coua(&["-u", "no-such-user"]));
    if !is_root() {
        unknown.listening();
        return;
    }
    let end = unknown.end();
    assert!(end.one_line(67).contains("no-such-user"), "{}", end.said);
    let end = Process::start(coua(&["-u", ""])).end();
    assert!(end.one_line(64).contains("-u root"), "{}", end.said);
    // Without the right to become somebody else.
    let end = Process::start(wrapped(without_rights(), &["-u", "nobody"])).end();
    assert!(end.one_line(71).contains("(-u)"), "{}", end.said);
}

#[test]
fn a_pid_file_that_cannot_be_written_is_done_without() {
    let folder = Folder::new();
    let process = Process::start(coua(&["-P", &folder.text("missing/pid")]));
    let address = process.address();
    process.hear("-P: cannot write");
    assert_eq!(Client::connect(address).ask("mn\r\n"), "MN");
    process.signal(Signal::TERM);
    assert_eq!(process.end().status.code(), Some(0));
}

#[test]
fn core_files_that_are_forbidden_are_refused() {
    let end = Process::start(limited("--core=0:0", &["-r"])).end();
    assert!(end.one_line(71).starts_with("coua: -r: "), "{}", end.said);
}

#[test]
fn a_server_without_standard_error_serves_and_fails_all_the_same() {
    let shell = |line: &str, flags: &[&str]| wrapped(&["sh", "-c", line], flags);
    for line in [
        r#"exec "$0" "$@" 2>&-"#,
        r#"exec "$0" "$@" 2>/dev/full"#,
        r#"exec "$0" "$@" <&- >&- 2>&-"#,
    ] {
        let folder = Folder::new();
        let file = folder.path("ports");
        let mut command = shell(line, &["-vv"]);
        command.env("MEMCACHED_PORT_FILENAME", &file);
        let process = Process::start(command);
        let text = poll("the file with the port", || fs::read_to_string(&file).ok());
        let port = text
            .trim_end()
            .rsplit(' ')
            .next()
            .and_then(|port| port.parse().ok());
        let port: u16 = port.expect("a port");
        for _ in 0..3 {
            let mut client = Client::connect(([127, 0, 0, 1], port).into());
            assert_eq!(client.ask("get gone\r\n"), "END", "{line}");
        }
        process.signal(Signal::TERM);
        assert_eq!(process.end().status.code(), Some(0), "{line}");
        let end = Process::start(shell(line, &["-m", "x"])).end();
        assert_eq!(end.status.code(), Some(64), "{line}");
    }
}

#[test]
fn a_reader_of_the_log_who_goes_away_does_no_harm() {
    let folder = Folder::new();
    let file = folder.path("ports");
    let mut command = coua(&["-vv"]);
    command.env("MEMCACHED_PORT_FILENAME", &file);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut child = command
        .stderr(Stdio::from(writer))
        .spawn()
        .expect("coua starts");
    drop(command);
    let text = poll("the file with the port", || fs::read_to_string(&file).ok());
    drop(reader);
    let port = text
        .trim_end()
        .rsplit(' ')
        .next()
        .and_then(|port| port.parse().ok());
    let port: u16 = port.expect("a port");
    for _ in 0..3 {
        let mut client = Client::connect(([127, 0, 0, 1], port).into());
        assert_eq!(client.ask("get gone\r\n"), "END");
    }
    let runs = child.try_wait().expect("it is our child").is_none();
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    assert!(runs);
}

#[test]
fn help_into_a_closed_pipe_is_no_failure() {
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("a device");
    let status = Command::new(coua_program())
        .arg("-h")
        .stdout(full)
        .stderr(Stdio::null())
        .status();
    assert!(status.expect("it runs").success());
}
