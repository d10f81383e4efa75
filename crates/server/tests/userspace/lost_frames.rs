//! Memory of frames that the machine loses: the server ends before a doubtful byte leaves, and the next one has all items.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use crate::scene::{ADDRESSES, Scene, exchange};

const PAGE: usize = 4096;

/// Where the largest piece of private memory lies that is no stack: the memory of the frames, where items are in a file.
fn frames(pid: u32) -> std::ops::Range<usize> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process");
    let piece = |line: &str| {
        let mut words = line.split_whitespace();
        let range = words.next()?.split_once('-')?;
        let (access, inode) = (words.next()?, words.nth(2)?);
        let is_private = access == "rw-p" && inode == "0" && words.next().is_none();
        let [start, end] = [range.0, range.1].map(|digits| usize::from_str_radix(digits, 16));
        is_private.then_some(start.ok()?..end.ok()?)
    };
    let pieces = maps.lines().filter_map(piece);
    pieces.max_by_key(|range| range.len()).expect("memory")
}

/// Loses frames until the server meets one.
fn the_next_server_has_every_item(driver: &str) {
    let path = format!("/dev/shm/coua-frames-{driver}-{}", std::process::id());
    let flags = ["-t", "1", "-e", &path, "-o", "poison_command"];
    let mut scene = Scene::open(driver, &flags);
    let mut client = scene.connect(ADDRESSES[0]);
    for number in 0..200 {
        let set = format!("set k{number} 0 0 5\r\n{:05}\r\n", number);
        exchange(&mut client, set.as_bytes(), b"STORED\r\n");
    }
    client
        .set_read_timeout(Some(Duration::from_secs(2)))
        .expect("a timeout");
    let frames = frames(scene.pid());
    let mut lost = 0;
    for address in frames.step_by(PAGE) {
        let line = format!("poison {address:x} address\r\n");
        let mut answer = [0; 128];
        let got = client
            .write_all(line.as_bytes())
            .and_then(|()| client.read(&mut answer));
        let said = got.map(|len| String::from_utf8_lossy(&answer[..len]).into_owned());
        match said.as_deref() {
            Ok("OK\r\n") => lost += 1,
            Ok(line) if line.starts_with("SERVER_ERROR this kernel") => {
                eprintln!("left out: {line}");
                return;
            }
            // A page that the system cannot lose.
            Ok(line) if line.starts_with("SERVER_ERROR") => {}
            Ok("") | Err(_) => break,
            Ok(other) => panic!("a doubtful answer: {other:?}"),
        }
    }
    let status = scene.poll_ended();
    assert_eq!(
        status.signal(),
        Some(7),
        "by SIGBUS, after {lost}: {status}"
    );
    let next = scene.start_kernels(&flags);
    let mut client = scene.connect("127.0.0.1:11211");
    for number in 0..200 {
        let value = format!("VALUE k{number} 0 5\r\n{number:05}\r\nEND\r\n");
        exchange(
            &mut client,
            format!("get k{number}\r\n").as_bytes(),
            value.as_bytes(),
        );
    }
    next.stop();
    let _ = std::fs::remove_file(path);
}

#[test]
fn a_lost_frame_of_af_xdp_ends_the_process_and_the_next_has_every_item() {
    the_next_server_has_every_item("xdp");
}
