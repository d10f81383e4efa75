//! `coua-bench load`: stores every key.

use anyhow::ensure;
use clap::Args;
use coua::flags::Driver;
use serde::Serialize;

use super::load_flags::{ItemFlags, ServerFlags, gather};
use crate::load::{Dialect, Measured, Order, Plan, Setup};
use crate::report::{self, ProgressLine, require};
use crate::workload::{Mix, Op};

/// Stores every key of a workload once, for `run` and `verify`
///
/// With --dialect udp it stores by TCP at the same port: datagrams get lost, and hold no large values.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    items: ItemFlags,
    /// Requests in flight per connection
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=65536))]
    depth: u32,
    /// Also create the counters that incr and decr use
    #[arg(long)]
    counters: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  A million keys with values of 64 bytes
    coua-bench load --keys 1000000 --key-size 16 --value-size 64
  The items of Facebook's ETC pool, through a unix socket, in the binary protocol
    coua-bench load --target unix:/run/coua.sock --dialect binary --keys 1000000 --workload etc";

/// The outcome, for programs.
#[derive(Debug, Serialize)]
struct Outcome {
    stored: u64,
    not_stored: u64,
    errors: u64,
    lost: u64,
    seconds: f64,
    items_per_second: f64,
    bytes_per_second: f64,
}

/// Stores all and says how fast.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let (server, items) = (&flags.server, &flags.items);
    let setup = server.setup(flags.depth)?;
    let by_dpdk = matches!(&setup.net, Some(net) if matches!(net.driver, Driver::Dpdk { .. }));
    require!(
        !(flags.counters && by_dpdk),
        "--counters does not go with --net dpdk: it connects twice, and DPDK opens its port only once"
    );
    let measured = store(&setup, items, server.team.dialect, flags.counters)?;
    let seconds = measured.elapsed.as_secs_f64().max(1e-9);
    let outcome = Outcome {
        stored: measured.stored,
        not_stored: measured.not_stored,
        errors: measured.refused,
        lost: measured.lost,
        seconds,
        items_per_second: measured.stored as f64 / seconds,
        bytes_per_second: measured.sent as f64 / seconds,
    };
    if flags.json {
        report::print_json(&outcome)?;
    } else {
        report::print(format!(
            "{} items stored in {seconds:.2} s: {:.0} a second, {:.1} MB/s",
            outcome.stored,
            outcome.items_per_second,
            outcome.bytes_per_second / 1e6
        ))?;
    }
    all_stored(items, &measured)
}

/// Stores every item, and the counters of incr and decr if they are asked for; returns what became
/// of the items.
pub(crate) fn store(
    setup: &Setup,
    items: &ItemFlags,
    dialect: Dialect,
    counters: bool,
) -> anyhow::Result<Measured> {
    // Datagrams get lost, and take no large values.
    let dialect = match dialect {
        Dialect::Udp => Dialect::Text,
        other => other,
    };
    let mut plan = items.plan(dialect, Some(&Mix::only(Op::Set)), 1)?;
    let measured = drive(setup, items, plan.clone(), "stored")?;
    if counters {
        plan.mix = Mix::only(Op::Incr);
        // The classic dialect has no word that creates a counter.
        if plan.dialect != Dialect::Binary {
            plan.dialect = Dialect::Meta;
        }
        drive(setup, items, plan, "counters created")?;
    }
    Ok(measured)
}

/// An error if an item was not stored.
pub(crate) fn all_stored(items: &ItemFlags, measured: &Measured) -> anyhow::Result<()> {
    let failed = u64::from(items.keys) - measured.stored;
    let example = measured.example.as_deref().unwrap_or("no reply came");
    ensure!(failed == 0, "{failed} items were not stored: {example}");
    Ok(())
}

fn drive(setup: &Setup, items: &ItemFlags, plan: Plan, done: &str) -> anyhow::Result<Measured> {
    let mut team = gather(setup, &items.each(plan))?;
    let mut line = ProgressLine::new();
    let keys = items.keys;
    Ok(team.carry_out(Order::Finish, |replies, elapsed| {
        let rate = replies as f64 / elapsed.as_secs_f64();
        line.show(format_args!(
            "{replies} of {keys} {done}, {rate:.0} a second"
        ));
    })?)
}
