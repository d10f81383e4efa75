//! `cargo xtask release`: the programs as they are shipped, compiled with a profile.
//!
//! A compiler does not know which branches are taken and which functions are called most. So the
//! programs are built twice: first with counters, for a training run of half a minute with the
//! loads of a cache; then with what was counted ("profile-guided optimization" in rustc's book).
//! The result does the same with other instructions.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::commands::{cargo, program, read, run as run_command, succeeds, target};
use crate::server::{Server, free_port};

/// Seconds of each load of the training run, unless a flag says otherwise.
const SECONDS: f64 = 1.0;

/// How to build
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// Features, as for cargo: --features coua/dpdk
    #[arg(long)]
    features: Option<String>,
    /// Seconds of each load of the training run
    #[arg(long, default_value_t = SECONDS)]
    seconds: f64,
}

impl Flags {
    /// The default training run, for programs with a feature or without.
    pub(crate) fn of_feature(feature: Option<&str>) -> Self {
        Self {
            features: feature.map(str::to_owned),
            seconds: SECONDS,
        }
    }
}

/// The folder of the programs.
///
/// # Errors
/// If they have not been built.
pub(crate) fn folder() -> Result<PathBuf> {
    let folder = target().join("shipped/release");
    ensure!(
        folder.join("coua").is_file(),
        "there are no shipped programs yet: cargo xtask release"
    );
    Ok(folder)
}

/// Numbers of items, and loads on them, as `coua-bench load` and `run` take them. Together they do
/// what caches do: nearly all GETs, and some of everything else.
const LOADS: &[(&str, &[&str])] = &[
    (
        "--keys 1000",
        &[
            "--mix get=9,set=1",
            "--depth 16 --mix get=9,set=1",
            "--depth 16 --mix set",
            "--keys-per-get 100 --connections 8",
            "--dialect meta --mix get=8,set=1,delete=1",
            "--dialect binary --mix get=9,set=1",
            "--dialect udp --mix get=9,set=1",
        ],
    ),
    (
        "--keys 100000 --value-size 100",
        &["--mix get=9,set=1 --popularity zipf:0.99", "--mix set"],
    ),
    (
        "--keys 100000 --value-size 1-2000",
        &["--mix get=90,set=4,gets=1,gat=1,add=1,replace=1,delete=1,touch=1,incr=1,decr=1"],
    ),
    (
        "--keys 200 --value-size 4000-200000",
        &["--mix get=9,set=1 --connections 4"],
    ),
];

/// Items, and a load with more connections than a process may have sockets: only over the link.
const CROWD: (&str, &str) = ("--keys 1000", "--mix get=19,set=1 --connections 4096");

/// Benchmarks that run in their own process.
const INSIDE: &[&str] = &[
    "workers --workers 1,2 --over tcp,udp --sets 0,0.1 --keys 1000 --value-size 8 --memory 64 --rounds 1",
    "workers --workers 1 --sets 0.1 --keys 10000 --connections 4096 --memory 512 --rounds 1",
    "stack --connections 32,16384 --requests 1000000 --rounds 1",
];

/// Builds, trains, and builds again.
///
/// # Errors
/// If one of these fails, or if the tool chain has no program that merges profiles.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    let merger = merger()?;
    let profiles = target().join("training/profiles");
    if profiles.exists() {
        fs::remove_dir_all(&profiles)?;
    }
    fs::create_dir_all(&profiles)?;
    let merged = profiles.join("merged.profdata");

    println!("== with counters");
    let generate = format!("-Cprofile-generate={}", profiles.display());
    build(flags, "training", &generate)?;
    println!("== training");
    train(&target().join("training/release"), flags.seconds)?;
    let counted = fs::read_dir(&profiles)?.filter_map(|entry| Some(entry.ok()?.path()));
    let counted: Vec<PathBuf> = counted
        .filter(|path| path.extension().is_some_and(|name| name == "profraw"))
        .collect();
    run_command(
        program(&merger)
            .args(["merge", "-o"])
            .arg(&merged)
            .args(&counted),
    )?;
    println!("== with what was counted");
    build(
        flags,
        "shipped",
        &format!("-Cprofile-use={}", merged.display()),
    )?;
    println!("{}", folder()?.join("coua").display());
    Ok(())
}

/// Builds both programs into a target folder of their own, so that nothing else has to be built
/// again.
fn build(flags: &Flags, folder: &str, rust_flags: &str) -> Result<()> {
    let features = flags.features.iter().flat_map(|all| ["--features", all]);
    run_command(
        cargo()
            .args(["build", "--release", "-p", "coua", "-p", "coua-bench"])
            .args(features)
            .env("CARGO_TARGET_DIR", target().join(folder))
            .env("RUSTFLAGS", rust_flags),
    )
}

/// Runs the programs under load. Each writes its counters when it ends.
fn train(programs: &Path, seconds: f64) -> Result<()> {
    let bench = |words: &str| -> Result<()> {
        let words = shlex::split(words).context("an open quote")?;
        run_command(program(programs.join("coua-bench")).args(words))
    };
    let seconds = format!("--seconds {seconds} --warm-up 0.2");
    for words in INSIDE {
        match words.starts_with("workers") {
            true => bench(&format!("{words} {seconds}"))?,
            false => bench(words)?,
        }
    }
    // Once with room for everything, once with too little.
    for memory in ["512", "64"] {
        let name = format!("coua-training-{}.sock", std::process::id());
        let socket = env::temp_dir().join(name);
        let link = format!("memif:{}", socket.display());
        let net = ["--net", &link, "--address", "10.0.0.1/8"];
        let udp_port = free_port()?;
        let udp = ["-U", &udp_port.to_string(), "--udp-reply-rate", "0"];
        let flags = [&["-m", memory, "-t", "1", "-c", "8192"], &net[..], &udp[..]].concat();
        let server = Server::start(&programs.join("coua"), &flags)?;
        let near = |port| format!("--target 127.0.0.1:{port}");
        let far = |port| {
            format!("--target 10.0.0.1:{port} --net {link},role=client --address 10.0.0.2/8")
        };
        for (items, requests) in LOADS {
            bench(&format!("load {} {items}", near(server.port)))?;
            for words in *requests {
                let port = match words.contains("--dialect udp") {
                    true => udp_port,
                    false => server.port,
                };
                for way in [near(port), far(port)] {
                    bench(&format!("run {way} {items} {words} {seconds}"))?;
                }
            }
        }
        let (items, words) = CROWD;
        bench(&format!("load {} {items}", near(server.port)))?;
        bench(&format!(
            "run {} {items} {words} {seconds}",
            far(server.port)
        ))?;
        server.stop()?;
        let _ = fs::remove_file(&socket);
    }
    Ok(())
}

/// The tool chain's program that merges profiles.
fn merger() -> Result<PathBuf> {
    let rustc = || program(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let libraries = read(rustc().args(["--print", "target-libdir"]))?;
    let host = Path::new(&libraries).parent().context("a folder")?;
    let path = host.join("bin/llvm-profdata");
    if !path.is_file() {
        // Without rustup, the sentence below says what is missing.
        let _ = succeeds(program("rustup").args(["component", "add", "llvm-tools"]));
    }
    ensure!(
        path.is_file(),
        "the tool chain lacks llvm-profdata: rustup component add llvm-tools"
    );
    Ok(path)
}
