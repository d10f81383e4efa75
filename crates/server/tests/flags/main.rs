//! Every flag that memcached documents, and what the flags do to a running server.
//!
//! The list of flags is memcached's own: the help of the program is read. Each flag must start the server, with or
//! without a line that it has no effect, or be refused with one line that names it and says why.
//!
//! # Not here
//! How wrong values are refused (see the unit tests in `src/flags/tests.rs`), what a machine refuses (`faults.rs`).

mod background;
mod cluster;
mod conditions;
mod config;
mod listening;
mod logs;
mod memcached_help;
mod pressure;
mod serving;
mod surface;

#[path = "../support/memcached.rs"]
mod memcached;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;

use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use memcached_help::Flag;
use process::{Folder, Process, coua, poll};
use rustix::process::Signal;
use support::coua_program;

/// How many servers are started at once.
const STARTERS: usize = 4;

#[test]
fn every_flag_of_memcached_is_taken_or_refused_by_name() {
    let flags = memcached_help::flags(&memcached::memcached_program());
    // Fewer would mean that the help is not read as it is meant.
    assert!(flags.len() > 110, "only {} forms of flags", flags.len());
    let next = AtomicUsize::new(0);
    let complaints = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..STARTERS {
            scope.spawn(|| {
                while let Some(flag) = flags.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(complaint) = try_out(flag) {
                        let mut complaints = complaints.lock().expect("no holder panics");
                        complaints.push(format!("{}: {complaint}", flag.words.join(" ")));
                    }
                }
            });
        }
    });
    let complaints = complaints.into_inner().expect("no holder panics");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Starts coua with the flag and tells what is not as it should be.
fn try_out(flag: &Flag) -> Result<(), String> {
    let folder = Folder::new();
    let words: Vec<String> = flag
        .words
        .iter()
        .map(|word| word.replace("FOLDER", &folder.text("")))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if flag.prints {
        let printed = printed(&words);
        let is_text = printed.status.success() && !printed.stdout.is_empty();
        return is_text.then_some(()).ok_or_else(|| format!("{printed:?}"));
    }
    let mut process = Process::start(coua(&words));
    let is_up = poll("a start or a refusal", || {
        let serves = process.said().contains("listening on");
        (serves || !process.runs()).then_some(serves)
    });
    if is_up {
        process.signal(Signal::TERM);
    }
    let end = process.end();
    let about: Vec<&str> = end.said.lines().filter(|line| flag.is_in(line)).collect();
    match (is_up, about.as_slice()) {
        (true, []) if end.status.success() => Ok(()),
        (true, [line]) if end.status.success() && line.contains(" has no effect: ") => Ok(()),
        (false, [line])
            if end.said.trim_end() == *line
                && line.starts_with(&format!("coua: {}: ", flag.name))
                && matches!(end.status.code(), Some(64 | 71)) =>
        {
            Ok(())
        }
        _ => Err(format!("{}: {}", end.status, end.said)),
    }
}

/// What coua prints when it does not serve.
fn printed(words: &[&str]) -> Output {
    Command::new(coua_program())
        .args(words)
        .output()
        .expect("coua can be run")
}

#[test]
fn texts_say_what_this_is() {
    let version = String::from_utf8(printed(&["-V"]).stdout).expect("a text");
    assert_eq!(
        version.trim_end(),
        concat!("coua ", env!("CARGO_PKG_VERSION"), " (memcached 1.6.45)")
    );
    let licence = String::from_utf8(printed(&["-i"]).stdout).expect("a text");
    assert!(
        licence.contains("MIT") && licence.contains("Apache"),
        "{licence}"
    );
}

/// The help and the manual page are made of the same table; both must name all that coua takes.
#[test]
fn help_and_manual_name_every_flag() {
    let help = String::from_utf8(printed(&["-h"]).stdout).expect("a text");
    let manual = String::from_utf8(printed(&["--man"]).stdout).expect("a text");
    // groff reads a bare hyphen as a sign of its own.
    let manual = manual
        .replace("\\-", "-")
        .replace("\\fB", "")
        .replace("\\fR", "");
    let mut names = own_flags(&help);
    assert!(names.len() > 60, "the help has only {names:?}");
    for flag in memcached_help::flags(&memcached::memcached_program()) {
        // The help writes this one as getopt does not know it.
        names.push(flag.bare_name().replace("--napi_ids", "--napi-ids"));
    }
    for name in names {
        for (text, which) in [(&help, "help"), (&manual, "manual")] {
            assert!(has_word(text, &name), "the {which} does not name {name}");
        }
    }
    for heading in [".SH NETWORK", ".SH MEMORY", ".SH EXAMPLES", ".SH SIGNALS"] {
        assert!(manual.contains(heading), "the manual has no {heading}");
    }
}

/// The flags that coua's own help lists: words with a hyphen at the beginnings of lines.
fn own_flags(help: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in help.lines().map(str::trim_start) {
        let words = line.split([' ', ',']).filter(|word| !word.is_empty());
        let flags = words.take_while(|word| word.starts_with('-'));
        names.extend(flags.map(|flag| flag.trim_end_matches('.').to_owned()));
    }
    names
}

/// Whether the name stands there, and not only as a part of another one.
fn has_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let behind = text[at + name.len()..].chars().next();
        !before.is_some_and(is_part) && !behind.is_some_and(is_part)
    })
}
