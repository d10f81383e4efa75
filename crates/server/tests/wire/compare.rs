//! Decides whether two servers said the same.

use crate::differences::Differences;
use crate::script::{Case, Piece, Script, Step};
use crate::transcript::{self, Conversation};

/// (connection, what it received)
pub(crate) type Line = (usize, String);

/// What one side said in a case.
pub(crate) fn lines(case: &Case, said: &[Conversation]) -> Vec<Line> {
    transcript::lines(said, &chosen_cas(case))
}

/// Complains about a case where the two sides, or the script's own expectation, are not equal.
pub(crate) fn case(
    script: &Script,
    case: &Case,
    theirs: &[Line],
    ours: &[Line],
    differences: &Differences,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let place = format!("{}.txt:{} ({})", script.name, case.line, case.name);
    if let Some(unmet) = unmet_expectation(case, theirs) {
        complaints.push(format!(
            "{place}: memcached does not say what the script expects\n{unmet}"
        ));
    }
    if !equal(theirs, ours) {
        let (their_part, our_part) = without_common_ends(theirs, ours);
        if !differences.allows(
            &script.name,
            &case.name,
            &texts(their_part),
            &texts(our_part),
        ) {
            complaints.push(format!(
                "{place}\n{}{}",
                show("memcached", their_part),
                show("coua", our_part)
            ));
        }
    }
    complaints
}

/// CAS values that the script names in an `E` flag are compared as they are.
fn chosen_cas(case: &Case) -> Vec<u64> {
    let mut chosen = Vec::new();
    for step in &case.steps {
        let Step::Send { pieces, .. } = step else {
            continue;
        };
        for piece in pieces {
            let Piece::Bytes(bytes) = piece else { continue };
            let text = String::from_utf8_lossy(bytes);
            let words = text
                .split_ascii_whitespace()
                .filter_map(|word| word.strip_prefix('E')?.parse::<u64>().ok());
            chosen.extend(words);
        }
    }
    chosen
}

fn unmet_expectation(case: &Case, said: &[Line]) -> Option<String> {
    let mut connections: Vec<usize> = case
        .expected
        .iter()
        .map(|(connection, _)| *connection)
        .collect();
    connections.sort_unstable();
    connections.dedup();
    for connection in connections {
        let of = |lines: &[Line]| -> Vec<Line> {
            lines
                .iter()
                .filter(|(of, _)| *of == connection)
                .cloned()
                .collect()
        };
        let (wanted, got) = (of(&case.expected), of(said));
        if !equal(&wanted, &got) {
            let (wanted, got) = without_common_ends(&wanted, &got);
            return Some(format!(
                "{}{}",
                show("expected", wanted),
                show("memcached", got)
            ));
        }
    }
    None
}

fn equal(left: &[Line], right: &[Line]) -> bool {
    left.len() == right.len()
        && left
            .iter()
            .zip(right)
            .all(|(left, right)| equal_line(left, right))
}

/// As all comparisons here: word by word; what counts seconds may differ by one, since the two clocks tick at
/// different moments.
pub(crate) fn equal_texts(left: &[String], right: &[&str]) -> bool {
    left.len() == right.len()
        && left
            .iter()
            .zip(right)
            .all(|(left, right)| equal_text(left, right))
}

fn equal_line(left: &Line, right: &Line) -> bool {
    left.0 == right.0 && equal_text(&left.1, &right.1)
}

fn equal_text(left: &str, right: &str) -> bool {
    let (left_words, right_words) = (left.split(' '), right.split(' '));
    left == right
        || left_words.clone().count() == right_words.clone().count()
            && left_words
                .zip(right_words)
                .all(|(left, right)| left == right || equal_seconds(left, right))
}

fn equal_seconds(left: &str, right: &str) -> bool {
    ["t", "l", "exp=", "la="].iter().any(|name| {
        let seconds = |word: &str| word.strip_prefix(name)?.parse::<u32>().ok();
        matches!((seconds(left), seconds(right)), (Some(left), Some(right)) if left.abs_diff(right) <= 1)
    })
}

fn without_common_ends<'a>(left: &'a [Line], right: &'a [Line]) -> (&'a [Line], &'a [Line]) {
    let head = left
        .iter()
        .zip(right)
        .take_while(|(left, right)| equal_line(left, right))
        .count();
    let (left, right) = (&left[head..], &right[head..]);
    let tail = left
        .iter()
        .rev()
        .zip(right.iter().rev())
        .take_while(|(left, right)| equal_line(left, right))
        .count();
    (&left[..left.len() - tail], &right[..right.len() - tail])
}

fn texts(lines: &[Line]) -> Vec<&str> {
    lines.iter().map(|(_, text)| text.as_str()).collect()
}

fn show(who: &str, lines: &[Line]) -> String {
    let mut text = String::new();
    for (connection, line) in lines.iter().take(12) {
        text.push_str(&format!("  {who:>9} {connection}< {line}\n"));
    }
    match lines.len() {
        0 => format!("  {who:>9}  < nothing\n"),
        13.. => format!("{text}  {who:>9}  < ... {} lines in all\n", lines.len()),
        _ => text,
    }
}

#[test]
fn seconds_may_differ_by_one_and_nothing_else_may() {
    let line = |text: &str| (1, text.to_owned());
    assert!(equal_line(&line("HD t99 l0"), &line("HD t100 l1")));
    assert!(!equal_line(&line("HD t99"), &line("HD t97")));
    assert!(!equal_line(&line("HD t-1"), &line("HD t0")));
    assert!(!equal_line(&line("HD s99"), &line("HD s100")));
    assert!(!equal_line(&line("HD"), &line("HD t1")));
}

#[test]
fn only_what_differs_is_shown() {
    let lines =
        |text: &str| -> Vec<Line> { text.split(' ').map(|word| (1, word.to_owned())).collect() };
    let (left, right) = (lines("a b c e"), lines("a x y z e"));
    let (left, right) = without_common_ends(&left, &right);
    assert_eq!(
        (texts(left), texts(right)),
        (vec!["b", "c"], vec!["x", "y", "z"])
    );
}
