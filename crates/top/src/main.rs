//! `coua-top`: what a coua server does at this moment, in a terminal. It reads `/status.json` from where
//! the server has `--metrics`.

mod rates;
mod screen;
mod source;

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use rates::Rates;
use screen::Shown;
use source::{News, Source};

/// Seconds of history that the graphs show at most.
const KEPT: usize = 600;

/// How long a key waits to be seen.
const KEY_PAUSE: Duration = Duration::from_millis(100);

/// What a coua server does at this moment.
///
/// The server is asked at the address of its --metrics. Keys: q ends, space pauses, + and - change how
/// often it is asked.
#[derive(Parser)]
#[command(name = "coua-top", version, max_term_width = 100)]
struct Flags {
    /// Where the server has --metrics: an address with a port, or a port of this machine.
    #[arg(default_value = "127.0.0.1:9150", value_parser = source::address)]
    server: String,

    /// Seconds between two questions, 0.2 to 60.
    #[arg(short, long, default_value = "1", value_parser = interval)]
    interval: Duration,

    /// Print one picture as lines, and end: for files and scripts.
    #[arg(long)]
    once: bool,

    /// Print this as a manual page: coua-top --man | man -l -
    #[arg(long, exclusive = true)]
    man: bool,

    /// Print completions of the flags for a shell.
    #[arg(long, value_name = "SHELL", exclusive = true)]
    completions: Option<Shell>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (0.2..=60.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "give a number from 0.2 to 60".to_owned())
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let done = match flags.once {
        _ if flags.man || flags.completions.is_some() => print_text(&flags),
        true => print_once(&flags),
        false if !std::io::stdout().is_terminal() => Err(anyhow::anyhow!(
            "this is no terminal: give --once for lines"
        )),
        false => watch(&flags),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without standard error only the exit status tells.
            let _ = writeln!(std::io::stderr(), "coua-top: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Two questions, and what happened between them.
/// Prints what is made from the flags.
fn print_text(flags: &Flags) -> Result<()> {
    let mut command = Flags::command();
    let mut text = Vec::new();
    match flags.completions {
        Some(shell) => clap_complete::generate(shell, &mut command, "coua-top", &mut text),
        None => clap_mangen::Man::new(command)
            .manual("coua")
            .render(&mut text)?,
    }
    // If the reader has gone away, nobody wants the rest.
    let _ = std::io::stdout().write_all(&text);
    Ok(())
}

fn print_once(flags: &Flags) -> Result<()> {
    let first = source::ask(&flags.server)?;
    std::thread::sleep(flags.interval);
    let second = source::ask(&flags.server)?;
    let text = screen::lines(&flags.server, &second, &Rates::between(&first, &second));
    // If the reader has gone away, nobody wants the rest.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

fn watch(flags: &Flags) -> Result<()> {
    let mut source = Source::start(&flags.server, flags.interval)?;
    let mut terminal = ratatui::try_init()?;
    let mut shown = Shown {
        server: flags.server.clone(),
        status: None,
        history: VecDeque::new(),
        failure: None,
        paused: false,
        interval: flags.interval,
    };
    let ended = loop {
        for news in source.news() {
            take(&mut shown, news);
        }
        if let Err(error) = terminal.draw(|frame| screen::draw(frame, &shown)) {
            break Err(error.into());
        }
        match pressed() {
            Ok(None) => {}
            Ok(Some(KeyCode::Char('q') | KeyCode::Esc)) => break Ok(()),
            Ok(Some(KeyCode::Char(' ' | 'p'))) => shown.paused = !shown.paused,
            Ok(Some(KeyCode::Char('+'))) => shown.interval = slower(shown.interval, 2.0),
            Ok(Some(KeyCode::Char('-'))) => shown.interval = slower(shown.interval, 0.5),
            Ok(Some(_)) => {}
            Err(error) => break Err(error.into()),
        }
        source.set_interval(shown.interval);
    };
    ratatui::restore();
    ended
}

fn slower(interval: Duration, by: f64) -> Duration {
    Duration::from_secs_f64((interval.as_secs_f64() * by).clamp(0.2, 60.0))
}

/// The key that was pressed, if one is within a short time. Control-C is q.
fn pressed() -> std::io::Result<Option<KeyCode>> {
    let until = Instant::now() + KEY_PAUSE;
    while event::poll(until.saturating_duration_since(Instant::now()))? {
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let ends =
                key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
            return Ok(Some(if ends { KeyCode::Char('q') } else { key.code }));
        }
    }
    Ok(None)
}

/// Shows what the server has said, or that it says nothing.
fn take(shown: &mut Shown, news: News) {
    match news {
        News::Failed(why) => shown.failure = Some(why),
        News::Said(_) if shown.paused => {}
        News::Said(status) => {
            shown.failure = None;
            if let Some(before) = &shown.status {
                if status.uptime_ms < before.uptime_ms {
                    // It has been started again.
                    shown.history.clear();
                } else if status.uptime_ms > before.uptime_ms {
                    shown.history.push_back(Rates::between(before, &status));
                }
                if shown.history.len() > KEPT {
                    shown.history.pop_front();
                }
            }
            shown.status = Some(*status);
        }
    }
}
