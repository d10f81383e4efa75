//! `coua-bench xdp`: coua on AF_XDP beside what AF_XDP and the cable can do by themselves.
//!
//! ```text
//! ┌ server's ──────────────┐             ┌ load's ──────────────────┐
//! │ bare echo of frames    │             │ frames with requests     │
//! │ bare service, stack    ├──── veth ───┤ clients on small TCP     │
//! │ coua, on it or beside  │             │ (both on AF_XDP)         │
//! └────────────────────────┘             └──────────────────────────┘
//! ```
//!
//! The bare echo receives and sends frames as long as coua's, as many at once, by the same driver,
//! and looks at nothing in them. The share of its rate that coua reaches is what stack and cache
//! leave. Each side has its own cable; sides whose turn it is not are stopped.

mod outcome;
mod stage;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::load_flags::TimingFlags;
use super::net_load::Shape;
use super::programs::{CoreFlags, CouaFlag};
use crate::cable::Cable;
use crate::report::{self, require};
use outcome::Outcome;
use stage::Stage;

/// Compares coua on AF_XDP with the kernel's TCP and a bare echo of frames (needs root)
///
/// Servers and load are at the ends of veth cables between two network namespaces. The bare echo
/// sends frames as long as coua's without looking at them: it is the limit of AF_XDP and the cable.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// What is measured; ratios are to the first
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "bare,stack,coua,kernel"
    )]
    sides: Vec<Side>,
    #[command(flatten)]
    coua: CouaFlag,
    /// Memory of coua, in MiB
    #[arg(long, default_value_t = 1024)]
    memory: u64,
    #[command(flatten)]
    cores: CoreFlags,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    timing: TimingFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  All four sides: takes a minute
    coua-bench xdp
  coua on AF_XDP beside the bare echo of frames, with pipelines
    coua-bench xdp --sides bare,coua --depth 8";

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    /// An echo of frames on AF_XDP, without a stack
    Bare,
    /// The bare service on coua's stack, on AF_XDP
    Stack,
    /// coua on AF_XDP
    Coua,
    /// coua on the kernel's TCP
    Kernel,
}

/// Measures all sides in turns and prints the outcome.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    require!(
        flags.shape.sets == 0.0,
        "--sets takes 0 here: the bare echo knows gets only"
    );
    require!(
        (1..=stage::CONNECTIONS_MAX).contains(&flags.shape.connections),
        "--connections takes 1 to {} here",
        stage::CONNECTIONS_MAX
    );
    Cable::check_rights()?;
    let stages = flags.sides.iter().map(|&side| Stage::prepare(flags, side));
    let stages = stages.collect::<anyhow::Result<Vec<Stage>>>()?;
    let mut outcome = Outcome::new(flags);
    for round in 1..=flags.timing.rounds {
        for (at, stage) in stages.iter().enumerate() {
            let sample = stage.measure()?;
            report::progress(format_args!(
                "{}, {round} of {}: {:.0} requests/s",
                stage.side().name(),
                flags.timing.rounds,
                sample.requests_per_second
            ));
            outcome.add(at, sample);
        }
    }
    Ok(report::show(&outcome.finished(), flags.json)?)
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Bare => "bare echo of frames",
            Side::Stack => "bare service on the stack",
            Side::Coua => "coua",
            Side::Kernel => "coua on the kernel's TCP",
        }
    }
}
