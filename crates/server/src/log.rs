//! The log, on standard error.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

static FILTER: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// How lines of the log look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: an object of JSON a line.
    Json,
}

/// Begins to log. A second call changes the verbosity only.
pub fn start(verbosity: u8, format: LogFormat) {
    let (filter, handle) = reload::Layer::new(level(verbosity));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed(),
    };
    if tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()
        .is_ok()
    {
        // Nobody else sets it: `try_init` succeeds once in a process.
        let _ = FILTER.set(handle);
    } else {
        set_verbosity(verbosity);
    }
}

/// Logs more or less from now on: 0 what the operator must know, 1 also what goes wrong with
/// connections, 2 and more also every request.
pub fn set_verbosity(verbosity: u8) {
    if let Some(filter) = FILTER.get() {
        // It fails only where the log is being torn down.
        let _ = filter.reload(level(verbosity));
    }
}

fn level(verbosity: u8) -> LevelFilter {
    match verbosity {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Lets one line a second through, for lines that clients can cause.
#[derive(Debug, Default)]
pub struct Limit {
    /// The second of the last line, plus one; 0 before the first.
    second: AtomicU64,
    suppressed: AtomicU64,
}

impl Limit {
    /// Nothing has been logged.
    pub const fn new() -> Limit {
        Limit {
            second: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Logs a line that `-v` shows, unless it is one too many at this time.
    pub fn debug(&self, since_start_ms: u64, line: std::fmt::Arguments<'_>) {
        // What is not shown is not counted as left out either.
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        match self.pass(since_start_ms) {
            None => {}
            Some(0) => tracing::debug!("{line}"),
            Some(others) => tracing::debug!("{line} (and {others} more of this kind before)"),
        }
    }

    /// Whether a line may be logged at this time; if so, how many were left out before it.
    pub fn pass(&self, since_start_ms: u64) -> Option<u64> {
        let second = since_start_ms / 1000 + 1;
        if self.second.swap(second, Relaxed) == second {
            self.suppressed.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.suppressed.swap(0, Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::Limit;

    #[test]
    fn one_line_a_second_passes() {
        let limit = Limit::new();
        assert_eq!(limit.pass(0), Some(0));
        assert_eq!(limit.pass(10), None);
        assert_eq!(limit.pass(999), None);
        assert_eq!(limit.pass(1000), Some(2));
        assert_eq!(limit.pass(5000), Some(0));
    }
}
