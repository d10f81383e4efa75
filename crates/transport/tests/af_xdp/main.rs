//! AF_XDP sockets on real veth pairs, in network namespaces that the tests make.
//!
//! They need root, or CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_SYS_ADMIN; without them they fail
//! and say so.

mod errors;
mod frames;
mod leave;
mod neighbours;
#[path = "../support/netns.rs"]
mod netns;
mod queues;
mod receive;
mod transmit;

use std::fs;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use coua_tcp::nic::{Nic, Offload};
use coua_transport::userspace::af_xdp::{OpenError, Opened, Options, XdpNic, open};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use netns::{DEVICE, Namespace, Pair};

/// What a test waits at most for anything.
const LIMIT: Duration = Duration::from_secs(20);

/// The port that the filters of these tests take.
const PORT: u16 = 11211;

const OURS: &str = "10.9.0.1";
const PEERS: &str = "10.9.0.2";

/// Both ends with an address, and checksums filled in.
fn addressed_pair() -> Pair {
    let pair = Pair::new();
    pair.ours.ip(&format!("addr add {OURS}/24 dev {DEVICE}"));
    pair.peers.ip(&format!("addr add {PEERS}/24 dev {DEVICE}"));
    pair.ours.fill_checksums();
    pair.peers.fill_checksums();
    pair
}

/// Gives both ends addresses of IPv6 too.
fn add_ipv6(pair: &Pair) {
    for (end, address) in [(&pair.ours, "fd00::1/64"), (&pair.peers, "fd00::2/64")] {
        end.enter(|| {
            // Who is about to test an address asks for no neighbours: the kernel's own, of the
            // link, would be tested for two seconds and now and then for more than it keeps asking.
            for setting in ["accept_dad", "disable_ipv6"] {
                let path = format!("/proc/sys/net/ipv6/conf/{DEVICE}/{setting}");
                fs::write(path, "0").expect("the kernel has IPv6");
            }
        });
        end.ip(&format!("addr add {address} dev {DEVICE} nodad"));
    }
}

/// All queues for one worker, UDP and TCP to [`PORT`].
fn options() -> Options {
    Options {
        tcp_ports: vec![PORT],
        udp_ports: vec![PORT],
        ..Options::new(DEVICE)
    }
}

/// Memory that is given away for good. It is remembered, or a leak check takes it for lost.
fn given(len: usize) -> &'static mut [u8] {
    static GIVEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let memory = Box::leak(vec![0; len].into_boxed_slice());
    GIVEN
        .lock()
        .expect("nobody panics with it")
        .push(memory.as_ptr().addr());
    memory
}

fn try_open(namespace: &Namespace, options: &Options) -> Result<Opened, OpenError> {
    namespace.enter(|| open(options))
}

fn open_all(namespace: &Namespace, options: &Options) -> Vec<XdpNic> {
    match try_open(namespace, options) {
        Ok(opened) => opened.nics,
        Err(error) => panic!("AF_XDP does not open: {error}"),
    }
}

/// The only worker's.
fn open_one(namespace: &Namespace, options: &Options) -> XdpNic {
    open_all(namespace, options).pop().expect("one worker")
}

/// Taking only what is for one address, which no kernel needs to have.
fn open_for(namespace: &Namespace, address: &str) -> XdpNic {
    let address: IpAddr = address.parse().expect("an address");
    let options = Options {
        addresses: vec![address],
        ..options()
    };
    open_one(namespace, &options)
}

/// Waits until the card is readable, or `at_most` has passed.
fn wait(nic: &impl AsFd, at_most: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: at_most.as_secs().cast_signed(),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    let mut entries = [PollFd::new(nic, PollFlags::IN)];
    poll(&mut entries, Some(&timeout)).expect("it can be polled") > 0
}

/// Sends one frame.
fn send(nic: &mut XdpNic, frame: &[u8]) {
    commit(nic, frame);
    nic.flush();
}

/// Has a frame wait for the flush.
fn commit(nic: &mut XdpNic, frame: &[u8]) {
    let slot = nic.slot().expect("room to send");
    slot[..frame.len()].copy_from_slice(frame);
    nic.commit(frame.len(), Offload::None);
}

/// The next frames, `count` at least.
fn receive(nic: &mut XdpNic, count: usize) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + LIMIT;
    let mut frames = Vec::new();
    while frames.len() < count {
        let so_far = frames.len();
        assert!(Instant::now() < deadline, "{so_far} of {count} frames");
        let came = nic.receive();
        frames.extend((0..came).map(|at| nic.frame(at).bytes.to_vec()));
        nic.release();
        if came == 0 {
            wait(nic, Duration::from_millis(100));
        }
    }
    frames
}

/// Whether `holds` comes true before the limit.
fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Set in a process that a test has started out of itself.
const CHILD: &str = "COUA_XDP_TEST_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// This test program once more in a namespace, to run the child's part of one test, behind the words
/// of a program that starts it.
fn child(namespace: &Namespace, launcher: &str, test: &str) -> Command {
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", namespace.name()])
        .args(launcher.split_whitespace())
        .arg(std::env::current_exe().expect("the test's program"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1");
    command
}
