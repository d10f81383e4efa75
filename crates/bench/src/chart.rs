//! A figure: panels of measured and published series, as CSV and as SVG.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

use super::draw;

/// A figure with its panels.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    /// Lines under the panels: what was measured, and what is published.
    pub(super) caption: Vec<String>,
    pub(super) panels: Vec<Panel>,
}

/// A system of coordinates.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
}

/// An axis, with what it counts and in which unit.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) scale: Scale,
    /// Of bars: the first stands at 1.
    pub(super) names: Vec<String>,
}

impl Axis {
    pub(super) fn new(label: &str, scale: Scale) -> Axis {
        Axis {
            label: label.to_owned(),
            scale,
            names: Vec::new(),
        }
    }

    /// Places at which bars stand, what was measured beside what is published.
    pub(super) fn bars(label: &str, names: Vec<String>) -> Axis {
        Axis {
            names,
            ..Axis::new(label, Scale::Bars)
        }
    }
}

/// How values are laid out on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Evenly, from 0 on where no value is below.
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
pub(super) enum Source {
    /// This machine.
    Measured,
    /// A paper, which the name cites.
    Published,
}

impl Source {
    pub(super) fn name(self) -> &'static str {
        match self {
            Source::Measured => "measured",
            Source::Published => "published",
        }
    }
}

/// Points that belong together, in the order of x.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) points: Vec<Point>,
}

impl Series {
    pub(super) fn measured(name: impl Into<String>, points: Vec<Point>) -> Series {
        Series {
            name: name.into(),
            source: Source::Measured,
            points,
        }
    }

    /// `name` cites paper and figure.
    pub(super) fn published(name: impl Into<String>, points: &[(f64, f64)]) -> Series {
        Series {
            name: name.into(),
            source: Source::Published,
            points: points.iter().map(|&(x, y)| Point::new(x, y)).collect(),
        }
    }
}

/// A value, with the least and the greatest of the repetitions, and what is to be known about it.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) least: f64,
    pub(super) greatest: f64,
    pub(super) note: String,
}

impl Point {
    pub(super) fn new(x: f64, y: f64) -> Point {
        Point {
            x,
            y,
            least: y,
            greatest: y,
            note: String::new(),
        }
    }

    /// The median of the values.
    pub(super) fn of(x: f64, values: &[f64], note: impl Into<String>) -> Point {
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
    pub(super) fn write(&self, folder: &Path, name: &str) -> anyhow::Result<[String; 2]> {
        std::fs::create_dir_all(folder).with_context(|| format!("--out {}", folder.display()))?;
        let [csv, svg] = ["csv", "svg"].map(|kind| folder.join(format!("{name}.{kind}")));
        for (path, text) in [(&csv, self.csv()), (&svg, draw::svg(self)?)] {
            std::fs::write(path, text).with_context(|| format!("--out: {}", path.display()))?;
        }
        Ok([csv, svg].map(|path| path.display().to_string()))
    }

    /// One line a point.
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

/// As a field of a CSV file.
fn quoted(text: &str) -> String {
    match text.contains(['"', ',', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
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
}
