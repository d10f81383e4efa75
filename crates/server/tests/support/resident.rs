//! How much memory a process has.

use std::fs;

/// Resident memory, in KiB.
///
/// # Panics
/// Where there is no such process.
pub(crate) fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the server lives");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("the server has memory");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number of kB")
}
