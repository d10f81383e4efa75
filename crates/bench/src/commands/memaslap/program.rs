//! The program `memaslap`, and its output.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Output;

use anyhow::{Context, bail};

use super::Flags;
use super::distribution::Distribution;
use super::outcome::Sample;
use crate::guard;
use crate::process::Folder;
use crate::target::Target;

/// Its names; Debian uses the second one.
const NAMES: [&str; 2] = ["memaslap", "memcaslap"];

/// The interval of its reports, longer than any run: without this flag it measures no latency.
const STATISTICS_EVERY: &str = "3600s";

/// Runs it on the calling thread's cores.
pub(super) fn ask(flags: &Flags, target: &Target) -> anyhow::Result<Sample> {
    let folder = Folder::new()?;
    let file = folder.path("load");
    let (key, value, sets) = (flags.key_size, flags.value_size, flags.sets);
    let gets = 1.0 - sets;
    let load = format!("key\n{key} {key} 1\nvalue\n{value} {value} 1\ncmd\n0 {sets}\n1 {gets}\n");
    std::fs::write(&file, load)?;
    let (servers, connections) = (target.to_string(), flags.connections.to_string());
    let time = format!("{}s", flags.timing.seconds.as_secs());
    // A window holds the items of a connection; all sets are of an item that is already there.
    let output = command(
        flags.memaslap.as_deref(),
        &[
            "-s".as_ref(),
            servers.as_ref(),
            "-T".as_ref(),
            "1".as_ref(),
            "-c".as_ref(),
            connections.as_ref(),
            "-t".as_ref(),
            time.as_ref(),
            "-S".as_ref(),
            STATISTICS_EVERY.as_ref(),
            "-w".as_ref(),
            "1k".as_ref(),
            "-o".as_ref(),
            "1".as_ref(),
            "-F".as_ref(),
            file.as_os_str(),
        ],
    )?;
    let said = String::from_utf8_lossy(&output.stdout);
    read(&said).context("the output of memaslap is not that of libmemcached 1.1")
}

fn command(named: Option<&Path>, words: &[&OsStr]) -> anyhow::Result<Output> {
    let named = named.map(Path::as_os_str);
    let names = NAMES.map(OsStr::new);
    let names = named.as_slice().iter().copied().chain(names);
    for name in names.take(if named.is_some() { 1 } else { NAMES.len() }) {
        match guard::command(name)?.args(words).output() {
            Ok(output) if output.status.success() => return Ok(output),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                bail!(
                    "memaslap failed: {}",
                    said.lines().last().unwrap_or_default()
                );
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context("memaslap cannot be started"),
        }
    }
    bail!("memaslap was not found: install libmemcached-tools, or give its path by --memaslap")
}

/// Reads its figures of gets and sets together, in microseconds.
fn read(said: &str) -> Option<Sample> {
    let (_, total) = said.split_once("Total Statistics (")?;
    let number = |name: &str| -> Option<f64> {
        let line = total.lines().map(str::trim);
        let mut values = line.filter_map(|line| line.strip_prefix(name));
        values.next()?.split_whitespace().next()?.parse().ok()
    };
    let (_, end) = said.split_once("Run time:")?;
    let (_, rate) = end.split_once("TPS:")?;
    let (_, table) = total.split_once("Log2 Dist:\n")?;
    let rows = table.lines().take_while(|line| !line.trim().is_empty());
    let mut counts = Vec::new();
    for row in rows {
        let (first, row) = row.split_once(':')?;
        counts.resize(first.trim().parse().ok()?, 0);
        for count in row.split_whitespace() {
            counts.push(count.parse().ok()?);
        }
    }
    Some(Sample {
        requests_per_second: rate.split_whitespace().next()?.parse().ok()?,
        mean_us: number("Avg:")?,
        geometric_mean_us: number("Geo:")?,
        least_us: number("Min:")?,
        longest_us: number("Max:")?,
        distribution: Distribution::new(counts),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
Get Statistics (4 events)
   Min:        1

Total Statistics (141268 events)
   Min:        64
   Max:     40953
   Avg:      1359
   Geo:    968.28
   Std:   2324.57
   Log2 Dist:
       4:        0        0        1        3
       8:      274     6359

cmd_get: 127166

Run time: 3.0s Ops: 141332 TPS: 47106 Net_rate: 7.1M/s
";

    #[test]
    fn what_memaslap_says_is_read() {
        let sample = read(SAID).unwrap();
        assert_eq!((sample.least_us, sample.mean_us), (64.0, 1359.0));
        assert_eq!(sample.requests_per_second, 47106.0);
        let expected = vec![0, 0, 0, 0, 0, 0, 1, 3, 274, 6359];
        assert_eq!(sample.distribution, Distribution::new(expected));
        assert!(read(&SAID[..300]).is_none());
    }
}
