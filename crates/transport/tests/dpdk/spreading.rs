//! What is said of devices with several queues, and flow rules on one that takes them.
//!
//! No device of DPDK's that is made of software takes a whole set of rules of ours: memif, vhost and
//! packet sockets have none at all, and TAP refuses masks of ports, and hashes by a program that kernels
//! load no more. So what is shown here is that a refused set leaves nothing behind, and that single
//! rules of the shim send datagrams where they say, on TAP with rules for single ports. That needs a
//! kernel with multiq, flower and skbedit, as `cargo xtask test lab` boots it; on another the rules
//! must be refused.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};

use coua_dpdk_sys::{self as sys, PortMatch, Traffic};
use coua_tcp::nic::Nic;
use coua_transport::userspace::dpdk::Queue;

use super::child::Child;
use super::huge_pages::HugePages;
use super::links::{COMMON, Meeting};
use super::netns::Namespace;
use super::roles::{Workers, listen, open_port, say};

/// Datagrams that are sent from one port in one go.
const DATAGRAMS: u64 = 40;
/// Where they go to; nobody needs to ask for its MAC address.
const SERVER: &str = "10.79.0.2:11211";

/// Datagrams of IPv4 that have come to each of the first two queues.
static CAME: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Says how the port spreads and counts what comes; makes and clears rules as it is told.
pub(crate) fn spread() {
    let (port, queues) = open_port();
    say(&format!("spread {:?}", port.spreading()));
    let workers = Workers::start(queues, count);
    loop {
        let told = listen();
        let words: Vec<&str> = told.split(' ').collect();
        match words[..] {
            ["came"] => {
                let [first, second] = CAME.each_ref().map(|count| count.load(Ordering::Relaxed));
                say(&format!("came first={first} second={second}"));
            }
            ["rule", side, mask, value, queue] => {
                let [mask, value, queue] =
                    [mask, value, queue].map(|word| word.parse().expect("a number"));
                let ports = PortMatch::new(value, mask, u8::from(side == "to"));
                let made = sys::coua_rule_queue(0, &UDP_OF_IPV4, &ports, queue) == 0;
                say(&format!("rule made={}", u64::from(made)));
            }
            ["clear"] => {
                let cleared = sys::coua_rules_clear(0) == 0;
                say(&format!("clear done={}", u64::from(cleared)));
            }
            _ => break,
        }
    }
    workers.end();
}

const UDP_OF_IPV4: Traffic = Traffic {
    is_ipv6: 0,
    is_udp: 1,
};

fn count(queue: &mut Queue) -> bool {
    let count = queue.receive();
    for at in 0..count {
        let frame = queue.frame(at).bytes;
        if frame.len() > 34 && frame[12..14] == [8, 0] && frame[23] == 17 {
            CAME[usize::from(queue.index())].fetch_add(1, Ordering::Relaxed);
        }
    }
    queue.release();
    count > 0
}

fn open(eal: &str) -> Child {
    Child::start("spread", eal, &[("queues", "2")])
}

#[test]
fn a_device_without_rules_leaves_it_to_the_peer() {
    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    for eal in [meeting.memif_server(), meeting.vhost(2)] {
        let mut child = open(&eal);
        assert_eq!(child.hear("spread"), "ByPeer", "{eal}");
        child.end();
    }
}

#[test]
fn a_device_that_hashes_ports_is_left_alone() {
    let _pages = HugePages::for_two();
    // It takes whatever hash it is asked for, and receives frames of zeros.
    let mut child = open(&format!("{COMMON} --vdev=net_null0"));
    assert_eq!(child.hear("spread"), "OwnKey");
    child.end();
}

/// A TAP device with two queues, and the kernel's end of it.
struct Tap {
    driver: Child,
    namespace: Namespace,
}

