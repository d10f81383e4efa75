//! Values of every length, and clients that do not read.

use crate::scene::{Client, Scene, value};

/// From a few bytes to values that are sent from where they lie, and values in pieces, which stay away from flash.
#[test]
fn values_of_every_length() {
    const LENS: [usize; 7] = [1, 100, 900, 4000, 15_000, 17_000, 30_000];
    // With more memory, longer items are in one piece.
    let scene = Scene::new(&["-m", "256"]);
    let mut client = scene.client();
    for (nth, len) in LENS.into_iter().enumerate() {
        client.fill(&format!("l{nth}-"), 20, len);
    }
    client.fill("pieces", 20, 100_000);
    client.fill("other", 10_000, 30_000);
    client.settle();
    let before = client.stat("get_extstore");
    let mut found = [0; LENS.len()];
    for (nth, len) in LENS.into_iter().enumerate() {
        for number in 0..20 {
            let key = format!("l{nth}-{number}");
            if let Some(bytes) = client.get(&key) {
                assert!(bytes == value(number, len), "{key}");
                found[nth] += 1;
            }
            let line = client.ask(format!("mg {key} v\r\n"));
            if line != "EN" {
                assert_eq!(line, format!("VA {len}"));
                assert!(client.take(len + 2)[..len] == value(number, len), "{key}");
            }
        }
    }
    assert!(client.stat("get_extstore") - before >= 20, "{found:?}");
    assert!(found.iter().all(|&count| count > 0), "{found:?}");
    for number in 0..20 {
        if let Some(bytes) = client.get(&format!("pieces{number}")) {
            assert!(bytes == value(number, 100_000));
        }
    }
}

/// Clients that ask for much and do not read for a while get everything in the end, and others are served meanwhile.
#[test]
fn clients_that_read_late() {
    const COUNT: usize = 200;
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    client.fill("k", COUNT, 15_000);
    client.push_out();
    let mut late: Vec<Client> = (0..4).map(|_| scene.client()).collect();
    for late in &mut late {
        let requests: String = (0..COUNT)
            .map(|number| format!("get k{number}\r\n"))
            .collect();
        late.send(requests);
    }
    for _ in 0..100 {
        client.set("small", b"value");
        assert_eq!(client.get("small").as_deref(), Some(&b"value"[..]));
    }
    let mut found = 0;
    for late in &mut late {
        for number in 0..COUNT {
            for (key, bytes, _) in late.values() {
                assert_eq!(key, format!("k{number}"));
                assert!(bytes == value(number, 15_000), "{key}");
                found += 1;
            }
        }
    }
    assert!(found > 0);
    assert!(client.stat("get_extstore") > 0);
    assert_eq!(client.stat("extstore_io_queue"), 0);
}

/// Values that arrive in pieces, for items that are on flash.
#[test]
fn long_values_with_conditions() {
    const COUNT: usize = 40;
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    client.fill("k", COUNT, 3000);
    client.push_out();
    let long = value(1, 60_000);
    for number in 0..COUNT {
        let key = format!("k{number}");
        if client.ask(format!("mg {key} u\r\n")) != "HD" {
            continue;
        }
        for (command, due) in [("add", "NOT_STORED"), ("append", "STORED")] {
            let head = format!("{command} {key} 0 0 {}\r\n", long.len());
            client.send(head);
            for piece in long.chunks(20_000) {
                client.send(piece);
            }
            assert_eq!(client.ask("\r\n"), due, "{key}");
        }
        let due = [&*value(number, 3000), &long].concat();
        assert!(client.get(&key) == Some(due), "{key}");
    }
    assert!(client.stat("recache_from_extstore") > 10);
}
