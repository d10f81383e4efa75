//! Requests a second by workers: a bare ping-pong, GETs, and a skewed mix: mimicached's slides
//! (2025).

use super::{Flags, by_server, counted};
use crate::chart::{Axis, Chart, Panel, Scale, Series};
use crate::commands::compare::{Contest, Recipe, Side};
use crate::report;

/// The bare service, which knows no keys.
const ECHOES: [(&str, &str); 3] = [
    ("echo, the kernel's TCP", "echo"),
    ("echo, own TCP on AF_XDP", "echo --net xdp"),
    ("echo, own TCP on a packet socket", "echo --net packet"),
];

/// Connections of the load for each worker.
const CONNECTIONS: usize = 32;

/// One panel's load.
struct Part {
    title: &'static str,
    words: String,
    is_echo: bool,
    published: Vec<Series>,
}

/// Measures all panels.
pub(super) fn measure(flags: &Flags) -> anyhow::Result<Chart> {
    let parts = [
        Part {
            title: "ping-pong of 16 bytes",
            words: "--dialect mirror --keys 1000 --key-size 16".to_owned(),
            is_echo: true,
            published: vec![
                Series::published("mimicached 2025, slide 19: Linux", &[(1.0, 250e3)]),
                Series::published("mimicached 2025, slide 32: iip", &[(1.0, 3e6)]),
            ],
        },
        Part {
            title: "GET, 1000 keys and values of 8 bytes",
            words: "--keys 1000".to_owned(),
            is_echo: false,
            published: vec![Series::published(
                "mimicached 2025, slide 7: memcached 1.6.39",
                &[(1.0, 220e3)],
            )],
        },
        Part {
            title: "90 % GET, 10 % SET, Zipf 0.9",
            words: format!(
                "--keys {} --mix get=90,set=10 --popularity zipf:0.9",
                flags.keys()
            ),
            is_echo: false,
            published: Vec::new(),
        },
    ];
    let mut panels = Vec::new();
    for part in parts {
        let mut places = Vec::new();
        for workers in flags.workers()? {
            report::progress(format_args!("{}, {}", counted(workers), part.title));
            let recipes = match part.is_echo {
                true => flags.echoes(workers)?,
                false => flags.servers(workers)?,
            };
            places.push((workers as f64, sides(flags, &part, &recipes, workers)?));
        }
        let mut series = by_server(&places);
        series.extend(part.published);
        panels.push(Panel {
            title: part.title.to_owned(),
            x: Axis::new("workers", Scale::Counts),
            y: Axis::new("requests/s", Scale::Log),
            series,
        });
    }
    Ok(Chart {
        title: "Requests a second by workers, 32 connections each".to_owned(),
        caption: vec![
            format!(
                "Measured here over veth, closed loop, one request in flight a connection; medians of \
                 {}, bars from the least to the greatest. The load has the kernel's TCP, and is the \
                 busier side where the notes in the CSV say so.",
                flags.repetitions
            ),
            "Published: yasukata, mimicached, Kernel/VM Hokuriku part 8, 2025, slides 7 to 41; two \
             machines, 100 Gbps, DPDK, load from 32 cores. Beyond what is drawn, its charts show \
             only: the ping-pong on axes up to 70 M/s at 32 cores; GETs of mimicached 10 times \
             memcached's and more, on axes up to 2 M/s at 1 core and 50 M/s at 32. Of its workload \
             with Zipf 0.9 there are no numbers."
                .to_owned(),
        ],
        panels,
    })
}

fn sides(
    flags: &Flags,
    part: &Part,
    recipes: &[Recipe],
    workers: usize,
) -> anyhow::Result<Vec<Side>> {
    let connections = CONNECTIONS * workers;
    let threads = flags.threads(connections.min(32))?;
    let words = format!(
        "{} --threads {threads} --connections {connections}",
        part.words
    );
    let load = flags.load(&words, 5.0)?;
    let contest = Contest::prepare(recipes, &flags.ground, &load.team, &load.flags, None)?;
    contest.measure(&load.flags, flags.repetitions)
}

impl Flags {
    /// The bare services; the servers of `--also` know keys, and are left out.
    fn echoes(&self, workers: usize) -> anyhow::Result<Vec<Recipe>> {
        let mut all = self.recipes(&ECHOES, workers)?;
        all.truncate(ECHOES.len());
        Ok(all)
    }
}
