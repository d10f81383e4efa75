//! Values come back right, and in the order of their requests.

use crate::scene::{Scene, value};

const COUNT: usize = 10_000;
const LEN: usize = 1000;

/// Everything that was stored is asked for, in multi-gets and in pipelines, and every answer is its request's.
#[test]
fn values_come_back_from_flash() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    client.fill("k", COUNT, LEN);
    client.push_out();

    let mut found = 0;
    for first in (0..COUNT).step_by(100) {
        let keys: Vec<String> = (first..first + 100)
            .map(|number| format!("k{number}"))
            .collect();
        client.send(format!("get {}\r\n", keys.join(" ")));
        let values = client.values();
        let mut last = None;
        for (key, bytes, _) in &values {
            let number: usize = key[1..].parse().expect("a number");
            assert!(last < Some(number), "{key} is out of order");
            last = Some(number);
            assert!(*bytes == value(number, LEN), "{key} has another value");
        }
        found += values.len();
    }
    assert!(found > COUNT / 4, "{found} of {COUNT} are found");
    assert!(client.stat("get_extstore") > COUNT as u64 / 4);

    // The same in pipelines of single gets, with other requests between.
    for first in (0..COUNT).step_by(50) {
        let mut request = String::new();
        for number in first..first + 50 {
            request += &format!("get k{number}\r\n");
            if number % 10 == 0 {
                request += &format!("set between 0 0 6\r\n{number:06}\r\nget between\r\n");
            }
        }
        client.send(request);
        for number in first..first + 50 {
            for (key, bytes, _) in client.values() {
                assert_eq!(key, format!("k{number}"));
                assert!(bytes == value(number, LEN), "{key} has another value");
            }
            if number % 10 == 0 {
                assert_eq!(client.line(), "STORED");
                let values = client.values();
                assert_eq!(values[0].1, format!("{number:06}").into_bytes());
            }
        }
    }
}

/// A set or a delete between two gets of a key on flash is seen by the second one, within one pipeline.
#[test]
fn requests_keep_their_order() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    client.fill("k", 1000, LEN);
    client.push_out();
    let mut seen = 0;
    for number in 0..1000 {
        let change = match number % 2 {
            0 => format!("set k{number} 0 0 3\r\nnew\r\n"),
            _ => format!("delete k{number}\r\n"),
        };
        client.send(format!("get k{number}\r\n{change}get k{number}\r\n"));
        let before = client.values();
        let changed = client.line();
        let after = client.values();
        if let Some((_, bytes, _)) = before.first() {
            assert!(*bytes == value(number, LEN), "k{number}");
            seen += 1;
        }
        match number % 2 {
            0 => assert_eq!((changed.as_str(), &*after[0].1), ("STORED", &b"new"[..])),
            _ => {
                let due = if before.is_empty() {
                    "NOT_FOUND"
                } else {
                    "DELETED"
                };
                assert_eq!(changed, due, "k{number}");
                assert!(after.is_empty(), "k{number} is back");
            }
        }
    }
    assert!(seen > 200, "{seen} are found");
    assert!(client.stat("get_extstore") > 100);
}

/// Others are served while somebody waits, and many clients read at once.
#[test]
fn many_clients_read_at_once() {
    let scene = Scene::new(&["-t", "2"]);
    let mut client = scene.client();
    client.fill("k", COUNT, LEN);
    client.push_out();
    let address = scene.address();
    std::thread::scope(|scope| {
        for nth in 0..8 {
            scope.spawn(move || {
                let mut client = crate::scene::Client::connect(address);
                let mut found = 0;
                for first in (nth * 17..COUNT).step_by(97) {
                    let keys = [first, (first * 7) % COUNT, (first * 13) % COUNT];
                    client.send(format!("get k{} k{} k{}\r\n", keys[0], keys[1], keys[2]));
                    for (key, bytes, _) in client.values() {
                        let number: usize = key[1..].parse().expect("a number");
                        assert!(keys.contains(&number));
                        assert!(bytes == value(number, LEN), "{key} has another value");
                        found += 1;
                    }
                }
                assert!(found > 0);
            });
        }
    });
    assert!(client.stat("get_extstore") > 0);
    assert_eq!(client.stat("extstore_io_queue"), 0);
}
