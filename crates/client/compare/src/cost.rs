//! Instructions and system calls a request: the difference between a short and a long run.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use crate::contenders::{CONTENDERS, KINDS, Kind, Until};
use crate::fill;

/// Requests of the short run, for which everything is connected and warm.
const SHORT: usize = 160;

/// Prints a table of all clients.
pub fn table(server: &str) -> Result<()> {
    let keys: Vec<String> = (0..crate::contenders::KEYS)
        .map(|number| format!("key:{number:06}"))
        .collect();
    fill(server, &keys)?;
    println!("| request | client | instructions | system calls |");
    println!("|---|---|--:|--:|");
    for kind in KINDS {
        let further = match kind {
            Kind::Get | Kind::Set => 4800,
            Kind::GetMany | Kind::SetMany => 480,
        };
        for (number, (name, _)) in CONTENDERS.iter().enumerate() {
            let count = |count: fn(&str, usize, Kind, usize) -> Result<Option<u64>>| {
                let short = count(server, number, kind, SHORT)?;
                let long = count(server, number, kind, SHORT + further)?;
                let difference = short.zip(long).map(|(short, long)| long - short);
                anyhow::Ok(difference.map(|all| all as f64 / further as f64))
            };
            let (Some(instructions), Some(calls)) = (count(instructions)?, count(calls)?) else {
                continue;
            };
            println!("| {} | {name} | {instructions:.0} | {calls:.2} |", kind.title());
        }
    }
    Ok(())
}

/// `CLIENT KIND COUNT`: makes so many requests and ends. Prints `none` if the client has no such request.
pub fn one(server: &str, keys: &[String], arguments: &[String]) -> Result<()> {
    let [number, kind, count] = arguments else {
        anyhow::bail!("CLIENT KIND COUNT are expected");
    };
    let kind = KINDS.into_iter().find(|known| known.word() == kind);
    let (_, make) = CONTENDERS[number.parse::<usize>()?];
    let until = Until::Count(count.parse()?);
    let rate = make(server)?.turn(kind.context("a kind of request")?, keys, until)?;
    if rate.is_none() {
        println!("none");
    }
    Ok(())
}

/// Runs `one` under a tool, with the programs that it starts.
fn under(tool: &[&str], server: &str, number: usize, kind: Kind, count: usize) -> Result<Output> {
    let output = Command::new(tool[0])
        .args(&tool[1..])
        .arg(std::env::current_exe()?)
        .args([server, "one", &number.to_string(), kind.word(), &count.to_string()])
        .output()
        .with_context(|| format!("{} is needed", tool[0]))?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

fn is_none(output: &Output) -> bool {
    output.stdout.starts_with(b"none")
}

fn instructions(server: &str, number: usize, kind: Kind, count: usize) -> Result<Option<u64>> {
    // A file a process: what a contender starts has its output read.
    let folder = std::env::temp_dir().join(format!("compare-cost-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let log = format!("--log-file={}/%p", folder.display());
    let tool = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--trace-children=yes",
        "--trace-children-skip=*/cc,*/cc1,*/as,*/collect2,*/ld",
        &log,
    ];
    let output = under(&tool, server, number, kind, count)?;
    let mut sum = 0;
    for entry in std::fs::read_dir(&folder)? {
        let text = std::fs::read_to_string(entry?.path())?;
        let counts = text.lines().filter_map(|line| line.split_once("Collected : "));
        for (_, count) in counts {
            sum += count.trim().parse::<u64>()?;
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok((!is_none(&output)).then_some(sum))
}

fn calls(server: &str, number: usize, kind: Kind, count: usize) -> Result<Option<u64>> {
    let output = under(&["strace", "-f", "-c", "-S", "calls"], server, number, kind, count)?;
    if is_none(&output) {
        return Ok(None);
    }
    // `100.00    0.001234           2      1234         1 total`
    let text = String::from_utf8_lossy(&output.stderr);
    let total = text.lines().rev().find(|line| line.ends_with("total"));
    let words = total.context("strace sums up")?.split_ascii_whitespace();
    let count = words.clone().nth(3).context("strace counts")?;
    Ok(Some(count.parse()?))
}
