//! Items on flash behind a stack of the server's own: its worker polls both, and sleeps on both.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::process::Folder;
use crate::scene::{ADDRESSES, Scene, ask};

/// Bytes of a value that is in pieces on flash.
const LONG: usize = 300_000;
const COUNT: usize = 60_000;

fn value(number: usize, len: usize) -> Vec<u8> {
    let unit = format!("{number}:");
    unit.bytes().cycle().take(len).collect()
}

fn set(client: &mut BufReader<TcpStream>, key: &str, bytes: &[u8]) {
    let head = format!("set {key} 0 0 {} noreply\r\n", bytes.len());
    let request = [head.as_bytes(), bytes, b"\r\n"].concat();
    client.get_mut().write_all(&request).expect("it is open");
}

fn line(client: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    client.read_line(&mut line).expect("an answer");
    line.trim_end().to_owned()
}

#[test]
fn items_on_flash() {
    let folder = Folder::new();
    let path = format!("ext_path={}:256m,ext_item_size=1", folder.text("flash"));
    let scene = Scene::open("packet", &["-m", "64", "-o", &path]);
    let mut client = BufReader::new(scene.connect(ADDRESSES[0]));
    for number in 0..8 {
        set(&mut client, &format!("long{number}"), &value(number, LONG));
    }
    for number in 0..COUNT {
        set(&mut client, &format!("k{number}"), &value(number, 1000));
        if number % 100 == 0 {
            client.get_mut().write_all(b"mn\r\n").expect("it is open");
            assert_eq!(line(&mut client), "MN");
        }
    }
    let mut found = 0;
    for number in 0..COUNT + 8 {
        let (key, len, due) = match number.checked_sub(COUNT) {
            Some(number) => (format!("long{number}"), LONG, value(number, LONG)),
            None => (format!("k{number}"), 1000, value(number, 1000)),
        };
        if number < COUNT && number % 10 != 0 {
            continue;
        }
        let request = format!("mg {key} v u\r\n");
        client
            .get_mut()
            .write_all(request.as_bytes())
            .expect("it is open");
        if line(&mut client) == format!("VA {len}") {
            let mut bytes = vec![0; len + 2];
            client.read_exact(&mut bytes).expect("an answer");
            assert!(bytes[..len] == due, "{key}");
            found += 1;
        }
    }
    let stats = ask(client.get_mut(), "stats");
    let hits = stats.split("STAT get_extstore ").nth(1).expect("flash");
    let hits: usize = hits
        .split("\r\n")
        .next()
        .and_then(|it| it.parse().ok())
        .expect("a number");
    assert!(found > COUNT / 10 * 3 / 4 && hits > 500, "{found} {hits}");
    scene.stop();
}
