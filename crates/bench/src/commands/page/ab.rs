//! `ab`, ApacheBench, which requests the pages.

use std::net::SocketAddr;
use std::process::Output;

use anyhow::{Context, bail, ensure};
use serde::Serialize;

use crate::cpu;
use crate::guard;
use crate::process::Folder;

/// What `ab` saw.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Seen {
    /// Pages a second.
    pub(super) pages_per_second: f64,
    /// Load times in milliseconds: entry N is the time within which N percent of the pages came, from 0,
    /// the fastest page, to 100, the slowest.
    pub(super) percentiles_ms: Vec<f64>,
}

/// Checks that `ab` can be started.
pub(super) fn check() -> anyhow::Result<()> {
    command(&["-V"]).map(drop)
}

/// Requests `pages` pages from these cores, `concurrency` at a time, each on its own connection.
pub(super) fn ask(
    address: SocketAddr,
    pages: u32,
    concurrency: u32,
    cores: &[usize],
) -> anyhow::Result<Seen> {
    let folder = Folder::new()?;
    let file = folder.path("percentiles.csv");
    let (pages, concurrency) = (pages.to_string(), concurrency.to_string());
    let path = file
        .to_str()
        .context("the path of the temporary folder is not UTF-8")?;
    let url = format!("http://{address}/");
    let words = ["-q", "-n", &pages, "-c", &concurrency, "-e", path, &url];
    let output = cpu::bound(cores, || command(&words))??;
    let said = String::from_utf8_lossy(&output.stdout);
    let number = |name: &str| number(&said, name);
    ensure!(
        number("Complete requests") == pages.parse().ok()
            && number("Failed requests") == Some(0.0)
            && number("Non-2xx responses").is_none(),
        "some pages were incomplete or had another status than 200"
    );
    let read = || {
        let pages_per_second = number("Requests per second")?;
        let percentiles_ms = percentiles(&std::fs::read_to_string(&file).ok()?)?;
        Some(Seen {
            pages_per_second,
            percentiles_ms,
        })
    };
    read().context("the output of ab is not that of ab 2.3")
}

fn command(words: &[&str]) -> anyhow::Result<Output> {
    let started = guard::command("ab")?.args(words).output();
    let output = started.context("ab cannot be started; it is in the package apache2-utils")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("ab failed: {}", said.lines().last().unwrap_or_default());
    }
    Ok(output)
}

/// The number after `name:`.
fn number(said: &str, name: &str) -> Option<f64> {
    let mut values = said.lines().filter_map(|line| line.strip_prefix(name));
    let value = values.next()?.strip_prefix(':')?;
    value.split_whitespace().next()?.parse().ok()
}

/// Reads `Percentage served,Time in ms`, from 0 to 100.
fn percentiles(table: &str) -> Option<Vec<f64>> {
    let rows = table.lines().skip(1).enumerate().map(|(index, line)| {
        let (percent, time) = line.split_once(',')?;
        let expected = percent.parse() == Ok(index);
        time.parse().ok().filter(|_| expected)
    });
    let times: Vec<f64> = rows.collect::<Option<_>>()?;
    (times.len() == 101).then_some(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ab_says_is_read() {
        let said = "Complete requests:      1000\nRequests per second:    1497.31 [#/sec] (mean)\n";
        assert_eq!(number(said, "Complete requests"), Some(1000.0));
        assert_eq!(number(said, "Requests per second"), Some(1497.31));
        assert_eq!(number(said, "Non-2xx responses"), None);
        let rows = (0..=100).map(|percent| format!("{percent},{percent}.500\n"));
        let table = format!("Percentage served,Time in ms\n{}", rows.collect::<String>());
        assert_eq!(percentiles(&table).unwrap()[99], 99.5);
        assert_eq!(percentiles(&table[..200]), None);
    }
}
