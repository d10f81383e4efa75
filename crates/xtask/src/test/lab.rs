//! Tests that need a kernel or cards or disks that this machine may not have: tests of the server, of
//! drivers, and of failing memory, in a virtual machine.
//!
//! `scripts/lab-run` boots an emulated machine with a full Debian kernel over this machine's file
//! system. cargo builds here and runs the test program there. So these tests are like all others,
//! behind the feature `lab` if they show nothing elsewhere.

use std::env::consts::{ARCH, OS};
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::deep::minutes;
use super::{Context, Outcome};
use crate::commands::{cargo, program, root, run_within, succeeds, target};

/// A machine, and the tests that are for it.
struct Machine {
    /// How their names begin.
    tests: &'static str,
    /// The test program, as arguments for cargo.
    program: &'static [&'static str],
    /// The kernel, as arguments for `lab-run`.
    kernel: &'static [&'static str],
    /// Modules and cards, likewise.
    devices: &'static [&'static str],
}

/// All machines. The virtio card is behind an IOMMU; without one its driver copies.
const MACHINES: &[Machine] = &[
    Machine {
        tests: "bad_links::",
        program: SERVER,
        kernel: &[],
        devices: &[
            "--module=veth",
            "--module=sch_netem",
            "--module=sch_ingress",
            "--module=cls_matchall",
            "--module=act_mirred",
            // Unless told otherwise, it makes two interfaces itself.
            "--module=ifb,numifbs=0",
        ],
    },
    Machine {
        tests: "cards::virtio",
        program: SERVER,
        kernel: NEW_KERNEL,
        devices: &[
            "--iommu",
            "--nic=virtio,queues=2,tap=tap0",
            "--nic=virtio,queues=2,tap=tap1",
        ],
    },
    Machine {
        tests: "cards::vmxnet3",
        program: SERVER,
        kernel: NEW_KERNEL,
        devices: &["--nic=vmxnet3,hub=1", "--nic=vmxnet3,hub=1"],
    },
    // DPDK's TAP device makes its flow rules from these.
    Machine {
        tests: "spreading::",
        program: DPDK,
        kernel: &[],
        devices: &[
            "--module=tun",
            "--module=sch_multiq",
            "--module=sch_ingress",
            "--module=cls_flower",
            "--module=cls_bpf",
            "--module=act_skbedit",
            "--module=act_bpf",
        ],
    },
    // Kernels differ in what they signal and in what they do to files.
    Machine {
        tests: "kernel_errors::",
        program: MEMORY_ERRORS,
        kernel: &[],
        devices: FAILING_MEMORY,
    },
    Machine {
        tests: "kernel_errors::",
        program: MEMORY_ERRORS,
        kernel: NEW_KERNEL,
        devices: FAILING_MEMORY,
    },
    // This machine's kernel may lack machine checks, and then reports errors in another way.
    Machine {
        tests: "poisoned::",
        program: MEMORY_ERRORS,
        kernel: NEW_KERNEL,
        devices: FAILING_MEMORY,
    },
    // The server itself, while clients check what they read.
    Machine {
        tests: "kernel_errors::",
        program: SERVER_ERRORS,
        kernel: &[],
        devices: FAILING_MEMORY,
    },
    Machine {
        tests: "kernel_errors::",
        program: SERVER_ERRORS,
        kernel: NEW_KERNEL,
        devices: FAILING_MEMORY,
    },
    Machine {
        tests: "ends::",
        program: SERVER_ERRORS,
        kernel: &[],
        devices: FAILING_MEMORY,
    },
    Machine {
        tests: "ends::",
        program: SERVER_ERRORS,
        kernel: NEW_KERNEL,
        devices: FAILING_MEMORY,
    },
    Machine {
        tests: "machine_checks::",
        program: SERVER_ERRORS,
        kernel: &[],
        devices: MACHINE_CHECKS,
    },
    Machine {
        tests: "machine_checks::",
        program: SERVER_ERRORS,
        kernel: NEW_KERNEL,
        devices: MACHINE_CHECKS,
    },
    Machine {
        tests: "verbs::",
        program: RDMA,
        kernel: &[],
        devices: SOFT_ROCE,
    },
    Machine {
        tests: "two_nodes_",
        program: NUMA,
        kernel: &[],
        devices: TWO_NODES,
    },
    // Kernels differ in what NVMe commands they take from a ring.
    Machine {
        tests: "nvme::",
        program: FLASH,
        kernel: &[],
        devices: NVME,
    },
    Machine {
        tests: "nvme::",
        program: FLASH,
        kernel: NEW_KERNEL,
        devices: NVME_4096,
    },
    // The server on such devices, by each driver; and what devices do when they fail.
    Machine {
        tests: "lab::drivers::",
        program: SERVER_FLASH,
        kernel: &[],
        devices: THREE_NVME,
    },
    Machine {
        tests: "lab::drivers::",
        program: SERVER_FLASH,
        kernel: NEW_KERNEL,
        devices: THREE_NVME_4096,
    },
    Machine {
        tests: "lab::pulled_out::",
        program: SERVER_FLASH,
        kernel: NEW_KERNEL,
        devices: THREE_NVME,
    },
    Machine {
        tests: "lab::unreadable::",
        program: SERVER_FLASH,
        kernel: &[],
        devices: UNREADABLE_NVME,
    },
    Machine {
        tests: "machine_checks::",
        program: MEMORY_ERRORS,
        kernel: &[],
        devices: MACHINE_CHECKS,
    },
    Machine {
        tests: "machine_checks::",
        program: MEMORY_ERRORS,
        kernel: NEW_KERNEL,
        devices: MACHINE_CHECKS,
    },
];

