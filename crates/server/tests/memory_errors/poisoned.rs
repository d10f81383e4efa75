//! Losses by `poison`, which the kernel's userfaultfd makes: they need no right, and the memory is sound.
//!
//! Where the kernel cannot poison memory, the tests are left out and say so.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::process::{Client, Process, coua, poll};
use crate::user::{KEYS, Stop, USERS, at_work, connect, number, read_back, wait_until_settled};

/// Whether pages can be lost here.
pub(crate) fn is_possible(client: &mut Client) -> bool {
    client.ask("set possible 0 0 1\r\nx\r\n");
    match client.ask("poison possible\r\n").trim_end() {
        "OK" => true,
        line => {
            assert!(line.starts_with("SERVER_ERROR this kernel"), "{line}");
            #[expect(clippy::print_stderr, reason = "what is left out is told")]
            {
                eprintln!("left out: {line}");
            }
            false
        }
    }
}

/// Loses pages of all kinds under load.
fn serve_through_losses(flags: &[&str]) {
    let all = [
        &[
            "-m",
            "64",
            "-t",
            "2",
            "-o",
            "poison_command,mce_limit=10000",
        ],
        flags,
    ]
    .concat();
    let server = Process::start(coua(&all));
    let address = server.address();
    let mut client = Client::connect(address);
    if !is_possible(&mut client) {
        return;
    }
    let (mut users, lost) = at_work(address, |client| {
        let mut lost = 0;
        for round in 0..90 {
            let user = round % USERS;
            let key = (round * 37 % 10 * 300 + round % 7 * (round % 3)) % KEYS;
            let kind = [
                "item",
                "superblock",
                "value",
                "page_table",
                "index",
                "directory",
                "item untouched",
                "copies",
                "buffers",
            ][round as usize % 9];
            let said = client.ask(&format!("poison u{user}-{key} {kind}\r\n"));
            match said.trim_end() {
                "OK" => lost += 1,
                "NOT_FOUND" => {}
                line => panic!("{line}"),
            };
            std::thread::sleep(Duration::from_millis(20));
        }
        lost
    });
    assert!(lost > 20, "{lost} pages were lost");
    let (missing, closed): (u64, u64) = users.iter().fold((0, 0), |sum, user| {
        (sum.0 + user.missing, sum.1 + user.closed)
    });
    // What shows that losses were met, and that no more is missing than can have lain there.
    let told = number(&mut client, "stats memory_errors", "errors");
    assert!(told > 0 && missing > 0, "{told} {missing}");
    assert!(missing < lost * 400, "{missing} of {lost} pages");
    // Only who was promised a value or has sent one is closed.
    assert!(closed <= number(&mut client, "stats memory_errors", "connections_closed"));
    // All other items are there.
    let (all, missing) = read_back(&mut users);
    assert!(missing < all / 2, "{missing} of {all}");
    wait_until_settled(&mut client);
    assert!(
        server.said().contains("memory error: 4096 bytes at"),
        "{}",
        server.said()
    );
}

#[test]
fn no_value_is_wrong_and_others_are_answered() {
    serve_through_losses(&[]);
}

