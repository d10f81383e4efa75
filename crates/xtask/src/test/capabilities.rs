//! memccapable, libmemcached's list of what a server can do: coua must pass and fail exactly what memcached does.

use std::path::Path;
use std::process::Stdio;
use std::thread;

use anyhow::{Context as _, Result, ensure};

use super::site::Site;
use super::under_test::{FLAGS, coua};
use super::{Context, Outcome};
use crate::commands::program;

/// The number of tests in libmemcached 1.1: 27 of the text protocol and 27 of the binary one.
const TESTS: usize = 54;
/// memccapable prints each test's name, padded to so many columns, before it runs the test.
const NAME_WIDTH: usize = 40;

/// One test's name, and whether it passed.
type Capability = (String, bool);

/// All of its tests, on both servers at the same time, because a failing test waits seconds for an
/// answer.
pub(crate) fn memccapable(context: &Context) -> Result<Outcome> {
    let path = coua(context)?;
    let (ours, theirs) = thread::scope(|scope| {
        let ours = scope.spawn(|| capabilities(&context.site, &path));
        let theirs = capabilities(&Site::Loopback, &context.tools.memcached);
        (ours.join().expect("memccapable on coua panics"), theirs)
    });
    let (ours, theirs) = (ours?, theirs?);
    let passed = |all: &[Capability]| all.iter().filter(|(_, well)| *well).count();
    ensure!(
        theirs.len() == TESTS && passed(&theirs) > TESTS * 9 / 10,
        "memcached passes {} of {} tests: is it memccapable 1.1, and a memcached with all its dialects?",
        passed(&theirs),
        theirs.len()
    );
    let differing: Vec<String> = theirs
        .iter()
        .filter(|their| !ours.contains(their))
        .map(|(name, well)| format!("{name} ({})", if *well { "failed" } else { "passed" }))
        .collect();
    ensure!(
        differing.is_empty(),
        "unlike memcached in {} of {TESTS} tests: {}",
        differing.len(),
        differing.join(", ")
    );
    println!(
        "  the same {TESTS} results as memcached, {} passed",
        passed(&ours)
    );
    Ok(Outcome::Passed)
}

fn capabilities(site: &Site, path: &Path) -> Result<Vec<Capability>> {
    let server = site.start(path, FLAGS)?;
    let mut command = program("memccapable");
    command.args(["-h", site.host(), "-p", &server.port.to_string()]);
    // Its status is 1 if a test fails, as some do on every memcached since 1.6.
    let output = site
        .client(command)
        .stderr(Stdio::null())
        .output()
        .context("memccapable cannot be run")?;
    read(&String::from_utf8_lossy(&output.stdout))
}

/// The line of a test that passes ends with `[pass]`. A test that fails reports that on standard
/// error, so that the next name follows at once.
fn read(text: &str) -> Result<Vec<Capability>> {
    let mut all = Vec::new();
    for line in text.lines() {
        let (names, last_passed) = match line.strip_suffix("[pass]") {
            Some(names) => (names, true),
            None => (line, false),
        };
        ensure!(
            names.is_ascii() && names.len().is_multiple_of(NAME_WIDTH),
            "memccapable says: {line}"
        );
        let count = names.len() / NAME_WIDTH;
        for index in 0..count {
            let name = names[index * NAME_WIDTH..][..NAME_WIDTH].trim_end();
            all.push((name.to_owned(), last_passed && index + 1 == count));
        }
    }
    Ok(all)
}

#[test]
fn failed_tests_are_found_between_those_that_passed() {
    let text = format!(
        "{:40}[pass]\n{:40}{:40}{:40}[pass]\n{:40}",
        "ascii add", "ascii delete", "ascii delete noreply", "ascii incr", "binary stat"
    );
    let seen = read(&text).expect("well formed");
    let wanted = [
        ("ascii add", true),
        ("ascii delete", false),
        ("ascii delete noreply", false),
        ("ascii incr", true),
        ("binary stat", false),
    ];
    assert_eq!(seen, wanted.map(|(name, well)| (name.to_owned(), well)));
    assert!(read("memccapable: no such host\n").is_err());
}
