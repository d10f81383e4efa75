//! What the command line says, in two stages: raw, as words and numbers; then resolved, checked
//! and typed, as the rest of the server uses it.

mod addresses;
mod extended;
mod file;
mod flash;
mod help;
mod login;
mod merged;
mod network;
mod pressure;
mod raw;
mod rdma;
mod resolved;
mod sizes;
mod sources;
mod tls;

use std::ffi::OsString;
use std::path::Path;
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

pub use addresses::Listen;
pub use flash::{ADMISSIONS, FlashPath, FlashSettings};
pub use network::{Driver, Net, NetFlags};
pub use pressure::PressureSettings;
pub use raw::Raw;
pub use rdma::RdmaSettings;
pub use resolved::{Settings, UnixSocket};
pub use sources::Sources;
pub use tls::TlsSettings;

/// What is wrong with a flag, or with a key of the file of `--config`: one line that names it, and the
/// remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}")]
pub struct FlagError {
    line: String,
    in_file: bool,
}

/// Why flags and file are refused: a line each, one at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(Vec<FlagError>);

impl std::error::Error for Refused {}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            let gap = if number == 0 { "" } else { "\n" };
            write!(f, "{gap}{error}")?;
        }
        Ok(())
    }
}

impl From<FlagError> for Refused {
    fn from(error: FlagError) -> Refused {
        Refused(vec![error])
    }
}

impl Refused {
    /// The errors, one at least.
    pub fn errors(&self) -> &[FlagError] {
        &self.0
    }
}

impl FlagError {
    pub(crate) fn new(line: impl Into<String>) -> FlagError {
        FlagError {
            line: line.into(),
            in_file: false,
        }
    }

    /// An error in the file of `--config`; the line names the place.
    fn in_file(line: String) -> FlagError {
        // A value of the file may have several lines.
        let mut escaped = String::with_capacity(line.len());
        for c in line.chars() {
            match c.is_control() {
                true => escaped.extend(c.escape_default()),
                false => escaped.push(c),
            }
        }
        FlagError {
            line: escaped,
            in_file: true,
        }
    }

    /// Whether it is in the file of `--config`.
    pub fn is_in_file(&self) -> bool {
        self.in_file
    }

    /// A flag's value is not one that it takes.
    pub(crate) fn value(flag: &str, value: &str, takes: &str) -> FlagError {
        FlagError::new(format!("{flag} cannot be '{value}': it takes {takes}"))
    }
}

/// The line about a flag that is taken and does nothing.
fn no_effect(flag: &str, why: &str) -> String {
    format!("{flag} has no effect: {why}")
}

/// What the command line asks for.
pub enum Invocation {
    /// A server with these settings.
    Serve(Box<Settings>),
    /// A look at whether there could be a server with these settings.
    Check(Box<Settings>),
    /// A text on standard output, then the end.
    Print(String),
}

/// Reads a command line, the program's name included, and the file of `--config`.
///
/// # Errors
/// [`Refused`]: flags or keys are unknown or cannot be as given.
pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Invocation, Refused> {
    let words: Vec<OsString> = words.into_iter().collect();
    let text = |text: Result<String, FlagError>| Ok(Invocation::Print(text?));
    match Raw::try_parse_from(&words) {
        Ok(raw) if raw.version => text(Ok(Raw::command().render_version())),
        Ok(raw) if raw.license => text(Ok(LICENSE.to_owned())),
        Ok(raw) if raw.manual => text(
            help::manual(Raw::command()).map_err(|error| FlagError::new(format!("--man: {error}"))),
        ),
        Ok(raw) if raw.completions.is_some() => {
            let shell = raw.completions.unwrap_or_default();
            text(help::completions(Raw::command(), &shell))
        }
        Ok(raw) => {
            let settings = Box::new(merged::settings(&words, &raw, None)?);
            Ok(match raw.check {
                true => Invocation::Check(settings),
                false => Invocation::Serve(settings),
            })
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            text(Ok(format!("{HELP_HEAD}{}", error.render())))
        }
        Err(error) => Err(explain(&error).into()),
    }
}

/// As [`read`] of a command line that has started a server before; relative paths count from the
/// folder that it was started in.
///
/// # Errors
/// [`Refused`]: as [`read`].
pub fn read_again(
    words: impl IntoIterator<Item = OsString>,
    folder: &Path,
) -> Result<Settings, Refused> {
    let words: Vec<OsString> = words.into_iter().collect();
    let raw = Raw::try_parse_from(&words).map_err(|error| explain(&error))?;
    merged::settings(&words, &raw, Some(folder))
}

/// Checks a text as if it was the file of `--config`, but for what would look at the system: addresses,
/// certificates and users. Fuzzing begins here.
///
/// # Errors
/// [`Refused`]: what is wrong with it.
pub fn check_text(text: &str) -> Result<(), Refused> {
    merged::check_text(text)
}

/// The first line of the help. Tools that start a server look for memcached's name and number in
/// front of it.
const HELP_HEAD: &str = concat!(
    "memcached 1.6.45 compatible: coua ",
    env!("CARGO_PKG_VERSION"),
    "\n\n"
);

const LICENSE: &str = "coua is free software under the terms of the MIT licence or of the Apache \
                       License 2.0, whichever you choose.\n";

/// One line for what clap tells in several.
fn explain(error: &clap::Error) -> FlagError {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let argument = context(ContextKind::InvalidArg).unwrap_or_default();
    let flag = argument.split([' ', '=']).next().unwrap_or_default();
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    FlagError::new(match error.kind() {
        ErrorKind::UnknownArgument if argument.starts_with('-') => match near(flag) {
            Some(near) => format!("unknown flag {flag}: did you mean {near}? (-h lists all)"),
            None => format!("unknown flag {flag} (-h lists all)"),
        },
        ErrorKind::UnknownArgument => format!("'{argument}' is no flag (-h lists all)"),
        ErrorKind::InvalidValue if value.is_empty() => format!("{flag} needs a value"),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let source = std::error::Error::source(error);
            let why = source.map_or_else(|| "a number".to_owned(), ToString::to_string);
            format!("{flag} cannot be '{value}': {why}")
        }
        ErrorKind::ArgumentConflict => format!("{flag} is given twice"),
        _ => error
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    })
}

/// All flags, for looking them up. Making this takes as long as starting does otherwise.
fn command() -> &'static clap::Command {
    static COMMAND: LazyLock<clap::Command> = LazyLock::new(Raw::command);
    &COMMAND
}

/// The flag that a misspelt one was meant for.
fn near(flag: &str) -> Option<String> {
    let long = flag.strip_prefix("--")?;
    command()
        .get_arguments()
        .filter_map(|argument| argument.get_long())
        .map(|name| (strsim::jaro_winkler(long, name), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| format!("--{name}"))
}

#[cfg(test)]
mod tests;
