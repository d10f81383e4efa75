//! A figure as SVG: two panels in a row, each with its legend below it.
//!
//! Values are first mapped onto evenly divided coordinates, so that every scale can have its own
//! ticks.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Axis, Chart, Panel, Point, Scale, Series, Source};

/// Colours that most people can tell apart (Okabe and Ito's).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(140, 100, 60),
];

/// For published series.
const GREYS: [RGBColor; 3] = [
    RGBColor(0, 0, 0),
    RGBColor(130, 130, 130),
    RGBColor(80, 80, 80),
];

/// All sizes are in pixels.
const PANEL_WIDTH: u32 = 680;
const PLOT_HEIGHT: u32 = 400;
const LINE_HEIGHT: u32 = 19;
const TITLE_HEIGHT: u32 = 46;
const MARGIN: i32 = 12;
/// Room for the part of the last label that is to the right of the last tick.
const RIGHT: i32 = 36;

const FONT: &str = "sans-serif";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the figure.
pub(super) fn svg(chart: &Chart) -> anyhow::Result<String> {
    let columns = u32::try_from(chart.panels.len().clamp(1, 2))?;
    let rows: Vec<u32> = chart
        .panels
        .chunks(2)
        .map(|row| {
            let legend = row.iter().map(|panel| panel.series.len()).max();
            PLOT_HEIGHT + LINE_HEIGHT * (u32::try_from(legend.unwrap_or(0)).unwrap_or(0) + 1)
        })
        .collect();
    let width = columns * PANEL_WIDTH;
    let caption = wrapped(&chart.caption, width);
    let caption_height = LINE_HEIGHT * (u32::try_from(caption.len())? + 1);
    let height = TITLE_HEIGHT + rows.iter().sum::<u32>() + caption_height;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
        root.fill(&WHITE).map_err(told)?;
        let title = (FONT, 22).into_font().into_text_style(&root);
        root.draw_text(&chart.title, &title, (MARGIN, MARGIN))
            .map_err(told)?;
        let mut rest = root.split_vertically(TITLE_HEIGHT).1;
        for (row, height) in chart.panels.chunks(2).zip(rows) {
            let (this, below) = rest.split_vertically(height);
            for (area, panel) in this.split_evenly((1, columns as usize)).iter().zip(row) {
                draw_panel(area, panel)?;
            }
            rest = below;
        }
        let style = (FONT, 13).into_font().into_text_style(&rest);
        for (line, at) in caption.iter().zip(0i32..) {
            let at = (MARGIN, MARGIN / 2 + at * LINE_HEIGHT.cast_signed());
            rest.draw_text(line, &style, at).map_err(told)?;
        }
        root.present().map_err(told)?;
    }
    Ok(text)
}

/// The text of an error of the drawing library; the error itself borrows what it draws on.
fn told(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("the figure cannot be drawn: {error}")
}

/// Breaks lines so that they fit the width, as far as one can tell without the font.
fn wrapped(lines: &[String], width: u32) -> Vec<String> {
    let columns = usize::try_from(width / 7).unwrap_or(100);
    let mut all = Vec::new();
    for line in lines {
        let mut current = String::new();
        for word in line.split_whitespace() {
            if !current.is_empty() && current.chars().count() + word.chars().count() >= columns {
                all.push(std::mem::take(&mut current));
            }
            if !current.is_empty() {
                current.push(' ');
            }
            current.push_str(word);
        }
        all.push(current);
    }
    all
}

