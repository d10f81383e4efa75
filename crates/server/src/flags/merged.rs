//! The command line and the file of `--config` as one: parsed and checked once, whoever said what.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::FromArgMatches;

use super::file::{self, Keys};
use super::sources::mentions;
use super::{FlagError, Raw, Refused, Settings, Sources, command, explain};

/// The settings of a command line and of the file that it names. Paths count from `folder` where one
/// is given.
///
/// # Errors
/// [`Refused`]: of the command line the first error, of the file all that can be told apart.
pub(super) fn settings(
    words: &[OsString],
    alone: &Raw,
    folder: Option<&Path>,
) -> Result<Settings, Refused> {
    let path = alone.config.as_deref().map(|path| match folder {
        Some(folder) => folder.join(path),
        None => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    });
    let keys = path.as_deref().map(file::read).unwrap_or_default();
    resolve(words, keys, path, folder)
}

/// Checks a text as if it was the file of `--config`, but leaves out what would look at the system.
///
/// # Errors
/// [`Refused`]: what is wrong with it.
pub(super) fn check_text(text: &str) -> Result<(), Refused> {
    const OF_SYSTEM: [&str; 5] = [
        "listen",
        "metrics",
        "auth-file",
        "enable-ssl",
        "enable-sasl",
    ];
    let path = Path::new("file.toml");
    let mut keys = file::parse(path, text);
    keys.keys
        .retain(|key| !OF_SYSTEM.contains(&key.name.as_str()));
    resolve(&["coua".into()], keys, Some(path.to_owned()), None).map(drop)
}

/// The settings of a command line and of the keys of a file, which lies at `path`.
fn resolve(
    words: &[OsString],
    keys: Keys,
    path: Option<PathBuf>,
    folder: Option<&Path>,
) -> Result<Settings, Refused> {
    let Keys {
        mut keys,
        mut errors,
    } = keys;
    let matches = command().clone().try_get_matches_from(words);
    let matches = matches.map_err(|error| explain(&error))?;
    // What the command line says wins; options of -o stand side by side, and the last one holds.
    let in_words = Sources::of(&matches, &BTreeMap::new(), None);
    keys.retain(|key| !in_words.has(&key.name) || key.name.starts_with("extended."));
    let mut dropped: Vec<String> = Vec::new();
    loop {
        let (raw, sources) = merged(words, &keys, &in_words, path.clone(), folder)?;
        let error = match Settings::resolve(&raw) {
            Ok(_) if !errors.is_empty() => return Err(Refused(errors)),
            Ok(mut settings) => {
                settings.sources = sources;
                return Ok(settings);
            }
            Err(error) => error,
        };
        // Without a key that was wrong, others may seem to be.
        let follows = dropped.iter().any(|key| mentions(&error.line, key));
        let (error, key) = sources.located(error);
        if !follows || errors.is_empty() {
            errors.push(error);
        }
        let Some(key) = key else {
            return Err(Refused(errors));
        };
        keys.retain(|one| one.name != key);
        dropped.push(key);
    }
}

/// The flags of the file and of the command line as one.
fn merged(
    words: &[OsString],
    keys: &[file::Key],
    in_words: &Sources,
    path: Option<PathBuf>,
    folder: Option<&Path>,
) -> Result<(Raw, Sources), FlagError> {
    let lines = keys.iter().filter(|key| !in_words.has(&key.name));
    let lines: BTreeMap<&str, usize> = lines.map(|key| (key.name.as_str(), key.line)).collect();
    let of_file = keys.iter().flat_map(|key| &key.words);
    let (program, behind) = words.split_at(words.len().min(1));
    let all = program.iter().chain(of_file).chain(behind);
    let matches = command().clone().try_get_matches_from(all);
    let matches = matches.map_err(|error| explain(&error))?;
    let mut raw = Raw::from_arg_matches(&matches).map_err(|error| explain(&error))?;
    if let Some(folder) = folder {
        raw.count_paths_from(folder);
    }
    let sources = Sources::of(&matches, &lines, path);
    Ok((raw, sources))
}
