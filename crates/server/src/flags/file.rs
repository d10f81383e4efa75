//! The file of `--config`: TOML whose keys are the long names of flags, turned into the words that
//! would say the same on a command line. So whatever holds for a flag holds for its key.
//!
//! ```toml
//! memory-limit = "8g"                 # a flag with a value takes a string or a number
//! disable-evictions = true            # a switch takes true or false
//! listen = ["127.0.0.1", "[::1]"]     # a flag that may be repeated takes a list too
//!
//! [extended]                          # the options of -o
//! idle_timeout = 300
//! ```
//!
//! # Not here
//! What values mean is checked where those of the command line are ([`super::resolved`]).

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use clap::{Arg, ArgAction};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{FlagError, command, extended, near};

/// Bytes of the file at most.
const LEN_MAX: u64 = 64 << 10;

/// Errors in one file that are told; after so many somebody has named the wrong file.
const ERRORS_MAX: usize = 20;

/// How much more the highest level of `verbose` logs than the lowest.
const VERBOSE_MAX: i64 = 3;

/// Flags that make no sense in a file.
const ONLY_FLAGS: [&str; 7] = [
    "config",
    "check",
    "help",
    "version",
    "license",
    "man",
    "completions",
];

/// The table of the options of `-o`.
const EXTENDED: &str = "extended";

/// A key of the file, with the words that say the same.
#[derive(Debug)]
pub(super) struct Key {
    /// The flag's long name, or `extended.` and the name of an option.
    pub(super) name: String,
    /// Its line, counted from 1.
    pub(super) line: usize,
    /// The words; none for a switch that is off.
    pub(super) words: Vec<OsString>,
}

/// Keys and errors, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// What can be understood.
    pub(super) keys: Vec<Key>,
    /// A line for what cannot.
    pub(super) errors: Vec<FlagError>,
}

/// Reads the file.
pub(super) fn read(path: &Path) -> Keys {
    match text(path) {
        Ok(text) => parse(path, &text),
        Err(why) => Keys {
            keys: Vec::new(),
            errors: vec![FlagError::in_file(format!(
                "--config {}: {why}",
                path.display()
            ))],
        },
    }
}

fn text(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    // A pipe would keep the server waiting.
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err("is no file that can be read again: give one".to_owned());
    }
    let mut bytes = Vec::new();
    let mut file = file.take(LEN_MAX + 1);
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LEN_MAX {
        return Err(format!("has more than {LEN_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = line_of(error.as_bytes(), valid);
        format!("line {line} is not text in UTF-8")
    })
}

/// The keys of a text, which was read from `path`.
pub(super) fn parse(path: &Path, text: &str) -> Keys {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut parsed = Keys::default();
    let mut refused = Vec::new();
    for error in errors.iter().take(ERRORS_MAX) {
        let at = error.span().unwrap_or_default().start;
        let line = line_of(text.as_bytes(), at);
        let message = error.message().replace('\n', ", ");
        refused.push((line, format!("{}:{line}: {message}", path.display())));
    }
    if !refused.is_empty() {
        // What stands behind a mistake may have got to the wrong table.
        parsed.errors = in_order(refused);
        return parsed;
    }
    for (key, value) in table.get_ref() {
        if refused.len() >= ERRORS_MAX {
            break;
        }
        let (at, name) = (key.span().start, key.get_ref().as_ref());
        let mut note = |at: usize, name: String, words: Result<Vec<String>, String>| {
            let line = line_of(text.as_bytes(), at);
            match words {
                Ok(words) => parsed.keys.push(Key {
                    name,
                    line,
                    words: words.into_iter().map(OsString::from).collect(),
                }),
                Err(why) => refused.push((line, format!("{}:{line}: {why}", path.display()))),
            }
        };
        if name == EXTENDED {
            let DeValue::Table(options) = value.get_ref() else {
                let why = format!("{EXTENDED} is a table of options of -o: [{EXTENDED}]");
                note(at, name.to_owned(), Err(why));
                continue;
            };
            for (key, value) in options {
                let option = key.get_ref().as_ref();
                let words = option_words(option, value.get_ref());
                note(key.span().start, format!("{EXTENDED}.{option}"), words);
            }
            continue;
        }
        let mut arguments = command().get_arguments();
        let argument = arguments.find(|argument| argument.get_long() == Some(name));
        let words = match argument {
            Some(_) if ONLY_FLAGS.contains(&name) => {
                Err(format!("{name} is for the command line only"))
            }
            Some(argument) => flag_words(argument, name, value.get_ref()),
            None => Err(unknown(name)),
        };
        note(at, name.to_owned(), words);
    }
    parsed.keys.sort_by_key(|key| key.line);
    parsed.errors = in_order(refused);
    parsed
}

