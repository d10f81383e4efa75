//! Files that fail under a server that runs: what lay there is a miss, and everything else goes on.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use crate::scene::{Scene, value};

const COUNT: usize = 10_000;

/// Somebody overwrites the file: nothing of that is taken for a value.
#[test]
fn a_damaged_file() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    client.fill("k", COUNT, 1000);
    client.push_out();
    let file = OpenOptions::new()
        .write(true)
        .open(scene.folder.path("flash"))
        .expect("the file");
    let noise = value(7, 1 << 20);
    for mib in 0..256 {
        file.write_all_at(&noise, mib << 20)
            .expect("it can be written");
    }
    file.sync_all().expect("it can be written");
    let mut found = 0;
    for number in 0..COUNT {
        if let Some(bytes) = client.get(&format!("k{number}")) {
            assert!(bytes == value(number, 1000), "k{number}");
            found += 1;
        }
    }
    assert!(found < COUNT / 2, "{found}");
    assert!(client.stat("badcrc_from_extstore") > 1000);
    // A second look reads nothing: their slots are gone.
    let reads = client.stat("extstore_objects_read");
    for number in 0..1000 {
        let _ = client.get(&format!("k{number}"));
    }
    assert!(client.stat("extstore_objects_read") - reads < 50);
    client.fill("k", COUNT, 500);
    assert!(client.get("k9999") == Some(value(9999, 500)));
}

/// The file becomes shorter, so that reads and writes fail or make it long again. The server serves on.
#[test]
fn a_file_that_is_cut_off() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    client.fill("k", COUNT, 1000);
    client.push_out();
    let file = OpenOptions::new()
        .write(true)
        .open(scene.folder.path("flash"))
        .expect("the file");
    file.set_len(0).expect("it can be cut off");
    let mut found = 0;
    for number in 0..COUNT {
        if let Some(bytes) = client.get(&format!("k{number}")) {
            assert!(bytes == value(number, 1000), "k{number}");
            found += 1;
        }
    }
    assert!(found < COUNT / 2, "{found}");
    // Conditional commands find nothing either.
    client
        .send("incr k1 1\r\nappend k2 0 0 1\r\nx\r\nadd k3 0 0 1\r\n3\r\ncas k4 0 0 1 1\r\n4\r\n");
    let lines: Vec<String> = (0..4).map(|_| client.line()).collect();
    assert_eq!(lines, ["NOT_FOUND", "NOT_STORED", "STORED", "NOT_FOUND"]);
    client.fill("k", COUNT, 500);
    client.fill("other", 40_000, 1000);
    let mut found = 0;
    for number in 0..COUNT {
        if let Some(bytes) = client.get(&format!("k{number}")) {
            assert!(bytes == value(number, 500), "k{number}");
            found += 1;
        }
    }
    assert!(found > 0, "nothing is kept any more");
}
