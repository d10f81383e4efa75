//! Scripts of packets, as the RFCs have them: what comes, what leaves, and when.
//!
//! `INDEX.md` says which clause is played where. The notation is told in [`script`], [`notation`]
//! and [`play`]; numbers count from both sides' initial sequence numbers, times from the line
//! before. Whatever leaves must be written down, and nothing else may leave.
//!
//! ```sh
//! COUA_TCP_SCRIPTS=rfc9293/closing cargo test -p coua-tcp --test scripts    # some
//! ```

#![expect(clippy::print_stderr, reason = "tests tell what they saw")]

#[path = "../support/card.rs"]
mod card;
mod hosts;
mod known;
mod notation;
mod play;
mod read;
mod script;
mod settings;
mod world;
mod write;

use std::path::PathBuf;

use known::KNOWN;
use script::Case;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

/// All cases, and what is wrong with the files.
fn all_cases() -> (Vec<Case>, Vec<String>) {
    let (mut cases, mut wrong) = (Vec::new(), Vec::new());
    for path in script::files(&folder()) {
        let text = std::fs::read_to_string(&path).expect("a script");
        let file = path.strip_prefix(folder()).expect("below the folder");
        match script::cases(&file.to_string_lossy(), &text) {
            Ok(found) => cases.extend(found),
            Err(why) => wrong.push(why),
        }
    }
    (cases, wrong)
}

/// What goes wrong when a case is played over its families.
fn failure(case: &Case) -> Option<String> {
    let mut families = case.families.iter();
    families.find_map(|&is_v6| {
        let played = std::panic::catch_unwind(|| play::play(case, is_v6));
        played
            .unwrap_or_else(|_| Err(format!("{}: {}: a panic", case.file, case.name)))
            .err()
    })
}

#[test]
fn every_case_goes_as_written() {
    let (cases, mut wrong) = all_cases();
    let only = std::env::var("COUA_TCP_SCRIPTS").unwrap_or_default();
    let mut count = 0;
    for case in cases.iter().filter(|case| case.file.contains(&only)) {
        count += 1;
        let is_it = |known: &&known::Known| known.file == case.file && known.name == case.name;
        match (failure(case), KNOWN.iter().find(is_it)) {
            (Some(why), None) => wrong.push(why),
            (None, Some(known)) => wrong.push(format!(
                "{}: {}: it passes, so it must go from KNOWN ({})",
                known.file, known.name, known.why
            )),
            _ => {}
        }
    }
    for known in KNOWN {
        let is_there = |case: &Case| case.file == known.file && case.name == known.name;
        if !cases.iter().any(is_there) {
            wrong.push(format!(
                "{}: {}: it is in KNOWN and is not there",
                known.file, known.name
            ));
        }
    }
    eprintln!("{count} cases");
    assert!(count > 0, "no script is named like {only}");
    assert!(
        wrong.is_empty(),
        "{} of {count} go wrong\n\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
}

#[test]
fn the_index_names_every_script() {
    let index = std::fs::read_to_string(folder().join("INDEX.md")).expect("the index");
    let mut wrong = Vec::new();
    for path in script::files(&folder()) {
        let file = path.strip_prefix(folder()).expect("below the folder");
        let file = file.to_string_lossy().into_owned();
        if !index.contains(&format!("({file})")) {
            wrong.push(format!("{file} is not in the index"));
        }
    }
    for part in index.split("](").skip(1) {
        let file = part.split(')').next().unwrap_or_default();
        if file.ends_with(".pkt") && !folder().join(file).is_file() {
            wrong.push(format!("{file} is in the index and is not there"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
