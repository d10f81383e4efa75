//! One word for one thing: banned words, which a term of the field replaces; and the glossary.
//!
//! [`BANNED`] lists words that names and comments in `crates/*/src` must not use; a row of
//! [`EXCEPTIONS`] allows one and says why. Each word of the glossary must be used in the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

use super::rust_code::{Kind, tokens};
use super::{Findings, SourceFile};
use crate::commands::root;

/// Files that may use a banned word for now: `path: word: reason`.
const EXCEPTIONS: &str = "crates/xtask/word-exceptions.txt";

/// Where a word is banned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// As the name of a type; it is good English elsewhere.
    Type,
    /// As a part of any name.
    Names,
    /// In names and in comments.
    Everywhere,
}

use Scope::{Everywhere, Names, Type};

/// Words, where they are banned, and the field's term.
const BANNED: &[(&str, Scope, &str)] = &[
    ("astray", Everywhere, "slow path"),
    ("Beyond", Type, "out of order"),
    ("briefly", Names, "fast path"),
    ("bury", Everywhere, "unlink"),
    ("calm", Everywhere, "predicted"),
    ("desk", Everywhere, "worker's buffers"),
    ("giant", Everywhere, "oversized"),
    ("glance", Everywhere, "fast path, or predicted"),
    ("Hand", Type, "worker's handle to the store"),
    ("intake", Everywhere, "receive"),
    ("lane", Everywhere, "fast path"),
    ("long way", Everywhere, "slow path"),
    ("ordinary", Names, "fast path"),
    ("Pen", Type, "writer"),
    ("seat", Everywhere, "setup"),
    ("Sight", Type, "lookup hint"),
    ("Signs", Type, "flags"),
    ("stir", Everywhere, "leave the fast path"),
    ("unusual", Names, "general"),
    (
        "upstream",
        Names,
        "streaming set: upstream is an origin server elsewhere",
    ),
    ("usual", Names, "fast path"),
];

/// Complains about banned words without an exception, about exceptions that are not needed, and
/// about words of the glossary that no code uses.
///
/// # Errors
/// If the exceptions cannot be read.
pub(crate) fn check(files: &[SourceFile], findings: &mut Findings) -> Result<()> {
    let exceptions = fs::read_to_string(root().join(EXCEPTIONS)).context(EXCEPTIONS)?;
    let sources: Vec<&SourceFile> = files.iter().filter(|file| is_source(file)).collect();
    banned(&sources, &exceptions, findings);
    let pages = files.iter().filter(|file| file.path.ends_with(".md"));
    let pages: Vec<&SourceFile> = pages
        .filter(|page| glossary(&page.text).is_some())
        .collect();
    match pages.as_slice() {
        [page] => unused(page, &sources, findings),
        pages => findings.complain(format!("{} pages have a glossary, not one", pages.len())),
    }
    Ok(())
}

/// Whether the file is shipped code; the list of banned words itself is not checked.
fn is_source(file: &SourceFile) -> bool {
    file.path.starts_with("crates/")
        && file.path.contains("/src/")
        && file.path.ends_with(".rs")
        && file.path != "crates/xtask/src/tidy/glossary.rs"
}

fn banned(sources: &[&SourceFile], exceptions: &str, findings: &mut Findings) {
    let mut rows = BTreeMap::new();
    for line in exceptions.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<&str> = line.splitn(3, ": ").collect();
        match parts.as_slice() {
            [path, word, reason] if reason.len() > 10 => drop(rows.insert((*path, *word), false)),
            _ => findings.complain(format!(
                "{EXCEPTIONS}: `path: word: reason` expected: {line}"
            )),
        }
    }
    for file in sources {
        for (word, instead, line) in uses(&file.text) {
            match rows.get_mut(&(file.path.as_str(), word)) {
                Some(is_needed) => *is_needed = true,
                None => findings.complain(format!(
                    "{}:{line}: `{word}`: the field's word is {instead}",
                    file.path
                )),
            }
        }
    }
    for ((path, word), _) in rows.iter().filter(|(_, is_needed)| !**is_needed) {
        findings.complain(format!(
            "{EXCEPTIONS}: {path} does not say `{word}`: take the row out"
        ));
    }
}

/// The banned words in a file, each with its replacement and its line.
fn uses(text: &str) -> Vec<(&'static str, &'static str, usize)> {
    let mut uses = Vec::new();
    for token in tokens(text) {
        let (name, words) = match token.kind {
            Kind::Name(name) => (name, words_of_name(name)),
            Kind::Comment(text) => ("", words_of_text(text)),
            Kind::Sign(_) => continue,
        };
        let is_comment = name.is_empty();
        let phrase = format!(" {} ", words.join(" "));
        let banned = BANNED.iter().filter(|(word, scope, _)| match scope {
            Type => name == *word,
            Names => !is_comment && phrase.contains(&format!(" {word} ")),
            Everywhere => phrase.contains(&format!(" {word} ")),
        });
        uses.extend(banned.map(|(word, _, instead)| (*word, *instead, token.line)));
    }
    uses
}

