//! The next process finds on flash what this one has left there, however it ended.

use std::fs;

use rustix::process::Signal;

use crate::process::{Folder, Process, poll};
use crate::scene::{Client, start, value};

const COUNT: usize = 10_000;

/// What is found of what was stored, all of it right.
fn found(client: &mut Client, deleted: impl Fn(usize) -> bool) -> usize {
    let mut found = 0;
    for number in 0..COUNT {
        if let Some(bytes) = client.get(&format!("k{number}")) {
            assert!(bytes == value(number, 1000), "k{number}");
            assert!(!deleted(number), "k{number} is back");
            found += 1;
        }
    }
    found
}

/// Stores items, pushes them out, deletes each tenth, ends the server so, and looks at what the next one has.
fn over_restart(end: impl Fn(&mut Process)) {
    let folder = Folder::new();
    let memory = folder.text("memory");
    let flags = ["-e", memory.as_str()];
    let mut process = start(&folder, &flags);
    let mut client = Client::connect(process.address());
    client.fill("k", COUNT, 1000);
    client.push_out();
    for number in (0..COUNT).step_by(10) {
        let line = client.ask(format!("delete k{number}\r\n"));
        assert!(["DELETED", "NOT_FOUND"].contains(&line.as_str()), "{line}");
    }
    let items = client.stat("extstore_objects_used");
    assert!(items > 1000, "{items}");
    drop(client);
    end(&mut process);
    drop(process);
    let process = start(&folder, &flags);
    let mut client = Client::connect(process.address());
    process.hear("flash: all of it is found again");
    let now = client.stat("extstore_objects_used");
    assert!(now > items * 9 / 10, "{now} of {items}");
    let found = found(&mut client, |number| number % 10 == 0);
    assert!(found > COUNT / 4, "{found}");
    assert!(client.stat("get_extstore") > 1000);
    assert_eq!(client.stat("badcrc_from_extstore"), 0);
    // It goes on from there.
    client.push_out();
    client.fill("k", COUNT, 1000);
}

#[test]
fn a_clean_stop() {
    over_restart(|process| {
        process.signal(Signal::TERM);
        poll("the end", || (!process.runs()).then_some(()));
    });
}

#[test]
fn a_death() {
    over_restart(|process| {
        process.signal(Signal::KILL);
        poll("the end", || (!process.runs()).then_some(()));
    });
}

/// A new version takes the place of the old one, in the same process.
#[test]
fn a_hand_over() {
    let folder = Folder::new();
    let memory = folder.text("memory");
    let process = start(&folder, &["-e", &memory]);
    let address = process.address();
    let mut client = Client::connect(address);
    client.fill("k", COUNT, 1000);
    client.push_out();
    drop(client);
    process.signal(Signal::USR2);
    process.hear("flash: all of it is found again");
    let mut client = Client::connect(address);
    let found = found(&mut client, |_| false);
    assert!(found > COUNT / 4, "{found}");
    assert!(client.stat("get_extstore") > 1000);
}

/// Another file in the place of the one of before: nothing that was on flash is there, and nothing wrong is answered.
#[test]
fn another_file() {
    let folder = Folder::new();
    let memory = folder.text("memory");
    let flags = ["-e", memory.as_str()];
    let process = start(&folder, &flags);
    let mut client = Client::connect(process.address());
    client.fill("k", COUNT, 1000);
    client.push_out();
    let on_flash = client.stat("extstore_objects_used");
    assert!(on_flash > 1000);
    drop(client);
    process.signal(Signal::TERM);
    assert!(process.end().status.success());
    fs::remove_file(folder.path("flash")).expect("the file");
    let process = start(&folder, &flags);
    let mut client = Client::connect(process.address());
    process.hear("flash: it begins empty");
    assert_eq!(client.stat("extstore_objects_used"), 0);
    found(&mut client, |_| false);
    client.push_out();
    assert!(client.stat("extstore_objects_used") > 1000);
    // And without flash at all.
    drop(client);
    process.signal(Signal::TERM);
    assert!(process.end().status.success());
    let process = Process::start(crate::process::coua(&[
        "-m", "32", "-t", "1", "-e", &memory,
    ]));
    let mut client = Client::connect(process.address());
    found(&mut client, |_| false);
    client.fill("k", COUNT, 1000);
}
