//! Losses while items go to flash and are read from there, over a real file: of items on their way, of the memory that is
//! written from and read into, and of the index. Then the server is killed, and the next one has right values alone.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::poisoned::is_possible;
use crate::process::{Client, Folder, Process, coua};
use crate::user::{Load, USERS, at_work_with, number, read_back, wait_until_settled};

/// Three users with some 65 MiB, twice of what memory holds.
const LOAD: Load = Load {
    keys: 12_000,
    len_max: 3500,
};

fn start(folder: &Folder) -> Process {
    let path = format!("ext_path={}:256m,ext_item_size=1", folder.text("flash"));
    let file = std::path::Path::new("/dev/shm").join(format!("coua-flash-{}", std::process::id()));
    let flags = [
        "-m",
        "32",
        "-t",
        "2",
        "-e",
        file.to_str().expect("ASCII"),
        "-o",
        &path,
        "-o",
        "poison_command,mce_limit=10000",
    ];
    Process::start(coua(&flags))
}

/// Loses pages under load, as `how` says.
fn lose(client: &mut Client, how: &str) -> u64 {
    let mut lost = 0;
    for round in 0..160_u64 {
        let key = format!("u{}-{}", round % USERS, round * 7919 % LOAD.keys);
        let what = match round % 8 {
            // Staging, and memory of reads, whose pages are used from the end on.
            0..=2 => format!("{} flash", round * 97),
            3 | 4 => format!("{} flash", 100_000 * 8 - round % 6),
            5 | 6 => format!("{key} item"),
            _ if round % 32 == 7 => format!("{key} bucket"),
            _ => format!("{key} value"),
        };
        let what = match what.split_once(' ') {
            Some((number, "flash")) => format!("{number} flash{how}"),
            _ => format!("{what}{how}"),
        };
        match client.ask(&format!("poison {what}\r\n")).trim_end() {
            "OK" => lost += 1,
            "NOT_FOUND" => {}
            // The kernel may have lost a pinned page all the same.
            "SERVER_ERROR the page cannot be poisoned" if !how.is_empty() => lost += 1,
            line => panic!("{line}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
    lost
}

/// Loses pages under load, kills the server, and looks at what the next one has.
pub(crate) fn serve_through_losses(how: &str) {
    let folder = Folder::new();
    let server = start(&folder);
    let mut client = Client::connect(server.address());
    if how.is_empty() && !is_possible(&mut client) {
        return;
    }
    let (mut users, lost) = at_work_with(server.address(), LOAD, |client| {
        // Until reads come from flash.
        while number(client, "stats", "get_extstore") < 500 {
            thread::sleep(Duration::from_millis(20));
        }
        lose(client, how)
    });
    assert!(lost > 60, "{lost} pages were lost");
    let told = number(
        &mut client,
        "stats memory_errors",
        "errors_in_flash_buffers",
    );
    // Of pinned memory Linux 6.1 says nothing before it is touched.
    let least = if how.is_empty() { 4 } else { 1 };
    assert!(told >= least, "{told}");
    assert_eq!(number(&mut client, "stats", "badcrc_from_extstore"), 0);
    wait_until_settled(&mut client);
    let (all, missing) = read_back(&mut users);
    assert!(missing < all / 2, "{missing} of {all}");
    assert!(
        server.said().contains("of buffers of flash"),
        "{}",
        server.said()
    );
    // As it is, with what is on its way.
    server.signal(Signal::KILL);
    drop(server);
    let next = start(&folder);
    for user in &mut users {
        user.move_to(next.address());
    }
    let (all, missing) = read_back(&mut users);
    assert!(missing < all / 2, "{missing} of {all} after the restart");
    assert!(!next.said().contains("begins empty"), "{}", next.said());
}

#[test]
fn no_value_is_wrong_while_flash_is_read_and_written() {
    serve_through_losses("");
}
