//! `docs/memcached-surface.md`: what coua makes of each flag and option of memcached.

use std::fs;

use crate::memcached;
use crate::memcached_help::{self, Flag};

/// A row: what is named in its first column, the second column and the third.
struct Row {
    names: Vec<String>,
    verdict: String,
    reason: String,
}

fn rows() -> Vec<Row> {
    let path = memcached::repository().join("docs/memcached-surface.md");
    let text = fs::read_to_string(path).expect("the page");
    let lines = text.lines().filter(|line| line.starts_with("| `"));
    let rows = lines.map(|line| {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, names, verdict, reason, _] = columns[..] else {
            panic!("not three columns: {line}");
        };
        let names = names.split('`').skip(1).step_by(2);
        Row {
            names: names.map(str::to_owned).collect(),
            verdict: verdict.to_owned(),
            reason: reason.to_owned(),
        }
    });
    rows.collect()
}

fn row_of<'r>(rows: &'r [Row], name: &str) -> Option<&'r Row> {
    let is_named = |row: &&Row| row.names.iter().any(|named| named == name);
    rows.iter().find(is_named)
}

#[test]
fn every_flag_of_memcached_has_a_row() {
    let rows = rows();
    let mut flags = memcached_help::flags(&memcached::memcached_program());
    for words in ["-d", "--daemon"] {
        flags.push(Flag {
            words: vec![words.to_owned()],
            name: "-d".to_owned(),
            prints: true,
        });
    }
    assert!(flags.len() > 110, "only {} forms of flags", flags.len());
    let missing: Vec<String> = flags
        .iter()
        .map(|flag| flag.bare_name())
        // As `-v`, more often.
        .filter(|name| !["-vv", "-vvv"].contains(&name.as_str()))
        .filter(|name| row_of(&rows, name).is_none())
        .collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
}

#[test]
fn what_is_not_the_same_has_a_reason() {
    for row in rows() {
        assert!(
            ["same", "differs", "no effect", "refused", "only coua"].contains(&&*row.verdict),
            "{:?}: {}",
            row.names,
            row.verdict
        );
        assert!(
            row.verdict == "same" || row.reason.len() > 10,
            "{:?}: say why",
            row.names
        );
    }
}
