//! `coua-bench`: puts load on caches and compares them.

mod cable;
mod chart;
mod client;
mod commands;
mod cpu;
mod echo;
#[cfg(test)]
mod fake;
mod guard;
mod hits;
mod link;
mod load;
mod owner;
mod process;
mod report;
mod rivals;
mod sched;
mod segments;
mod site;
mod soak;
mod target;
mod workload;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use coua::flags::FlagError;

use report::{ConditionsHeld, WrongFlags};

use commands::{
    admission, agent, compare, diff, echo as echo_command, figure, fill, first_screen, flash, gaps,
    guard as guard_command, hits as hits_command, memaslap, memory, net, net_echo, net_load, page,
    restart, run, server, site as site_command, soak as soak_command, stack, store, verify,
    workers, xdp,
};

/// Puts load on memcached-compatible caches, checks every reply, and compares them
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  Fill a running server, put a load on it, and read everything back
    coua-bench load --target 127.0.0.1:11211 --keys 1000000
    coua-bench run --target 127.0.0.1:11211 --keys 1000000 --rate 50000
    coua-bench verify --target 127.0.0.1:11211 --keys 1000000
  Start two servers and compare them
    coua-bench compare coua memcached --keys 1000000
  Say whether a later run is worse than an earlier one
    coua-bench diff old.json new.json

Start with run, load, verify, compare and diff: they work with any memcached-compatible server.
The other commands each measure one thing about coua; most start the servers they need themselves.
Each command has examples of its own: coua-bench run --help.";

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Flags),
    Load(fill::Flags),
    Verify(verify::Flags),
    Compare(compare::Flags),
    Diff(diff::Flags),
    Figure(figure::Flags),
    FirstScreen(first_screen::Flags),
    Flash(flash::Flags),
    Gaps(gaps::Flags),
    Agent(agent::Flags),
    Echo(echo_command::Flags),
    Server(server::Flags),
    Memaslap(memaslap::Flags),
    Memory(memory::Flags),
    Hits(hits_command::Flags),
    Admission(admission::Flags),
    Restart(restart::Flags),
    Net(net::Flags),
    NetLoad(net_load::Flags),
    NetEcho(net_echo::Flags),
    Stack(stack::Flags),
    Store(store::Flags),
    Workers(workers::Flags),
    Xdp(xdp::Flags),
    Soak(soak_command::Flags),
    Site(site_command::Flags),
    PageLoad(page::Flags),
    Guard(guard_command::Flags),
}

/// The exit status where a flag is wrong, or has a wrong value.
const WRONG_FLAG: u8 = 2;
/// The exit status where all was measured, and a `--fail-if` holds.
const CONDITION_HELD: u8 = 3;

fn main() -> ExitCode {
    match run(parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::progress(format_args!("{error:#}"));
            if error.is::<FlagError>() || error.is::<WrongFlags>() {
                ExitCode::from(WRONG_FLAG)
            } else if error.is::<ConditionsHeld>() {
                ExitCode::from(CONDITION_HELD)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(flags) => run::run(&flags),
        Command::Load(flags) => fill::run(&flags),
        Command::Verify(flags) => verify::run(&flags),
        Command::Compare(flags) => compare::run(&flags),
        Command::Diff(flags) => diff::run(&flags),
        Command::Figure(flags) => figure::run(&flags),
        Command::FirstScreen(flags) => first_screen::run(&flags),
        Command::Flash(flags) => flash::run(&flags),
        Command::Gaps(flags) => gaps::run(&flags),
        Command::Agent(flags) => agent::run(&flags),
        Command::Echo(flags) => echo_command::run(&flags),
        Command::Server(flags) => server::run(&flags),
        Command::Memaslap(flags) => memaslap::run(&flags),
        Command::Memory(flags) => memory::run(&flags),
        Command::Hits(flags) => hits_command::run(&flags),
        Command::Admission(flags) => admission::run(&flags),
        Command::Restart(flags) => restart::run(&flags),
        Command::Net(flags) => net::run(&flags),
        Command::NetLoad(flags) => net_load::run(&flags),
        Command::NetEcho(flags) => net_echo::run(&flags),
        Command::Stack(flags) => stack::run(&flags),
        Command::Store(flags) => store::run(&flags),
        Command::Workers(flags) => workers::run(&flags),
        Command::Xdp(flags) => xdp::run(&flags),
        Command::Soak(flags) => soak_command::run(&flags),
        Command::Site(flags) => site_command::run(&flags),
        Command::PageLoad(flags) => page::run(&flags),
        Command::Guard(flags) => guard_command::run(&flags),
    }
}

/// Reads the command line. A flag that is wrong, or has a wrong value, gets one line that names it
/// and what it takes, and exit status 2.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        if matches!(
            error.kind(),
            ErrorKind::DisplayHelp
                | ErrorKind::DisplayVersion
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        ) {
            error.exit();
        }
        report::progress(one_line(&error.render().to_string()));
        std::process::exit(WRONG_FLAG.into());
    })
}

