//! Writes what memcached answers into the scripts, so that they can be read, and checked, without it.
//!
//! `COUA_RECORD=1 cargo test -p coua --test wire whole` does so; the difference then shows in `git diff`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::script::{Case, Script};

/// A case with more lines than this stays without: nobody reads them, and both servers are compared all the same.
const MOST_LINES: usize = 60;

/// What each case received from memcached, in the order of the script.
pub(crate) type Answers = Vec<Vec<(usize, String)>>;

/// Puts the answers in the place of the lines with `<` in the script's file.
///
/// # Panics
/// When the file cannot be read or written.
pub(crate) fn write(folder: &Path, script: &Script, answers: &Answers) {
    let path = folder.join(format!("{}.txt", script.name));
    let old =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines: Vec<&str> = old.lines().collect();
    let first = script
        .cases
        .first()
        .map_or(lines.len(), |case| case.line - 1);
    let mut new = lines[..first].join("\n") + "\n";
    for (index, case) in script.cases.iter().enumerate() {
        let end = script
            .cases
            .get(index + 1)
            .map_or(lines.len(), |next| next.line - 1);
        write_case(&mut new, case, &lines[case.line - 1..end], &answers[index]);
    }
    fs::write(&path, new.trim_end().to_owned() + "\n")
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn write_case(new: &mut String, case: &Case, lines: &[&str], answer: &[(usize, String)]) {
    let is_answer = |line: &str| {
        line.trim_start_matches(|c: char| c.is_ascii_digit() || c == 'x')
            .starts_with('<')
    };
    let kept: Vec<&str> = lines
        .iter()
        .copied()
        .filter(|line| !is_answer(line))
        .collect();
    new.push_str(kept.join("\n").trim_end_matches('\n'));
    new.push('\n');
    let said: Vec<_> = answer
        .iter()
        .filter(|(connection, _)| *connection != 0)
        .collect();
    let mut rest = said.as_slice();
    let groups: Vec<_> = std::iter::from_fn(|| {
        let first = *rest.first()?;
        let same = rest.iter().take_while(|other| **other == first).count();
        rest = &rest[same..];
        Some((same, first))
    })
    .collect();
    if groups.len() <= MOST_LINES && !case.varies {
        let several = case.steps.len() > 1 && said.iter().any(|(connection, _)| *connection != 1);
        for (count, (connection, text)) in groups {
            let number = if several {
                connection.to_string()
            } else {
                String::new()
            };
            let times = if count > 1 {
                format!("x{count}")
            } else {
                String::new()
            };
            writeln!(new, "{number}{times}< {text}").expect("a string takes everything");
        }
    }
    new.push('\n');
}