fn draw_panel(area: &Area<'_>, panel: &Panel) -> anyhow::Result<()> {
    let (plot, legend) = area.split_vertically(PLOT_HEIGHT);
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let x = Ruler::new(&panel.x, points().map(|point| point.x));
    // A bar's number stands above it.
    let room = if panel.x.scale == Scale::Bars {
        1.1
    } else {
        1.0
    };
    let y_values = points().flat_map(|point| [point.y, point.least, point.greatest * room]);
    let y = Ruler::new(&panel.y, y_values);
    let mut coordinates = ChartBuilder::on(&plot)
        .caption(&panel.title, (FONT, 16))
        .margin(MARGIN)
        .margin_right(RIGHT)
        .x_label_area_size(44)
        .y_label_area_size(66)
        .build_cartesian_2d(x.clone(), y.clone())
        .map_err(told)?;
    coordinates
        .configure_mesh()
        .x_labels(x.ticks.len())
        .y_labels(y.ticks.len())
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .x_desc(&panel.x.label)
        .y_desc(&panel.y.label)
        .draw()
        .map_err(told)?;
    for (series, (look, width)) in panel.series.iter().zip(looks(&panel.series)) {
        if panel.x.scale == Scale::Bars {
            for point in &series.points {
                let (from, to) = bar(series.source, point.x);
                let top = y.place(point.y);
                let style = filling(series.source, look);
                let shape = Rectangle::new([(from, y.first), (to, top)], style);
                let spread = [point.least, point.greatest].map(|value| y.place(value));
                let middle = f64::midpoint(from, to);
                let spread = PathElement::new(spread.map(|value| (middle, value)), BLACK);
                let style = (FONT, 12).into_font().color(&BLACK);
                let style = style.pos(Pos::new(HPos::Center, VPos::Bottom));
                let above = y.place(point.greatest);
                let text = Text::new(rounded(point.y), (middle, above), style);
                coordinates.draw_series([shape]).map_err(told)?;
                coordinates.draw_series([spread]).map_err(told)?;
                coordinates.draw_series([text]).map_err(told)?;
            }
            continue;
        }
        let at = |point: &Point, value: f64| (x.place(point.x), y.place(value));
        let line: Vec<(f64, f64)> = series.points.iter().map(|p| at(p, p.y)).collect();
        let style = look.stroke_width(width);
        let drawn = match series.source {
            Source::Measured => coordinates.draw_series([PathElement::new(line.clone(), style)]),
            Source::Published => {
                let dashed = DashedLineSeries::new(line.clone(), 6, 4, style);
                coordinates.draw_series(dashed)
            }
        };
        drawn.map_err(told)?;
        let spreads = series.points.iter().filter(|p| p.least < p.greatest);
        let spreads = spreads.map(|p| PathElement::new([at(p, p.least), at(p, p.greatest)], look));
        coordinates.draw_series(spreads).map_err(told)?;
        // Marks on hundreds of points hide their line.
        if line.len() <= MARKED_MAX {
            let marks = line.into_iter().map(|at| mark(at, series.source, look));
            coordinates.draw_series(marks).map_err(told)?;
        }
    }
    draw_legend(&legend, panel)
}

/// Where a bar begins and ends on its axis.
fn bar(source: Source, place: f64) -> (f64, f64) {
    match source {
        Source::Measured => (place - 0.4, place),
        Source::Published => (place, place + 0.4),
    }
}

/// A number, rounded to three digits.
fn rounded(value: f64) -> String {
    let unit = 10f64.powf((value.max(1.0).log10() - 2.0).floor());
    short((value / unit).round() * unit)
}

/// The most points of a series that are marked.
const MARKED_MAX: usize = 20;

/// The colour and width of each series. Measured series have colours, published ones greys; the
/// first ones are broader, so that they show behind others that cover them.
fn looks(series: &[Series]) -> impl Iterator<Item = (RGBColor, u32)> {
    let (mut colours, mut greys) = (COLOURS.iter().cycle(), GREYS.iter().cycle());
    series.iter().zip(0u32..).map(move |(series, index)| {
        let colour = match series.source {
            Source::Published => greys.next(),
            Source::Measured => colours.next(),
        };
        let broader = match series.source {
            Source::Published => 0,
            Source::Measured => 3u32.saturating_sub(index),
        };
        (*colour.unwrap_or(&BLACK), 2 + broader)
    })
}

fn mark<C>(at: C, source: Source, look: RGBColor) -> Circle<C, i32> {
    let style = match source {
        Source::Measured => look.filled(),
        Source::Published => look.stroke_width(2),
    };
    Circle::new(at, 4, style)
}

fn draw_legend(area: &Area<'_>, panel: &Panel) -> anyhow::Result<()> {
    const INDENT: i32 = 78;
    const SAMPLE: i32 = 30;
    let style = (FONT, 13).into_font().into_text_style(area);
    let style = style.pos(Pos::new(HPos::Left, VPos::Center));
    for ((series, (look, width)), row) in panel.series.iter().zip(looks(&panel.series)).zip(0i32..)
    {
        let y = LINE_HEIGHT.cast_signed() * row + LINE_HEIGHT.cast_signed() / 2;
        let line = [(INDENT, y), (INDENT + SAMPLE, y)];
        let middle = (INDENT + SAMPLE / 2, y);
        if panel.x.scale == Scale::Bars {
            let corners = [
                (INDENT + SAMPLE / 4, y - 6),
                (INDENT + SAMPLE * 3 / 4, y + 6),
            ];
            area.draw(&Rectangle::new(corners, filling(series.source, look)))
                .map_err(told)?;
            draw_name(area, series, &style, (INDENT + SAMPLE + 8, y))?;
            continue;
        }
        match series.source {
            Source::Measured => area.draw(&PathElement::new(line, look.stroke_width(width))),
            Source::Published => [(0, 11), (19, 30)].iter().try_for_each(|&(from, to)| {
                let dash = [(INDENT + from, y), (INDENT + to, y)];
                area.draw(&PathElement::new(dash, look.stroke_width(2)))
            }),
        }
        .map_err(told)?;
        area.draw(&mark(middle, series.source, look))
            .map_err(told)?;
        draw_name(area, series, &style, (INDENT + SAMPLE + 8, y))?;
    }
    Ok(())
}

