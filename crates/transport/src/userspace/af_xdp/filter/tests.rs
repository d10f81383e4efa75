//! The program as the kernel runs it (`BPF_PROG_TEST_RUN`), on frames written by hand and on ones
//! spoiled at random, beside a plain Rust function that decides the same.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, socket};
use std::os::fd::AsFd;

use super::super::bpf::{Program, SocketMap};
use super::{Rules, program};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const OURS_TOO: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 200);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const OURS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const THEIRS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const TCP: u8 = 6;
const UDP: u8 = 17;

struct Filter {
    program: Program,
    _sockets: SocketMap,
    _socket: OwnedFd,
}

impl Filter {
    /// With a socket on queue 0, which is where test runs come in.
    fn new(rules: &Rules) -> Filter {
        let sockets = SocketMap::new(1)
            .expect("a BPF map; this test runs as root (CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW)");
        let socket = socket(AddressFamily::XDP, SocketType::RAW, None).expect("an AF_XDP socket");
        sockets.insert(0, socket.as_fd()).expect("a socket");
        Filter {
            program: load(rules, &sockets),
            _sockets: sockets,
            _socket: socket,
        }
    }

    fn takes(&self, frame: &[u8]) -> bool {
        match self.program.answer(frame).expect("a test run") {
            2 => false,
            4 => true,
            other => panic!("neither passed nor redirected: {other}"),
        }
    }
}

fn load(rules: &Rules, sockets: &SocketMap) -> Program {
    match Program::load(&program(rules, sockets.descriptor())) {
        Ok(program) => program,
        Err(refusal) => panic!("{}: {}", refusal.source, refusal.complaint),
    }
}

fn rules() -> Rules {
    Rules {
        addresses: vec![OURS.into(), OURS_V6.into(), OURS_TOO.into()],
        tcp_ports: vec![11211..=11211, 40000..=40999],
        udp_ports: vec![11212..=11212],
    }
}

fn ethernet(tags: &[u16], kind: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for tag in tags {
        frame.extend_from_slice(&tag.to_be_bytes());
        frame.extend_from_slice(&[0, 5]);
    }
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(packet);
    frame
}

/// A TCP or UDP header as far as the ports, and some bytes.
fn segment(port: u16) -> Vec<u8> {
    let mut segment = vec![0x80, 0, 0, 0];
    segment[2..].copy_from_slice(&port.to_be_bytes());
    segment.extend_from_slice(&[7; 20]);
    segment
}

fn ipv4(to: Ipv4Addr, options: usize, fragment: u16, protocol: u8, port: u16) -> Vec<u8> {
    let words = u8::try_from(5 + options).expect("a few");
    let mut packet = vec![0; 20];
    packet[0] = 0x40 | words;
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet[9] = protocol;
    packet[16..20].copy_from_slice(&to.octets());
    packet.resize(20 + 4 * options, 1);
    packet.extend(segment(port));
    packet
}

/// With extension headers of these kinds and of so many words of 8 bytes beyond the first.
fn ipv6(to: Ipv6Addr, extensions: &[(u8, u8)], protocol: u8, port: u16) -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[0] = 0x60;
    packet[24..40].copy_from_slice(&to.octets());
    let kinds = extensions.iter().map(|(kind, _)| *kind).chain([protocol]);
    let kinds: Vec<u8> = kinds.collect();
    packet[6] = kinds[0];
    for ((_, words), next) in extensions.iter().zip(&kinds[1..]) {
        let from = packet.len();
        packet.resize(from + 8 + 8 * usize::from(*words), 0);
        packet[from..from + 2].copy_from_slice(&[*next, *words]);
    }
    packet.extend(segment(port));
    packet
}