/// Errors by line, not more of them than are told.
fn in_order(mut refused: Vec<(usize, String)>) -> Vec<FlagError> {
    refused.sort();
    refused.truncate(ERRORS_MAX);
    let refused = refused.into_iter().map(|(_, line)| line);
    refused.map(FlagError::in_file).collect()
}

fn unknown(name: &str) -> String {
    let name = shown(name);
    match near(&format!("--{name}")) {
        Some(near) => {
            let near = near.trim_start_matches('-');
            format!("unknown key {name}: did you mean {near}?")
        }
        None => format!("unknown key {name}: keys are the long names of flags (coua -h)"),
    }
}

/// A key of the file in a message: not longer than any flag's name, and on one line.
fn shown(name: &str) -> String {
    let short: String = name.chars().take(40).collect();
    short.escape_debug().to_string()
}

/// The words for a flag.
fn flag_words(argument: &Arg, name: &str, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let flag = format!("--{name}");
    match (argument.get_action(), value) {
        (ArgAction::SetTrue, DeValue::Boolean(true)) => Ok(vec![flag]),
        (ArgAction::SetTrue, DeValue::Boolean(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, _) => Err(format!("{name} takes true or false")),
        (ArgAction::Count, DeValue::Integer(_)) => {
            let level = scalar(name, value)?.parse().ok();
            let level = level.filter(|level| (0..=VERBOSE_MAX).contains(level));
            let level = level.ok_or_else(|| takes_levels(name))?;
            Ok((0..level).map(|_| flag.clone()).collect())
        }
        (ArgAction::Count, _) => Err(takes_levels(name)),
        (ArgAction::Append, DeValue::Array(values)) => {
            let words = values.iter().map(Spanned::get_ref).map(|value| {
                let value = scalar(name, value)?;
                Ok(format!("{flag}={value}"))
            });
            words.collect()
        }
        (ArgAction::Set, DeValue::Array(_)) => Err(format!("{name} takes one value, not a list")),
        _ => Ok(vec![format!("{flag}={}", scalar(name, value)?)]),
    }
}

fn takes_levels(name: &str) -> String {
    format!("{name} takes a number from 0 to {VERBOSE_MAX}")
}

/// The words for an option of `-o`.
fn option_words(name: &str, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    if let Err(error) = extended::find(name) {
        let error = error.to_string();
        let why = error.strip_prefix("-o: ").unwrap_or(&error);
        return Err(why.replace(name, &shown(name)));
    }
    let option = match value {
        DeValue::Boolean(true) => name.to_owned(),
        DeValue::Boolean(false) => return Ok(Vec::new()),
        value => {
            let value = scalar(name, value)?;
            if value.contains(',') {
                return Err(format!("{name} cannot have a comma in its value"));
            }
            format!("{name}={value}")
        }
    };
    Ok(vec![format!("--{EXTENDED}={option}")])
}

/// A value as it would be written on a command line.
fn scalar(name: &str, value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) if text.contains('\0') => {
            Err(format!("{name} cannot have a zero byte in its value"))
        }
        DeValue::String(text) => Ok(text.clone().into_owned()),
        // The flag takes octal digits, without the mark of TOML.
        DeValue::Integer(number) if name == "unix-mask" && number.radix() == 8 => {
            Ok(number.as_str().to_owned())
        }
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| format!("{name} cannot be {number}: it is too large")),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Boolean(_) => Err(format!("{name} takes a value, not true or false")),
        DeValue::Datetime(_) => Err(format!("{name} takes a string or a number, not a date")),
        DeValue::Array(_) => Err(format!("{name} takes one value, not a list")),
        DeValue::Table(_) => Err(format!("{name} takes a string or a number, not a table")),
    }
}

/// The line of a place in a text, counted from 1.
fn line_of(text: &[u8], at: usize) -> usize {
    let ahead = text.get(..at).unwrap_or(text);
    ahead.iter().filter(|&&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests;
