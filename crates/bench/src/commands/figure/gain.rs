//! Where coua's requests a second come from, in one picture: a ping-pong and a cache, each on Linux
//! and on coua's own stack.

use super::{Flags, MEMCACHED};
use crate::chart::{Axis, Chart, Panel, Point, Scale, Series};
use crate::commands::net::{self, Rates};

/// A bar's name, what was measured, and what a paper reports for it, in requests a second.
type Bar<'a> = (&'a str, &'a Rates, Option<(&'a str, f64)>);

/// Measures all bars.
pub(super) fn measure(flags: &Flags) -> anyhow::Result<Chart> {
    let gain = net::gain(&flags.ground, flags.repetitions, flags.seconds)?;
    Ok(chart(&gain, flags.repetitions))
}

fn chart(gain: &net::Gain, repetitions: u32) -> Chart {
    let all: [Bar<'_>; 5] = [
        (
            "echo, Linux",
            &gain.echo_kernel,
            Some(("mimicached 2025, slide 19: Linux", 250e3)),
        ),
        (
            "echo, own TCP",
            &gain.echo_own,
            Some(("mimicached 2025, slide 32: iip", 3e6)),
        ),
        (
            "memcached, Linux",
            &gain.memcached,
            Some(("mimicached 2025, slide 7: memcached 1.6.39", 220e3)),
        ),
        ("coua, Linux", &gain.coua_kernel, None),
        ("coua, own TCP", &gain.coua_own, None),
    ];
    let names = all.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let mut measured = Vec::new();
    let mut published = Vec::new();
    for ((name, rates, paper), place) in all.into_iter().zip(1u32..) {
        let place = f64::from(place);
        let note = format!("saturated: {}", rates.saturated);
        let point = Point::of(place, &rates.per_second, note);
        measured.push(Series::measured(name, vec![point]));
        published.extend(paper.map(|(cited, rate)| Series::published(cited, &[(place, rate)])));
    }
    Chart {
        title: "Where the gain comes from: requests a second, one worker".to_owned(),
        caption: vec![
            format!(
                "Measured here: 64 connections, one request in flight on each, closed loop; the echo sends \
                 back 16 bytes, {} and coua answer GETs of 1,000 keys of 10 bytes with values of 8. Linux is \
                 loopback, own TCP a memif link to a client of its own; server and load have a core each. \
                 Medians of {}, lines from the least to the greatest.",
                MEMCACHED.1, repetitions
            ),
            "Published: yasukata, mimicached, Kernel/VM Hokuriku part 8, 2025; two machines, 100 Gbps, DPDK, \
             32 connections, a core of the server. Of GETs of its cache on its stack there is no number \
             but 10 times memcached's and more."
                .to_owned(),
        ],
        panels: vec![Panel {
            title: "a ping-pong of 16 bytes, and GET of 8 bytes".to_owned(),
            x: Axis::bars("", names),
            y: Axis::new("requests/s", Scale::Log),
            series: measured.into_iter().chain(published).collect(),
        }],
    }
}