#[test]
fn it_takes_the_servers_ports_and_nothing_else() {
    let filter = Filter::new(&rules());
    let v4 = |to, protocol, port| ethernet(&[], 0x0800, &ipv4(to, 0, 0x4000, protocol, port));
    let v6 = |to, extensions: &[(u8, u8)], protocol, port| {
        ethernet(&[], 0x86dd, &ipv6(to, extensions, protocol, port))
    };
    let tagged = |tags: &[u16]| ethernet(tags, 0x0800, &ipv4(OURS, 0, 0, TCP, 11211));
    let many = [(60, 0); 5];
    let cases: &[(&str, bool, Vec<u8>)] = &[
        ("TCP", true, v4(OURS, TCP, 11211)),
        ("TCP to the other address", true, v4(OURS_TOO, TCP, 11211)),
        ("UDP", true, v4(OURS, UDP, 11212)),
        ("TCP to the port of UDP", false, v4(OURS, TCP, 11212)),
        ("UDP to the port of TCP", false, v4(OURS, UDP, 11211)),
        ("below the range", false, v4(OURS, TCP, 39999)),
        ("first of the range", true, v4(OURS, TCP, 40000)),
        ("last of the range", true, v4(OURS, TCP, 40999)),
        ("above the range", false, v4(OURS, TCP, 41000)),
        ("ssh", false, v4(OURS, TCP, 22)),
        ("to another", false, v4(THEIRS, TCP, 11211)),
        ("ping", false, v4(OURS, 1, 11211)),
        ("SCTP", false, v4(OURS, 132, 11211)),
        (
            "ARP",
            false,
            ethernet(&[], 0x0806, &ipv4(OURS, 0, 0, TCP, 11211)),
        ),
        ("one tag", true, tagged(&[0x8100])),
        ("one tag of providers", true, tagged(&[0x88a8])),
        ("two tags", true, tagged(&[0x88a8, 0x8100])),
        ("three tags", false, tagged(&[0x88a8, 0x8100, 0x8100])),
        (
            "options",
            true,
            ethernet(&[], 0x0800, &ipv4(OURS, 1, 0, TCP, 11211)),
        ),
        (
            "most options",
            true,
            ethernet(&[0x8100], 0x0800, &ipv4(OURS, 10, 0, UDP, 11212)),
        ),
        (
            "first fragment",
            false,
            ethernet(&[], 0x0800, &ipv4(OURS, 0, 0x2000, UDP, 11212)),
        ),
        (
            "last fragment",
            false,
            ethernet(&[], 0x0800, &ipv4(OURS, 0, 185, UDP, 11212)),
        ),
        ("IPv6 TCP", true, v6(OURS_V6, &[], TCP, 11211)),
        ("IPv6 UDP", true, v6(OURS_V6, &[], UDP, 11212)),
        ("IPv6 other port", false, v6(OURS_V6, &[], TCP, 22)),
        ("IPv6 to another", false, v6(THEIRS_V6, &[], TCP, 11211)),
        ("neighbour discovery", false, v6(OURS_V6, &[], 58, 11211)),
        ("hop by hop", true, v6(OURS_V6, &[(0, 0)], TCP, 11211)),
        (
            "several",
            true,
            v6(OURS_V6, &[(0, 2), (60, 7), (43, 1), (60, 0)], UDP, 11212),
        ),
        ("a longer one", false, v6(OURS_V6, &[(60, 8)], UDP, 11212)),
        (
            "four of the longest",
            true,
            v6(OURS_V6, &[(60, 7); 4], UDP, 11212),
        ),
        ("four", true, v6(OURS_V6, &many[..4], TCP, 11211)),
        ("five", false, v6(OURS_V6, &many, TCP, 11211)),
        ("IPv6 fragment", false, v6(OURS_V6, &[(44, 0)], TCP, 11211)),
        ("authenticated", false, v6(OURS_V6, &[(51, 0)], TCP, 11211)),
        (
            "IPv6 within VLAN",
            true,
            ethernet(&[0x8100], 0x86dd, &ipv6(OURS_V6, &[], TCP, 11211)),
        ),
    ];
    for (name, wanted, frame) in cases {
        assert_eq!(filter.takes(frame), *wanted, "{name}");
        assert_eq!(reference(&rules(), frame), *wanted, "{name}");
    }
    let mut still_routed = v6(OURS_V6, &[(43, 0)], TCP, 11211);
    assert!(filter.takes(&still_routed));
    still_routed[14 + 40 + 3] = 1;
    assert!(!filter.takes(&still_routed));
}

#[test]
fn a_queue_without_a_socket_leaves_its_frames_to_the_kernel() {
    let sockets = SocketMap::new(1).expect("a BPF map; this test runs as root");
    let program = load(&rules(), &sockets);
    let frame = ethernet(&[], 0x0800, &ipv4(OURS, 0, 0, TCP, 11211));
    assert_eq!(program.answer(&frame).expect("a test run"), 2);
}

