//! Sockets that a program has from others: from the program before it in its process, or from a
//! service manager.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::process::Signal;

use crate::MemoryFile;
use crate::process::{Client, Folder, PATIENCE, Process, coua, poll, wrapped};

/// Waits until as many programs have begun with the file as there were upgrades.
fn taken_over(process: &Process, times: usize) {
    poll("the next program", || {
        let said = process.said();
        (said.matches("the cache begins with").count() >= times).then_some(())
    });
}

/// A request over any connection; `None` where the connection ends before the answer.
fn ask(mut stream: impl Read + Write) -> Option<()> {
    let mut answer = [0; 4];
    stream.write_all(b"mn\r\n").ok()?;
    stream.read_exact(&mut answer).ok()?;
    assert_eq!(&answer, b"MN\r\n");
    Some(())
}

#[test]
fn the_unix_socket_stays() {
    let (file, folder) = (MemoryFile::new(), Folder::new());
    let path = folder.path("socket");
    let process = Process::start(coua(&["-s", &folder.text("socket"), "-e", file.text()]));
    process.listening();
    let number = std::fs::metadata(&path).expect("it is there").ino();
    let (stop, answers, ends) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let stream = UnixStream::connect(&path).expect("no connection is refused");
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let counted = match ask(stream) {
                    Some(()) => &answers,
                    None => &ends,
                };
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        for upgrade in 1..=3 {
            thread::sleep(Duration::from_millis(100));
            process.signal(Signal::USR2);
            taken_over(&process, upgrade);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(answers.into_inner() > 3 && ends.into_inner() <= 3);
    assert_eq!(std::fs::metadata(&path).expect("it is there").ino(), number);
    process.signal(Signal::TERM);
    assert!(process.end().status.success());
    assert!(!path.exists(), "it goes with the last one");
}

#[test]
fn datagrams_wait_for_the_next_program() {
    let file = MemoryFile::new();
    // A free port is this process's until the server has it.
    let port = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let process = Process::start(coua(&["-U", &port.to_string(), "-e", file.text()]));
    process.listening();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for upgrade in 1..=3 {
        process.signal(Signal::USR2);
        for number in 0..200_u16 {
            let mut request = number.to_be_bytes().to_vec();
            request.extend_from_slice(b"\0\0\0\x01\0\0mn\r\n");
            client.send(&request).expect("somebody has the port");
            thread::sleep(Duration::from_micros(500));
        }
        let mut answered = [false; 200];
        while answered.contains(&false) {
            let mut reply = [0; 64];
            let len = client.recv(&mut reply).expect("each one is answered");
            assert_eq!(&reply[8..len], b"MN\r\n");
            answered[usize::from(u16::from_be_bytes([reply[0], reply[1]]))] = true;
        }
        taken_over(&process, upgrade);
    }
}

#[test]
fn in_the_background_too() {
    let folder = Folder::new();
    // Paths that count from where the command was given.
    let flags = ["-d", "-vv", "-P", "pid", "-s", "socket", "-e", "memory"];
    let mut command = coua(&flags);
    command.current_dir(folder.path(""));
    let parent = Process::start(command);
    poll("the pid file", || {
        std::fs::read_to_string(folder.path("pid"))
            .ok()
            .filter(|text| !text.is_empty())
    });
    let pid = std::fs::read_to_string(folder.path("pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::USR2).unwrap();
    taken_over(&parent, 1);
    let stream = UnixStream::connect(folder.path("socket")).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    ask(stream).expect("it answers");
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    poll("the end", || {
        rustix::process::test_kill_process(pid)
            .is_err()
            .then_some(())
    });
    assert!(!folder.path("pid").exists() && !folder.path("socket").exists());
}

/// As systemd hands sockets over: from descriptor 3 on, with the process's own number.
fn given(sockets: &[OwnedFd], flags: &[&str]) -> Process {
    let mut script = String::from("exec");
    for (at, socket) in sockets.iter().enumerate() {
        rustix::io::fcntl_setfd(socket, FdFlags::empty()).unwrap();
        script.push_str(&format!(" {}<&{}", at + 3, socket.as_raw_fd()));
    }
    let count = sockets.len();
    script.push_str(&format!(
        "; export LISTEN_PID=$$ LISTEN_FDS={count}; exec \"$@\""
    ));
    let process = Process::start(wrapped(&["bash", "-c", &script, "bash"], flags));
    for socket in sockets {
        rustix::io::fcntl_setfd(socket, FdFlags::CLOEXEC).unwrap();
    }
    process
}

#[test]
fn a_service_manager_gives_sockets() {
    let (file, folder) = (MemoryFile::new(), Folder::new());
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let datagrams = udp.local_addr().unwrap();
    let unix = UnixListener::bind(folder.path("socket")).unwrap();
    let other = std::fs::File::open("/dev/null").unwrap();
    // Who connects before there is a server is served by it.
    let early = TcpStream::connect(address).unwrap();
    // High numbers, so that the shell does not put one on another.
    let high = |fd: &dyn AsFd| {
        let above = rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), 200);
        above.expect("a descriptor is free")
    };
    let sockets = [high(&tcp), high(&udp), high(&unix), high(&other)];
    let process = given(&sockets, &["-e", file.text(), "-t", "3"]);
    let line = process.listening();
    let all = format!("tcp:{address} unix:{}", folder.path("socket").display());
    assert!(
        line.contains(&all) && line.contains(&format!("udp:{datagrams}")),
        "{line}"
    );
    // The flags' own port is not opened beside them.
    assert_eq!(line.matches("tcp:").count(), 1, "{line}");
    assert!(
        process.said().contains("descriptor 6: closed"),
        "{}",
        process.said()
    );
    let mut early = Client::new(early);
    assert_eq!(early.ask("set k 0 0 1\r\nv\r\n"), "STORED");
    for upgrade in 1..=2 {
        process.signal(Signal::USR2);
        taken_over(&process, upgrade);
        assert_eq!(Client::connect(address).ask("mg k v\r\n"), "VA 1");
        let stream = UnixStream::connect(folder.path("socket")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        ask(stream).expect("it answers");
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
            .send_to(b"\0\x01\0\0\0\x01\0\0mn\r\n", datagrams)
            .unwrap();
        let mut reply = [0; 64];
        let len = client.recv(&mut reply).expect("it is answered");
        assert_eq!(&reply[8..len], b"MN\r\n");
    }
    process.signal(Signal::TERM);
    assert!(process.end().status.success());
    // They are the manager's: who comes waits for the next server.
    assert!(folder.path("socket").exists());
    TcpStream::connect(address).expect("it still listens");
}

/// Nobody can log in by UDP, so a socket for it would go round the passwords.
#[test]
fn given_sockets_for_datagrams_do_not_go_with_passwords() {
    let folder = Folder::new();
    std::fs::write(folder.path("users"), "a:b\n").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp = rustix::io::fcntl_dupfd_cloexec(&udp, 100).unwrap();
    let end = given(&[udp], &["-Y", &folder.text("users")]).end();
    let line = end.one_line(71);
    assert!(line.contains("a socket for UDP was given"), "{line}");
}
