//! Two workers on links of DPDK's with two queues, memif and vhost: devices that spread nothing. What
//! the peer sends on a queue comes to the worker of the same number, and the worker answers there:
//! who asks for its MAC address and who pings it too.
//!
//! ```text
//! ┌ coua -t 2 ─┐              ┌ this process ───────────┐
//! │   worker 0 ├── queue 0 ───┤ a stack of 10.77.0.2/24 │
//! │   worker 1 ├── queue 1 ───┤ a stack of 10.77.0.3/24 │
//! └────────────┘              └─────────────────────────┘
//! ```

use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use coua_tcp::config::Config;
use coua_tcp::nic::{Mac, Nic, Offload};
use coua_tcp::stack::{Received, Stack};
use coua_tcp::time::Instant as Moment;
use coua_tcp::wire::checksum::Sum;
use coua_tcp::wire::icmp::Message;
use coua_tcp::wire::{Address, arp, ethernet, ip};
use coua_transport::userspace::Network;
use coua_transport::userspace::dpdk::{Eal, Port, PortOptions, Queue};

use crate::forger::SERVER;
use crate::huge_pages::HugePages;
use crate::links::{COMMON, Meeting};
use crate::netns::Namespace;
use crate::scene::{ADDRESSES, Program, ask, find_count};

const QUEUES: u16 = 2;
/// Connections on each queue.
const CONNECTIONS: usize = 50;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// After how long without an answer a frame is sent again: the link may not have been there.
const REPEAT: Duration = Duration::from_millis(100);

/// Where the server is on its kernel's TCP.
const BESIDE: &str = "127.0.0.1:11211";

/// A server with two workers, on one end of a link, in a network namespace where it is asked for
/// its statistics.
struct Served {
    _server: Program,
    statistics: TcpStream,
}

