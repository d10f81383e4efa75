//! What the virtual machine has for these tests, and how errors are asked for in it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use coua_memory_errors::events_seen;

use crate::memory::{DAX, DISK, Kind, Memory};

/// Makes what the kind needs: a file system on a disk, or on memory that is one.
pub(crate) fn prepare(kind: Kind) {
    match kind {
        Kind::DirtyFile | Kind::CleanFile => mount("/dev/nvme0n1", DISK, "defaults"),
        Kind::Dax => mount("/dev/pmem0", DAX, "dax"),
        Kind::MemfdTransparent => {
            let enabled = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
            fs::write(enabled, "advise").expect("root may ask for huge pages of tmpfs");
        }
        _ => {}
    }
}

/// Once a machine.
fn mount(device: &str, folder: &str, options: &str) {
    let mounts = fs::read_to_string("/proc/mounts").expect("there is /proc");
    if mounts.lines().any(|line| line.starts_with(device)) {
        return;
    }
    run("mkfs.ext4", &["-q", "-F", "-b", "4096", device]);
    run("mount", &["-o", options, device, folder]);
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The number of the physical page that a page begins in.
fn physical_page(memory: &Memory, page: usize) -> u64 {
    let pagemap = File::open("/proc/self/pagemap").expect("there is /proc");
    let mut entry = [0; 8];
    let at = memory.address(page) / 4096 * 8;
    pagemap
        .read_exact_at(&mut entry, at as u64)
        .expect("the page has an entry");
    let number = u64::from_ne_bytes(entry) & ((1 << 55) - 1);
    assert_ne!(number, 0, "the page is in memory, and root sees where");
    number
}

/// Has the kernel behave as if the memory's hardware had reported an error that nobody has touched.
pub(crate) fn corrupt(memory: &Memory, page: usize) -> io::Result<()> {
    let number = format!("{:#x}", physical_page(memory, page));
    fs::write("/sys/kernel/debug/hwpoison/corrupt-pfn", number)
}

/// Has the emulator raise a machine check: memory scrubbing has found an error that cannot be
/// corrected, in a page that nobody has touched. For a load that meets an error there is no such
/// test: the emulator raises it wherever the processor is at the moment, and in the kernel it is the
/// end of the machine.
pub(crate) fn machine_check(memory: &Memory, page: usize) -> io::Result<()> {
    let address = physical_page(memory, page) * 4096 + 64;
    // Valid, uncorrected, enabled, with address and kind of address, signalled; memory scrubbing.
    let status = "0xbd000000000000c0";
    // A machine check is going on, and the interrupted program can go on.
    let state = "0x5";
    // The address is physical, of a cache line.
    let kind = "0x8c";
    let command = format!("mce 0 9 {status} {state} {address:#x} {kind}");
    run("lab-hmp", &[&command]);
    Ok(())
}

/// Waits for reports that come by themselves.
pub(crate) fn wait_for_events(count: u64) {
    let end = Instant::now() + Duration::from_secs(60);
    while events_seen() < count && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(events_seen(), count);
}
