//! Network cards: what `--net` needs of the kernel, of rights and of drivers.

use coua_transport::userspace::af_xdp;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, getrlimit};

use super::Findings;
use crate::host::Host;

/// Rights, by their numbers in the kernel's mask.
const NET_ADMIN: (u32, &str) = (12, "CAP_NET_ADMIN");
const NET_RAW: (u32, &str) = (13, "CAP_NET_RAW");
const IPC_LOCK: (u32, &str) = (14, "CAP_IPC_LOCK");
const BPF: (u32, &str) = (39, "CAP_BPF");

/// Drivers whose cards give frames without a copy, in kernels of the last years.
const WITHOUT_COPY: [&str; 10] = [
    "gve",
    "i40e",
    "ice",
    "idpf",
    "igb",
    "igc",
    "ixgbe",
    "mlx5_core",
    "stmmac",
    "virtio_net",
];

/// Of these rights, the ones that this process lacks.
fn lacking(host: &Host, rights: &[(u32, &'static str)]) -> Vec<&'static str> {
    let mask = host.value("/proc/self/status", "CapEff");
    let mask = mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    let mask = mask.unwrap_or_default();
    let lacks = rights.iter().filter(|(bit, _)| mask >> bit & 1 == 0);
    lacks.map(|(_, name)| *name).collect()
}

fn rights(host: &Host, wanted: &[(u32, &'static str)], findings: &mut Findings<'_>) {
    let lacking = lacking(host, wanted);
    match lacking.is_empty() {
        true => findings.ok("this process has the rights"),
        false => findings.problem(
            format!("this process lacks {}", lacking.join(", ")),
            "run it as root, or give it these rights (AmbientCapabilities=, setcap)",
        ),
    }
}

pub(super) fn xdp(host: &Host, interface: Option<&str>, findings: &mut Findings<'_>) {
    rights(host, &[NET_ADMIN, NET_RAW, BPF, IPC_LOCK], findings);
    let flags = SocketFlags::CLOEXEC;
    match socket_with(AddressFamily::XDP, SocketType::RAW, flags, None) {
        Ok(_) => findings.ok("the kernel has AF_XDP"),
        // It needs a right, of which is told above.
        Err(Errno::PERM) => {}
        Err(errno) => findings.problem(
            format!("the kernel has no AF_XDP: {}", std::io::Error::from(errno)),
            "take a kernel with CONFIG_XDP_SOCKETS, or another transport",
        ),
    }
    if is_before(host, 5, 11)
        && let Some(bytes) = getrlimit(Resource::Memlock).maximum
    {
        findings.problem(
            format!(
                "{} KiB of memory may be locked, which before Linux 5.11 frames count for",
                bytes >> 10
            ),
            "ulimit -l unlimited (LimitMEMLOCK=infinity)",
        );
    }
    let all = match interface {
        Some(interface) => vec![interface.to_owned()],
        None => host.names("/sys/class/net"),
    };
    let mut is_any = false;
    for name in all {
        let is_named = interface.is_some();
        // Devices of the kernel's own making that nobody has brought up are no candidates.
        let has_card = host.path(&format!("/sys/class/net/{name}/device")).exists();
        if !is_named && (name == "lo" || !has_card && !is_up(host, &name)) {
            continue;
        }
        is_any = true;
        card(host, &name, is_named, findings);
    }
    if !is_any {
        findings.note("there is no network interface but loopback", "");
    }
}

/// One interface. Only of one that was asked for, an obstacle is a problem.
fn card(host: &Host, name: &str, is_named: bool, findings: &mut Findings<'_>) {
    let driver = host.link_name(&format!("/sys/class/net/{name}/device/driver"));
    let driver = driver.unwrap_or_else(|| "no driver of a card".to_owned());
    match af_xdp::look(name) {
        Ok(interface) => {
            let what = format!(
                "{name} ({driver}): {} queues, so at most as many threads (-t); MTU {}",
                interface.queues, interface.mtu
            );
            match WITHOUT_COPY.contains(&driver.as_str()) {
                true => findings.ok(format!("{what}; its driver can do without copies")),
                false if driver == "ena" => findings.note(
                    what,
                    "ENA gives XDP half of its queues and copies frames: ethtool -L with at most half of them, \
                     MTU 3498 at most",
                ),
                false => findings.note(
                    format!("{what}; the kernel copies frames for this driver"),
                    "a card whose driver can do without is faster: ice, i40e, mlx5 and others",
                ),
            }
            if !is_up(host, name) {
                findings.note(
                    format!("{name}: no link"),
                    "look at the cable, or at the peer",
                );
            }
        }
        Err(error) => {
            let error = error.to_string();
            let error = error.strip_prefix(&format!("{name} ")).unwrap_or(&error);
            let (what, remedy) = error
                .split_once("; ")
                .unwrap_or((error, "take another interface"));
            let what = format!("{name} ({driver}): {what}");
            match is_named {
                true => findings.problem(what, remedy),
                false => findings.note(what, remedy),
            }
        }
    }
}

fn is_up(host: &Host, name: &str) -> bool {
    let state = host.text(&format!("/sys/class/net/{name}/operstate"));
    // Devices without a cable say unknown.
    !matches!(state.as_deref(), Some("down" | "lowerlayerdown"))
}

/// Whether the kernel is older than a version.
fn is_before(host: &Host, major: u32, minor: u32) -> bool {
    let release = host.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(is)), Some(Ok(and))) => (is, and) < (major, minor),
        _ => false,
    }
}

pub(super) fn dpdk(host: &Host, findings: &mut Findings<'_>) {
    match cfg!(feature = "dpdk") {
        true => findings.ok("this coua was built with DPDK"),
        false => findings.problem(
            "this coua was built without DPDK",
            "cargo build --release --features dpdk, or Debian's package coua-dpdk",
        ),
    }
    let pages = host.reserved_pages();
    match pages.iter().any(|pages| pages.free > 0) {
        true => findings.ok("there are huge pages"),
        false => findings.problem(
            "there are no huge pages that are set aside and free",
            "sysctl vm.nr_hugepages=1024 (2 GiB)",
        ),
    }
    let has_vfio = host.path("/sys/module/vfio_pci").exists();
    let groups = host.names("/sys/kernel/iommu_groups").len();
    match (has_vfio, groups) {
        (true, 1..) => findings.ok("VFIO, with an IOMMU"),
        (true, 0) => findings.note(
            "VFIO without an IOMMU: a card may write anywhere in memory",
            "switch the IOMMU on (intel_iommu=on, or in the firmware)",
        ),
        (false, _) => findings.note(
            "no VFIO: cards other than mlx5's, and virtual ones, cannot be taken",
            "modprobe vfio-pci",
        ),
    }
    for address in host.names("/sys/bus/pci/devices") {
        let device = format!("/sys/bus/pci/devices/{address}");
        let of = |file| host.text(&format!("{device}/{file}")).unwrap_or_default();
        if !of("class").starts_with("0x0200") {
            continue;
        }
        let driver = host.link_name(&format!("{device}/driver"));
        let driver = driver.unwrap_or_else(|| "no driver".to_owned());
        let what = format!(
            "card {address} ({}:{}): {driver}",
            of("vendor"),
            of("device")
        );
        match driver.as_str() {
            "vfio-pci" | "mlx5_core" | "uio_pci_generic" | "igb_uio" => findings.ok(what),
            _ => findings.note(
                what,
                format!("dpdk-devbind.py -b vfio-pci {address} takes it from the kernel, with its addresses"),
            ),
        }
    }
}

pub(super) fn packet(host: &Host, findings: &mut Findings<'_>) {
    rights(host, &[NET_RAW], findings);
}

pub(super) fn tap(host: &Host, findings: &mut Findings<'_>) {
    rights(host, &[NET_ADMIN], findings);
    match host.path("/dev/net/tun").exists() {
        true => findings.ok("/dev/net/tun is there"),
        false => findings.problem("there is no /dev/net/tun", "modprobe tun"),
    }
}
