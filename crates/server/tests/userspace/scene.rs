//! A server in one namespace, and its clients in another.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use coua_transport::userspace::Mac;
use coua_transport::userspace::packet::PacketSocket;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};

use crate::bridge::{Bridge, Meeting};
use crate::forger::Forger;
use crate::netns::{DEVICE, Namespace, Pair};
use crate::resident::resident_kib;

/// Where the server listens.
pub(crate) const ADDRESSES: [&str; 2] = ["10.77.0.1:11211", "[fd77::1]:11211"];

/// The server's `-m`.
pub(crate) const MEMORY_MIB: u64 = 128;

/// How long anything may take that a test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server on a stack of its own.
pub(crate) struct Scene {
    /// Between the cable and the server, where that is on a memif link.
    bridge: Option<Bridge>,
    meeting: Option<Meeting>,
    /// Where it and its clients are.
    pub(crate) pair: Pair,
    server: Program,
    has_ipv6: bool,
}

impl Scene {
    /// Starts a server on one end of a cable, with as many queues as workers.
    pub(crate) fn open(driver: &str, flags: &[&str]) -> Scene {
        Scene::open_narrow(driver, flags, 1500)
    }

    /// The same, on a cable that takes packets of so many bytes.
    pub(crate) fn open_narrow(driver: &str, flags: &[&str], mtu: u16) -> Scene {
        let workers = flags.iter().skip_while(|flag| **flag != "-t").nth(1);
        let workers = workers.map_or(1, |number| number.parse().expect("-t has a number"));
        let pair = Pair::with_queues(workers);
        for end in [&pair.ours, &pair.peers] {
            end.ip(&format!("link set {DEVICE} mtu {mtu}"));
        }
        Scene::at(pair, driver, flags)
    }

    /// A server between two namespaces that a cable joins already.
    pub(crate) fn at(pair: Pair, driver: &str, flags: &[&str]) -> Scene {
        let is_xdp = driver == "xdp";
        pair.peers.enter(|| {
            let switch = "/proc/sys/net/ipv6/conf/eth0/disable_ipv6";
            std::fs::write(switch, "0").expect("a network namespace's settings");
        });
        for words in [
            "addr add 10.77.0.2/24 dev eth0",
            "addr add fd77::2/64 dev eth0 nodad",
        ] {
            pair.peers.ip(words);
        }
        if is_xdp {
            // The kernel answers ARP there, and its address is taken over.
            pair.ours.ip("addr add 10.77.0.1/24 dev eth0");
        }
        pair.peers.fill_checksums();
        pair.ours.fill_checksums();
        let meeting = (driver == "memif").then(Meeting::new);
        let bridge = meeting
            .as_ref()
            .map(|meeting| Bridge::between(meeting, &pair));
        let net = match &meeting {
            Some(meeting) => meeting.net(),
            // Its device is one of DPDK's arguments, which are among the flags.
            None if driver == "dpdk" => driver.to_owned(),
            None => format!("{driver}:{DEVICE}"),
        };
        let mut all = vec!["-c", "2000", "--net", &net];
        if !is_xdp {
            all.extend(["--address", "10.77.0.1/24,fd77::1/64"]);
        }
        all.extend(flags);
        let server = Program::start(&pair.ours, &all);
        let mut scene = Scene {
            bridge,
            meeting,
            pair,
            server,
            has_ipv6: !is_xdp,
        };
        let address = ADDRESSES[usize::from(flags.contains(&"--allow"))];
        let deadline = Instant::now() + PATIENCE;
        while !scene.connects(address) {
            let ended = scene.server.0.try_wait().expect("a child");
            assert!(ended.is_none(), "the server has ended: {ended:?}");
            assert!(Instant::now() < deadline, "the server does not answer");
        }
        scene
    }

    /// Takes the bridge to a memif link away in the midst of everything, and joins another.
    pub(crate) fn change_bridge(&mut self) {
        self.bridge = None;
        let meeting = self.meeting.as_ref().expect("a memif link");
        self.bridge = Some(Bridge::between(meeting, &self.pair));
    }

