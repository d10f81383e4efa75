//! `coua-bench`: puts load on caches and compares them.

mod client;
mod commands;
mod cpu;
mod echo;
#[cfg(test)]
mod fake;
mod hits;
mod load;
mod process;
mod report;
mod rivals;
mod soak;
mod target;
mod workload;

use clap::{Parser, Subcommand};

use commands::{
    echo as echo_command, hits as hits_command, memory, run, server, soak as soak_command, store,
};

/// Puts load on memcached-compatible caches and compares them
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Flags),
    Echo(echo_command::Flags),
    Server(server::Flags),
    Memory(memory::Flags),
    Hits(hits_command::Flags),
    Store(store::Flags),
    Soak(soak_command::Flags),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Run(flags) => run::run(&flags),
        Command::Echo(flags) => echo_command::run(&flags),
        Command::Server(flags) => server::run(&flags),
        Command::Memory(flags) => memory::run(&flags),
        Command::Hits(flags) => hits_command::run(&flags),
        Command::Store(flags) => store::run(&flags),
        Command::Soak(flags) => soak_command::run(&flags),
    }
}
