//! `cargo xtask bench`: the programs of `crates/bench`.

use clap::{Args, ValueEnum};

use crate::commands::{cargo, run as run_command};

/// What to measure
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// Which benchmark
    what: What,
    /// Passed on as they are; `--help` shows what there is
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// The store alone, beside other concurrent tables
    Store,
    /// The TCP stack alone, in process
    Stack,
    /// Miss ratios on traces, beside LRU, S3-FIFO and memcached
    Hits,
    /// Bytes of memory an item, filled through the protocol
    Memory,
    /// Whole servers on loopback: coua, memcached, and a bare echo
    Server,
    /// coua on its own TCP stack over a DPDK link, beside memcached on the kernel's
    Net,
}

/// Builds the benchmark in the release profile and runs it.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let name = match flags.what {
        What::Store => "store",
        What::Stack => "stack",
        What::Hits => "hits",
        What::Memory => "memory",
        What::Server => "server",
        What::Net => "net",
    };
    let features: &[&str] = match flags.what {
        What::Net => &["--features", "dpdk"],
        _ => &[],
    };
    // The benchmarks that compare servers start the program that is shipped.
    run_command(
        cargo()
            .args(["build", "--release", "-p", "coua"])
            .args(features),
    )?;
    run_command(
        cargo()
            .args(["run", "--release", "-p", "coua-bench"])
            .args(features)
            .args(["--", name])
            .args(&flags.rest),
    )
}
