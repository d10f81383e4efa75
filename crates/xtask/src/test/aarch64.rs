//! The other architecture that is supported. Everything is compiled for it, and the crates that
//! have code or layouts of their own there are tested in QEMU's user-mode emulation.
//!
//! # Not here
//! Faults in the order of memory accesses: QEMU keeps the order of the machine that it runs on,
//! which hides them on x86-64. loom looks for those.

use std::env::consts::ARCH;
use std::path::Path;

use anyhow::Result;

use super::deep::minutes;
use super::{Context, Outcome};
use crate::commands::{cargo, program, read, run, run_within, succeeds};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The linker, and the emulator with the folder of Debian's libraries for it.
const LINKER: &str = "aarch64-linux-gnu-gcc";
const RUNNER: &str = "qemu-aarch64 -L /usr/aarch64-linux-gnu";

/// Crates that are tested.
const CRATES: [&str; 4] = ["coua-cpu", "coua-protocol", "coua-store", "coua-tcp"];

/// Tests that only do more than shorter ones do; each would take minutes.
const TOO_LONG: [&str; 4] = [
    "items_find_room_where_others_are_read",
    "small_items_in_large_bursts_find_room",
    "the_index_grows_a_thousandfold",
    "what_is_put_off_for_too_long_is_sent_again",
];

/// Tests of what a kernel does that QEMU does not ask it to do: it ignores most advice on memory
/// (madvise(2)), and knows no userfaultfd(2).
const NOT_EMULATED: [&str; 4] = [
    "a_file_is_taken_over_below_a_limit",
    "memory_is_supplied_ahead_of_use_again",
    "values_are_right_or_missing",
    "a_process_that_dies_before_it_has_seen_to_a_loss",
];

/// A tenth or less of what is tried natively: cases of each property, simulated networks.
const FEWER: [(&str, &str); 2] = [("PROPTEST_CASES", "16"), ("COUA_TCP_SEEDS", "1000")];

/// Compiles the workspace and runs the tests.
pub(crate) fn aarch64(_: &Context) -> Result<Outcome> {
    if ARCH == "aarch64" {
        let why = "the other steps run on it already";
        return Ok(Outcome::LeftOut(why.to_owned()));
    }
    let gets_library = || succeeds(program("rustup").args(["target", "add", TARGET]));
    if !has_library() && !gets_library() {
        return Ok(Outcome::LeftOut(format!(
            "no standard library: `rustup target add {TARGET}`"
        )));
    }
    run(cargo().args(["check", "--workspace", "--target", TARGET]))?;
    let mut command = cargo();
    command
        .args([
            "test",
            "--no-fail-fast",
            "--target",
            TARGET,
            "--lib",
            "--tests",
        ])
        .args(CRATES.iter().flat_map(|name| ["-p", name]))
        .arg("--")
        .args(
            TOO_LONG
                .iter()
                .chain(&NOT_EMULATED)
                .flat_map(|name| ["--skip", name]),
        )
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", RUNNER)
        .envs(FEWER);
    run_within(minutes(15), &command)?;
    Ok(Outcome::Passed)
}

fn has_library() -> bool {
    let sysroot = read(program("rustc").args(["--print", "sysroot"]));
    sysroot.is_ok_and(|sysroot| {
        let library = Path::new(&sysroot).join("lib/rustlib").join(TARGET);
        library.is_dir()
    })
}
