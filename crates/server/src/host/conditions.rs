//! What of the machine's conditions does not go with the settings: said when a server starts, and by
//! `--check`.

use super::{Host, TransparentHugePages};
use crate::flags::Settings;
use crate::worker::MEMORY_PER_WORKER;

/// Bytes that the process takes beside what is counted: code, the allocator, threads that are no
/// workers.
const BASE: u64 = 16 << 20;

/// Bytes that a connection takes beside `-m`: what the server knows of it, and the kernel's socket.
const PER_CONNECTION: u64 = 4 << 10;

/// Bytes that a connection of TLS takes beside that.
const PER_TLS: u64 = 8 << 10;

/// Bytes that a connection takes in each worker's table of its own stack (`--net`), open or not.
const PER_NET: u64 = 2 << 10;

/// Bytes that a worker's stack and tables take.
const PER_WORKER: u64 = 1 << 20;

/// Bytes of replies to datagrams that a worker has under way at most.
const PER_UDP_WORKER: u64 = 8 << 20;

/// Bytes that the process takes with all its connections open, the kernel's buffers of data under way
/// left out.
pub fn memory_wanted(settings: &Settings) -> u64 {
    let workers = settings.workers as u64;
    let when = |is_so: bool, bytes: u64| if is_so { bytes } else { 0 };
    let has_udp = !settings.listen_udp.is_empty();
    let each_worker = MEMORY_PER_WORKER as u64 + PER_WORKER + when(has_udp, PER_UDP_WORKER);
    let each_connection = PER_CONNECTION
        + when(settings.tls.is_some(), PER_TLS)
        + when(settings.net.is_some(), workers * PER_NET);
    let connections = settings.connections_max as u64 * each_connection;
    settings.memory as u64 + BASE + workers * each_worker + connections
}

/// A line for each condition that costs something, with the remedy.
pub fn warnings(host: &Host, settings: &Settings) -> Vec<String> {
    let mut lines = Vec::new();
    memory(host, settings, &mut lines);
    let cgroups = host.cgroups();
    if let Some(bound) = cgroups.processors
        && (settings.workers as f64) > bound.most.ceil()
    {
        lines.push(format!(
            "-t {}: the cgroup has {:.1} processors ({}): threads wait for one another, up to a tenth of a \
             second; give -t {:.0}, or a higher quota",
            settings.workers,
            bound.most,
            bound.file.display(),
            bound.most.ceil().max(1.0),
        ));
    }
    match host.transparent_huge_pages() {
        TransparentHugePages::Never if settings.memory_file.is_none() => lines.push(
            "huge pages are off (/sys/kernel/mm/transparent_hugepage/enabled): each request waits longer for \
             memory; write madvise to that file"
                .to_owned(),
        ),
        _ => {}
    }
    let nodes = host.numa_nodes();
    if nodes > 1 && settings.workers > 1 {
        lines.push(format!(
            "{nodes} NUMA nodes: memory of another node is slower; run one coua on each node (--cores, numactl \
             --membind), or spread the memory of one over all (numactl --interleave=all)"
        ));
    }
    lines
}

fn memory(host: &Host, settings: &Settings, lines: &mut Vec<String>) {
    let wanted = memory_wanted(settings);
    let (given, wanted_mib) = (settings.memory >> 20, wanted.div_ceil(1 << 20));
    let beside = wanted_mib - given as u64;
    let needs = format!(
        "-m {given}: coua takes up to {wanted_mib} MiB, {beside} of them beside -m ({} threads, {} connections)",
        settings.workers, settings.connections_max
    );
    if let Some(bound) = host.cgroups().memory
        && bound.most < wanted
    {
        lines.push(format!(
            "{needs}, and the cgroup has {} ({}): the kernel may kill it; give less -m or -c, or raise that limit",
            bound.most >> 20,
            bound.file.display(),
        ));
        return;
    }
    if let Some(all) = host.memory("MemTotal")
        && all < wanted
    {
        lines.push(format!(
            "{needs}, and the machine has {}: the kernel may kill it; give less -m or -c",
            all >> 20
        ));
    }
}
