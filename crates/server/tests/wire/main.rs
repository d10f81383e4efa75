//! The scripts of `tests/scripts`, played to coua and to memcached side by side.
//!
//! Each script goes to both servers three times: written whole, line by line, and one byte at a time. The two
//! conversations must be equal, but for the rows of `tests/scripts/differences.toml`, and each row must be needed.
//! `tests/scripts/README.md` describes the format. `COUA_SCRIPTS=part-of-a-name` plays only some; `COUA_BIN` and
//! `MEMCACHED_BIN` name other programs for the two sides. `COUA_RECORD=1` writes memcached's answers into the scripts.
//!
//! # Not here
//! Values of `stats` (see `stats.rs`), and what takes a hostile client to show (see `hostile.rs`).

mod behind_body;
mod binary;
mod compare;
mod differences;
mod player;
mod record;
mod script;
mod transcript;

#[path = "../support/memcached.rs"]
mod memcached;
#[path = "../support/mod.rs"]
mod support;

use std::env;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use differences::Differences;
use memcached::{memcached_program, repository};
use player::Split;
use script::Script;
use support::Server;

/// How many scripts are played at once: most of the time they sleep or wait.
const PLAYERS: usize = 8;

#[test]
fn scripts_written_whole() {
    play_all(Split::Whole);
}

#[test]
fn scripts_written_line_by_line() {
    play_all(Split::Lines);
}

#[test]
fn scripts_written_byte_by_byte() {
    play_all(Split::Bytes);
}

fn play_all(split: Split) {
    let wanted = env::var("COUA_SCRIPTS").ok();
    let folder = repository().join("tests/scripts");
    let scripts: Vec<Script> = script::load_folder(&folder)
        .into_iter()
        .filter(|script| {
            wanted
                .as_ref()
                .is_none_or(|part| script.name.contains(part.as_str()))
        })
        .collect();
    assert!(
        !scripts.is_empty(),
        "no script in {} is called *{}*",
        folder.display(),
        wanted.unwrap_or_default()
    );
    let differences = Differences::load(&folder.join("differences.toml"));
    let memcached = memcached_program();

    let next = AtomicUsize::new(0);
    let complaints = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..PLAYERS {
            scope.spawn(|| {
                while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = play_one(script, split, &memcached, &differences);
                    complaints
                        .lock()
                        .expect("no player panics with the lock held")
                        .extend(found);
                }
            });
        }
    });

    let mut complaints = complaints
        .into_inner()
        .expect("no player panics with the lock held");
    if wanted.is_none() {
        complaints.extend(differences.unused());
    }
    assert!(
        complaints.is_empty(),
        "{} complaints ({split:?})\n\n{}",
        complaints.len(),
        complaints.join("\n")
    );
}

/// Plays one script to both servers, and tells what is not as it should be. Where a script sleeps,
/// a busy machine can let one side sleep longer, so that a complaint must come twice.
fn play_one(
    script: &Script,
    split: Split,
    memcached: &Path,
    differences: &Differences,
) -> Vec<String> {
    let complaints = play_once(script, split, memcached, differences);
    match complaints.is_empty() || !script.sleeps() {
        true => complaints,
        false => play_once(script, split, memcached, differences),
    }
}

/// Both servers are freshly started.
fn play_once(
    script: &Script,
    split: Split,
    memcached: &Path,
    differences: &Differences,
) -> Vec<String> {
    let flags: Vec<&str> = script.flags.iter().map(String::as_str).collect();
    let theirs = match script.is_ours {
        true => Server::coua(&flags),
        false => Server::start(memcached, &flags),
    };
    let ours = Server::coua(&flags);
    let mut complaints = Vec::new();
    let mut answers = record::Answers::new();
    for case in &script.cases {
        // Both sides at the same time: what sleeps, sleeps once, and both clocks stand alike.
        let (their_answer, our_answer) = thread::scope(|scope| {
            let their_player = scope.spawn(|| player::play(case, &theirs, split));
            let our_answer = player::play(case, &ours, split);
            (
                their_player
                    .join()
                    .expect("the player of memcached's side does not panic"),
                our_answer,
            )
        });
        let their_lines = compare::lines(case, &their_answer);
        let our_lines = compare::lines(case, &our_answer);
        complaints.extend(compare::case(
            script,
            case,
            &their_lines,
            &our_lines,
            differences,
        ));
        answers.push(their_lines);
    }
    if env::var_os("COUA_RECORD").is_some() && split == Split::Whole {
        record::write(&repository().join("tests/scripts"), script, &answers);
    }
    complaints
}
