//! The kernel's own TCP and UDP.

use rustix::process::{Resource, getrlimit};

use super::Findings;
use crate::host::Host;

/// Descriptors below which few servers are useful.
const FEW_DESCRIPTORS: u64 = 4096;

/// Connections that wait by default (`-b`).
const BACKLOG: u64 = 1024;

pub(super) fn look(host: &Host, findings: &mut Findings<'_>) {
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < FEW_DESCRIPTORS => findings.problem(
            format!("{most} files may be open: each connection is one"),
            "ulimit -Hn 1048576 (LimitNOFILE=1048576)",
        ),
        Some(most) => findings.ok(format!(
            "{most} files may be open: about as many connections (-c)"
        )),
        None => findings.ok("any number of files may be open"),
    }
    match host.number::<u64>("/proc/sys/net/core/somaxconn") {
        Some(most) if most < BACKLOG => findings.note(
            format!("at most {most} connections wait to be accepted, whatever -b says"),
            format!("sysctl net.core.somaxconn={}", 4 * BACKLOG),
        ),
        Some(most) => findings.ok(format!("up to {most} connections wait to be accepted (-b)")),
        None => {}
    }
    let conntrack = "/proc/sys/net/netfilter/nf_conntrack";
    let entries = |name| host.number::<u64>(&format!("{conntrack}_{name}"));
    if let (Some(now), Some(most)) = (entries("count"), entries("max")) {
        let what = format!("the firewall follows {now} of at most {most} connections");
        match now > most / 4 * 3 {
            true => findings.problem(
                what,
                "sysctl net.netfilter.nf_conntrack_max, or no tracking for the port",
            ),
            false => findings.ok(what),
        }
    }
    io_uring(host, findings);
}

/// The server needs no io_uring today; that it is refused is good to know.
fn io_uring(host: &Host, findings: &mut Findings<'_>) {
    let refused = match host.number::<u32>("/proc/sys/kernel/io_uring_disabled") {
        Some(2) => Some("kernel.io_uring_disabled is 2".to_owned()),
        _ => io_uring::IoUring::new(2)
            .err()
            .map(|error| error.to_string()),
    };
    match refused {
        None => findings.ok("io_uring is allowed (coua's sockets do without it)"),
        Some(why) => {
            let filter = match host.value("/proc/self/status", "Seccomp").as_deref() {
                Some("2") => ": a filter of system calls is on, as container run-times set one up",
                _ => "",
            };
            findings.note(
                format!("io_uring is refused: {why}{filter}"),
                "nothing: coua's sockets do without it",
            );
        }
    }
}
