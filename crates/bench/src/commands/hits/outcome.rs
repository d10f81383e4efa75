//! Miss ratios, for people and for programs.

use std::fmt::Display;

use serde::Serialize;

use crate::report::Table;

/// All points of a run.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    memory: u64,
    items_min: u32,
    pub(super) traces: Vec<Point>,
    pub(super) synthetic: Vec<Point>,
}

/// One stream at one size.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    pub(super) stream: String,
    pub(super) percent: f64,
    /// Items that coua holds when it is full; LRU and S3-FIFO hold as many.
    pub(super) items: u64,
    /// `-m`, in MiB.
    pub(super) memory: u64,
    pub(super) value_size: usize,
    pub(super) lru: f64,
    pub(super) s3fifo: f64,
    pub(super) coua: f64,
    /// Items that coua holds after the stream.
    pub(super) coua_items: u64,
    /// memcached's miss ratio, and the items that it holds after the stream.
    pub(super) memcached: Option<(f64, u64)>,
}

impl Point {
    fn memcached_ratio(&self) -> Option<f64> {
        self.memcached.map(|(ratio, _)| ratio)
    }
}

impl Outcome {
    pub(super) fn new(memory: u64, items_min: u32) -> Outcome {
        Outcome {
            memory,
            items_min,
            traces: Vec::new(),
            synthetic: Vec::new(),
        }
    }
}

/// How much lower `ratio` is than `than`, as a fraction of `than`.
fn reduction(ratio: f64, than: f64) -> f64 {
    if than > 0.0 { 1.0 - ratio / than } else { 0.0 }
}

fn miss_ratios(points: &[Point]) -> Table {
    let mut table = Table::new([
        "miss ratio",
        "size",
        "items",
        "value",
        "LRU",
        "S3-FIFO",
        "memcached",
        "coua",
        "coua, fewer than LRU",
        "than memcached",
        "items after: memcached",
        "coua",
    ]);
    for point in points {
        let memcached = point.memcached_ratio();
        table.row([
            point.stream.clone(),
            format!("{} %", point.percent),
            point.items.to_string(),
            point.value_size.to_string(),
            format!("{:.4}", point.lru),
            format!("{:.4}", point.s3fifo),
            memcached.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.4}")),
            format!("{:.4}", point.coua),
            per_cent(reduction(point.coua, point.lru)),
            memcached.map_or_else(
                || "–".to_owned(),
                |ratio| per_cent(reduction(point.coua, ratio)),
            ),
            point
                .memcached
                .map_or_else(|| "–".to_owned(), |(_, items)| items.to_string()),
            point.coua_items.to_string(),
        ]);
    }
    table
}

/// The mean reduction of misses over the streams.
fn means(points: &[Point]) -> Table {
    let mut table = Table::new([
        "mean of reductions",
        "streams",
        "S3-FIFO to LRU",
        "memcached to LRU",
        "coua to LRU",
        "coua to memcached",
    ]);
    let mut percents: Vec<f64> = points.iter().map(|point| point.percent).collect();
    percents.sort_by(f64::total_cmp);
    percents.dedup();
    for percent in percents {
        let here: Vec<&Point> = points
            .iter()
            .filter(|point| point.percent == percent)
            .collect();
        let mean = |figure: &dyn Fn(&Point) -> Option<f64>| {
            let figures: Vec<f64> = here.iter().filter_map(|point| figure(point)).collect();
            match figures.len() {
                0 => "–".to_owned(),
                count => format!(
                    "{} ({count})",
                    per_cent(figures.iter().sum::<f64>() / count as f64)
                ),
            }
        };
        table.row([
            format!("{percent} %"),
            here.len().to_string(),
            mean(&|point| Some(reduction(point.s3fifo, point.lru))),
            mean(&|point| Some(reduction(point.memcached_ratio()?, point.lru))),
            mean(&|point| Some(reduction(point.coua, point.lru))),
            mean(&|point| Some(reduction(point.coua, point.memcached_ratio()?))),
        ]);
    }
    table
}

fn per_cent(fraction: f64) -> String {
    format!("{:.1} %", fraction * 100.0)
}

impl Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "Values have the size at which coua's store holds the given share of all distinct \
             keys in {} MiB of 1024 segments (more memory where values would be under 8 \
             bytes). LRU and S3-FIFO are simulated exactly and hold as many items as coua \
             held when it was filled with keys that come once. memcached runs over its socket \
             with the same -m and the same values; its hash table is not part of its -m, \
             coua's index is. Sizes of fewer than {} items are left out. Traces count from \
             the first request, synthetic streams from the middle.\n",
            self.memory, self.items_min
        )?;
        for (name, points) in [
            ("Traces", &self.traces),
            ("Synthetic streams", &self.synthetic),
        ] {
            if !points.is_empty() {
                writeln!(f, "## {name}\n\n{}\n{}", miss_ratios(points), means(points))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reduction_is_a_fraction_of_the_other() {
        assert!((reduction(0.9, 1.0) - 0.1).abs() < 1e-9);
        assert_eq!(reduction(0.5, 0.0), 0.0);
    }

    #[test]
    fn the_mean_leaves_out_what_is_missing() {
        let point = |coua, memcached| Point {
            stream: "s".to_owned(),
            percent: 10.0,
            items: 1,
            memory: 64,
            value_size: 1,
            lru: 0.5,
            s3fifo: 0.5,
            coua,
            coua_items: 1,
            memcached,
        };
        let table = means(&[point(0.4, Some((0.5, 1))), point(0.5, None)]).to_string();
        assert!(table.contains("10.0 % (2)"), "{table}");
        assert!(table.contains("20.0 % (1)"), "{table}");
    }
}
