//! The distribution of latencies up to the longest, at a rate that the kernel's server keeps up
//! with and at one that it does not: figure 9 of Pan (2018).

use super::{Flags, counted};
use crate::chart::{Axis, Chart, Panel, Scale, Series, quantiles};
use crate::commands::compare::{Contest, Side};
use crate::report::{self, median};

/// Rates, as parts of what the first server takes in a closed loop.
const PARTS: [(f64, &str); 2] = [
    (0.5, "in time"),
    (1.2, "more than the kernel's server takes"),
];

/// Measures all distributions.
pub(super) fn measure(flags: &Flags) -> anyhow::Result<Chart> {
    let (keys, threads) = (flags.keys(), flags.threads(16)?);
    let words =
        format!("--keys {keys} --value-size 64 --mix set --threads {threads} --connections 64");
    let closed = flags.load(&words, 60.0)?;
    let mut panels = Vec::new();
    for count in flags.workers()? {
        let (recipes, workers) = (flags.servers(count)?, counted(count));
        let contest = Contest::prepare(&recipes, &flags.ground, &closed.team, &closed.flags, None)?;
        report::progress(format_args!("{workers}, closed loop"));
        let sides = contest.measure(&closed.flags, 1)?;
        let kernels = sides.first();
        let most = kernels.map_or(0.0, |side| median(side.requests_per_second.iter().copied()));
        for (part, what) in PARTS {
            let rate = (part * most).round();
            report::progress(format_args!("{workers}, {rate} requests/s: {what}"));
            let load = flags.load(&format!("{words} --rate {rate}"), 60.0)?;
            let sides = contest.measure(&load.flags, flags.repetitions)?;
            let mut series: Vec<Series> = sides.iter().map(distribution).collect();
            if part > 1.0 {
                series.push(nine_in_ten(&series));
            }
            panels.push(Panel {
                title: format!("{workers}, {rate} requests/s: {what}"),
                x: Axis::new("replies that took no longer", Scale::Nines),
                y: Axis::new("latency, µs", Scale::Log),
                series,
            });
        }
    }
    Ok(Chart {
        title: "Latency from when a request was due, to the longest".to_owned(),
        caption: vec![
            format!(
                "Measured here over veth, Poisson arrivals at {} and {} of what coua on the kernel's \
                 TCP takes in a closed loop: {}",
                PARTS[0].0, PARTS[1].0, closed.words
            ),
            format!("Measurements taken together: {}.", flags.repetitions),
            "Published: X. Pan, Optimized Memcached on User-Space TCP Stack, 2018, figure 9 (1 and 4 \
             threads), in words only: average and longest latency are better in user space; where the \
             kernel's server lags badly, over 90 % of requests still end fairly soon."
                .to_owned(),
        ],
        panels,
    })
}

/// Latencies by the share of replies that took no longer; the last one is the longest.
fn distribution(side: &Side) -> Series {
    let measured = &side.merged;
    let mut points = quantiles(measured);
    if let Some(last) = points.last_mut() {
        last.note = format!("longest; bottleneck: {}", side.outcome.bottleneck);
    }
    Series::measured(side.name.clone(), points)
}

/// What the paper says of an overloaded server on the kernel's TCP, as a line across the panel.
fn nine_in_ten(series: &[Series]) -> Series {
    let latencies = || series.iter().flat_map(|series| &series.points).map(|p| p.y);
    let least = latencies().fold(f64::INFINITY, f64::min);
    let most = latencies().fold(1.0, f64::max);
    Series::published(
        "Pan 2018, figure 9: over 90 % end fairly soon",
        &[(0.9, least.min(most)), (0.9, most)],
    )
}
