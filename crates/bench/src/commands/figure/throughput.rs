//! Throughput at a mean latency under 1 ms, by workers: figures 8 and 10 of Pan (2018).

use super::{Flags, OWN, by_server, counted};
use crate::chart::{Axis, Chart, Panel, Point, Scale, Series};
use crate::commands::compare::{Contest, Side};
use crate::report;

/// The mixes, with their names.
const MIXES: [(&str, &str); 2] = [("100 % SET", "set"), ("95 % GET, 5 % SET", "get=95,set=5")];

/// User space divided by kernel, at the paper's number of workers: "about 50 % more at 4 cores".
const FIGURE_8: (f64, f64) = (4.0, 1.5);
/// "Average +45 %", over all numbers of cores up to 12.
const FIGURE_10: f64 = 1.45;

/// Measures all points.
pub(super) fn measure(flags: &Flags) -> anyhow::Result<Chart> {
    let (keys, threads) = (flags.keys(), flags.threads(16)?);
    let loads = MIXES.map(|(_, mix)| {
        let words = format!(
            "--keys {keys} --value-size 64 --mix {mix} --threads {threads} --connections 64 \
             --find-max --bound avg=1ms"
        );
        flags.load(&words, 60.0)
    });
    let [sets, gets] = loads;
    let loads = [sets?, gets?];
    let workers = flags.workers()?;
    let mut places: [Vec<(f64, Vec<Side>)>; 2] = Default::default();
    for &count in &workers {
        let recipes = flags.servers(count)?;
        let (team, items) = (&loads[0].team, &loads[0].flags);
        let contest = Contest::prepare(&recipes, &flags.ground, team, items, None)?;
        for ((load, places), (mix, _)) in loads.iter().zip(&mut places).zip(MIXES) {
            report::progress(format_args!("{}, {mix}", counted(count)));
            let sides = contest.measure(&load.flags, flags.repetitions)?;
            places.push((count as f64, sides));
        }
    }
    let x = || Axis::new("workers", Scale::Counts);
    let mut panels: Vec<Panel> = MIXES
        .iter()
        .zip(&places)
        .map(|((mix, _), places)| Panel {
            title: format!("{mix}: highest rate with a mean latency of 1 ms at most"),
            x: x(),
            y: Axis::new("requests/s", Scale::Linear),
            series: by_server(places),
        })
        .collect();
    let (first, last) = (workers[0] as f64, workers[workers.len() - 1] as f64);
    let mut series: Vec<Series> = MIXES
        .iter()
        .zip(&places)
        .flat_map(|((mix, _), places)| gains(mix, places))
        .collect();
    series.extend([
        Series::published("Pan 2018, figure 8: about +50 % at 4 cores", &[FIGURE_8]),
        Series::published(
            "Pan 2018, figure 10: +45 % on average, up to 12 cores",
            &[(first, FIGURE_10), (last.max(FIGURE_8.0), FIGURE_10)],
        ),
    ]);
    panels.push(Panel {
        title: "own TCP by the kernel's TCP".to_owned(),
        x: x(),
        y: Axis::new("rate by the kernel's", Scale::Linear),
        series,
    });
    Ok(Chart {
        title: "Throughput at a mean latency under 1 ms, by workers".to_owned(),
        caption: vec![
            format!("Measured here over veth, open loop, Poisson arrivals: {}", loads[0].words),
            format!(
                "Medians of {} searches; bars from the least to the greatest. The paper had 16 client \
                 threads on two machines; client threads here, on the cores that the servers have not: \
                 {threads}.",
                flags.repetitions
            ),
            "Published: X. Pan, Optimized Memcached on User-Space TCP Stack, 2018: MemC3 on mTCP over \
             DPDK by MemC3 on the kernel's TCP, 10 GbE, 1 M keys, 64-byte values, 60 s; its text has \
             ratios only."
                .to_owned(),
        ],
        panels,
    })
}

/// The rate of each own stack divided by that of the first side, repetition by repetition.
fn gains(mix: &str, places: &[(f64, Vec<Side>)]) -> Vec<Series> {
    let series = OWN.iter().enumerate().map(|(index, (name, _))| {
        let points = places.iter().filter_map(|(x, sides)| {
            let (kernel, own) = (sides.first()?, sides.get(index + 1)?);
            let rounds = own
                .requests_per_second
                .iter()
                .zip(&kernel.requests_per_second);
            let ratios: Vec<f64> = rounds
                .filter(|(_, kernel)| **kernel > 0.0)
                .map(|(own, kernel)| own / kernel)
                .collect();
            (!ratios.is_empty()).then(|| Point::of(*x, &ratios, ""))
        });
        Series::measured(format!("{name}, {mix}"), points.collect())
    });
    series.collect()
}