impl Served {
    fn start(namespace: &Namespace, link: &str) -> Served {
        let address = ADDRESSES[0].split_once(':').expect("a port").0;
        let network = format!("{address}/24");
        let flags = "-t 2 -l 127.0.0.1 --net dpdk --address";
        let flags = flags.split(' ').chain([&*network, "--dpdk-args", link]);
        let server = Program::start(namespace, &flags.collect::<Vec<_>>());
        let beside: SocketAddr = BESIDE.parse().expect("an address");
        let deadline = Instant::now() + PATIENCE;
        let statistics = loop {
            match namespace.enter(|| TcpStream::connect(beside)) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "no server: {error}"),
            }
            thread::sleep(Duration::from_millis(20));
        };
        let mut served = Served {
            _server: server,
            statistics,
        };
        // A worker with counts to show has opened the link, and so the peer may come.
        served.frames(|_| true);
        served
    }

    /// Frames that each worker has got, when they are as wanted: they are shown a few times a
    /// second, and those of a worker only once it has opened its queue.
    fn frames(&mut self, mut is_so: impl FnMut([u64; 2]) -> bool) -> [u64; 2] {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = ask(&mut self.statistics, "stats net");
            let frames = [0, 1].map(|worker| {
                let name = format!("worker:{worker}:frames_received");
                find_count(&text, &name)
            });
            if let [Some(first), Some(second)] = frames
                && is_so([first, second])
            {
                return [first, second];
            }
            assert!(Instant::now() < deadline, "it stays at {frames:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The peer's side of a queue.
struct Peer {
    queue: Queue,
    address: [u8; 4],
}

impl Peer {
    fn new(queue: Queue) -> Peer {
        let host = 2 + u8::try_from(queue.index()).expect("a few");
        Peer {
            queue,
            address: [10, 77, 0, host],
        }
    }

    /// Sends a frame to the server, or to all, until one comes that is an answer.
    fn insist<T>(
        &mut self,
        what: &str,
        (to, ether_type): (Mac, ethernet::EtherType),
        payload: &[u8],
        read: impl Fn(&ethernet::Header, &[u8]) -> Option<T>,
    ) -> T {
        let link = ethernet::Header {
            destination: to,
            source: self.queue.features().mac,
            vlan: 0,
            ether_type,
        };
        let start = Instant::now();
        let mut again = start;
        while start.elapsed() < PATIENCE {
            if Instant::now() >= again {
                again += REPEAT;
                if let Some(slot) = self.queue.slot() {
                    link.write(slot);
                    slot[link.size()..][..payload.len()].copy_from_slice(payload);
                    self.queue
                        .commit(link.size() + payload.len(), Offload::None);
                }
                self.queue.flush();
            }
            let count = self.queue.receive();
            let answer = (0..count).find_map(|at| {
                let frame = self.queue.frame(at).bytes;
                let (header, at) = ethernet::Header::read(frame).ok()?;
                read(&header, &frame[at..])
            });
            self.queue.release();
            if let Some(answer) = answer {
                return answer;
            }
            thread::yield_now();
        }
        let number = self.queue.index();
        panic!("nothing answers {what} on queue {number}");
    }

    /// Asks for the server's MAC address.
    fn ask_for_mac(&mut self) -> Mac {
        let question = arp::Packet {
            is_reply: false,
            sender_mac: self.queue.features().mac,
            sender: Address::v4(self.address),
            target_mac: Mac([0; 6]),
            target: Address::v4(SERVER),
        };
        let mut bytes = [0; arp::LEN];
        question.write(&mut bytes);
        let to = (Mac([0xff; 6]), ethernet::EtherType::ARP);
        self.insist("ARP", to, &bytes, |_, bytes| {
            let packet = arp::Packet::read(bytes).ok()?;
            let is_answer = packet.is_reply && packet.sender == question.target;
            is_answer.then_some(packet.sender_mac)
        })
    }

    fn ping(&mut self, server: Mac) {
        let mut echo = [8, 0, 0, 0, 0, 7, 0, 1, b'p', b'i', b'n', b'g'];
        let sum = Sum::of(&echo).checksum();
        echo[2..4].copy_from_slice(&sum.to_be_bytes());
        let (own, theirs) = (Address::v4(self.address), Address::v4(SERVER));
        let header = ip::Header::new(own, theirs, ip::Protocol::ICMP, echo.len());
        let mut bytes = vec![0; header.size()];
        header.write(&mut bytes, false);
        bytes.extend(echo);
        let to = (server, ethernet::EtherType::IPV4);
        self.insist("ping", to, &bytes, |_, bytes| {
            let (header, at) = ip::Header::read_v4(bytes, false).ok()?;
            let is_ours = header.destination == own && header.protocol == ip::Protocol::ICMP;
            let message = Message::read_v4(bytes.get(at..)?.get(..header.payload_len)?).ok()?;
            (is_ours && message == Message::EchoReply(&echo[4..])).then_some(())
        });
    }

    /// Has what the card did not take leave, such as the last frames of a conversation: it takes none
    /// while the link changes.
    fn go_on(&mut self) {
        self.queue.receive();
        self.queue.release();
    }

    /// Opens connections, has each ask and be answered, and ends them.
    fn converse(&mut self) {
        let network = Network::new(self.address.into(), 24).expect("a network");
        let config = Config::new(vec![network], [7; 32]);
        let mut stack = Stack::new(config, self.queue.features(), Moment::default());
        let to = ADDRESSES[0].parse().expect("an address");
        let ids: Vec<_> = (0..CONNECTIONS)
            .map(|_| stack.connect(to, |_| true).expect("there is room"))
            .collect();
        let mut asked = [false; CONNECTIONS];
        let mut answers = vec![Vec::<u8>::new(); CONNECTIONS];
        let start = Instant::now();
        while stack.connections() > 0 {
            assert!(start.elapsed() < PATIENCE, "not all are answered");
            let now = u64::try_from(start.elapsed().as_micros()).expect("a short time");
            stack.begin(Moment::from_micros(now), &mut self.queue);
            while stack.next_ready().is_some() {}
            for ((&id, asked), answer) in ids.iter().zip(&mut asked).zip(&mut answers) {
                if answer == b"MN\r\n" {
                    continue;
                }
                *asked = *asked || stack.send(id, b"mn\r\n") == Ok(4);
                let mut space = [0; 64];
                if let Received::Bytes(len) = stack.receive(&self.queue, id, &mut space) {
                    answer.extend(&space[..len]);
                }
                if answer == b"MN\r\n" {
                    stack.abort(id);
                }
            }
            stack.end(&mut self.queue);
        }
    }
}

/// On each queue in turn: all that is sent on it comes to its worker, and nothing to the other.
fn each_worker_answers_its_queue(served: &mut Served, queues: Vec<Queue>) {
    assert_eq!(queues.len(), usize::from(QUEUES));
    for (worker, queue) in queues.into_iter().enumerate() {
        let before = served.frames(|_| true);
        let mut peer = Peer::new(queue);
        let server = peer.ask_for_mac();
        peer.ping(server);
        peer.converse();
        // ARP, ping, and of each connection an opening, a request and a reset.
        let least = before[worker] + 2 + 3 * CONNECTIONS as u64;
        let after = served.frames(|frames| {
            peer.go_on();
            frames[worker] >= least
        });
        assert_eq!(after[1 - worker], before[1 - worker], "the other worker's");
    }
}

/// DPDK's environment is once in a process, and so one test has both kinds of links.
#[test]
fn two_workers_on_two_queues_of_dpdk() {
    let _pages = HugePages::for_two();
    let meetings = [Meeting::new(), Meeting::new()];
    let namespaces = [Namespace::new(), Namespace::new()];
    let [memif, vhost] = &meetings;
    let links = [memif.memif_server(), vhost.vhost(QUEUES)];
    let served = [0, 1].map(|at| Served::start(&namespaces[at], &links[at]));
    let virtio = vhost.virtio(QUEUES);
    let virtio = virtio.strip_prefix(COMMON).expect("it begins so");
    let eal = Eal::start(&(memif.memif_client() + virtio)).expect("EAL starts");
    for (mut served, name) in served.into_iter().zip(["net_memif0", "net_virtio_user0"]) {
        let options = PortOptions {
            name: Some(name.to_owned()),
            queues: QUEUES,
            mtu: None,
            offloads: false,
            interrupts: false,
            connects: true,
        };
        let (_port, queues) = Port::open(eal, &options).expect("the port opens");
        each_worker_answers_its_queue(&mut served, queues);
    }
}
