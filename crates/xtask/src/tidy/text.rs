//! Rules about the text of files.

use super::{Findings, SourceFile};

/// A file with more lines of code raises the question where its ideas part.
const LINES_MAX: usize = 500;

/// Words that should not be committed, written in parts so that this file does not contain them.
const UNFIT: &[(&str, &str)] = &[
    (concat!("FIX", "ME"), "a note of something undone"),
    (concat!("XX", "X:"), "a note of something undone"),
    (concat!("TO", "DO"), "a note of something undone"),
    (concat!("to", "do!("), "a stub"),
    (concat!("unimpl", "emented!("), "a stub"),
    (concat!("db", "g!("), "a trace of a search for a mistake"),
    (concat!("#[ig", "nore"), "a test that is not run"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
];

/// Characters besides ASCII that drawings and formulas need. Others are usually an editor's
/// mistake.
const LETTERS: &str = "\u{d7}\u{f7}\u{b5}\u{b7}\u{b1}\u{b2}\u{3bc}\u{2013}\u{2014}\u{2026}\u{2190}\u{2191}\u{2192}\u{2193}\u{2194}\u{2248}\u{2260}\u{2264}\u{2265}\u{2212}\u{21d2}";

/// Checks every file.
pub(crate) fn check(files: &[SourceFile], findings: &mut Findings) {
    for file in files {
        let lock = file.path.ends_with(".lock")
            || file.path.ends_with("go.sum")
            || file.path.starts_with("LICENSE");
        if lock {
            continue;
        }
        unfit_words(file, findings);
        strange_letters(file, findings);
        layout(file, findings);
    }
}

fn unfit_words(file: &SourceFile, findings: &mut Findings) {
    for (number, line) in (1..).zip(file.text.lines()) {
        for (word, why) in UNFIT {
            if line.contains(word) {
                findings.complain(format!("{}:{number}: `{word}`: {why}", file.path));
            }
        }
    }
}

fn strange_letters(file: &SourceFile, findings: &mut Findings) {
    for (number, line) in (1..).zip(file.text.lines()) {
        let is_drawing = |c: char| ('\u{2500}'..='\u{25ff}').contains(&c);
        let strange = line
            .chars()
            .find(|c| !c.is_ascii() && !LETTERS.contains(*c) && !is_drawing(*c));
        if let Some(strange) = strange {
            findings.complain(format!(
                "{}:{number}: the letter U+{:04X}",
                file.path,
                u32::from(strange)
            ));
        }
        if line.ends_with([' ', '\t']) && file.path.ends_with(".rs") {
            findings.complain(format!(
                "{}:{number}: blanks at the end of the line",
                file.path
            ));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.complain(format!("{}: the last line has no end", file.path));
    }
}

fn layout(file: &SourceFile, findings: &mut Findings) {
    if !file.path.ends_with(".rs") {
        return;
    }
    let parts: Vec<&str> = file.path.trim_end_matches(".rs").split('/').collect();
    if let [.., folder, name] = parts.as_slice()
        && folder == name
    {
        findings.complain(format!("{}: the folder's own name again", file.path));
    }
    if file.path.ends_with("/mod.rs") && !file.path.ends_with("/tests/support/mod.rs") {
        findings.complain(format!(
            "{}: a folder's module stands beside the folder, in a file of its name",
            file.path
        ));
    }
    let is_of_tests = file.path.ends_with("/tests.rs") || file.path.contains("/tests/");
    let code = file
        .text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default()
        .lines()
        .count();
    if code > LINES_MAX && !is_of_tests {
        findings.warn(format!(
            "{}: {code} lines; where do its ideas part?",
            file.path
        ));
    }
    if !file.text.starts_with("//!")
        && file.path.contains("/src/")
        && !file.path.ends_with("/tests.rs")
    {
        findings.complain(format!(
            "{}: it does not begin by saying what it is (`//!`)",
            file.path
        ));
    }
}

#[test]
fn each_rule_finds_its_case() {
    let cases = [
        ("crates/a/src/b.rs", concat!("//! b\n// FIX", "ME\n"), 1),
        ("crates/a/src/b.rs", "//! b\u{a0}c\n", 1),
        (
            "crates/a/src/b.rs",
            "//! a \u{2192} b \u{250c}\u{2500}\u{2510}\n",
            0,
        ),
        ("crates/a/src/b.rs", "//! b \n", 1),
        ("crates/a/src/b.rs", "//! b", 1),
        ("crates/a/src/b/b.rs", "//! b\n", 1),
        ("crates/a/src/b.rs", "mod c;\n", 1),
        ("crates/a/src/b/mod.rs", "//! b\n", 1),
        ("crates/a/tests/support/mod.rs", "//! b\n", 0),
        ("README.md", "text  \n", 0),
    ];
    for (path, text, complaints) in cases {
        let mut findings = Findings::default();
        check(
            &[SourceFile {
                path: path.to_owned(),
                text: text.to_owned(),
            }],
            &mut findings,
        );
        assert_eq!(
            findings.complaints.len(),
            complaints,
            "{path}: {text:?}: {:?}",
            findings.complaints
        );
    }
}
