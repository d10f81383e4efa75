//! What is shown: a picture for terminals, and lines for files.

use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

use coua::metrics::status::Status;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table};

use crate::rates::Rates;

/// What the picture is made of.
pub(crate) struct Shown {
    /// Where the server is asked.
    pub(crate) server: String,
    /// Its last answer.
    pub(crate) status: Option<Status>,
    /// What happened between its answers, the last one last.
    pub(crate) history: VecDeque<Rates>,
    /// Why there is no newer answer.
    pub(crate) failure: Option<String>,
    /// Answers are not shown.
    pub(crate) paused: bool,
    /// Between two questions.
    pub(crate) interval: Duration,
}

const FAINT: Style = Style::new().fg(Color::DarkGray);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// Draws the picture.
pub(crate) fn draw(frame: &mut Frame<'_>, shown: &Shown) {
    let has_flash = u16::from((shown.status.as_ref()).is_some_and(|status| status.flash.is_some()));
    let [head, figures, graphs, tables] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(5 + has_flash),
        Constraint::Percentage(32),
        Constraint::Min(4),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(title(shown)), head);
    let Some(status) = &shown.status else {
        let why = shown.failure.as_deref().unwrap_or("waiting for an answer");
        frame.render_widget(Paragraph::new(why.to_owned()), figures);
        return;
    };
    let none = Rates::default();
    let rates = shown.history.back().unwrap_or(&none);
    frame.render_widget(Paragraph::new(figures_of(status, rates)), figures);
    draw_graphs(frame, graphs, shown);
    draw_tables(frame, tables, status, rates);
}

fn title(shown: &Shown) -> Line<'_> {
    let mut parts = vec![
        Span::styled("coua-top", BOLD),
        Span::raw(format!("  {}", shown.server)),
    ];
    if let Some(status) = &shown.status {
        let up = duration(status.uptime_ms / 1000);
        parts.push(Span::raw(format!("  coua {}  up {up}", status.version)));
        if status.stopping {
            parts.push(Span::styled("  ending", BAD));
        }
    }
    if shown.paused {
        parts.push(Span::styled("  paused", BAD));
    }
    if let (Some(why), Some(_)) = (&shown.failure, &shown.status) {
        parts.push(Span::styled(format!("  no answer: {why}"), BAD));
    }
    let every = shown.interval.as_secs_f64();
    parts.push(Span::styled(
        format!("  every {every:.1} s  q space + -"),
        FAINT,
    ));
    Line::from(parts)
}

/// The figures, each with its name.
fn figures(status: &Status, rates: &Rates) -> Vec<Vec<(&'static str, String)>> {
    let share = rates.hit_share().map_or("-".to_owned(), percent);
    let [p50, p99, p999] = match rates.quantiles_ns {
        Some(times) => times.map(|ns| time(ns as f64)),
        None => ["-", "-", "-"].map(str::to_owned),
    };
    let limit = status.memory_limit;
    let used = limit.saturating_sub(status.memory.free);
    let used_share = used as f64 / limit.max(1) as f64;
    let mut rows = vec![
        vec![
            ("requests/s", number(rates.requests)),
            ("hits/s", number(rates.hits)),
            ("misses/s", number(rates.misses)),
            ("sets/s", number(rates.sets)),
            ("hit ratio", share),
        ],
        vec![
            ("p50", p50),
            ("p99", p99),
            ("p99.9", p999),
            ("received/s", bytes(rates.received)),
            ("sent/s", bytes(rates.sent)),
        ],
        vec![
            ("connections", status.connections.open.to_string()),
            ("at most", status.connections.max.to_string()),
            ("accepted/s", number(rates.accepted)),
            ("processors", format!("{:.2}", rates.processors)),
            ("resident", bytes(status.resident_bytes as f64)),
        ],
        vec![
            ("items", number(status.items as f64)),
            ("bytes", bytes(status.items_bytes as f64)),
            (
                "memory",
                format!("{} of {}", percent(used_share), bytes(limit as f64)),
            ),
            ("evicted/s", number(rates.evicted)),
            ("unread for", duration(status.evicted_idle_s)),
        ],
    ];
    if let Some(flash) = &status.flash {
        let used = flash.bytes.saturating_sub(flash.free_bytes) as f64 / flash.bytes.max(1) as f64;
        let [hits, written] = rates.flash;
        rows.push(vec![
            ("on flash", number(flash.items as f64)),
            (
                "flash",
                format!("{} of {}", percent(used), bytes(flash.bytes as f64)),
            ),
            ("flash hits/s", number(hits)),
            ("written/s", number(written)),
            ("devices gone", flash.devices_gone.to_string()),
        ]);
    }
    rows
}

fn figures_of(status: &Status, rates: &Rates) -> Vec<Line<'static>> {
    let rows = figures(status, rates).into_iter().map(|row| {
        let cells = row.into_iter().flat_map(|(name, value)| {
            let width = 22_usize.saturating_sub(name.len() + 1);
            [
                Span::styled(format!("{name} "), FAINT),
                Span::styled(format!("{value:<width$}"), BOLD),
            ]
        });
        Line::from(cells.collect::<Vec<_>>())
    });
    rows.collect()
}