/// Draws the name of a series beside its sample in the legend.
fn draw_name(
    area: &Area<'_>,
    series: &Series,
    style: &TextStyle<'_>,
    at: (i32, i32),
) -> anyhow::Result<()> {
    let (source, name) = (series.source, &series.name);
    let text = match source {
        Source::Measured => name.clone(),
        Source::Published => format!("published: {name}"),
    };
    area.draw_text(&text, style, at).map_err(told)
}

/// How a bar, and its sample in the legend, is filled.
fn filling(source: Source, look: RGBColor) -> ShapeStyle {
    match source {
        Source::Measured => look.filled(),
        Source::Published => look.mix(0.35).filled(),
    }
}

/// An axis with its ends and ticks, as places: values mapped so that they are evenly divided.
#[derive(Clone)]
struct Ruler {
    scale: Scale,
    first: f64,
    last: f64,
    /// Places and labels.
    ticks: Vec<(f64, String)>,
}

impl Ruler {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Ruler {
        let scale = axis.scale;
        let places = values.map(|value| place(scale, value));
        let mut places: Vec<f64> = places.filter(|place| place.is_finite()).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let (least, most) = match (places.first(), places.last()) {
            (Some(&least), Some(&most)) => (least, most),
            _ => (0.0, 1.0),
        };
        match scale {
            Scale::Linear => Ruler::linear(least, most),
            Scale::Log if most - least < 2.0 => Ruler::short_log(least, most),
            Scale::Log | Scale::Nines => {
                let (first, last) = (least.floor(), most.ceil().max(least.floor() + 1.0));
                let ticks = steps(first, last, 1.0);
                Ruler {
                    scale,
                    first,
                    last,
                    ticks: ticks.map(|place| (place, name(scale, place))).collect(),
                }
            }
            Scale::Bars => Ruler {
                scale,
                first: 0.4,
                last: axis.names.len() as f64 + 0.6,
                ticks: (1u32..)
                    .map(f64::from)
                    .zip(axis.names.iter().cloned())
                    .collect(),
            },
            Scale::Counts => Ruler {
                scale,
                first: least - 0.3,
                last: most + 0.3,
                ticks: places
                    .iter()
                    .map(|&place| (place, name(scale, place)))
                    .collect(),
            },
        }
    }

    fn linear(least: f64, most: f64) -> Ruler {
        /// The most ticks.
        const TICKS: f64 = 8.0;
        let first = least.min(0.0);
        let span = (most - first).max(1e-9);
        let decade = 10f64.powf((span / TICKS).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|part| part * decade);
        let step = step.into_iter().find(|step| span / step <= TICKS);
        let step = step.unwrap_or(decade * 10.0);
        let first = (first / step).floor() * step;
        let last = ((most / step).ceil() * step).max(first + step);
        let ticks = steps(first, last, step);
        Ruler {
            scale: Scale::Linear,
            first,
            last,
            ticks: ticks
                .map(|place| (place, name(Scale::Linear, place)))
                .collect(),
        }
    }

    /// A logarithmic axis of less than two decades, with ticks at 1, 2 and 5 in each.
    fn short_log(least: f64, most: f64) -> Ruler {
        let decades = steps(least.floor() - 1.0, most.ceil() + 1.0, 1.0);
        let all = decades.flat_map(|decade| [1f64, 2.0, 5.0].map(|part| decade + part.log10()));
        let all: Vec<f64> = all.collect();
        let below = all.iter().copied().filter(|place| *place <= least + 1e-9);
        let first = below.fold(f64::NEG_INFINITY, f64::max);
        let above = all
            .iter()
            .copied()
            .filter(|place| *place >= most - 1e-9 && *place > first);
        let last = above.fold(f64::INFINITY, f64::min);
        let ticks = all
            .iter()
            .copied()
            .filter(|place| (first..=last).contains(place));
        Ruler {
            scale: Scale::Log,
            first,
            last,
            ticks: ticks
                .map(|place| (place, name(Scale::Log, place)))
                .collect(),
        }
    }

