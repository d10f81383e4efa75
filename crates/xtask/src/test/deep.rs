//! Tests that look under the surface: loom, sanitizers, Miri, fuzzing, long stress.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::{Context, Outcome};
use crate::commands::{cargo, cargo_of, program, read, root, run, run_within, succeeds, target};

/// loom tries the interleavings of the store's orders and of the count of memory errors, and of nothing else: loom's
/// atomics replace all others.
pub(crate) fn loom(_: &Context) -> Result<Outcome> {
    let test = |rest: &[&str]| {
        let mut command = cargo();
        command
            .args(["test", "--release", "-p", "coua-store"])
            .args(["-p", "coua-memory-errors", "--lib", "loom"])
            .args(rest);
        command
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", target().join("loom"));
        command
    };
    let names = read(&mut test(&["--", "--list"]))?;
    ensure!(
        names.contains(": test"),
        "coua-store has no test whose name contains loom"
    );
    run_within(minutes(10), &test(&[]))?;
    Ok(Outcome::Passed)
}

/// A store is opened on what another would leave that is killed before any of its stores.
pub(crate) fn killed(_: &Context) -> Result<Outcome> {
    let mut command = cargo();
    command.args(["test", "-p", "coua-store", "--features", "kill-points"]);
    command.args(["--test", "killed", "--test", "killed_tags"]);
    run_within(minutes(10), &command)?;
    Ok(Outcome::Passed)
}

/// A server is killed a hundred times while clients write.
pub(crate) fn restarts(_: &Context) -> Result<Outcome> {
    let mut command = cargo();
    command
        .args(["test", "-p", "coua", "--test", "restart", "kills"])
        .env("COUA_RESTARTS", "100");
    run_within(minutes(15), &command)?;
    Ok(Outcome::Passed)
}

/// AddressSanitizer and LeakSanitizer over the crates that hold the unsafe code.
pub(crate) fn address_sanitizer(_: &Context) -> Result<Outcome> {
    let Some(host) = sanitizer_target() else {
        return Ok(Outcome::LeftOut(
            "no AddressSanitizer for this machine".to_owned(),
        ));
    };
    let mut command = cargo();
    command.args([
        "test",
        "-p",
        "coua-store",
        "-p",
        "coua-transport",
        "--lib",
        "--tests",
        "--target",
        host,
        // The sanitizer needs more memory itself than that test leaves to the process.
        "--",
        "--skip",
        "a_lack_of_memory_is_named",
    ]);
    sanitized(&mut command, "address");
    run_within(minutes(10), &command)?;
    Ok(Outcome::Passed)
}

/// ThreadSanitizer needs a standard library of its own, or it reports races that are none.
pub(crate) fn thread_sanitizer(_: &Context) -> Result<Outcome> {
    let Some(host) = sanitizer_target() else {
        return Ok(Outcome::LeftOut(
            "no ThreadSanitizer for this machine".to_owned(),
        ));
    };
    let of_nightly = if has_component("stable", "rust-src") {
        false
    } else if has_component("nightly", "rust-src") {
        true
    } else {
        return Ok(Outcome::LeftOut(
            "no rust-src: `rustup component add rust-src`".to_owned(),
        ));
    };
    // Package, kinds of test, and the tests, all where none is named.
    let chosen: [(&str, &[&str], &[&str]); 2] = [
        ("coua-store", &["--lib", "--tests"], &[]),
        ("coua-transport", &["--lib"], &["ring::tests"]),
    ];
    for (name, kinds, tests) in chosen {
        let mut command = if of_nightly {
            cargo_of("nightly")
        } else {
            cargo()
        };
        command.args(["test", "-Zbuild-std", "-p", name, "--target", host]);
        command.args(kinds).arg("--").args(tests);
        sanitized(&mut command, "thread");
        run_within(minutes(60), &command)?;
    }
    Ok(Outcome::Passed)
}