/// The words of a name: `WorkerStore`, `worker_store` and `WORKER_STORE` each consist of two.
fn words_of_name(name: &str) -> Vec<String> {
    let is_constant = !name.contains(|c: char| c.is_lowercase());
    let mut words = vec![String::new()];
    for c in name.chars() {
        let begins = c == '_' || c.is_uppercase() && !is_constant;
        if begins && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if c != '_'
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
    }
    words
}

fn words_of_text(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'');
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// The rows of the table under `## Glossary`.
fn glossary(page: &str) -> Option<impl Iterator<Item = &str>> {
    let (_, behind) = page.split_once("\n## Glossary\n")?;
    let rows = behind
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(|line| line.split_once(" |"))
        .map(|(word, _)| word.trim_matches(['`', '*', ' ']));
    Some(rows.filter(|word| *word != "word" && !word.starts_with("---")))
}

/// Complains about words of the glossary that are not in the code. A term of several words is used
/// if each word is; of `a, b` one is enough; ` (where)` is not part of a term.
fn unused(page: &SourceFile, sources: &[&SourceFile], findings: &mut Findings) {
    let mut used = BTreeSet::new();
    for file in sources {
        for token in tokens(&file.text) {
            match token.kind {
                Kind::Name(name) => used.extend(words_of_name(name)),
                Kind::Comment(text) => used.extend(words_of_text(text)),
                Kind::Sign(_) => {}
            }
        }
    }
    // Also if the code has a verb for the noun, or its plural.
    let is_used = |word: &String| {
        let ends = ["ion", "ing", "ed", "s"];
        let stem = ends.iter().find_map(|end| word.strip_suffix(end));
        let stem = stem.filter(|stem| stem.len() > 3).unwrap_or(word);
        let next = used.range(stem.to_owned()..).next();
        next.is_some_and(|next| next.starts_with(stem))
    };
    for term in glossary(&page.text).into_iter().flatten() {
        let words = term.split(" (").next().unwrap_or(term);
        let mut choices = words.split([',', '/']);
        if !choices.any(|words| words_of_text(words).iter().all(is_used)) {
            findings.complain(format!(
                "{}: no code uses `{term}` of the glossary",
                page.path
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn complaints(text: &str, exceptions: &str) -> Vec<String> {
        let mut findings = Findings::default();
        let file = file("crates/a/src/b.rs", text);
        banned(&[&file], exceptions, &mut findings);
        findings.complaints
    }

    #[test]
    fn banned_words_are_found_in_names_and_comments() {
        for text in [
            "fn fast_lane() {}",
            "struct LaneOf;",
            "const LANE: u8 = 1;",
            "// in the lane",
            "/// The Lane.",
            "// go the long way round",
            "struct Hand;",
            "fn is_usual() {}",
        ] {
            assert_eq!(complaints(text, "").len(), 1, "{text}");
        }
    }

    #[test]
    fn english_and_other_words_are_none() {
        for text in [
            "let plane = 1; // planes",
            "let s = \"lane\";",
            "fn by_hand() {} // on the other hand",
            "let hand = 1; // the hand of a clock",
            "// as usual, beyond that",
        ] {
            assert_eq!(complaints(text, ""), [""; 0], "{text}");
        }
    }

    #[test]
    fn rows_excuse_a_file_and_are_needed() {
        let row = "# about\ncrates/a/src/b.rs: lane: the processor's own word\n";
        assert_eq!(complaints("// lane 0, lane 1", row), [""; 0]);
        assert_eq!(
            complaints("// lane 0", "crates/a/src/b.rs: lane: so\n").len(),
            2
        );
        assert_eq!(complaints("", row).len(), 1);
        assert_eq!(complaints("// glance", row).len(), 2);
    }

    #[test]
    fn words_of_the_glossary_are_used() {
        let table = |rows: &str| format!("| word | meaning |\n|---|---|\n{rows}\n");
        let first = "| sub-table | x |\n| turn, round | x |\n| look-ahead | x |\n| `ghost` (index) | x |\n\
                     | slot | x |\n| ageing ghost | x |\n";
        let page = format!(
            "a\n\n## Glossary\n\n{}\n### B\n\n{}\n## More\n\n{}",
            table(first),
            table("| compaction | x |\n"),
            table("| other | x |\n")
        );
        let code =
            "struct SubTable; fn turns() {} // looks at the look-ahead\nlet ghost = 1; // compacts";
        let mut findings = Findings::default();
        let (page, code) = (file("A.md", &page), file("crates/a/src/b.rs", code));
        unused(&page, &[&code], &mut findings);
        let terms = ["slot", "ageing ghost"];
        let wanted = terms.map(|term| format!("A.md: no code uses `{term}` of the glossary"));
        assert_eq!(findings.complaints, wanted);
    }
}
