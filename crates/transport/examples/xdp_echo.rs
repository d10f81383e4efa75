//! What a bare echo of UDP datagrams over AF_XDP does on a veth pair: nothing but the driver, its
//! system calls and the kernel's copies. What a server on the same pair does less is its own.
//!
//! ```text
//! cargo run --release -p coua-transport --example xdp_echo -- [SECONDS [PAYLOAD [IN_FLIGHT…]]]
//! ```
//!
//! Needs root and two cores: the echo runs on core 0, the load on core 1, each in a network
//! namespace that is made for it. Both spin. Each datagram that comes back is compared.
#![expect(clippy::print_stdout, reason = "it prints what it has measured")]

#[path = "../tests/support/netns.rs"]
mod netns;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use coua_tcp::nic::{Nic, Offload};
use coua_transport::userspace::af_xdp::{BusyPoll, Options, XdpNic, open};
use rustix::thread::{CpuSet, sched_setaffinity};

use netns::{DEVICE, Namespace, Pair};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const PORT: u16 = 11211;
const PAYLOAD_AT: usize = 42;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|word| {
        let number: usize = word.parse().expect("a number");
        number
    });
    let seconds = numbers.next().unwrap_or(2).min(10);
    let payload_len = numbers.next().unwrap_or(16).clamp(8, 1400);
    let mut in_flight: Vec<usize> = numbers.collect();
    if in_flight.is_empty() {
        in_flight = vec![1, 32, 64, 256];
    }
    println!("payload of {payload_len} bytes, {seconds} s each");
    for busy_poll in [None, Some(BusyPoll::default())] {
        for count in &in_flight {
            let count = (*count).clamp(1, 1024);
            let figures = run(seconds as u64, payload_len, count, busy_poll);
            let how = if busy_poll.is_some() {
                "busy polling"
            } else {
                "interrupts"
            };
            println!("{count:>5} in flight, {how:<12}: {figures}");
        }
    }
}

fn run(seconds: u64, payload_len: usize, in_flight: usize, busy_poll: Option<BusyPoll>) -> String {
    let pair = Pair::new();
    let mut server = open_on(&pair.ours, SERVER, busy_poll);
    let mut client = open_on(&pair.peers, CLIENT, busy_poll);
    let request = request(&pair, payload_len);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let echo = scope.spawn(|| {
            pin(0);
            while !ends.load(Ordering::Relaxed) {
                echo_burst(&mut server);
            }
            server.counters().expect("counted").wakeups
        });
        let load = scope.spawn(|| {
            pin(1);
            let time = Duration::from_secs(seconds);
            drive(&mut client, &request, in_flight, time)
        });
        let echoed = load.join();
        ends.store(true, Ordering::Relaxed);
        let calls = echo.join().expect("the echo ends").max(1);
        let echoed = echoed.expect("every datagram comes back") as f64;
        format!(
            "{:.3} M echoes/s, {:.1} echoes a system call of the echo",
            echoed / seconds as f64 / 1e6,
            echoed / calls as f64
        )
    })
}

fn open_on(namespace: &Namespace, address: Ipv4Addr, busy_poll: Option<BusyPoll>) -> XdpNic {
    let options = Options {
        addresses: vec![IpAddr::V4(address)],
        udp_ports: vec![PORT],
        busy_poll,
        ..Options::new(DEVICE)
    };
    let opened = namespace.enter(|| open(&options));
    let mut opened = opened.unwrap_or_else(|error| panic!("{error}"));
    opened.nics.pop().expect("one worker")
}

/// Sends a burst back to where it came from.
fn echo_burst(nic: &mut XdpNic) {
    let count = nic.receive();
    let mut reply = [0; 1600];
    for at in 0..count {
        let frame = nic.frame(at).bytes;
        let len = frame.len();
        reply[..6].copy_from_slice(&frame[6..12]);
        reply[6..12].copy_from_slice(&frame[..6]);
        reply[12..26].copy_from_slice(&frame[12..26]);
        reply[26..30].copy_from_slice(&frame[30..34]);
        reply[30..34].copy_from_slice(&frame[26..30]);
        reply[34..36].copy_from_slice(&frame[36..38]);
        reply[36..38].copy_from_slice(&frame[34..36]);
        reply[38..len].copy_from_slice(&frame[38..]);
        let Some(slot) = nic.slot() else {
            break;
        };
        slot[..len].copy_from_slice(&reply[..len]);
        nic.commit(len, Offload::None);
    }
    nic.release();
    if count > 0 {
        nic.flush();
    }
}

/// Keeps so many requests under way, and gives how many came back.
fn drive(nic: &mut XdpNic, request: &[u8], in_flight: usize, time: Duration) -> u64 {
    let (mut sent, mut echoed) = (0u64, 0u64);
    let start = Instant::now();
    let mut came = Instant::now();
    while start.elapsed() < time {
        while sent - echoed < in_flight as u64
            && let Some(slot) = nic.slot()
        {
            slot[..request.len()].copy_from_slice(request);
            slot[PAYLOAD_AT..PAYLOAD_AT + 8].copy_from_slice(&sent.to_be_bytes());
            nic.commit(request.len(), Offload::None);
            sent += 1;
        }
        nic.flush();
        let count = nic.receive();
        for at in 0..count {
            check(nic.frame(at).bytes, request, echoed);
            echoed += 1;
        }
        nic.release();
        if count > 0 {
            came = Instant::now();
        }
        assert!(
            came.elapsed() < Duration::from_secs(1),
            "echoes are missing"
        );
    }
    echoed
}

/// One queue and one path keep the order.
fn check(frame: &[u8], request: &[u8], number: u64) {
    let (head, rest) = frame[PAYLOAD_AT..].split_at(8);
    assert_eq!(head, number.to_be_bytes(), "an echo is missing");
    assert_eq!(
        rest[..request.len() - PAYLOAD_AT - 8],
        request[PAYLOAD_AT + 8..]
    );
}

fn request(pair: &Pair, payload_len: usize) -> Vec<u8> {
    let mut frame = [pair.ours.mac(), pair.peers.mac()].concat();
    frame.extend_from_slice(&[0x08, 0, 0x45, 0]);
    let len = |headers: usize| {
        u16::try_from(headers + payload_len)
            .expect("short")
            .to_be_bytes()
    };
    frame.extend_from_slice(&len(28));
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend_from_slice(&CLIENT.octets());
    frame.extend_from_slice(&SERVER.octets());
    frame.extend_from_slice(&PORT.to_be_bytes());
    frame.extend_from_slice(&PORT.to_be_bytes());
    frame.extend_from_slice(&len(8));
    frame.extend_from_slice(&[0, 0]);
    frame.resize(PAYLOAD_AT + payload_len, 0x5a);
    frame.resize(frame.len().max(60), 0);
    frame
}

fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).expect("a machine with two cores");
}
