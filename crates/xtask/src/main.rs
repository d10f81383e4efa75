//! The project's own chores: `cargo xtask --help`.
//!
//! A chore runs other programs. It prints what it does and what came of it.
#![allow(
    clippy::print_stdout,
    reason = "a program of chores talks to whoever called it"
)]

mod bench;
mod commands;
mod package;
mod release;
mod server;
mod setup;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The chores of this repository
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Installs what the tests need: packages by apt, clients by pip, mvn and npm, cargo-fuzz, memcached
    Setup,
    /// Runs every test: the workspace's own, loom, real clients, sanitizers, short fuzz runs
    Test(test::Flags),
    /// Checks those rules of CONTRIBUTING.md that a machine can check
    Tidy,
    /// Builds the programs as they are shipped: faster, compiled with a profile of a training run
    Release(release::Flags),
    /// Builds Debian packages of the server
    Package(package::Flags),
    /// Says what the server is made of: a bill of materials in CycloneDX
    Sbom(package::sbom::Flags),
    /// Runs a benchmark of crates/bench and passes it the rest of the line
    Bench(bench::Flags),
}

fn main() -> ExitCode {
    let result = match Cli::parse().chore {
        Chore::Setup => setup::run().map(|_| ()),
        Chore::Test(flags) => test::run(&flags),
        Chore::Tidy => tidy::run(),
        Chore::Release(flags) => release::run(&flags),
        Chore::Package(flags) => package::run(&flags).map(|_| ()),
        Chore::Sbom(flags) => package::sbom::run(&flags),
        Chore::Bench(flags) => bench::run(&flags),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
