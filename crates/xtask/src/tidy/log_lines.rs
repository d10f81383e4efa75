//! What the server warns of has its remedy: each line of the kinds WARN and ERROR is in `docs/operating.md`.

use std::fs;

use anyhow::{Context, Result};

use super::{Findings, SourceFile};
use crate::commands::root;

/// The page with the remedies.
const PAGE: &str = "docs/operating.md";

/// The crates that the server consists of.
const CRATES: [&str; 4] = ["server", "store", "transport", "memory-errors"];

/// Where a line begins: macros, and the list of what could not be had at the start.
const BEGINNINGS: [&str; 3] = ["warn!(", "error!(", "unmet.push(format!("];

/// Shorter pieces of a line say nothing.
const PIECE_MIN: usize = 6;

/// Complains about lines of which the page says nothing.
pub(crate) fn check(files: &[SourceFile], findings: &mut Findings) -> Result<()> {
    let page = fs::read_to_string(root().join(PAGE)).context(PAGE)?;
    let mut count = 0;
    for file in files.iter().filter(|file| is_of_the_server(&file.path)) {
        for line in lines(&file.text) {
            let Some(piece) = first_piece(&line) else {
                continue;
            };
            count += 1;
            if !page.contains(piece) {
                findings.complain(format!(
                    "{}: {PAGE} has no remedy for what the log says: {piece}",
                    file.path
                ));
            }
        }
    }
    if count == 0 {
        findings.complain("no line of the log was found: has the macro another name?".to_owned());
    }
    Ok(())
}

fn is_of_the_server(path: &str) -> bool {
    let within = |name: &str| path.starts_with(&format!("crates/{name}/src/"));
    CRATES.iter().any(|name| within(name))
        && path.ends_with(".rs")
        && !path.ends_with("tests.rs")
        && !path.contains("/tests/")
}

/// The texts of the lines that a file writes, with placeholders.
fn lines(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for beginning in BEGINNINGS {
        let mut rest = text;
        while let Some(at) = rest.find(beginning) {
            rest = &rest[at + beginning.len()..];
            if let Some(literal) = literal(rest) {
                found.push(literal);
            }
        }
    }
    found
}

/// The first string literal, joined where a backslash ends its lines.
fn literal(text: &str) -> Option<String> {
    let mut found = String::new();
    let mut letters = text[text.find('"')? + 1..].chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return Some(found),
            '\\' => match letters.next()? {
                '\n' => while letters.next_if(|it| it.is_whitespace()).is_some() {},
                other => found.push(other),
            },
            other => found.push(other),
        }
    }
    None
}

/// The first text between placeholders that is long enough to be looked for.
fn first_piece(line: &str) -> Option<&str> {
    line.split('{')
        .map(|piece| piece.split_once('}').map_or(piece, |(_, behind)| behind))
        .map(|piece| piece.trim_matches([' ', ':', ';', ',', '(']))
        .find(|piece| piece.len() >= PIECE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_and_cut() {
        let text = "tracing::warn!(\n  %error,\n  \"-e: full: {} MiB \\\n   less; {why}\"); settings.unmet.push(format!(\"{a}: {b}\"));";
        assert_eq!(lines(text), ["-e: full: {} MiB less; {why}", "{a}: {b}"]);
        assert_eq!(
            first_piece("-e: full: {} MiB less; {why}"),
            Some("-e: full")
        );
        assert_eq!(first_piece("{a}: {b}"), None);
    }
}
