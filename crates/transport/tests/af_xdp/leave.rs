//! How it leaves: nothing is on the card afterwards.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Instant;

use coua_transport::userspace::af_xdp::{Options, open};

use crate::netns::{DEVICE, Namespace};
use crate::{LIMIT, addressed_pair, child, eventually, is_child, open_all, open_one, options};

fn has_program(namespace: &Namespace) -> bool {
    let shown = namespace.ip(&format!("link show dev {DEVICE}"));
    shown.contains("xdp")
}

#[test]
fn the_filter_goes_with_the_last_worker() {
    let pair = addressed_pair();
    assert!(!has_program(&pair.ours));
    let first = open_one(&pair.ours, &options());
    assert!(has_program(&pair.ours));
    drop(first);
    assert!(!has_program(&pair.ours));
    // At once again, while the kernel may still hold the queue.
    for _ in 0..5 {
        drop(open_all(&pair.ours, &options()));
    }
    assert!(!has_program(&pair.ours));
}

#[test]
fn nothing_is_left_on_the_card_by_a_start_that_fails() {
    let pair = addressed_pair();
    let too_many = Options {
        workers: 2,
        ..options()
    };
    assert!(pair.ours.enter(|| open(&too_many)).is_err());
    assert!(!has_program(&pair.ours));
    drop(open_one(&pair.ours, &options()));
}

#[test]
fn the_filter_goes_when_the_process_is_killed() {
    if is_child() {
        let _opened = open(&options()).expect("it opens");
        std::io::stdout().write_all(b"open\n").expect("told");
        sleep(LIMIT);
        return;
    }
    let pair = addressed_pair();
    let test = "leave::the_filter_goes_when_the_process_is_killed";
    let mut process = child(&pair.ours, "", test)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let output = BufReader::new(process.stdout.take().expect("a pipe"));
    let is_open = output
        .lines()
        .map_while(Result::ok)
        .any(|line| line.contains("open"));
    assert!(is_open, "the child says that it is open");
    assert!(has_program(&pair.ours));
    process.kill().expect("killed");
    process.wait().expect("it is dead");
    assert!(eventually(|| !has_program(&pair.ours)));
    // And a successor comes at once.
    let start = Instant::now();
    drop(open_one(&pair.ours, &options()));
    assert!(start.elapsed() < LIMIT);
}
