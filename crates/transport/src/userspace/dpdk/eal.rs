//! DPDK's run-time environment.
#![expect(unsafe_code, reason = "hands EAL its arguments")]

use std::ffi::{CString, c_char, c_int};
use std::io;

use coua_dpdk_sys as sys;
use rustix::io::Errno;

use super::arguments;

/// Proof that EAL runs in this process, which it does until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Eal {
    _started: (),
}

/// Why EAL did not start. It prints more on standard error.
#[derive(Debug, thiserror::Error)]
pub enum EalError {
    /// The text cannot be split into arguments.
    #[error("--dpdk-args: a quotation mark without its other half, or a zero byte")]
    Unreadable,
    /// EAL refuses an argument.
    #[error("DPDK refuses its arguments, see its message above: correct --dpdk-args")]
    Arguments,
    /// The system has no huge pages.
    #[error("DPDK needs huge pages and the system has none: echo 512 > /proc/sys/vm/nr_hugepages")]
    NoHugePages,
    /// There are not enough free huge pages.
    #[error(
        "DPDK gets too few huge pages, {free} of {total} of {size_kib} KiB are free: \
         raise /proc/sys/vm/nr_hugepages, or ask for less by -m MEGABYTES in --dpdk-args"
    )]
    FewHugePages {
        /// Pages that are free.
        free: u64,
        /// Pages that the system has.
        total: u64,
        /// The size of a page in KiB.
        size_kib: u64,
    },
    /// No file system of huge pages is mounted.
    #[error(
        "DPDK finds no file system of huge pages: mount -t hugetlbfs none /dev/hugepages, or put \
         --in-memory into --dpdk-args"
    )]
    NotMounted,
    /// The user may not use huge pages or devices.
    #[error(
        "DPDK may not use huge pages or devices: run as root, or give the user /dev/hugepages and \
         /dev/vfio and put --iova-mode=va into --dpdk-args"
    )]
    Permission,
    /// It has been started in this process before, or an attempt was made.
    #[error("DPDK can be started only once in a process: restart it")]
    Again,
    /// Anything else.
    #[error("DPDK did not start, see its message above: {source}")]
    Other {
        /// The error.
        source: io::Error,
    },
}

impl Eal {
    /// Starts EAL with arguments as on a command line, split as a shell does. This is possible once
    /// in a process; after a failure, another attempt may be refused.
    ///
    /// `--help` among the arguments prints EAL's help and ends the process. Afterwards the calling
    /// thread may run on the same CPUs as before.
    ///
    /// # Errors
    /// [`EalError`]; each one says what to do.
    pub fn start(text: &str) -> Result<Eal, EalError> {
        let other = |errno: Errno| EalError::Other {
            source: errno.into(),
        };
        let allowed = rustix::thread::sched_getaffinity(None).map_err(other)?;
        let words = arguments::split(text, &allowed).ok_or(EalError::Unreadable)?;
        let words: Result<Vec<CString>, _> = words.into_iter().map(CString::new).collect();
        let words = words.map_err(|_| EalError::Unreadable)?;
        let count = c_int::try_from(words.len()).map_err(|_| EalError::Unreadable)?;
        let mut pointers: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).collect();
        pointers.push(std::ptr::null_mut());
        let pointers = pointers.leak();
        // SAFETY: the array has `count` strings and a null pointer. All of it is leaked, so it
        // lives as long as the process.
        let result = unsafe { sys::coua_eal_start(count, pointers.as_mut_ptr()) };
        // EAL has bound the thread to the CPUs of its arguments; coua decides where the worker
        // runs.
        rustix::thread::sched_setaffinity(None, &allowed).map_err(other)?;
        if result < 0 {
            return Err(diagnose(io::Error::from_raw_os_error(-result)));
        }
        Ok(Eal { _started: () })
    }
}

fn diagnose(source: io::Error) -> EalError {
    let errno = Errno::from_io_error(&source);
    match errno {
        Some(Errno::ALREADY) => return EalError::Again,
        Some(Errno::INVAL | Errno::NODEV) => return EalError::Arguments,
        _ => {}
    }
    match huge_pages() {
        Some((0, _, _)) => EalError::NoHugePages,
        Some((total, free, size_kib)) if errno == Some(Errno::NOMEM) || free == 0 => {
            EalError::FewHugePages {
                free,
                total,
                size_kib,
            }
        }
        _ if errno == Some(Errno::ACCESS) && !is_mounted() => EalError::NotMounted,
        _ if !rustix::process::geteuid().is_root() => EalError::Permission,
        _ => EalError::Other { source },
    }
}

/// Whether a file system of huge pages is mounted anywhere.
fn is_mounted() -> bool {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mut kinds = mounts.lines().map(|line| line.split_whitespace().nth(2));
    kinds.any(|kind| kind == Some("hugetlbfs"))
}

/// How many huge pages there are, how many are free, and their size in KiB.
fn huge_pages() -> Option<(u64, u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some((
        value("HugePages_Total:")?,
        value("HugePages_Free:")?,
        value("Hugepagesize:")?,
    ))
}
