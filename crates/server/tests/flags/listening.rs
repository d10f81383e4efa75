//! `-p`, `-l`, `-s`, `-a` and the file with the ports.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use crate::process::{Client, Folder, PATIENCE, Process, coua, poll};

#[test]
fn any_free_port_is_written_to_a_file() {
    let folder = Folder::new();
    let file = folder.path("ports");
    // What a server that was killed left behind is none of the new one's lines.
    fs::write(folder.path("ports.lck"), "TCP INET: 1\n").expect("it can be written");
    let mut command = coua(&["-p", "-1"]);
    command.env("MEMCACHED_PORT_FILENAME", &file);
    let process = Process::start(command);
    let text = poll("the file", || fs::read_to_string(&file).ok());
    let port = text.strip_prefix("TCP INET: ");
    let port = port.and_then(|rest| rest.strip_suffix('\n')?.parse().ok());
    let port: u16 = port.unwrap_or_else(|| panic!("not one port: {text}"));
    assert_eq!(process.address().port(), port);
    assert!(!folder.path("ports.lck").exists());
    let mut client = Client::connect(SocketAddr::from(([127, 0, 0, 1], port)));
    assert_eq!(client.ask("mn\r\n"), "MN");
    assert_eq!(client.stat("stats settings", "tcpport"), port.to_string());
}

#[test]
fn a_file_for_ports_that_cannot_be_written_is_no_reason_to_stop() {
    let folder = Folder::new();
    let mut command = coua(&[]);
    command.env("MEMCACHED_PORT_FILENAME", folder.path("missing/ports"));
    let process = Process::start(command);
    process.hear("MEMCACHED_PORT_FILENAME");
    let mut client = Client::connect(process.address());
    assert_eq!(client.ask("mn\r\n"), "MN");
}

#[test]
fn several_addresses_with_what_memcached_takes_in_front() {
    let list = "127.0.0.1:-1,tag[red]:127.0.0.2:-1;proto[negotiating]:tag_blue_:127.0.0.3:-1";
    let process = Process::start(coua(&["-l", list]));
    let line = process.listening();
    let addresses: Vec<SocketAddr> = line
        .split("tcp:")
        .skip(1)
        .map(|text| text.trim().parse().expect("an address"))
        .collect();
    let hosts: Vec<String> = addresses.iter().map(|a| a.ip().to_string()).collect();
    // The first one is of the flags that every server here has.
    assert_eq!(hosts, ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    for address in addresses {
        assert_eq!(Client::connect(address).ask("mn\r\n"), "MN", "{address}");
    }
    process.hear("-l with a tag has no effect");
}

#[test]
fn a_unix_socket_alone_has_the_access_bits_that_were_asked_for() {
    let folder = Folder::new();
    let (path, ports) = (folder.path("socket"), folder.path("ports"));
    for (mask, bits) in [("0770", 0o770), ("600", 0o600)] {
        // With -p 0 and without: there is no network beside the socket.
        let mut command = coua(&["-s", &folder.text("socket"), "-a", mask, "-p", "0"]);
        command.env("MEMCACHED_PORT_FILENAME", &ports);
        let process = Process::start(command);
        let line = process.listening();
        assert!(line.contains("unix:") && !line.contains("tcp"), "{line}");
        let mode = fs::metadata(&path)
            .expect("the socket")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, bits, "-a {mask}");
        assert_eq!(ask_unix(&path), "MN\r\n");
        process.signal(rustix::process::Signal::TERM);
        assert_eq!(process.end().status.code(), Some(0));
        assert!(!path.exists() && !ports.exists());
    }
}

fn ask_unix(path: &std::path::Path) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(b"mn\r\n").expect("it reads");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("it answers");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Where no address is asked for, another server that has one of the two families is no reason to stop.
#[test]
fn an_address_that_is_taken_and_was_not_asked_for_is_left_out() {
    let other = std::net::TcpListener::bind("[::1]:0");
    let Ok(other) = other else {
        // There is no IPv6 here, and so nothing that could be taken.
        return;
    };
    let port = other.local_addr().expect("it is bound").port().to_string();
    let mut command = std::process::Command::new(crate::support::coua_program());
    command.args(["-p", &port, "-m", "64", "-t", "2"]);
    if crate::support::is_root() {
        command.args(["-u", "root"]);
    }
    let process = Process::start(command);
    let line = process.listening();
    assert!(
        line.contains("tcp:0.0.0.0") && !line.contains("tcp6"),
        "{line}"
    );
    let warning = process.hear("goes on without it");
    assert!(
        warning.contains("WARN") && warning.contains("[::]"),
        "{warning}"
    );
    let address = SocketAddr::from(([127, 0, 0, 1], process.address().port()));
    assert_eq!(Client::connect(address).ask("mn\r\n"), "MN");
    // With none of them left, a server does not start.
    let mut command = std::process::Command::new(crate::support::coua_program());
    command.args(["-p", &port, "-m", "64", "-t", "2", "-u", "root"]);
    let both = Process::start(command);
    assert!(both.end().one_line(71).contains("another server has it"));
}