/// What clap says, less how the program is used in general.
fn one_line(text: &str) -> String {
    let said = text.split("\nUsage:").next().unwrap_or(text);
    let said = said.split("\nFor more information").next().unwrap_or(said);
    let said = said.trim_start_matches("error: ");
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns at which clap wraps what it prints.
    const HELP_WIDTH: usize = 100;

    fn complaint(arguments: &str) -> String {
        let words = std::iter::once("coua-bench").chain(arguments.split(' '));
        let error = Cli::try_parse_from(words).unwrap_err();
        one_line(&error.render().to_string())
    }

    #[test]
    fn a_wrong_flag_gets_one_line_that_names_it() {
        for (arguments, names) in [
            ("run --conections 5", &["--conections", "--connections"][..]),
            ("run --connections 0", &["--connections", "1..=1000000"]),
            ("run --connections many", &["--connections", "many"]),
            ("run --mix got=1", &["--mix", "get=90,set=10", "touch"]),
            (
                "run --dialect morse",
                &["--dialect", "text, meta, binary, udp"],
            ),
            ("run --value-size big", &["--value-size", "10-1000", "etc"]),
            ("run --bound 1ms", &["--bound", "p99=500us"]),
            ("run --rate fast", &["--rate", "requests a second"]),
            ("run --rate 5 --find-max", &["--rate", "--find-max"]),
            ("run --rate 5 --sweep 1-9", &["--rate", "--sweep"]),
            ("run --sweep 9-1", &["--sweep", "10000-200000:12"]),
            ("run --fail-if p99=1ms", &["--fail-if", "p99>1ms", "misses"]),
            ("run --json --csv", &["--json", "--csv"]),
            ("load --workload etx", &["--workload", "usr"]),
            ("verify --target nowhere", &["--target", "HOST:PORT"]),
            ("run --agents here", &["--agents", "HOST:PORT"]),
            ("agent --listen here", &["--listen"]),
            ("run --seconds 0", &["--seconds", "above 0"]),
            ("compare", &["<SERVER>"]),
            ("compare coua redis", &["SERVER", "redis", "{port}"]),
            ("compare coua --server-cores x", &["--server-cores", "0-3"]),
            ("compare coua --target a:1", &["--target"]),
            ("compare coua --net packet", &["--net", "xdp"]),
            ("figure web-pages", &["<NAME>", "throughput-by-workers"]),
            ("figure latency --workers 0", &["--workers", "1..=1024"]),
            (
                "xdp --sides bear",
                &["--sides", "bare, stack, coua, kernel"],
            ),
        ] {
            let line = complaint(arguments);
            assert!(!line.contains('\n'), "{line}");
            for name in names {
                assert!(line.contains(name), "{arguments}: {line}");
            }
        }
    }

    #[test]
    fn every_command_has_examples_that_are_right() {
        let mut program = <Cli as clap::CommandFactory>::command();
        program.build();
        let commands = program.get_subcommands();
        let taught = commands.filter(|command| !command.is_hide_set());
        for command in taught.filter(|command| command.get_name() != "help") {
            let name = command.get_name();
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let too_long = help.lines().find(|line| line.chars().count() > HELP_WIDTH);
            assert_eq!(too_long, None, "{name}: clap wraps it");
            let lines = help.lines().map(str::trim);
            let examples = lines.filter(|line| line.starts_with("coua-bench "));
            let mut is_named = false;
            for example in examples {
                is_named |= example.starts_with(&format!("coua-bench {name}"));
                let command = example.split(" > ").next().unwrap_or(example);
                let words = shlex::split(command.trim_end_matches('&')).unwrap();
                let parsed = Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            }
            assert!(is_named, "{name}");
        }
    }

    #[test]
    fn the_flags_are_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
