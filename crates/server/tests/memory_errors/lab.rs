//! What the virtual machine has for these tests, and how errors are asked for in it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Process, coua};

/// Where the server's items lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Private memory, in huge pages where the kernel has any.
    Private,
    /// A file on tmpfs.
    Tmpfs,
    /// A file on hugetlbfs: 2 MiB are lost together.
    Hugetlbfs,
    /// A file on a disk.
    Disk,
    /// A file on memory that is a disk.
    Dax,
}

impl Memory {
    /// The folder for a file.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Memory::Private | Memory::Tmpfs => "/dev/shm",
            Memory::Hugetlbfs => mount("nodev", "/srv", &["-t", "hugetlbfs"]),
            Memory::Disk => mount("/dev/nvme0n1", "/mnt", &[]),
            Memory::Dax => mount("/dev/pmem0", "/media", &["-o", "dax"]),
        }
    }

    /// What the server is told of it. Nothing is at the path of the file.
    pub(crate) fn flags(self) -> Vec<String> {
        if self == Memory::Private {
            return Vec::new();
        }
        let path = Path::new(self.folder()).join("coua-memory-errors");
        let _ = fs::remove_file(&path);
        vec!["-e".to_owned(), path.display().to_string()]
    }

    /// Bytes that are lost together.
    pub(crate) fn page_len(self) -> usize {
        match self {
            Memory::Hugetlbfs => 2 << 20,
            _ => 4096,
        }
    }
}

/// Once a machine.
fn mount(device: &str, folder: &'static str, options: &[&str]) -> &'static str {
    let mounts = fs::read_to_string("/proc/mounts").expect("there is /proc");
    let mut mounted = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    if !mounted.any(|at| at == folder) {
        if device.starts_with('/') {
            run("mkfs.ext4", &["-q", "-F", "-b", "4096", device]);
        }
        run("mount", &[options, &[device, folder]].concat());
    }
    folder
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A server that may be told to lose pages, with little memory: all of it is touched.
pub(crate) fn start(memory: &[String], flags: &[&str]) -> Process {
    let memory: Vec<&str> = memory.iter().map(String::as_str).collect();
    Process::start(coua(&[&["-m", "32"], &memory[..], flags].concat()))
}

/// The number of the physical page behind an address of the server's; `None` if there is none of its own.
/// A page that was only read may be the one page of zeros of the kernel's, which all processes share: an
/// error there would be an error of the kernel.
pub(crate) fn physical_page(server: &Process, address: usize) -> Option<u64> {
    let path = format!("/proc/{}/pagemap", server.child.id());
    // It may have died of the last error.
    let pagemap = File::open(path).ok()?;
    let mut entry = [0; 8];
    let at = address / 4096 * 8;
    pagemap.read_exact_at(&mut entry, at as u64).ok()?;
    let entry = u64::from_ne_bytes(entry);
    let number = entry & ((1 << 55) - 1);
    (entry >> 63 == 1 && number != 0 && !is_page_of_zeros(number)).then_some(number)
}

fn is_page_of_zeros(page: u64) -> bool {
    const ZERO_PAGE: u64 = 1 << 24;
    let flags = File::open("/proc/kpageflags").expect("root may look");
    let mut word = [0; 8];
    let read = flags.read_exact_at(&mut word, page * 8);
    // Memory that is a disk has no flags.
    read.is_ok() && u64::from_ne_bytes(word) & ZERO_PAGE != 0
}

/// Has the kernel behave as if the memory's hardware had reported an error that nobody has touched.
pub(crate) fn corrupt(page: u64) -> io::Result<()> {
    fs::write(
        "/sys/kernel/debug/hwpoison/corrupt-pfn",
        format!("{page:#x}"),
    )
}

/// Has the emulator raise a machine check: memory scrubbing has found an error that cannot be
/// corrected, in a page that nobody has touched.
pub(crate) fn machine_check(page: u64) -> io::Result<()> {
    // Valid, uncorrected, enabled, with address and kind of address, signalled; memory scrubbing. A
    // machine check is going on, and the interrupted program can go on. The address is physical, of a
    // cache line.
    let address = page * 4096 + 64;
    let command = format!("mce 0 9 0xbd000000000000c0 0x5 {address:#x} 0x8c");
    run("lab-hmp", &[&command]);
    Ok(())
}

/// A mapping of the server's.
pub(crate) struct Map {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) access: String,
    pub(crate) name: PathBuf,
}

/// All mappings of the server's.
pub(crate) fn maps(server: &Process) -> Vec<Map> {
    let path = format!("/proc/{}/maps", server.child.id());
    let text = fs::read_to_string(path).expect("it runs");
    let map = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some(Map {
            start: number(start)?,
            end: number(end)?,
            access: words.next()?.to_owned(),
            name: words.nth(3).unwrap_or_default().into(),
        })
    };
    text.lines().filter_map(map).collect()
}

/// Where the stack of a thread with that name ends at the moment: it waits in a system call.
pub(crate) fn stack_of(server: &Process, name: &str) -> Option<usize> {
    let folder = format!("/proc/{}/task", server.child.id());
    for task in fs::read_dir(folder).expect("it runs").flatten() {
        let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if read("comm").trim() == name {
            let call = read("syscall");
            let pointer = call.split_whitespace().nth(7)?.strip_prefix("0x")?;
            return usize::from_str_radix(pointer, 16).ok();
        }
    }
    None
}
