//! What was said by whom: the command line and the file of `--config` together, and where in the file
//! a wrong value stands.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::{FlagError, command};

/// A flag or an option of `-o` that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    /// Its value as text.
    value: String,
    /// Its line in the file; `None` for one of the command line.
    line: Option<usize>,
}

/// Everything that was given, by the flag's long name, or by `extended.` and the option's name.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    file: Option<PathBuf>,
    given: BTreeMap<String, Source>,
}

/// The long name of `-o`, and what stands in front of its options' names.
const OPTION: &str = "extended";

impl Sources {
    /// What is given in `matches`. `lines` has the lines of those that the file gives.
    pub(super) fn of(
        matches: &ArgMatches,
        lines: &BTreeMap<&str, usize>,
        file: Option<PathBuf>,
    ) -> Sources {
        Sources {
            file,
            given: given(matches, lines),
        }
    }

    /// Whether a flag or option was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// The file of `--config`.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// What differs from what was given before, by name.
    pub fn changed_since(&self, before: &Sources) -> Vec<String> {
        let value = |sources: &Sources, name: &String| {
            let source = sources.given.get(name);
            source.map(|source| source.value.clone())
        };
        let names: BTreeSet<&String> = self.given.keys().chain(before.given.keys()).collect();
        let names = names.into_iter();
        let changed = names.filter(|name| value(self, name) != value(before, name));
        changed.cloned().collect()
    }

    /// Takes what was given for a flag or option from others.
    pub fn keep(&mut self, name: &str, others: &Sources) {
        match others.given.get(name) {
            Some(source) => self.given.insert(name.to_owned(), source.clone()),
            None => self.given.remove(name),
        };
    }

    /// What was given for a flag or option, as the log shows it.
    pub fn text(&self, name: &str) -> &str {
        match self.given.get(name).map(|source| source.value.as_str()) {
            None => "not given",
            Some("" | "true") => "on",
            Some(value) => value,
        }
    }

    /// The error with file, line and key in place of the flag that it begins with, if it is in the file.
    pub fn locate(&self, error: FlagError) -> FlagError {
        self.located(error).0
    }

    /// As [`Sources::locate`], with the key.
    pub(super) fn located(&self, error: FlagError) -> (FlagError, Option<String>) {
        if error.in_file {
            return (error, None);
        }
        let Some((key, rest)) = subject(&error.line) else {
            return (error, None);
        };
        let source = self.given.get(&key);
        let (Some(line), Some(file)) = (source.and_then(|source| source.line), &self.file) else {
            return (error, None);
        };
        let line = format!("{}:{line}: {key}{rest}", file.display());
        (FlagError::in_file(line), Some(key))
    }
}

/// The key that a line about a flag is about, and what stands behind the flag.
fn subject(line: &str) -> Option<(String, &str)> {
    let (flag, rest) = first_word(line);
    if flag == "-o" {
        let (name, rest) = first_word(rest.trim_start_matches([' ', ':']));
        return Some((format!("{OPTION}.{name}"), rest));
    }
    let name = flag.strip_prefix('-')?;
    let mut arguments = command().get_arguments();
    let argument = arguments.find(|argument| match name.strip_prefix('-') {
        Some(long) => argument.get_long() == Some(long),
        None => argument
            .get_short()
            .is_some_and(|short| name.chars().eq([short])),
    })?;
    Some((argument.get_long()?.to_owned(), rest))
}

fn first_word(text: &str) -> (&str, &str) {
    text.split_at(text.find([' ', ':']).unwrap_or(text.len()))
}

/// Whether the line speaks of the key, or of its flag.
pub(super) fn mentions(line: &str, key: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let option = key.strip_prefix("extended.");
    let mut arguments = command().get_arguments();
    let argument = arguments.find(|argument| argument.get_long() == Some(key));
    let short = argument.and_then(|argument| argument.get_short());
    line.split(|c| !is_part(c)).any(|word| match option {
        Some(option) => word == option,
        None => {
            word == key
                || word.strip_prefix("--") == Some(key)
                || short.is_some_and(|short| word.strip_prefix('-') == Some(&short.to_string()))
        }
    })
}

/// What was given, with its lines in the file.
fn given(matches: &ArgMatches, lines: &BTreeMap<&str, usize>) -> BTreeMap<String, Source> {
    let mut given = BTreeMap::new();
    let line = |name: &str| lines.get(name).copied();
    for argument in command().get_arguments() {
        let id = argument.get_id().as_str();
        let Some(name) = argument.get_long() else {
            continue;
        };
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let values = matches.get_raw(id).unwrap_or_default();
        let values: Vec<String> = values.map(|value| value.to_string_lossy().into()).collect();
        if name == OPTION {
            let options = values.iter().flat_map(|list| list.split(','));
            for option in options.filter(|option| !option.is_empty()) {
                let (option, value) = option.split_once('=').unwrap_or((option, ""));
                let name = format!("{OPTION}.{option}");
                let source = Source {
                    value: value.to_owned(),
                    line: line(&name),
                };
                given.insert(name, source);
            }
            continue;
        }
        let value = match argument.get_action() {
            clap::ArgAction::Count => matches.get_count(id).to_string(),
            _ => values.join(","),
        };
        let source = Source {
            value,
            line: line(name),
        };
        given.insert(name.to_owned(), source);
    }
    given
}