fn draw_graphs(frame: &mut Frame<'_>, area: Rect, shown: &Shown) {
    /// What of a second is shown, and how its scale is written.
    type Graph = (&'static str, Color, fn(&Rates) -> f64, fn(f64) -> String);
    let p99 = |rates: &Rates| rates.quantiles_ns.map_or(0.0, |times| times[1] as f64);
    let graphs: [Graph; 3] = [
        ("requests/s", Color::Cyan, |rates| rates.requests, number),
        ("p99", Color::Magenta, p99, time),
        ("evicted/s", Color::Yellow, |rates| rates.evicted, number),
    ];
    let areas = Layout::horizontal([Constraint::Fill(1); 3]).split(area);
    for ((name, color, value, format), area) in graphs.into_iter().zip(areas.iter()) {
        let width = usize::from(area.width.saturating_sub(2));
        let skipped = shown.history.len().saturating_sub(width);
        let values = shown.history.iter().skip(skipped).map(value);
        let values: Vec<u64> = values.map(whole).collect();
        let most = values.iter().copied().max().unwrap_or_default();
        let title = format!(" {name}, up to {} ", format(most as f64));
        let block = Block::new()
            .borders(Borders::ALL)
            .border_style(FAINT)
            .title(title);
        let graph = Sparkline::default().data(values).block(block);
        frame.render_widget(graph.style(Style::new().fg(color)), *area);
    }
}

fn draw_tables(frame: &mut Frame<'_>, area: Rect, status: &Status, rates: &Rates) {
    let [left, middle, right] = Layout::horizontal([
        Constraint::Fill(4),
        Constraint::Fill(3),
        Constraint::Fill(4),
    ])
    .areas(area);
    let keys = status.hot_keys.iter().flatten().map(|hot| {
        Row::new([
            Cell::new(hot.key.clone()),
            Cell::new(number(hot.rate)),
            Cell::new(percent(hot.share)),
        ])
    });
    let title = match &status.hot_keys {
        Some(_) => "hot keys",
        None => "hot keys are not shown (-X, -Y)",
    };
    table(
        frame,
        left,
        title,
        ["key", "a second", "share"],
        keys.collect(),
    );
    let workers = status
        .workers
        .iter()
        .enumerate()
        .map(|(number_of, worker)| {
            let rate = rates.by_worker.get(number_of).copied().unwrap_or_default();
            Row::new([
                Cell::new(number_of.to_string()),
                Cell::new(number(rate)),
                Cell::new(worker.connections.to_string()),
            ])
        });
    table(
        frame,
        middle,
        "workers",
        ["worker", "requests/s", "conns"],
        workers.collect(),
    );
    let errors = status
        .errors
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(cause, count)| {
            let rate = rates.errors.iter().find(|(name, _)| name == cause);
            let rate = rate.map_or(0.0, |(_, rate)| *rate);
            let style = if rate > 0.0 { BAD } else { Style::new() };
            Row::new([
                Cell::new(cause.clone()),
                Cell::new(number(rate)),
                Cell::new(number(*count as f64)),
            ])
            .style(style)
        });
    table(
        frame,
        right,
        "errors",
        ["cause", "a second", "in all"],
        errors.collect(),
    );
}

fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    head: [&'static str; 3],
    rows: Vec<Row<'_>>,
) {
    let block = Block::new()
        .borders(Borders::ALL)
        .border_style(FAINT)
        .title(format!(" {title} "));
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(10),
        Constraint::Length(8),
    ];
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(FAINT))
        .block(block);
    frame.render_widget(table, area);
}

/// The figures, keys and errors as lines.
pub(crate) fn lines(server: &str, status: &Status, rates: &Rates) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // What a server says must not steer a terminal.
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<14} {value}");
    };
    line("server", server);
    line("coua", &status.version);
    line("up", &duration(status.uptime_ms / 1000));
    for (name, value) in figures(status, rates).into_iter().flatten() {
        line(name, &value);
    }
    for hot in status.hot_keys.iter().flatten() {
        line(
            "hot key",
            &format!("{} {}/s {}", hot.key, number(hot.rate), percent(hot.share)),
        );
    }
    for (cause, count) in status.errors.iter().filter(|(_, count)| **count > 0) {
        line("error", &format!("{cause}: {count}"));
    }
    text
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a graph knows whole numbers"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

fn number(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{:.2}G", value / 1e9),
        value if value >= 1e6 => format!("{:.2}M", value / 1e6),
        value if value >= 1e4 => format!("{:.1}k", value / 1e3),
        value if value >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

fn bytes(mut value: f64) -> String {
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while value >= 1024.0 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / 1024.0, next);
    }
    match unit == "B" || value >= 100.0 {
        true => format!("{value:.0} {unit}"),
        false => format!("{value:.1} {unit}"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

fn duration(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [number(0.0), number(0.25), number(1234.0)],
            ["0", "0.2", "1234"]
        );
        assert_eq!([number(12_345.0), number(2.5e6)], ["12.3k", "2.50M"]);
        assert_eq!(
            [bytes(17.0), bytes(2048.0), bytes(1e300)][..2],
            ["17 B", "2.0 KiB"]
        );
        assert_eq!(
            [time(999.0), time(28_672.0), time(1e300)][..2],
            ["999 ns", "28.7 µs"]
        );
        assert_eq!(
            [duration(59), duration(3_700), duration(90_000)],
            ["59 s", "1 h 1 min", "1 d 1 h"]
        );
    }
}
