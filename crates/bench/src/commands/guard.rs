//! `coua-bench guard`: ends the programs that another `coua-bench` has started.

use anyhow::Context;
use clap::Args;

use crate::guard;

/// Ends the programs that another coua-bench has started, when that is gone
#[derive(Args, Clone, Debug)]
#[command(hide = true)]
pub(crate) struct Flags {}

/// Returns only if it cannot do its work.
pub(crate) fn run(_: &Flags) -> anyhow::Result<()> {
    guard::stand().context("the guard is started by coua-bench itself")
}
