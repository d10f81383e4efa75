//! Load times of web pages, by cache: figure 16 of U2cache.

use super::{Flags, KERNEL, MEMCACHED, OWN};
use crate::chart::{Axis, Chart, Panel, Point, Scale, Series};
use crate::commands::page;

/// Measures a site on each server, and on none.
pub(super) fn measure(flags: &Flags) -> anyhow::Result<Chart> {
    let servers = flags.recipes(&[KERNEL, OWN[0], MEMCACHED], 1)?;
    let ground = flags.ground.clone();
    let flags = page::Flags::published(servers, ground, flags.keys, flags.repetitions);
    let outcome = page::measure(&flags)?;
    let series = outcome.sides.iter().map(|side| {
        let points = (0u32..).zip(&side.percentiles_ms).skip(1);
        let points = points.map(|(percent, &ms)| Point::new(f64::from(percent), ms.max(1e-3)));
        Series::measured(side.name.clone(), points.collect())
    });
    Ok(Chart {
        title: "Load times of web pages".to_owned(),
        caption: vec![
            "Measured here: pages of 200 values of 20 bytes, asked for one after the other by ab; warm \
             caches over veth; an embedded database that takes 300 µs longer for each value, as one \
             behind a network would."
                .to_owned(),
            "Published: U2cache, figure 16, without values: a Tomcat servlet over FDR InfiniBand, MySQL \
             behind it, 1,000 pages of 200 values of 20 bytes by ab; with memcached over 1 Gb/s \
             Ethernet pages take much longer."
                .to_owned(),
        ],
        panels: vec![Panel {
            title: "1,000 pages, one at a time".to_owned(),
            x: Axis::new("percent of pages that took no longer", Scale::Linear),
            y: Axis::new("load time, ms", Scale::Log),
            series: series.collect(),
        }],
    })
}