    /// The addresses at which it serves.
    pub(crate) fn addresses(&self) -> &'static [&'static str] {
        if self.has_ipv6 {
            &ADDRESSES
        } else {
            &ADDRESSES[..1]
        }
    }

    /// A new connection.
    pub(crate) fn connect(&self, address: &str) -> TcpStream {
        let address: SocketAddr = address.parse().expect("an address");
        let connected = self
            .pair
            .peers
            .enter(|| TcpStream::connect_timeout(&address, PATIENCE));
        let stream = connected.expect("the server accepts connections");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    /// Whether a connection can be made within half a second.
    pub(crate) fn connects(&self, address: &str) -> bool {
        let address: SocketAddr = address.parse().expect("an address");
        let limit = Duration::from_millis(500);
        let connected = self
            .pair
            .peers
            .enter(|| TcpStream::connect_timeout(&address, limit));
        if connected.is_err() {
            // Refused at once while it is starting.
            thread::sleep(Duration::from_millis(20));
        }
        connected.is_ok()
    }

    /// Bytes of the server's memory that are there.
    pub(crate) fn resident(&self) -> u64 {
        resident_kib(self.pid()) << 10
    }

    /// Ends the server as a signal does.
    pub(crate) fn stop(self) {
        self.server.stop();
    }

    /// Waits until the server has ended, in whatever way.
    pub(crate) fn poll_ended(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.server.0.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the server, which was told to, has ended.
    pub(crate) fn ends(mut self) {
        let status = self.server.0.wait().expect("a child");
        assert!(status.success(), "{status}");
    }

    /// Does something in the clients' namespace.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.pair.peers.enter(work)
    }

    /// Starts another server, on the kernel's sockets in the clients' namespace, and waits until it
    /// listens at port 11211 of 127.0.0.1.
    pub(crate) fn start_kernels(&self, flags: &[&str]) -> Program {
        let server = Program::start(&self.pair.peers, flags);
        self.poll(|| self.connects("127.0.0.1:11211").then_some(()));
        server
    }

    /// Asks until there is an answer.
    pub(crate) fn poll<T>(&self, mut question: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = question() {
                return answer;
            }
            assert!(Instant::now() < deadline, "it does not come");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until only so many connections are open, that of the question included.
    pub(crate) fn wait_for_connections(&self, count: usize) {
        let mut client = self.connect(ADDRESSES[0]);
        let line = format!("STAT curr_connections {count}\r\n");
        self.poll(|| ask(&mut client, "stats").contains(&line).then_some(()));
    }

    /// The server's process.
    pub(crate) fn pid(&self) -> u32 {
        self.server.0.id()
    }

    /// Stops the server's process, or has it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process"), signal).expect("it runs");
    }

    /// Somebody in the clients' network who sends whatever frames it likes.
    pub(crate) fn forger(&self) -> Forger {
        let socket = self
            .pair
            .peers
            .enter(|| PacketSocket::open(DEVICE, None, 1));
        let mut queues = socket.expect("packet sockets need root");
        Forger::new(queues.remove(0), Mac(self.pair.ours.mac()))
    }

    /// Has the clients' kernel forget where the server's address is, so that it asks by ARP.
    pub(crate) fn forget_neighbours(&self) {
        // It fails where the kernel learns anew meanwhile.
        let flush = format!("neigh flush dev {DEVICE}");
        self.poll(|| self.pair.peers.succeeds("ip", &flush).then_some(()));
    }

    /// The server's address answers to ping.
    pub(crate) fn ping(&self) {
        self.pair.peers.run("ping", "-c 3 -i 0.1 -W 5 10.77.0.1");
    }
}

/// A running server. Dropping it ends the process, and shows what it has said where the test fails.
pub(crate) struct Program(Child, File);

impl Program {
    /// Starts one in a namespace.
    pub(crate) fn start(namespace: &Namespace, flags: &[&str]) -> Program {
        let mut command = command(namespace, &[], flags);
        let log = memfd_create("log", MemfdFlags::CLOEXEC).expect("memory");
        let log = File::from(log);
        command.stderr(log.try_clone().expect("a descriptor"));
        Program(command.spawn().expect("the program runs"), log)
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        let status = self.0.wait().expect("a child");
        assert!(status.success(), "{status}");
    }
}

/// Starts a server that is to end by itself, and gives its exit status and what it says.
pub(crate) fn refused(flags: &[&str]) -> (Option<i32>, String) {
    let pair = Pair::new();
    let output = command(&pair.ours, &["timeout", "60"], flags).output();
    let output = output.expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// coua in a namespace, started by another program where one is given.
fn command(namespace: &Namespace, wrapper: &[&str], flags: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace.name()]);
    command.args(wrapper).arg(env!("CARGO_BIN_EXE_coua"));
    command.args(["-u", "root", "-m", &MEMORY_MIB.to_string(), "-t", "1"]);
    command.args(flags).stdin(Stdio::null());
    command
}

impl Drop for Program {
    fn drop(&mut self) {
        let ended = self.0.try_wait();
        // Both fail only where it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
        if thread::panicking() {
            let mut said = String::new();
            let _ = self.1.rewind();
            let _ = self.1.read_to_string(&mut said);
            eprintln!("the server ({ended:?}) has said:\n{said}");
        }
    }
}

/// Asks for an answer that ends with `END`.
pub(crate) fn ask(client: &mut TcpStream, question: &str) -> String {
    let question = format!("{question}\r\n");
    client.write_all(question.as_bytes()).expect("it is open");
    let mut text = String::new();
    let mut space = [0; 4096];
    while !text.ends_with("END\r\n") {
        let len = client.read(&mut space).expect("an answer");
        assert!(len > 0, "the end behind {text}");
        text.push_str(std::str::from_utf8(&space[..len]).expect("text"));
    }
    text
}

/// A number out of statistics that show it.
pub(crate) fn count(text: &str, name: &str) -> u64 {
    find_count(text, name).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// A number out of statistics that may not show it yet.
pub(crate) fn find_count(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("STAT {name} ")))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Sends, and expects just these bytes.
pub(crate) fn exchange(client: &mut TcpStream, send: &[u8], expected: &[u8]) {
    let mut writer = client.try_clone().expect("a socket can be cloned");
    thread::scope(|scope| {
        // Both directions at once: neither side may wait for the other for ever.
        scope.spawn(move || writer.write_all(send).expect("it is open"));
        let mut answer = vec![0; expected.len()];
        client.read_exact(&mut answer).expect("an answer");
        assert!(
            answer == expected,
            "{} instead of {}",
            start(&answer),
            start(expected)
        );
    });
}

fn start(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(200)].escape_ascii().to_string()
}