impl Tap {
    fn open() -> Tap {
        let namespace = Namespace::new();
        let eal = format!("{COMMON} --vdev=net_tap0,iface=tap0");
        let mut driver = Child::start_in(&namespace, "spread", &eal, &[("queues", "2")]);
        assert_eq!(driver.hear("spread"), "OwnKey");
        for words in [
            "addr add 10.79.0.1/24 dev tap0",
            "link set tap0 up",
            "neigh add 10.79.0.2 lladdr 02:00:00:00:00:02 dev tap0 nud permanent",
        ] {
            namespace.ip(words);
        }
        Tap { driver, namespace }
    }

    /// Whether its kernel has what the driver makes rules of.
    fn has_rules(&self) -> bool {
        let rule = "filter add dev lo ingress protocol ip flower ip_proto udp action skbedit \
                    queue_mapping 0";
        let has_flower = self.namespace.succeeds("tc", "qdisc add dev lo ingress")
            && self.namespace.succeeds("tc", rule);
        let qdiscs = self.namespace.run("tc", "qdisc show dev tap0");
        has_flower && qdiscs.contains("multiq")
    }

    /// The driver's rules that the kernel has now.
    fn rules(&self) -> usize {
        let filters = self.namespace.run("tc", "filter show dev tap0 parent 1:");
        filters.matches("src_port").count()
    }

    fn ask_for(&mut self, rule: &str) -> bool {
        self.driver.tell(rule);
        self.driver.hear("rule") == "made=1"
    }

    fn clear(&mut self) {
        self.driver.tell("clear");
        self.driver.hear("clear");
    }

    /// Sends from a port, and says how many more come to each queue.
    fn send(&mut self, port: u16) -> [u64; 2] {
        let before = self.came(|_| true);
        self.namespace.enter(|| {
            let socket = UdpSocket::bind(("10.79.0.1", port)).expect("nobody has it here");
            socket.connect(SERVER).expect("a route");
            for _ in 0..DATAGRAMS {
                socket.send(b"some").expect("it is sent");
            }
        });
        let all = before[0] + before[1] + DATAGRAMS;
        let after = self.came(|[first, second]| first + second >= all);
        [after[0] - before[0], after[1] - before[1]]
    }

    fn came(&mut self, is_so: impl Fn([u64; 2]) -> bool) -> [u64; 2] {
        let of = |came: &super::child::Numbers| [came["first"], came["second"]];
        of(&self.driver.ask_until("came", |came| is_so(of(came))))
    }
}

#[test]
fn a_rule_sends_the_datagrams_of_a_port_to_its_queue() {
    let _pages = HugePages::for_two();
    let mut tap = Tap::open();
    if !tap.has_rules() {
        // It takes none then.
        assert!(!tap.ask_for("rule from 65535 4243 1"));
        return tap.driver.end();
    }
    // What was tried when the port was opened was refused, and left nothing.
    assert_eq!(tap.rules(), 0);
    for queue in [1, 0, 1] {
        // Another port's are in the way, and one that would be right in the other byte order.
        let other = 1 - queue;
        for (port, to) in [(4243, queue), (4244, other), (4243_u16.swap_bytes(), other)] {
            assert!(tap.ask_for(&format!("rule from 65535 {port} {to}")));
        }
        assert_eq!(tap.rules(), 3);
        for (port, to) in [(4243, queue), (4244, other)] {
            let mut expected = [0; 2];
            expected[to] = DATAGRAMS;
            assert_eq!(tap.send(port), expected, "from {port} to {to}");
        }
        // A mask that the device cannot have is refused, and the rest of the set goes.
        assert!(!tap.ask_for("rule from 2 2 0"));
        tap.clear();
        assert_eq!(tap.rules(), 0);
        // All are to one port, wherever they are from.
        assert!(tap.ask_for(&format!("rule to 65535 11211 {queue}")));
        for port in [4243, 4244] {
            assert_eq!(tap.send(port)[queue], DATAGRAMS, "from {port} to {queue}");
        }
        tap.clear();
    }
    tap.driver.end();
}