/// The tests of the server on a stack of its own.
const SERVER: &[&str] = &["-p", "coua", "--features", "lab", "--test", "userspace"];

/// The tests of the DPDK driver.
const DPDK: &[&str] = &[
    "-p",
    "coua-transport",
    "--features",
    "dpdk",
    "--test",
    "dpdk",
];

/// The tests of failing memory.
const MEMORY_ERRORS: &[&str] = &[
    "-p",
    "coua-memory-errors",
    "--features",
    "lab",
    "--test",
    "errors",
];

/// Those of the server whose memory fails.
const SERVER_ERRORS: &[&str] = &["-p", "coua", "--features", "lab", "--test", "memory_errors"];

/// Those of the server on a machine whose memory is in two places.
const NUMA: &[&str] = &["-p", "coua", "--features", "lab", "--test", "numa"];

/// Those of clients over RDMA.
const RDMA: &[&str] = &["-p", "coua", "--features", "lab", "--test", "rdma"];

/// A card on which the kernel does RoCE.
const SOFT_ROCE: &[&str] = &["--module=rdma_rxe", "--module=rdma_ucm", "--nic=virtio"];

/// Those of devices for items.
const FLASH: &[&str] = &["-p", "coua-flash", "--features", "lab", "--test", "devices"];

/// Those of the server with items on flash.
const SERVER_FLASH: &[&str] = &["-p", "coua", "--features", "lab", "--test", "flash"];

/// Three controllers behind an IOMMU, in slots that they can be pulled out of.
const THREE_NVME: &[&str] = &[
    "--hmp",
    "--iommu",
    THREE_PORTS,
    "--nvme=256M,bus=port0",
    "--nvme=256M,bus=port1",
    "--nvme=256M,bus=port2",
];

/// The same with sectors of 4096 bytes.
const THREE_NVME_4096: &[&str] = &[
    "--hmp",
    "--iommu",
    THREE_PORTS,
    "--nvme=256M,bus=port0,logical_block_size=4096,physical_block_size=4096",
    "--nvme=256M,bus=port1,logical_block_size=4096,physical_block_size=4096",
    "--nvme=256M,bus=port2,logical_block_size=4096,physical_block_size=4096",
];

const THREE_PORTS: &str = "--qemu=-device pcie-root-port,id=port0,chassis=1 \
     -device pcie-root-port,id=port1,chassis=2 -device pcie-root-port,id=port2,chassis=3";

/// A controller whose medium has errors in many places.
const UNREADABLE_NVME: &[&str] = &["--iommu", "--nvme=256M,unreadable=64K"];

/// A controller behind an IOMMU, in a slot that it can be pulled out of, and a file system for its disk.
const NVME: &[&str] = &[
    "--hmp",
    "--iommu",
    "--qemu=-device pcie-root-port,id=port0,chassis=1",
    "--nvme=256M,bus=port0",
    "--module=ext4",
];

/// The same with sectors of 4096 bytes.
const NVME_4096: &[&str] = &[
    "--hmp",
    "--iommu",
    "--qemu=-device pcie-root-port,id=port0,chassis=1",
    "--nvme=256M,bus=port0,logical_block_size=4096,physical_block_size=4096",
    "--module=ext4",
];

/// Memory of all kinds: huge pages, a disk, and a part that the kernel takes for a disk.
const FAILING_MEMORY: &[&str] = &[
    "--hugepages=64",
    "--nvme=128M",
    "--module=ext4",
    "--module=hwpoison_inject",
    "--module=nd_pmem",
    "--module=nd_e820",
    "--append=memmap=128M!1024M",
];