#[test]
fn the_verifier_takes_every_shape_of_rules() {
    let v4: IpAddr = OURS.into();
    let v6: IpAddr = OURS_V6.into();
    let all_v6 = (0..64u16).map(|at| Ipv6Addr::new(0xfd00, 0, 0, at, 0, 0, 0, 1).into());
    let lists = [vec![v4], vec![v6], vec![v4; 64], all_v6.collect()];
    let many: Vec<_> = (1..=65).map(|port| port * 100..=port * 100 + 9).collect();
    for addresses in lists {
        for (tcp, udp) in [
            (vec![1..=1], vec![]),
            (vec![], vec![0..=u16::MAX]),
            (many.clone(), many.clone()),
        ] {
            let rules = Rules {
                addresses: addresses.clone(),
                tcp_ports: tcp,
                udp_ports: udp,
            };
            let filter = Filter::new(&rules);
            assert!(!filter.takes(&ethernet(&[], 0x0806, &[0; 46])));
        }
    }
}

#[test]
fn frames_cut_and_spoiled_anywhere_are_judged_as_the_reference_does() {
    let rules = rules();
    let filter = Filter::new(&rules);
    let whole = [
        ethernet(&[0x8100], 0x0800, &ipv4(OURS, 2, 0, TCP, 11211)),
        ethernet(&[], 0x0800, &ipv4(OURS_TOO, 0, 0, UDP, 11212)),
        ethernet(
            &[],
            0x86dd,
            &ipv6(OURS_V6, &[(0, 0), (43, 1), (60, 1)], TCP, 40500),
        ),
        ethernet(&[0x88a8, 0x8100], 0x86dd, &ipv6(OURS_V6, &[], UDP, 11212)),
    ];
    let mut taken = 0;
    let mut judge = |frame: &[u8]| {
        let wanted = reference(&rules, frame);
        assert_eq!(filter.takes(frame), wanted, "{frame:02x?}");
        taken += usize::from(wanted);
    };
    for frame in &whole {
        // The kernel runs no frame without a full Ethernet header.
        for len in 14..=frame.len() {
            judge(&frame[..len]);
        }
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % limit as u64).expect("it fits")
    };
    for _ in 0..20_000 {
        let mut frame = whole[below(whole.len())].clone();
        for _ in 0..1 + below(3) {
            let at = below(frame.len());
            // Bytes that mean something more often than by chance.
            let values = [
                0, 1, 5, 6, 8, 17, 43, 44, 60, 0x08, 0x45, 0x4f, 0x60, 0x81, 0xff,
            ];
            frame[at] = match below(2) {
                0 => values[below(values.len())],
                _ => u8::try_from(below(256)).expect("a byte"),
            };
        }
        let len = 14 + below(frame.len() - 13);
        judge(if below(4) == 0 { &frame[..len] } else { &frame });
    }
    assert!(taken > 2_000, "only {taken} frames were fit to be taken");
}

/// What the program is to decide, written as one would write it elsewhere.
fn reference(rules: &Rules, frame: &[u8]) -> bool {
    is_ours(rules, frame).unwrap_or(false)
}

fn is_ours(rules: &Rules, frame: &[u8]) -> Option<bool> {
    let half =
        |bytes: &[u8], at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let mut kind = half(frame, 12)?;
    let mut packet = frame.get(14..)?;
    for _ in 0..2 {
        if matches!(kind, 0x8100 | 0x88a8) {
            kind = half(packet, 2)?;
            packet = packet.get(4..)?;
        }
    }
    let (protocol, segment) = match kind {
        0x0800 => {
            let header = packet.get(..20)?;
            let to = Ipv4Addr::from(<[u8; 4]>::try_from(&header[16..20]).ok()?);
            let words = usize::from(header[0] & 15);
            if header[0] >> 4 != 4 || words < 5 || half(header, 6)? & 0x3fff != 0 {
                return None;
            }
            if !rules.addresses.contains(&to.into()) {
                return None;
            }
            (header[9], packet.get(4 * words..)?)
        }
        0x86dd => {
            let header = packet.get(..40)?;
            let to = Ipv6Addr::from(<[u8; 16]>::try_from(&header[24..40]).ok()?);
            if header[0] >> 4 != 6 || !rules.addresses.contains(&to.into()) {
                return None;
            }
            let (mut protocol, mut rest) = (header[6], &packet[40..]);
            for _ in 0..4 {
                if matches!(protocol, 0 | 43 | 60) {
                    let extension = rest.get(..8)?;
                    if protocol == 43 && extension[3] != 0 || extension[1] > 7 {
                        return None;
                    }
                    protocol = extension[0];
                    rest = rest.get(8 + 8 * usize::from(extension[1])..)?;
                }
            }
            (protocol, rest)
        }
        _ => return None,
    };
    segment.get(..4)?;
    let port = half(segment, 2)?;
    let ports = match protocol {
        TCP => &rules.tcp_ports,
        UDP => &rules.udp_ports,
        _ => return None,
    };
    Some(ports.iter().any(|range| range.contains(&port)))
}
