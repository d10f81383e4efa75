//! What is said where a socket cannot be opened.

use std::thread;
use std::time::{Duration, Instant};

use coua_tcp::nic::Mac;
use coua_transport::userspace::packet::{PacketError, PacketSocket, Tap, TapError};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::netns::{DEVICE, Namespace, Pair};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn open_in(namespace: &Namespace, device: &str) -> PacketError {
    let opened = namespace.enter(|| PacketSocket::open(device, None, 1));
    opened.err().expect("it cannot be opened")
}

/// Without the capabilities of root, for the thread that the work runs in.
fn without_rights<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    namespace.enter(|| {
        let mut sets = capabilities(None).expect("a thread has capabilities");
        sets.effective = CapabilitySet::empty();
        set_capabilities(None, sets).expect("they can be laid down");
        work()
    })
}

#[test]
fn a_missing_interface_is_named() {
    let namespace = Namespace::new();
    let error = open_in(&namespace, "eth7");
    assert!(matches!(error, PacketError::NoDevice { .. }), "{error}");
    assert!(error.to_string().contains("`eth7`"), "{error}");
    for name in ["", "a name that is much too long", "nul\0"] {
        let error = open_in(&namespace, name);
        assert!(matches!(error, PacketError::NoDevice { .. }), "{error}");
    }
}

#[test]
fn an_interface_that_is_down_is_said_to_be() {
    let pair = Pair::new();
    pair.ours.ip(&format!("link set {DEVICE} down"));
    let error = open_in(&pair.ours, DEVICE);
    assert!(matches!(error, PacketError::DeviceDown { .. }), "{error}");
    assert!(error.to_string().contains("ip link set eth0 up"), "{error}");
}

#[test]
fn a_small_mtu_is_refused() {
    let pair = Pair::new();
    pair.ours.ip(&format!("link set {DEVICE} mtu 1279"));
    let error = open_in(&pair.ours, DEVICE);
    assert!(
        matches!(error, PacketError::MtuTooSmall { mtu: 1279, .. }),
        "{error}"
    );
}

#[test]
fn an_interface_without_ethernet_is_refused() {
    let namespace = Namespace::new();
    namespace.ip("tuntap add mode tun name tun0");
    namespace.ip("link set tun0 up");
    let error = open_in(&namespace, "tun0");
    assert!(matches!(error, PacketError::NotEthernet { .. }), "{error}");
}

#[test]
fn a_missing_capability_is_named() {
    let pair = Pair::new();
    let opened = without_rights(&pair.ours, || PacketSocket::open(DEVICE, None, 1));
    let error = opened.err().expect("it may not");
    assert!(matches!(error, PacketError::NoPermission), "{error}");
    assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
    let opened = without_rights(&pair.ours, || Tap::open("tap0", MAC, 1));
    let error = opened.err().expect("it may not");
    assert!(matches!(error, TapError::NoPermission { .. }), "{error}");
    assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
}

#[test]
fn a_tap_device_that_is_taken_or_none_is_refused() {
    let pair = Pair::new();
    pair.ours.enter(|| {
        let error = Tap::open(DEVICE, MAC, 1).err().expect("it is a veth");
        assert!(matches!(error, TapError::Different { .. }), "{error}");
        let first = Tap::open("tap0", MAC, 1).expect("it is made");
        let error = Tap::open("tap0", MAC, 1).err().expect("it is taken");
        assert!(matches!(error, TapError::Busy { .. }), "{error}");
        drop(first);
        // A program that another test is just starting holds a copy of everything for a moment.
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Err(error) = Tap::open("tap0", MAC, 2) {
            assert!(Instant::now() < deadline, "the first is gone, but {error}");
            thread::sleep(Duration::from_millis(5));
        }
    });
}
