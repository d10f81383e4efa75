//! Speeds of stores, for people and for programs.

use std::fmt::Display;

use serde::Serialize;

use crate::report::{Table, median};
use crate::rivals::{Operation, Speed};

/// All configurations of a run.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    rounds: usize,
    seconds: f64,
    pub(super) configured: Vec<Configured>,
}

/// One configuration of keys, values and popularity.
#[derive(Debug, Serialize)]
pub(super) struct Configured {
    name: String,
    series: Vec<Series>,
}

/// All measurements of one store, batch, operation and number of threads.
#[derive(Debug, Serialize)]
struct Series {
    store: &'static str,
    batch: usize,
    set: bool,
    threads: usize,
    speeds: Vec<Speed>,
}

impl Series {
    fn middle(&self, figure: impl Fn(&Speed) -> f64) -> f64 {
        median(self.speeds.iter().map(figure))
    }
}

impl Configured {
    pub(super) fn new(name: String) -> Configured {
        Configured {
            name,
            series: Vec::new(),
        }
    }

    pub(super) fn note(
        &mut self,
        store: &'static str,
        batch: usize,
        operation: Operation,
        threads: usize,
        speed: Speed,
    ) {
        let set = operation == Operation::Set;
        let known = self.series.iter_mut().find(|series| {
            (series.store, series.batch, series.set, series.threads) == (store, batch, set, threads)
        });
        match known {
            Some(series) => series.speeds.push(speed),
            None => self.series.push(Series {
                store,
                batch,
                set,
                threads,
                speeds: vec![speed],
            }),
        }
    }

    fn find(&self, store: &str, batch: usize, set: bool, threads: usize) -> Option<&Series> {
        self.series.iter().find(|series| {
            (series.store, series.batch, series.set, series.threads) == (store, batch, set, threads)
        })
    }

    fn table(&self) -> Table {
        let mut kinds: Vec<(bool, usize)> = self
            .series
            .iter()
            .map(|series| (series.set, series.threads))
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut stores: Vec<(&str, usize)> = Vec::new();
        for series in &self.series {
            if !stores.contains(&(series.store, series.batch)) {
                stores.push((series.store, series.batch));
            }
        }
        let mut headings = vec!["M/s of CPU (of wall) time".to_owned(), "batch".to_owned()];
        for &(set, threads) in &kinds {
            headings.push(format!("{} × {threads}", if set { "SET" } else { "GET" }));
            if threads > 1 {
                headings.push("to one".to_owned());
            }
        }
        headings.push("found or stored".to_owned());
        let mut table = Table::new(headings);
        for (store, batch) in stores {
            let mut row = vec![store.to_owned(), batch.to_string()];
            let mut succeeded = 1.0f64;
            for &(set, threads) in &kinds {
                let Some(series) = self.find(store, batch, set, threads) else {
                    continue;
                };
                let cpu = series.middle(|speed| speed.per_cpu_second);
                row.push(format!(
                    "{:.2} ({:.2})",
                    cpu / 1e6,
                    series.middle(|speed| speed.per_second) / 1e6
                ));
                succeeded = succeeded.min(series.middle(|speed| speed.succeeded));
                if threads > 1 {
                    let one = self.find(store, batch, set, 1);
                    let ratio = one.map(|one| cpu / one.middle(|speed| speed.per_cpu_second));
                    row.push(ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")));
                }
            }
            row.push(format!("{:.2} %", succeeded * 100.0));
            table.row(row);
        }
        table
    }
}

impl Outcome {
    pub(super) fn new(rounds: usize, seconds: f64) -> Outcome {
        Outcome {
            rounds,
            seconds,
            configured: Vec::new(),
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.configured.is_empty() {
            writeln!(
                f,
                "Medians of {} interleaved measurements of {} s. Per second of the threads' CPU \
                 time, summed over the threads, and of wall time in brackets.",
                self.rounds, self.seconds
            )?;
        }
        for configured in &self.configured {
            writeln!(f, "\n## {}\n\n{}", configured.name, configured.table())?;
        }
        Ok(())
    }
}
