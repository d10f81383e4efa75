//! What matters whatever the transport: memory, processors, huge pages.

use rustix::process::{Resource, getrlimit};

use super::Findings;
use crate::host::{Host, TransparentHugePages};

pub(super) fn look(host: &Host, findings: &mut Findings<'_>) {
    let release = host.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    findings.ok(format!("Linux {release}"));
    processors(host, findings);
    memory(host, findings);
    huge_pages(host, findings);
    let nodes = host.numa_nodes();
    if nodes > 1 {
        findings.note(
            format!("{nodes} NUMA nodes: memory of another node is slower"),
            "run one coua on each node (--cores, numactl --membind), or spread the memory of one over all \
             (numactl --interleave=all)",
        );
    }
    if !host.path("/proc/sys/vm/memory_failure_recovery").exists() {
        findings.note(
            "the kernel does not tell programs of memory that has failed",
            "take a kernel with CONFIG_MEMORY_FAILURE, so that coua survives that",
        );
    }
    drives(host, findings);
}

fn processors(host: &Host, findings: &mut Findings<'_>) {
    let granted = std::thread::available_parallelism().map_or(1, usize::from);
    findings.ok(format!(
        "{granted} processors for this process: as many threads as -t starts by itself"
    ));
    if let Some(bound) = host.cgroups().processors {
        findings.note(
            format!(
                "the cgroup has {:.1} processors ({})",
                bound.most,
                bound.file.display()
            ),
            "give no more threads than that (-t): others wait, for up to a tenth of a second",
        );
    }
}

fn memory(host: &Host, findings: &mut Findings<'_>) {
    let mib = |name| host.memory(name).map(|bytes| bytes >> 20);
    if let (Some(all), Some(available)) = (mib("MemTotal"), mib("MemAvailable")) {
        findings.ok(format!(
            "{all} MiB of memory, {available} of them available"
        ));
    }
    if let Some(bound) = host.cgroups().memory {
        findings.note(
            format!(
                "the cgroup has {} MiB ({})",
                bound.most >> 20,
                bound.file.display()
            ),
            "coua takes memory beside -m, for threads and connections: coua --check says how much",
        );
    }
    if host.number::<u32>("/proc/sys/vm/overcommit_memory") == Some(2) {
        findings.problem(
            "the kernel promises no more memory than it has (vm.overcommit_memory is 2)",
            "sysctl vm.overcommit_memory=0, or a vm.overcommit_ratio that leaves room for -m",
        );
    }
    let locks = getrlimit(Resource::Memlock).current;
    match (mib("SwapTotal"), locks) {
        (Some(swap @ 1..), Some(bytes)) => findings.note(
            format!(
                "{swap} MiB of swap, and {} KiB of memory that may be locked: items may be swapped out",
                bytes >> 10
            ),
            "ulimit -l unlimited (LimitMEMLOCK=infinity) and -k, or swapoff -a",
        ),
        (Some(swap @ 1..), None) => findings.note(
            format!("{swap} MiB of swap: items may be swapped out"),
            "-k, or swapoff -a",
        ),
        _ => findings.ok("no swap: items stay in memory"),
    }
    if let Ok(room) = rustix::fs::statvfs(host.path("/dev/shm")) {
        let all = (room.f_blocks * room.f_frsize) >> 20;
        let free = (room.f_bavail * room.f_frsize) >> 20;
        findings.ok(format!(
            "/dev/shm has {free} of {all} MiB free for what outlives a restart (-e)"
        ));
    }
}

fn huge_pages(host: &Host, findings: &mut Findings<'_>) {
    match host.transparent_huge_pages() {
        TransparentHugePages::Always | TransparentHugePages::Madvise => {
            findings.ok("transparent huge pages for who asks for them, as coua does");
        }
        TransparentHugePages::Never => findings.problem(
            "huge pages are off: each request waits longer for memory",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        TransparentHugePages::Absent => findings.note(
            "the kernel has no transparent huge pages: each request waits longer for memory",
            "-e FILE on hugetlbfs, with huge pages set aside (vm.nr_hugepages)",
        ),
    }
    for pages in host
        .reserved_pages()
        .into_iter()
        .filter(|pages| pages.all > 0)
    {
        findings.ok(format!(
            "{} of {} huge pages of {} MiB set aside are free",
            pages.free,
            pages.all,
            pages.kib >> 10
        ));
    }
}

/// Drives are named for who plans with them: the server does not use them yet.
fn drives(host: &Host, findings: &mut Findings<'_>) {
    for name in host.names("/sys/class/nvme") {
        let model = host.text(&format!("/sys/class/nvme/{name}/model"));
        let model = model.unwrap_or_else(|| "unknown".to_owned());
        findings.ok(format!(
            "NVMe drive {name}: {model}; coua keeps no items there yet"
        ));
    }
}