/// A processor of which Linux believes that it reports errors that can be survived. There is only
/// one, because errors are reported to all of them.
const MACHINE_CHECKS: &[&str] = &[
    "--hmp",
    "--cpus=1",
    "--cpu=max,vendor=GenuineIntel",
    "--hugepages=24",
    "--nvme=128M",
    "--module=ext4",
];

/// Two cores, each with memory of its own.
const TWO_NODES: &[&str] = &[
    "--qemu=-object memory-backend-ram,id=ram0,size=1G -numa node,nodeid=0,memdev=ram0,cpus=0",
    "--qemu=-object memory-backend-ram,id=ram1,size=1G -numa node,nodeid=1,memdev=ram1,cpus=1",
];

/// A Debian release whose kernel has AF_XDP without copies on virtio, and XDP on vmxnet3.
const NEW_KERNEL: &[&str] = &["--suite=trixie-backports"];

/// Two TAP devices and a bridge between them: a cable for cards with several queues. All of it is
/// in a network namespace that ends with the machine.
const CABLE: &str = "ip link add bridge type bridge mcast_snooping 0 && ip link set bridge up &&
for tap in tap0 tap1; do
    ip tuntap add $tap mode tap multi_queue && ip link set $tap master bridge up || exit
done &&
exec \"$@\"";

/// Boots each machine and runs its tests in it.
pub(crate) fn lab(_: &Context) -> Result<Outcome> {
    if (OS, ARCH) != ("linux", "x86_64") {
        let why = "the virtual machine is one of Linux on x86-64".to_owned();
        return Ok(Outcome::LeftOut(why));
    }
    if !succeeds(program("unshare").args(["--net", "true"])) {
        let why = "network namespaces need root, or CAP_SYS_ADMIN".to_owned();
        return Ok(Outcome::LeftOut(why));
    }
    let (mut left_out, mut failed) = (Vec::new(), Vec::new());
    for machine in MACHINES {
        if let Err(why) = machine.boots() {
            println!("  no machine for {}: {why}", machine.tests);
            left_out.push(format!("{} ({why})", machine.tests));
        } else if let Err(error) = run_within(minutes(40), &machine.tests_in()) {
            println!("  {}: {error:#}", machine.tests);
            failed.push(machine.tests);
        }
    }
    if !failed.is_empty() {
        bail!("tests fail in the virtual machine: {}", failed.join(", "));
    }
    if !left_out.is_empty() {
        let why = format!("no virtual machine for {}", left_out.join(", "));
        return Ok(Outcome::LeftOut(why));
    }
    Ok(Outcome::Passed)
}

impl Machine {
    /// Whether the machine's kernel can be booted here, after fetching it if necessary; otherwise
    /// why not.
    fn boots(&self) -> Result<(), String> {
        let output = program(root().join("scripts/lab-run"))
            .args(self.kernel)
            .arg("true")
            .output();
        let output = output.map_err(|error| format!("scripts/lab-run: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().find(|line| line.contains("error"));
        let why = why.or(said.lines().next_back());
        Err(why.unwrap_or("it ends at once").trim().to_owned())
    }

    /// cargo, with the machine as what runs test programs.
    fn tests_in(&self) -> Command {
        let lab_run = self.lab_run();
        // Rust prints a list of words as TOML does.
        let runner: Vec<_> = std::iter::once(lab_run.get_program())
            .chain(lab_run.get_args())
            .map(|word| word.to_string_lossy())
            .collect();
        let runner = format!("target.'cfg(all())'.runner={runner:?}");
        let mut command = cargo();
        command.args(["test", "--config", &runner]);
        command.args(self.program);
        // Each test has the machine to itself.
        command.args(["--", "--nocapture", "--test-threads=1", self.tests]);
        command
    }

    /// The machine, ready for a command. It has room for the server and its clients, and sees
    /// cargo's target folder, which it would not if that were in `/tmp`.
    fn lab_run(&self) -> Command {
        let mut command = program("unshare");
        command.args(["--net", "sh", "-c", CABLE, "sh"]);
        command.arg(root().join("scripts/lab-run"));
        let folder = |flag: &str, path: &Path| format!("{flag}={}", path.display());
        command.arg(folder("--dir", &root()));
        command.arg(folder("--share", &target()));
        command.args(["--mem=2G", "--timeout=1800"]);
        command.args(self.kernel).args(self.devices).arg("--");
        command
    }
}
