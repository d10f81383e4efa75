//! What stands against opening, in words that say what to do.

use std::os::fd::OwnedFd;

use coua_transport::userspace::af_xdp::{OpenError, Options, open, open_in};
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};

use crate::netns::{DEVICE, Namespace};
use crate::{OURS, addressed_pair, child, eventually, is_child, open_one, options, try_open};

fn error(namespace: &Namespace, options: &Options) -> OpenError {
    match try_open(namespace, options) {
        Ok(_) => panic!("it must not open"),
        Err(error) => error,
    }
}

/// Whether the message is one line that has all of these words.
fn says(error: &OpenError, words: &[&str]) {
    let message = error.to_string();
    assert!(!message.contains('\n'));
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

#[test]
fn interfaces_that_do_not_serve_are_named() {
    let pair = addressed_pair();
    let other = |interface: &str| Options {
        interface: interface.to_owned(),
        ..options()
    };
    for name in ["eth7", "", "a-name-that-is-too-long-for-it"] {
        let missing = error(&pair.ours, &other(name));
        assert!(
            matches!(missing, OpenError::NoSuchInterface { .. }),
            "{missing}"
        );
    }
    says(&error(&pair.ours, &other("eth7")), &["eth7", "ip link"]);
    says(&error(&pair.ours, &other("lo")), &["lo", "Ethernet"]);

    pair.ours
        .ip(&format!("link add virtual0 link {DEVICE} type macvlan"));
    pair.ours.ip("addr add 10.9.1.1/24 dev virtual0");
    let down = error(&pair.ours, &other("virtual0"));
    says(&down, &["virtual0 is down", "ip link set virtual0 up"]);
    pair.ours.ip("link set virtual0 up");
    let no_xdp = error(&pair.ours, &other("virtual0"));
    assert!(matches!(no_xdp, OpenError::NoXdp { .. }), "{no_xdp}");
    says(&no_xdp, &["virtual0", "has no XDP"]);

    pair.ours.ip(&format!("addr flush dev {DEVICE}"));
    says(
        &error(&pair.ours, &options()),
        &["no IP address", "ip address add"],
    );

    pair.ours.ip(&format!("addr add {OURS}/24 dev {DEVICE}"));
    pair.ours.ip(&format!("link set {DEVICE} mtu 3819"));
    says(&error(&pair.ours, &options()), &["3819", "mtu 3818"]);
}

#[test]
fn another_program_and_another_socket_are_named() {
    let pair = addressed_pair();
    let first = open_one(&pair.ours, &options());
    let second = error(&pair.ours, &options());
    assert!(
        matches!(second, OpenError::AnotherProgram { id: Some(_), .. }),
        "{second}"
    );
    says(&second, &["another XDP program", "id ", "xdp off"]);
    drop(first);

    let other = pair.ours.enter(bound_socket);
    let taken = error(&pair.ours, &options());
    assert!(matches!(taken, OpenError::QueueTaken { .. }), "{taken}");
    says(&taken, &["queue 0", "another AF_XDP socket"]);
    drop(other);
    open_one(&pair.ours, &options());
}

/// Somebody else's socket on queue 0, without a program.
fn bound_socket() -> OwnedFd {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
    let index = rustix::net::netdevice::name_to_index(any, DEVICE).expect("it has a number");
    let memory = crate::given(64 * 4096 + 4096);
    let before = memory.as_ptr().align_offset(4096);
    let fd = socket(AddressFamily::XDP, SocketType::RAW, None).expect("an AF_XDP socket");
    let registration = XdpUmemReg {
        addr: memory[before..].as_ptr().addr() as u64,
        len: 64 * 4096,
        chunk_size: 4096,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(&fd, registration).expect("memory");
    sockopt::set_xdp_umem_fill_ring_size(&fd, 64).expect("a ring");
    sockopt::set_xdp_umem_completion_ring_size(&fd, 64).expect("a ring");
    sockopt::set_xdp_rx_ring_size(&fd, 64).expect("a ring");
    let address = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_COPY, index, 0);
    assert!(
        eventually(|| bind(&fd, &address).is_ok()),
        "the queue is free"
    );
    fd
}

#[test]
fn wishes_that_cannot_be_met_are_named() {
    let pair = addressed_pair();
    let ours = &pair.ours;
    let with = |change: &dyn Fn(&mut Options)| {
        let mut options = options();
        change(&mut options);
        error(ours, &options)
    };
    says(
        &with(&|options| options.workers = 2),
        &["1 receive queues for 2 workers", "ethtool -L"],
    );
    says(&with(&|options| options.workers = 0), &["0 workers"]);
    says(
        &with(&|options| options.queues = Some(1..3)),
        &["queue 1 was asked for", "0 to 0"],
    );
    says(
        &with(&|options| options.queues = Some(0..0)),
        &["0 receive queues for 1 workers"],
    );
    says(
        &with(&|options| options.vlans = true),
        &["VLAN", "ethtool -K eth0 rxvlan off"],
    );
    for len in [0, 32, 100, 131_072] {
        says(
            &with(&|options| options.receive_len = len),
            &["power of two"],
        );
        says(
            &with(&|options| options.transmit_len = len),
            &["power of two"],
        );
    }
    let no_port = with(&|options| {
        options.tcp_ports.clear();
        options.udp_ports.clear();
    });
    says(&no_port, &["no port"]);
    let many = with(&|options| options.tcp_ports = (1..=65).collect());
    says(&many, &["65 TCP ports", "64"]);

    let memory = crate::given(4096);
    let given = ours
        .enter(|| open_in(&options(), memory))
        .err()
        .expect("too little");
    says(&given, &["4096 bytes", "8388608"]);
    // Nothing of this has kept it from opening.
    open_one(ours, &options());
}

/// Runs the child's part of a test behind a launcher that takes something away from it.
fn deprived(launcher: &str, test: &str) {
    let pair = addressed_pair();
    let output = child(&pair.ours, launcher, test)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{launcher}: {said}{errors}");
    assert!(said.contains("1 passed"), "the child's part ran: {said}");
}

fn error_here(options: &Options) -> OpenError {
    open(options).err().expect("it must not open")
}

#[test]
fn missing_rights_are_named() {
    if is_child() {
        let error = error_here(&options());
        assert!(matches!(error, OpenError::Permission { .. }), "{error}");
        let names = ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_IPC_LOCK"];
        return says(&error, &names);
    }
    let test = "errors::missing_rights_are_named";
    for set in [
        "-all",
        "-all,+bpf",
        "-all,+bpf,+net_admin",
        "-all,+bpf,+net_raw",
    ] {
        deprived(
            &format!("setpriv --inh-caps=-all --bounding-set={set}"),
            test,
        );
    }
}

#[test]
fn the_rights_that_are_named_are_enough() {
    if is_child() {
        return drop(open(&options()).expect("it opens"));
    }
    deprived(
        "setpriv --inh-caps=-all --bounding-set=-all,+bpf,+net_admin,+net_raw,+ipc_lock",
        "errors::the_rights_that_are_named_are_enough",
    );
}

#[test]
fn a_limit_on_locked_memory_is_named() {
    if is_child() {
        let error = error_here(&options());
        assert!(matches!(error, OpenError::LockedMemory { .. }), "{error}");
        return says(
            &error,
            &["65536", "8388608", "RLIMIT_MEMLOCK", "CAP_IPC_LOCK"],
        );
    }
    deprived(
        "prlimit --memlock=65536 setpriv --inh-caps=-all --bounding-set=-all,+bpf,+net_admin,+net_raw",
        "errors::a_limit_on_locked_memory_is_named",
    );
}

#[test]
fn a_lack_of_memory_is_named() {
    if is_child() {
        let mut long = options();
        long.receive_len = 65536;
        long.transmit_len = 65536;
        says(&error_here(&long), &["no memory", "268435456"]);
        long.reserved_pages = true;
        says(
            &error_here(&long),
            &["huge pages", "vm.nr_hugepages by 128"],
        );
        return;
    }
    deprived(
        "prlimit --as=250000000",
        "errors::a_lack_of_memory_is_named",
    );
}
