//! What the command line says, in two stages: raw, as words and numbers; then resolved, checked
//! and typed, as the rest of the server uses it.

mod addresses;
mod extended;
mod flash;
mod help;
mod login;
mod network;
mod pressure;
mod raw;
mod resolved;
mod sizes;
mod tls;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

pub use addresses::Listen;
pub use flash::{FlashPath, FlashSettings};
pub use network::{Driver, Net, NetFlags};
pub use pressure::PressureSettings;
pub use raw::Raw;
pub use resolved::{Settings, UnixSocket};
pub use tls::TlsSettings;

/// Why the command line is refused, in one line that names the flag and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}")]
pub struct FlagError {
    line: String,
}

impl FlagError {
    pub(crate) fn new(line: impl Into<String>) -> FlagError {
        FlagError { line: line.into() }
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
    /// A text on standard output, then the end.
    Print(String),
}

/// Reads a command line, the program's name included.
///
/// # Errors
/// [`FlagError`]: a flag is unknown or cannot be as given.
pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Invocation, FlagError> {
    match Raw::try_parse_from(words) {
        Ok(raw) if raw.version => Ok(Invocation::Print(Raw::command().render_version())),
        Ok(raw) if raw.license => Ok(Invocation::Print(LICENSE.to_owned())),
        Ok(raw) if raw.manual => help::manual(Raw::command())
            .map(Invocation::Print)
            .map_err(|error| FlagError::new(format!("--man: {error}"))),
        Ok(raw) => Ok(Invocation::Serve(Box::new(Settings::resolve(&raw)?))),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp => Ok(Invocation::Print(format!(
                "{}{}",
                HELP_HEAD,
                error.render()
            ))),
            _ => Err(explain(&error)),
        },
    }
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

/// The flag that a misspelt one was meant for.
fn near(flag: &str) -> Option<String> {
    let command = Raw::command();
    let long = flag.strip_prefix("--")?;
    command
        .get_arguments()
        .filter_map(|argument| argument.get_long())
        .map(|name| (strsim::jaro_winkler(long, name), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| format!("--{name}"))
}

#[cfg(test)]
mod tests;
