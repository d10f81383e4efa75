//! `cargo xtask bench`: the programs of `crates/bench`.

mod all;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::commands::{cargo, program, run as run_command, target};
use crate::release;

/// What to measure
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// Measure the programs of `cargo xtask release`, which must have been run before
    #[arg(long)]
    shipped: bool,
    /// Which benchmark
    what: What,
    /// Passed on as they are; `--help` shows what there is
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Every table of docs/performance.md
    All,
    /// What a reader wants to know first: three servers at three kinds of work, in ten minutes
    FirstScreen,
    /// The store alone, beside other concurrent tables
    Store,
    /// The TCP stack alone, in process
    Stack,
    /// Whole workers in process: several beside one, UDP beside TCP
    Workers,
    /// Miss ratios on traces, beside LRU, S3-FIFO and memcached
    Hits,
    /// Items on flash, beside memcached's extstore
    Flash,
    /// Bytes of memory that an item takes, filled through the protocol
    Memory,
    /// Whole servers on loopback: coua, memcached, and a bare echo
    Server,
    /// The load generator beside memaslap, on one memcached
    Memaslap,
    /// coua on its own TCP stack over shared memory, beside memcached on the kernel's
    Net,
    /// coua on AF_XDP, beside a bare echo of frames and beside the kernel's TCP (needs root)
    Xdp,
    /// Servers that you name, measured in turns: coua, memcached, or any other
    Compare,
    /// A published figure, measured again and drawn beside the paper's numbers
    Figure,
}

impl What {
    /// The subcommand of `coua-bench`, if it is one.
    fn name(self) -> &'static str {
        match self {
            What::All => "all",
            What::FirstScreen => "first-screen",
            What::Store => "store",
            What::Stack => "stack",
            What::Workers => "workers",
            What::Hits => "hits",
            What::Flash => "flash",
            What::Memory => "memory",
            What::Server => "server",
            What::Memaslap => "memaslap",
            What::Net => "net",
            What::Xdp => "xdp",
            What::Compare => "compare",
            What::Figure => "figure",
        }
    }
}

/// The features that it must be built with for these arguments.
fn features(rest: &[String]) -> &'static [&'static str] {
    let names_link = |word: &String| word.contains("dpdk") || word.contains("vhost");
    match rest.iter().any(names_link) {
        true => &["--features", "coua/dpdk,coua-bench/dpdk"],
        false => &[],
    }
}

/// Runs a benchmark, with the programs of the release profile or with those that are shipped.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let programs = match flags.shipped {
        true => release::folder()?,
        false => build(&flags.rest)?,
    };
    if flags.what == What::All {
        return all::run(&programs, flags.shipped, &flags.rest);
    }
    run_command(
        program(programs.join("coua-bench"))
            .arg(flags.what.name())
            .args(&flags.rest),
    )
}

/// Builds the benchmark in the release profile, and the server, which some benchmarks start.
/// Returns the folder.
fn build(rest: &[String]) -> anyhow::Result<PathBuf> {
    run_command(
        cargo()
            .args(["build", "--release", "-p", "coua", "-p", "coua-bench"])
            .args(features(rest)),
    )?;
    Ok(target().join("release"))
}