/// Miri over what it can run: code without system calls of its own, and the rings that are shared with
/// the kernel, where a thread is the kernel. It takes some minutes.
///
/// Left out: crate `tcp`, which has no unsafe code and takes half an hour; `memory-errors`, whose
/// system calls Miri does not have; and most of the store's tests with a whole index, a minute each.
pub(crate) fn miri(_: &Context) -> Result<Outcome> {
    if !succeeds(cargo_of("nightly").args(["miri", "--version"])) {
        return Ok(Outcome::LeftOut(
            "no Miri: `rustup component add --toolchain nightly miri rust-src`".to_owned(),
        ));
    }
    // Package, kind of test, and the tests, all where none is named.
    let chosen: [(&str, &str, &[&str]); 7] = [
        ("coua-cpu", "--lib", &[]),
        ("coua-store", "--lib", &[]),
        ("coua-store", "--test=review", &[]),
        (
            "coua-store",
            "--test=basics",
            &["large_values_are", "uploads_arrive"],
        ),
        ("coua-transport", "--lib", &["ring::tests"]),
        ("coua-flash", "--lib", &["buffer::", "nvme::"]),
        ("coua-protocol", "--lib", &[]),
    ];
    for (name, kind, tests) in chosen {
        let mut command = cargo_of("nightly");
        command.args(["miri", "test", "-p", name, kind, "--"]);
        command.args(tests);
        command.env(
            "MIRIFLAGS",
            "-Zmiri-disable-isolation -Zmiri-permissive-provenance",
        );
        command
            .env("CARGO_TARGET_DIR", target().join("miri"))
            .env("PROPTEST_CASES", "8");
        run_within(minutes(15), &command)?;
    }
    Ok(Outcome::Passed)
}

/// Each fuzz target from its corpus on: as many inputs as a fixed seed makes in 20 seconds, and no
/// more than a number, the same ones in every run, so that nobody's change fails for what was there before; or what is found
/// in 10 minutes with `--all`.
pub(crate) fn fuzz(context: &Context) -> Result<Outcome> {
    let folder = root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.push(
                path.file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
            );
        }
    }
    names.sort();
    ensure!(
        !names.is_empty(),
        "{} holds no fuzz target",
        folder.display()
    );
    const RUNS: &str = "-runs=150000";
    for name in names {
        let mut command = program(&context.tools.cargo_fuzz);
        // No sanitizer: the code is safe Rust, or has its own step; so 5 times as many inputs are tried.
        command.args(["run", "--sanitizer", "none", &name]);
        // What is found goes to a folder of its own: the kept corpus grows only by hand.
        let found = target().join("fuzz-corpus").join(&name);
        if !context.all && found.is_dir() {
            fs::remove_dir_all(&found)?;
        }
        fs::create_dir_all(&found)?;
        command.arg(found);
        let kept = root().join("fuzz/corpus").join(&name);
        if kept.is_dir() {
            command.arg(kept);
        }
        command.args(["--", "-print_final_stats=1", "-verbosity=0"]);
        let limit = match context.all {
            true => {
                command.arg("-max_total_time=600");
                minutes(15)
            }
            false => {
                command.args(["-seed=1", RUNS, "-max_total_time=20"]);
                minutes(5)
            }
        };
        command
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_DIR", target().join("fuzz"));
        run_within(limit, &command)?;
    }
    Ok(Outcome::Passed)
}

/// The store's stress test again and again in the release profile: each round is another interleaving.
pub(crate) fn stress(_: &Context) -> Result<Outcome> {
    const ROUNDS: u32 = 40;
    const TEST: &[&str] = &["test", "--quiet", "--release", "-p", "coua-store"];
    let stress = || {
        let mut command = cargo();
        command.args(TEST).args(["--test", "stress"]);
        command
    };
    run(stress().arg("--no-run"))?;
    for round in 1..=ROUNDS {
        println!("  round {round} of {ROUNDS}");
        run_within(minutes(5), &stress())?;
    }
    Ok(Outcome::Passed)
}

fn sanitized(command: &mut Command, name: &str) {
    command
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", format!("-Zsanitizer={name}"));
    command.env(
        "CARGO_TARGET_DIR",
        target().join(format!("{name}-sanitizer")),
    );
}

/// The sanitizers must not reach build scripts, so the host is named as if it were foreign.
fn sanitizer_target() -> Option<&'static str> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Some("x86_64-unknown-linux-gnu"),
        ("linux", "aarch64") => Some("aarch64-unknown-linux-gnu"),
        _ => None,
    }
}

fn has_component(tool_chain: &str, component: &str) -> bool {
    let list = [
        "component",
        "list",
        "--installed",
        "--toolchain",
        tool_chain,
    ];
    crate::commands::read(
        Command::new("rustup")
            .args(list)
            .current_dir(Path::new("/")),
    )
    .is_ok_and(|text| text.lines().any(|line| line.starts_with(component)))
}

pub(crate) const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}