    fn place(&self, value: f64) -> f64 {
        place(self.scale, value).clamp(self.first, self.last)
    }
}

/// Its values are places already.
impl Ranged for Ruler {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a place within the ends is a pixel between those of the ends"
    )]
    fn map(&self, place: &f64, (from, to): (i32, i32)) -> i32 {
        let part = (place - self.first) / (self.last - self.first);
        from + (part * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(place, _)| *place).collect()
    }

    fn range(&self) -> Range<f64> {
        self.first..self.last
    }
}

impl ValueFormatter<f64> for Ruler {
    fn format_ext(&self, place: &f64) -> String {
        let mut ticks = self.ticks.iter();
        let found = ticks.find(|(tick, _)| (tick - place).abs() < 1e-9);
        found.map_or_else(String::new, |(_, label)| label.clone())
    }
}

/// Ticks from the first to the last.
fn steps(first: f64, last: f64, step: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(first), move |place| Some(place + step))
        .take_while(move |place| *place <= last + step * 1e-6)
}

/// The place of a value.
fn place(scale: Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear | Scale::Bars => value,
        Scale::Log => value.log10(),
        Scale::Counts => value.log2(),
        Scale::Nines => -(1.0 - value).log10(),
    }
}

/// The label of a place.
fn name(scale: Scale, place: f64) -> String {
    match scale {
        Scale::Linear | Scale::Bars => short(place),
        Scale::Log => short(10f64.powf(place)),
        Scale::Counts => format!("{:.0}", 2f64.powf(place)),
        Scale::Nines => {
            let percent = 100.0 - 100.0 / 10f64.powf(place);
            format!("{percent:.*} %", decimals(place - 2.0))
        }
    }
}

/// Digits after the point; none if `count` is not above 0.
fn decimals(count: f64) -> usize {
    (1..=9)
        .take_while(|&digits| f64::from(digits) < count + 0.5)
        .count()
}

/// A number in units, thousands or millions.
fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e3 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn every_scale_is_drawn() {
        let svg = svg(&sample()).unwrap();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        for text in [
            "A &lt;title&gt;",
            "published: paper &amp; figure 1",
            "x, unit",
            "99 %",
            "500 k",
            "1 M",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("NaN"));
    }

    /// A legend of bars shows bars: the marks of lines are nowhere in such a panel.
    #[test]
    fn the_legend_of_bars_has_no_marks_of_lines() {
        let mut chart = sample();
        let is_bars = |panel: &Panel| panel.x.scale == Scale::Bars;
        assert!(svg(&chart).unwrap().contains("<circle"));
        chart.panels.retain(is_bars);
        for panel in &mut chart.panels {
            panel.y.scale = Scale::Log;
        }
        let svg = svg(&chart).unwrap();
        assert!(!svg.contains("<circle") && !svg.contains("NaN"), "{svg}");
        assert!(svg.contains("published: paper &amp; figure 1"));
    }

    #[test]
    fn ticks_are_round_numbers() {
        let labels = |scale, values: &[f64]| -> Vec<String> {
            let ruler = Ruler::new(&Axis::new("", scale), values.iter().copied());
            ruler.ticks.into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(
            labels(Scale::Linear, &[0.0, 1.4e6]),
            [
                "0", "200 k", "400 k", "600 k", "800 k", "1 M", "1.2 M", "1.4 M"
            ]
        );
        assert_eq!(
            labels(Scale::Linear, &[-20.0, 35.0]).first().unwrap(),
            "-20"
        );
        assert_eq!(
            labels(Scale::Log, &[30.0, 4000.0]),
            ["10", "100", "1 k", "10 k"]
        );
        assert_eq!(
            labels(Scale::Log, &[30.0, 400.0]),
            ["20", "50", "100", "200", "500"]
        );
        assert_eq!(labels(Scale::Log, &[50.0]), ["50", "100"]);
        assert_eq!(labels(Scale::Counts, &[1.0, 2.0, 6.0]), ["1", "2", "6"]);
        assert_eq!(
            labels(Scale::Nines, &[0.0, 0.9995]),
            ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"]
        );
    }
}
