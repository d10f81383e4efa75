//! A run as a picture: by the second, and as a distribution of latencies.

use super::Outcome;
use super::sample::Second;
use crate::chart::{Axis, Chart, Panel, Point, Scale, Series, quantiles};
use crate::load::Measured;

/// The picture of measurements, and of all their latencies together.
pub(super) fn chart(outcome: &Outcome, merged: &Measured) -> Chart {
    let pace = match outcome.rate {
        Some(rate) => format!("open loop, {rate:.0} requests/s"),
        None => "closed loop".to_owned(),
    };
    let time = || Axis::new("seconds", Scale::Linear);
    let latency = || Axis::new("latency, µs", Scale::Log);
    let distribution = Series::measured("all measurements", quantiles(merged));
    Chart {
        title: format!("{}: {pace}", outcome.load.target()),
        caption: outcome
            .load
            .to_string()
            .lines()
            .map(str::to_owned)
            .collect(),
        panels: vec![
            Panel {
                title: "requests and errors, by the second".to_owned(),
                x: time(),
                y: Axis::new("a second", Scale::Linear),
                series: vec![
                    by_second(outcome, "requests", |s| s.requests_per_second),
                    by_second(outcome, "errors", |s| s.errors_per_second),
                ],
            },
            Panel {
                title: "latency, by the second".to_owned(),
                x: time(),
                y: latency(),
                series: [
                    by_second(outcome, "p50", |s| s.latency_us_p50),
                    by_second(outcome, "p99", |s| s.latency_us_p99),
                    by_second(outcome, "longest", |s| s.latency_us_max),
                ]
                .map(without_stalls)
                .into(),
            },
            Panel {
                title: "latency, over the whole".to_owned(),
                x: Axis::new("replies that took no longer", Scale::Nines),
                y: latency(),
                series: vec![distribution],
            },
        ],
    }
}

/// One figure over time. Measurements follow each other.
fn by_second(outcome: &Outcome, name: &str, of: fn(&Second) -> f64) -> Series {
    let mut begun = 0.0;
    let mut points = Vec::new();
    for sample in &outcome.repetitions {
        let seconds = sample.by_second.iter();
        points.extend(seconds.map(|s| Point::new(begun + s.from_seconds + s.seconds / 2.0, of(s))));
        begun += sample.seconds;
    }
    Series::measured(name, points)
}

/// Leaves out seconds without a reply: they have no latency, and no place on a logarithmic axis.
fn without_stalls(mut series: Series) -> Series {
    series.points.retain(|point| point.y > 0.0);
    series
}
