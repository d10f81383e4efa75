//! The load times: medians over the rounds, and ratios to the first server.

use std::fmt::{self, Display};

use serde::Serialize;

use super::Flags;
use super::ab::Seen;
use crate::report::{Table, median};
use crate::site::Counters;

/// The outcome, for programs and for people.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome<'a> {
    #[serde(flatten)]
    flags: &'a Flags,
    pub(crate) sides: Vec<Side>,
}

/// One server, or none, with the site that uses it.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) name: String,
    /// The server with its arguments, if there is one.
    command: Option<String>,
    rounds: Vec<Round>,
    /// Medians over the rounds.
    median: Figures,
    /// Ratios to the first server's medians.
    ratio: Figures,
    /// Milliseconds within which 0, 1, … 100 percent of the pages came: medians over the rounds.
    pub(crate) percentiles_ms: Vec<f64>,
}

/// One measurement.
#[derive(Debug, Serialize)]
pub(super) struct Round {
    #[serde(flatten)]
    pub(super) seen: Seen,
    /// What the site did for it.
    pub(super) site: Counters,
}

/// The figures of the table: times in milliseconds, or ratios of all of them.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    p50: f64,
    p90: f64,
    p99: f64,
    longest: f64,
    pages_per_second: f64,
    cache_hit_ratio: f64,
}

impl Figures {
    fn of(rounds: &[Round]) -> Figures {
        let over = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure));
        let percentile = |percent: usize| over(&|round| round.seen.percentiles_ms[percent]);
        Figures {
            p50: percentile(50),
            p90: percentile(90),
            p99: percentile(99),
            longest: percentile(100),
            pages_per_second: over(&|round| round.seen.pages_per_second),
            cache_hit_ratio: over(&|round| {
                let (hits, reads) = (round.site.cache_hits, round.site.database_reads);
                hits as f64 / (hits + reads).max(1) as f64
            }),
        }
    }

    fn by(self, base: Figures) -> Figures {
        Figures {
            p50: self.p50 / base.p50,
            p90: self.p90 / base.p90,
            p99: self.p99 / base.p99,
            longest: self.longest / base.longest,
            pages_per_second: self.pages_per_second / base.pages_per_second,
            cache_hit_ratio: self.cache_hit_ratio / base.cache_hit_ratio,
        }
    }
}

impl Outcome<'_> {
    /// `sides` has each side's name, its command, and its rounds.
    pub(super) fn new(
        flags: &Flags,
        sides: Vec<(String, Option<String>, Vec<Round>)>,
    ) -> Outcome<'_> {
        let base = sides.first().map(|(_, _, rounds)| Figures::of(rounds));
        let sides = sides.into_iter().map(|(name, command, rounds)| {
            let own = Figures::of(&rounds);
            let percentile = |percent: usize| {
                median(
                    rounds
                        .iter()
                        .map(|round| round.seen.percentiles_ms[percent]),
                )
            };
            Side {
                name,
                command,
                median: own,
                ratio: own.by(base.unwrap_or(own)),
                percentiles_ms: (0..=100).map(percentile).collect(),
                rounds,
            }
        });
        Outcome {
            flags,
            sides: sides.collect(),
        }
    }
}

impl Display for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flags { plan, pages, .. } = self.flags;
        writeln!(
            f,
            "{pages} pages of {} values of {} bytes, {} at a time, {} cache, medians of {}: load times \
             in ms (by those of {})\n",
            plan.queries,
            plan.value_size,
            self.flags.concurrency,
            if self.flags.cold { "cold" } else { "warm" },
            self.flags.rounds,
            self.sides.first().map_or("nobody", |side| &side.name),
        )?;
        let headings = [
            "site on",
            "p50",
            "p90",
            "p99",
            "longest",
            "pages/s",
            "cache hits",
        ];
        let mut table = Table::new(headings);
        for Side {
            name,
            median,
            ratio,
            ..
        } in &self.sides
        {
            let cell = |figure: f64, ratio: f64| format!("{figure:.2} ({ratio:.2})");
            table.row([
                name.clone(),
                cell(median.p50, ratio.p50),
                cell(median.p90, ratio.p90),
                cell(median.p99, ratio.p99),
                cell(median.longest, ratio.longest),
                cell(median.pages_per_second, ratio.pages_per_second),
                format!("{:.1}%", 100.0 * median.cache_hit_ratio),
            ]);
        }
        write!(f, "{table}")
    }
}
