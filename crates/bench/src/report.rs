//! What people read: tables, medians, and lines of progress.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use thiserror::Error as ThisError;

/// A table in Markdown, its columns aligned.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub(crate) fn new<S: Display>(headings: impl IntoIterator<Item = S>) -> Table {
        Table {
            rows: vec![
                headings
                    .into_iter()
                    .map(|heading| heading.to_string())
                    .collect(),
            ],
        }
    }

    /// Adds a row; missing cells stay empty, those without a heading are dropped.
    pub(crate) fn row<S: Display>(&mut self, cells: impl IntoIterator<Item = S>) {
        let columns = self.rows[0].len();
        let mut row: Vec<String> = cells
            .into_iter()
            .map(|cell| cell.to_string())
            .take(columns)
            .collect();
        row.resize(columns, String::new());
        self.rows.push(row);
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(f, "| {cell:<width$} |")?,
                    _ => write!(f, " {cell:>width$} |")?,
                }
            }
            writeln!(f)?;
            if index == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let dashes = "-".repeat(width + 1);
                    match column {
                        0 => write!(f, "|{dashes}-|")?,
                        _ => write!(f, "{dashes}:|")?,
                    }
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

/// Rows of values with commas between them, for spreadsheets.
#[derive(Debug)]
pub(crate) struct Csv {
    text: String,
}

impl Csv {
    /// A table with these column names.
    pub(crate) fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Csv {
        let mut csv = Csv {
            text: String::new(),
        };
        csv.row(names);
        csv
    }

    /// Adds a row.
    pub(crate) fn row<S: AsRef<str>>(&mut self, fields: impl IntoIterator<Item = S>) {
        let fields = fields.into_iter().map(|field| csv_field(field.as_ref()));
        self.text.push_str(&fields.collect::<Vec<_>>().join(","));
        self.text.push('\n');
    }
}

impl Display for Csv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.text.trim_end())
    }
}

/// The text as a field of a row (RFC 4180).
pub(crate) fn csv_field(text: &str) -> String {
    match text.contains(['"', ',', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// The middle value: the mean of both if two are in the middle, 0 if there is none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Whether the server, its load, both or neither were saturated, by the share of the time that each
/// was busy: `server (98 %, load 61 %)`. A server whose share is not known counts as busy.
pub(crate) fn saturated(server: Option<f64>, load: f64) -> String {
    /// A side that is busy for this share of the time is saturated.
    const USED_UP: f64 = 0.95;
    let who = match (server.is_none_or(|busy| busy >= USED_UP), load >= USED_UP) {
        (true, false) => "server",
        (false, true) => "load",
        (true, true) => "both",
        (false, false) => "neither",
    };
    let load = load * 100.0;
    match server.map(|busy| busy * 100.0) {
        Some(server) => format!("{who} ({server:.0} %, load {load:.0} %)"),
        None => format!("{who} (load {load:.0} %)"),
    }
}

/// Prints a finished report.
pub(crate) fn print(text: impl Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

/// Prints a finished report for programs.
pub(crate) fn print_json(report: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, report)?;
    writeln!(out)
}

/// Prints a finished report, as JSON if `json` is set.
pub(crate) fn show(report: &(impl Display + Serialize), json: bool) -> io::Result<()> {
    match json {
        true => print_json(report),
        false => print(report),
    }
}

/// Flags whose values do not go together, or do not work here: one line that names them and says
/// what they take.
#[derive(Debug, ThisError)]
#[error("{0}")]
pub(crate) struct WrongFlags(pub(crate) String);

/// A measurement is worse than allowed: one line with the `--fail-if` conditions that hold.
#[derive(Debug, ThisError)]
#[error("failed: {0}")]
pub(crate) struct ConditionsHeld(pub(crate) String);

/// The second of two runs is worse than the first; the text says in what.
#[derive(Debug, ThisError)]
#[error("worse: {0}")]
pub(crate) struct Worse(pub(crate) String);

/// Returns [`WrongFlags`] with a formatted line unless a condition holds.
macro_rules! require {
    ($is_so:expr, $($line:tt)+) => {
        if !$is_so {
            return Err($crate::report::WrongFlags(format!($($line)+)).into());
        }
    };
}
pub(crate) use require;

/// Says on standard error what is being measured. Errors of writing are ignored.
pub(crate) fn progress(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "coua-bench: {text}");
}

/// A line on standard error that shows progress. On a terminal it is overwritten; elsewhere a new
/// one appears every ten seconds.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    terminal: bool,
    shown_at: Instant,
}

impl ProgressLine {
    const SELDOM: Duration = Duration::from_secs(10);

    /// A line that has not been written yet.
    pub(crate) fn new() -> ProgressLine {
        ProgressLine {
            terminal: io::stderr().is_terminal(),
            shown_at: Instant::now(),
        }
    }

    /// Shows a new text.
    pub(crate) fn show(&mut self, text: impl Display) {
        if self.terminal {
            let _ = write!(io::stderr().lock(), "\r\x1b[Kcoua-bench: {text}");
        } else if self.shown_at.elapsed() >= Self::SELDOM {
            self.shown_at = Instant::now();
            progress(text);
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["a", "long"]);
        table.row(["first", "1"]);
        table.row(["b"]);
        let expected = "| a     | long |\n|-------|-----:|\n| first |    1 |\n| b     |      |\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn fields_with_commas_and_quotes_are_quoted() {
        let mut csv = Csv::new(["server", "p99"]);
        csv.row(["coua -t 2, \"new\"", "1.5"]);
        let expected = "server,p99\n\"coua -t 2, \"\"new\"\"\",1.5";
        assert_eq!(csv.to_string(), expected);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([]), 0.0);
    }
}
