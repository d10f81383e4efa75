//! `cargo xtask test`: all tests, as a list of steps with a table at the end.

mod aarch64;
mod capabilities;
mod certificates;
mod clients;
mod containers;
mod deep;
mod fleet;
mod guard;
mod java_client;
mod lab;
mod monitoring;
mod package;
mod proxies;
mod site;
mod steps;
mod tls;
mod under_test;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use crate::setup;
use site::Site;
use steps::STEPS;

/// What to test
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// Also run what takes long: long stress and fuzz runs, Miri, ThreadSanitizer, virtual
    /// machines, Debian packages, licences of dependencies
    #[arg(long)]
    all: bool,
    /// Only the step with this name, or those whose name contains it; if there is none, only the
    /// tests whose name contains it
    filter: Option<String>,
}

/// The result of a step.
pub(crate) enum Outcome {
    /// It was run and passed.
    Passed,
    /// It was not run, and why.
    LeftOut(String),
}

/// What a step needs to know.
#[derive(Clone)]
pub(crate) struct Context {
    /// `--all`
    pub(crate) all: bool,
    /// Only tests whose name contains this.
    pub(crate) test_filter: Option<String>,
    /// What the set-up found.
    pub(crate) tools: setup::Tools,
    /// Where servers and clients run.
    pub(crate) site: Arc<Site>,
    /// A coua other than the one that is built.
    pub(crate) coua: Option<PathBuf>,
}

/// One line of the table.
pub(crate) struct Step {
    /// The name that the filter is compared with.
    pub(crate) name: &'static str,
    /// Runs only with `--all`, or if the filter is its full name.
    pub(crate) long: bool,
    /// Runs the step; an error fails it and does not stop the others.
    pub(crate) run: fn(&Context) -> Result<Outcome>,
}

/// Runs the steps one after another.
///
/// # Errors
/// If the set-up or a step failed.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    let start = Instant::now();
    println!("== setup");
    let tools = setup::run()?;
    let matching: Vec<&Step> = STEPS.iter().filter(|step| is_wanted(step, flags)).collect();
    let (chosen, test_filter) = match &flags.filter {
        Some(filter) if matching.is_empty() => (
            STEPS
                .iter()
                .filter(|step| step.name == "workspace")
                .collect(),
            Some(filter.clone()),
        ),
        _ => (matching, None),
    };
    let context = Context {
        all: flags.all,
        test_filter,
        tools,
        site: Arc::new(Site::Loopback),
        coua: None,
    };

    let mut rows = vec![Row {
        name: "setup",
        seconds: start.elapsed(),
        result: Ok(Outcome::Passed),
    }];
    for step in chosen {
        println!("\n== {} (after {})", step.name, shown(start.elapsed()));
        let step_start = Instant::now();
        let result = (step.run)(&context);
        if let Err(error) = &result {
            println!("== {} FAILED: {error:#}", step.name);
        }
        rows.push(Row {
            name: step.name,
            seconds: step_start.elapsed(),
            result,
        });
    }
    conclude(&rows, start.elapsed())
}

struct Row {
    name: &'static str,
    seconds: Duration,
    result: Result<Outcome>,
}

fn is_wanted(step: &Step, flags: &Flags) -> bool {
    match &flags.filter {
        Some(filter) if STEPS.iter().any(|it| it.name == filter) => step.name == filter,
        Some(filter) => step.name.contains(filter.as_str()) && (flags.all || !step.long),
        None => flags.all || !step.long,
    }
}

fn conclude(rows: &[Row], total: Duration) -> Result<()> {
    let (mut passed, mut failed, mut left_out) = (0, 0, 0);
    println!("\n{:<22} {:>8}  result", "step", "time");
    for row in rows {
        let result = match &row.result {
            Ok(Outcome::Passed) => {
                passed += 1;
                "passed".to_owned()
            }
            Ok(Outcome::LeftOut(why)) => {
                left_out += 1;
                format!("left out: {why}")
            }
            Err(error) => {
                failed += 1;
                format!(
                    "FAILED: {}",
                    error.to_string().lines().next().unwrap_or_default()
                )
            }
        };
        println!("{:<22} {:>8}  {result}", row.name, shown(row.seconds));
    }
    println!("{:<22} {:>8}\n", "all", shown(total));
    println!("{passed} passed, {failed} failed, {left_out} skipped");
    if failed > 0 {
        bail!("{failed} of {} steps failed", rows.len());
    }
    Ok(())
}

fn shown(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