#[test]
fn no_value_is_wrong_in_a_file_of_memory() {
    let path = std::path::Path::new("/dev/shm").join(format!("coua-errors-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    serve_through_losses(&["-e", path.to_str().expect("ASCII")]);
    let _ = std::fs::remove_file(&path);
}

#[test]
fn what_a_connection_has_sent_may_be_lost_and_others_are_served() {
    let server = Process::start(coua(&["-t", "1", "-o", "poison_command"]));
    let mut client = Client::connect(server.address());
    if !is_possible(&mut client) {
        return;
    }
    let mut unfinished = connect(server.address());
    unfinished
        .write_all(b"set half 0 0 10\r\n01234")
        .expect("sent");
    poll("the half request to be kept", || {
        (number(&mut client, "stats", "read_buf_count") > 0).then_some(())
    });
    assert_eq!(client.ask("poison half buffers\r\n").trim_end(), "OK");
    unfinished.write_all(b"56789\r\n").expect("sent");
    let mut rest = Vec::new();
    // A close, or a reset if it had not read everything.
    let _ = unfinished.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!(number(&mut client, "stats", "coua_close_memory_error"), 1);
    assert_eq!(client.ask("get half\r\n").trim_end(), "END");
    poll("the loss to be seen to", || {
        let pages = number(
            &mut client,
            "stats memory_errors",
            "errors_in_connection_buffers",
        );
        (pages == 1).then_some(())
    });
}

/// A value that leaves from its segment may lose its end while the kernel copies it: then the reply has no
/// end either.
#[test]
fn a_large_value_is_whole_or_cut_off() {
    const LEN: usize = 200_000;
    let flags = ["-t", "2", "-o", "poison_command,mce_limit=10000"];
    let server = Process::start(coua(&flags));
    let address = server.address();
    // Connections are dealt evenly: the reader has a worker of its own.
    let mut poisoner = Client::connect(address);
    if !is_possible(&mut poisoner) {
        return;
    }
    let value = "0123456789".repeat(LEN / 10);
    let ends = AtomicBool::new(false);
    let (whole, cut_off) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_again_and_again(address, value.as_bytes(), &ends));
        let stop = Stop(&ends);
        for round in 0..2000_u64 {
            poisoner.ask(&format!("set big 0 0 {LEN}\r\n{value}\r\n"));
            // At any moment of the reader's.
            std::thread::sleep(Duration::from_micros(round * 7 % 300));
            if poisoner.ask("poison big value untouched\r\n").is_empty() {
                poisoner = Client::connect(address);
            }
        }
        drop(stop);
        reader.join().expect("no value is wrong")
    });
    assert!(whole > 0, "{whole} whole, {cut_off} cut off");
}

/// Reads a value until it is told to end; how often it came as a whole, and how often it was cut off.
fn read_again_and_again(address: SocketAddr, value: &[u8], ends: &AtomicBool) -> (u32, u32) {
    let (mut whole, mut cut_off) = (0, 0);
    let mut stream = connect(address);
    let head = format!("VALUE big 0 {}\r\n", value.len());
    let mut answer = vec![0; head.len() + value.len() + b"\r\nEND\r\n".len()];
    while !ends.load(SeqCst) {
        let asked = stream.write_all(b"get big\r\n");
        let missing = &mut answer[..b"END\r\n".len()];
        let came = asked.and_then(|()| stream.read_exact(missing));
        if came.is_ok() && missing == b"END\r\n" {
            continue;
        }
        let rest = came.and_then(|()| stream.read_exact(&mut answer[b"END\r\n".len()..]));
        if rest.is_err() {
            cut_off += 1;
            stream = connect(address);
            continue;
        }
        let wrong = (answer[head.len()..].iter().zip(value)).position(|(is, was)| is != was);
        assert_eq!(wrong, None, "a wrong value");
        whole += 1;
    }
    (whole, cut_off)
}

#[test]
fn the_command_is_unknown_unless_it_is_permitted() {
    let server = Process::start(coua(&[]));
    let mut client = Client::connect(server.address());
    client.ask("set key 0 0 1\r\nx\r\n");
    assert_eq!(client.ask("poison key\r\n").trim_end(), "ERROR");
    assert_eq!(number(&mut client, "stats memory_errors", "errors"), 0);
}

#[test]
fn too_many_losses_end_the_server_in_order_and_the_next_is_warm() {
    let path = std::path::Path::new("/dev/shm").join(format!("coua-storm-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let file = path.to_str().expect("ASCII");
    let flags = [
        "-t",
        "2",
        "-e",
        file,
        "-o",
        "poison_command,mce_limit=2/600",
    ];
    let server = Process::start(coua(&flags));
    let mut client = Client::connect(server.address());
    if is_possible(&mut client) {
        for key in 0..100 {
            let value = "x".repeat(5000);
            client.ask(&format!("set key{key} 0 0 5000\r\n{value}\r\n"));
        }
        for key in 0..3 {
            // The connection may be gone after the third.
            client.send(&format!("poison key{} item untouched\r\n", key * 10));
        }
        let end = server.end();
        assert_eq!(end.status.code(), Some(71), "{}", end.said);
        assert!(end.said.contains("mce_limit"), "{}", end.said);
        let server = Process::start(coua(&flags));
        let mut client = Client::connect(server.address());
        let left = number(&mut client, "stats", "curr_items");
        assert!((90..=98).contains(&left), "{left}");
    }
    let _ = std::fs::remove_file(&path);
}
