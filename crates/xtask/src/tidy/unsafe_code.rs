//! Which files may have unsafe code: those in `crates/xtask/unsafe-files.txt`, each with its
//! reason.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use super::{Findings, SourceFile};
use crate::commands::root;

const LIST: &str = "crates/xtask/unsafe-files.txt";

/// Complains about unsafe code in other files, and about rows that are not needed.
pub(crate) fn check(files: &[SourceFile], findings: &mut Findings) -> Result<()> {
    let text = fs::read_to_string(root().join(LIST)).context(LIST)?;
    let mut reasons: BTreeMap<&str, &str> = BTreeMap::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        match line.split_once(": ") {
            Some((path, reason)) if reason.len() > 10 => {
                reasons.insert(path, reason);
            }
            _ => findings.complain(format!("{LIST}: `path: reason` expected: {line}")),
        }
    }
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        if has_unsafe(&file.text) && reasons.remove(file.path.as_str()).is_none() {
            findings.complain(format!(
                "{}: unsafe code in a file that is not in {LIST}",
                file.path
            ));
        }
    }
    for path in reasons.keys() {
        findings.complain(format!("{LIST}: {path} holds no unsafe code"));
    }
    Ok(())
}

/// Whether `unsafe` is used as code: not in a comment, a string or the name of a lint.
fn has_unsafe(text: &str) -> bool {
    text.lines().any(|line| {
        let code = line.split("//").next().unwrap_or_default();
        let outside_of_strings: String = code.split('"').step_by(2).collect();
        outside_of_strings
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .any(|word| word == concat!("uns", "afe"))
    })
}

#[test]
fn unsafe_is_found_in_code_only() {
    let with = |template: &str| template.replace("UN", concat!("uns", "afe"));
    assert!(has_unsafe(&with("    let x = UN { *p };")));
    assert!(has_unsafe(&with("UN impl Send for X {}")));
    assert!(!has_unsafe(&with("// UN")));
    assert!(!has_unsafe(&with(
        "#![allow(UN_code, reason = \"UN by need\")]"
    )));
}
