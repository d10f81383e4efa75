//! A figure: panels of measured and published series, as CSV and as SVG.

mod draw;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

use crate::load::{Measured, microseconds};
use crate::report::csv_field as quoted;

/// A figure with its panels.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// Lines under the panels: what was measured, and what is published.
    pub(crate) caption: Vec<String>,
    pub(crate) panels: Vec<Panel>,
}

/// A system of coordinates.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

/// An axis, with what it counts and in which unit.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) scale: Scale,
    /// The names of bars; the first bar is at 1.
    pub(crate) names: Vec<String>,
}

impl Axis {
    pub(crate) fn new(label: &str, scale: Scale) -> Axis {
        Axis {
            label: label.to_owned(),
            scale,
            names: Vec::new(),
        }
    }

    /// An axis of bars; measured ones stand beside published ones.
    pub(crate) fn bars(label: &str, names: Vec<String>) -> Axis {
        Axis {
            names,
            ..Axis::new(label, Scale::Bars)
        }
    }
}

/// How values are laid out on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Evenly; the axis begins at 0 unless a value is negative.
    Linear,
    /// By their logarithms; values are above 0.
    Log,
    /// Whole numbers by their logarithms, each with its tick.
    Counts,
    /// Fractions below 1, by how many nines they have.
    Nines,
    /// Whole numbers from 1 on, each with its name and a bar for each point.
    Bars,
}

/// Where a series is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// This machine.
    Measured,
    /// A paper, which the name cites.
    Published,
}

impl Source {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Source::Measured => "measured",
            Source::Published => "published",
        }
    }
}

/// Points that belong together, in the order of x.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) points: Vec<Point>,
}

impl Series {
    pub(crate) fn measured(name: impl Into<String>, points: Vec<Point>) -> Series {
        Series {
            name: name.into(),
            source: Source::Measured,
            points,
        }
    }

    /// `name` cites paper and figure.
    pub(crate) fn published(name: impl Into<String>, points: &[(f64, f64)]) -> Series {
        Series {
            name: name.into(),
            source: Source::Published,
            points: points.iter().map(|&(x, y)| Point::new(x, y)).collect(),
        }
    }
}

/// A value, with the least and the greatest of the repetitions, and a note.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
    pub(crate) note: String,
}

impl Point {
    pub(crate) fn new(x: f64, y: f64) -> Point {
        Point {
            x,
            y,
            least: y,
            greatest: y,
            note: String::new(),
        }
    }

    /// The median of the values, with their spread.
    pub(crate) fn of(x: f64, values: &[f64], note: impl Into<String>) -> Point {
        Point {
            x,
            y: crate::report::median(values.iter().copied()),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            note: note.into(),
        }
    }
}

impl Chart {
    /// Writes `NAME.csv` and `NAME.svg` in the folder.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> anyhow::Result<[String; 2]> {
        std::fs::create_dir_all(folder).with_context(|| format!("--out {}", folder.display()))?;
        let [csv, svg] = ["csv", "svg"].map(|kind| folder.join(format!("{name}.{kind}")));
        for (path, text) in [(&csv, self.csv()), (&svg, self.svg()?)] {
            std::fs::write(path, text).with_context(|| format!("--out: {}", path.display()))?;
        }
        Ok([csv, svg].map(|path| path.display().to_string()))
    }

    /// The figure as SVG.
    pub(crate) fn svg(&self) -> anyhow::Result<String> {
        draw::svg(self)
    }

    /// Writes only the picture, to the file that `--plot` names.
    pub(crate) fn write_svg(&self, path: &Path) -> anyhow::Result<()> {
        std::fs::write(path, self.svg()?).with_context(|| format!("--plot {}", path.display()))
    }

    /// One line for each point.
    fn csv(&self) -> String {
        let mut text = "panel,series,source,x,y,least,greatest,x_unit,y_unit,note\n".to_owned();
        for panel in &self.panels {
            for series in &panel.series {
                for point in &series.points {
                    let (x, y) = (point.x, point.y);
                    // Writing to a string does not fail.
                    let _ = writeln!(
                        text,
                        "{},{},{},{x},{y},{},{},{},{},{}",
                        quoted(&panel.title),
                        quoted(&series.name),
                        series.source.name(),
                        point.least,
                        point.greatest,
                        quoted(&panel.x.label),
                        quoted(&panel.y.label),
                        quoted(&point.note)
                    );
                }
            }
        }
        text
    }
}

/// Points of a distribution for each nine.
const POINTS: u32 = 10;

/// Latencies in microseconds, by the share of replies that took no longer; the last is the longest.
pub(crate) fn quantiles(measured: &Measured) -> Vec<Point> {
    let count = measured.latency_ns.len();
    let steps = (0..).map(|step| 1.0 - 10f64.powf(-f64::from(step) / f64::from(POINTS)));
    let inside = steps.take_while(|quantile| (1.0 - quantile) * count as f64 > 1.0);
    let mut points: Vec<Point> = inside
        .map(|quantile| {
            let latency = microseconds(measured.latency(quantile));
            Point::new(quantile, latency.max(0.1))
        })
        .collect();
    if count > 0 {
        let longest = microseconds(measured.latency_max()).max(0.1);
        points.push(Point::new(1.0 - 1.0 / (count + 1) as f64, longest));
    }
    points
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A chart of every scale and source.
    pub(crate) fn sample() -> Chart {
        let panel = |title: &str, x, y, points: &[(f64, f64)]| Panel {
            title: title.to_owned(),
            x: Axis::new("x, unit", x),
            y: Axis::new("y, unit", y),
            series: vec![
                Series::measured(
                    "one, two",
                    points.iter().map(|&(x, y)| Point::new(x, y)).collect(),
                ),
                Series::published("paper & figure 1", points),
                Series::measured("empty", vec![]),
            ],
        };
        Chart {
            title: "A <title>".to_owned(),
            caption: vec!["said \"so\"".to_owned()],
            panels: vec![
                panel("a", Scale::Counts, Scale::Linear, &[(1.0, 5e5), (2.0, 0.0)]),
                panel("b", Scale::Nines, Scale::Log, &[(0.0, 3.0), (0.99, 4e6)]),
                panel("c", Scale::Linear, Scale::Linear, &[(-3.0, 1.0)]),
                panel("d", Scale::Linear, Scale::Linear, &[]),
                Panel {
                    x: Axis::bars("", vec!["one".to_owned(), "two".to_owned()]),
                    ..panel("e", Scale::Bars, Scale::Linear, &[(1.0, 5e5), (2.0, 2.5e6)])
                },
            ],
        }
    }

    #[test]
    fn each_point_is_a_line_of_the_csv() {
        let csv = sample().csv();
        assert_eq!(csv.lines().count(), 1 + 2 * (2 + 2 + 1 + 2));
        assert!(csv.contains("a,\"one, two\",measured,1,500000,500000,500000,\"x, unit\""));
    }

    #[test]
    fn a_distribution_ends_with_the_longest() {
        let mut measured = Measured::new();
        for latency_us in 1..=1000 {
            measured.record(latency_us * 1000, 1);
        }
        let points = quantiles(&measured);
        let near = |point: &Point, y: f64| (point.y / y - 1.0).abs() < 0.01;
        assert!(near(&points[0], 1.0) && near(&points[10], 900.0));
        assert!(near(points.last().unwrap(), 1000.0));
        assert!(points.is_sorted_by(|a, b| a.x < b.x && a.y <= b.y));
        assert!(quantiles(&Measured::new()).is_empty());
    }
}
