//! Commands that need the old item do as if it were in memory.

use crate::scene::{Client, Scene, value};

/// Items of each kind of test. Not all of them need to be on flash, but many are.
const COUNT: usize = 100;

/// Runs `each` for items that are on flash, mostly, and sees that some were brought back for it.
fn over_flash(prepare: impl Fn(&mut Client, usize), each: impl Fn(&mut Client, usize)) {
    over_keys(|number| format!("k{number}"), prepare, each);
}

/// As [`over_flash`], for these keys.
fn over_keys(
    key: impl Fn(usize) -> String,
    prepare: impl Fn(&mut Client, usize),
    each: impl Fn(&mut Client, usize),
) {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    for number in 0..COUNT {
        prepare(&mut client, number);
    }
    client.push_out();
    let before = client.stat("recache_from_extstore");
    for number in 0..COUNT {
        // Where the device did not keep up, it was evicted.
        if is_there(&mut client, &key(number)) {
            each(&mut client, number);
        }
    }
    let brought_back = client.stat("recache_from_extstore") - before;
    assert!(
        brought_back > COUNT as u64 / 10,
        "{brought_back} of {COUNT} were on flash"
    );
    assert_eq!(client.stat("miss_from_extstore"), 0);
    assert_eq!(client.stat("badcrc_from_extstore"), 0);
}

/// Whether there is an item, without counting that as an access.
fn is_there(client: &mut Client, key: &str) -> bool {
    client.ask(format!("mg {key} u\r\n")) == "HD"
}

fn stored(client: &mut Client, number: usize) {
    client.set(&format!("k{number}"), &value(number, 300));
}

/// The CAS of an item, without counting that as an access, which would keep it in memory.
fn shown_cas(client: &mut Client, number: usize) -> u64 {
    let line = client.ask(format!("mg k{number} c u\r\n"));
    let cas = line.strip_prefix("HD c").expect("a CAS");
    cas.parse().expect("a number")
}

#[test]
fn append_and_prepend() {
    over_flash(stored, |client, number| {
        let key = format!("k{number}");
        assert_eq!(
            client.ask(format!("append {key} 0 0 3\r\nend\r\n")),
            "STORED"
        );
        assert_eq!(
            client.ask(format!("prepend {key} 0 0 5\r\nbegin\r\n")),
            "STORED"
        );
        let due = [b"begin", &*value(number, 300), b"end"].concat();
        assert!(client.get(&key) == Some(due), "{key}");
    });
}

#[test]
fn add_and_replace() {
    over_flash(stored, |client, number| {
        let key = format!("k{number}");
        assert_eq!(
            client.ask(format!("add {key} 0 0 3\r\nnew\r\n")),
            "NOT_STORED"
        );
        assert!(client.get(&key) == Some(value(number, 300)), "{key}");
        assert_eq!(
            client.ask(format!("replace {key} 0 0 3\r\nnew\r\n")),
            "STORED"
        );
        assert_eq!(client.get(&key).as_deref(), Some(&b"new"[..]));
    });
}

/// A CAS that a client was shown before its item went to flash still holds afterwards.
#[test]
fn cas() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    let mut shown = Vec::new();
    for number in 0..COUNT {
        stored(&mut client, number);
        shown.push(shown_cas(&mut client, number));
    }
    client.push_out();
    for (number, cas) in shown.into_iter().enumerate() {
        let key = format!("k{number}");
        if !is_there(&mut client, &key) {
            continue;
        }
        let wrong = cas + 1_000_000_000;
        assert_eq!(
            client.ask(format!("cas {key} 0 0 3 {wrong}\r\nbad\r\n")),
            "EXISTS"
        );
        let (bytes, now) = client.gets(&key).expect("it is there");
        assert!(bytes == value(number, 300), "{key}");
        assert_eq!(now, cas, "{key}");
        assert_eq!(
            client.ask(format!("cas {key} 0 0 3 {cas}\r\nnew\r\n")),
            "STORED"
        );
        assert_eq!(
            client.ask(format!("cas {key} 0 0 3 {cas}\r\nbad\r\n")),
            "EXISTS"
        );
        assert_eq!(client.get(&key).as_deref(), Some(&b"new"[..]));
    }
    assert!(client.stat("recache_from_extstore") > COUNT as u64 / 10);
}

#[test]
fn counting() {
    let long = "n".repeat(150);
    over_keys(
        |number| format!("{long}{number}"),
        |client, number| client.set(&format!("{long}{number}"), number.to_string().as_bytes()),
        |client, number| {
            let key = format!("{long}{number}");
            assert_eq!(
                client.ask(format!("incr {key} 5\r\n")),
                (number + 5).to_string()
            );
            assert_eq!(
                client.ask(format!("decr {key} 1\r\n")),
                (number + 4).to_string()
            );
            assert_eq!(
                client.ask(format!("ma {key} D2 v\r\n")),
                format!("VA {}", (number + 6).to_string().len())
            );
            assert_eq!(client.line(), (number + 6).to_string());
        },
    );
}

#[test]
fn values_that_are_no_numbers() {
    over_flash(
        |client, number| client.set(&format!("k{number}"), &[b'x'; 200]),
        |client, number| {
            let line = client.ask(format!("incr k{number} 1\r\n"));
            assert_eq!(
                line,
                "CLIENT_ERROR cannot increment or decrement non-numeric value"
            );
        },
    );
}

#[test]
fn touch_and_get_and_touch() {
    over_flash(stored, |client, number| {
        let key = format!("k{number}");
        match number % 2 {
            0 => assert_eq!(client.ask(format!("touch {key} 1000\r\n")), "TOUCHED"),
            _ => {
                client.send(format!("gat 1000 {key}\r\n"));
                let values = client.values();
                assert!(values[0].1 == value(number, 300), "{key}");
            }
        }
        let ttl = client.ask(format!("mg {key} t\r\n"));
        let ttl: u64 = ttl
            .strip_prefix("HD t")
            .expect("a time")
            .parse()
            .expect("a number");
        assert!((900..=1000).contains(&ttl), "{ttl}");
    });
}

/// `mg` that only reads is answered from flash; `mg` that changes the item brings it back.
#[test]
fn meta_gets() {
    over_flash(stored, |client, number| {
        let key = format!("k{number}");
        let line = client.ask(format!("mg {key} v f s k\r\n"));
        assert_eq!(line, format!("VA 300 f0 s300 k{key}"));
        let bytes = client.take(302);
        assert!(bytes[..300] == value(number, 300), "{key}");
        assert_eq!(client.ask(format!("mg {key} T500 t\r\n")), "HD t500");
        let line = client.ask(format!("me {key}\r\n"));
        assert!(line.starts_with(&format!("ME {key} exp=")), "{line}");
    });
}

/// Recaching by a token: it is won once, also of an item that was on flash.
#[test]
fn win_tokens() {
    over_flash(stored, |client, number| {
        let key = format!("k{number}");
        assert_eq!(client.ask(format!("md {key} I T60\r\n")), "HD");
        assert_eq!(client.ask(format!("mg {key} s\r\n")), "HD s300 X W");
        assert_eq!(client.ask(format!("mg {key} s\r\n")), "HD s300 Z X");
    });
}

/// An item that was marked before it went to flash is, when it comes back.
#[test]
fn marks_stay() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    client.fill_with_accessed();
    for number in 0..10 * COUNT {
        stored(&mut client, number);
        assert_eq!(client.ask(format!("md k{number} I T600\r\n")), "HD");
    }
    client.push_out();
    let before = client.stat("recache_from_extstore");
    for number in 0..10 * COUNT {
        if !is_there(&mut client, &format!("k{number}")) {
            continue;
        }
        assert_eq!(client.ask(format!("mg k{number} s\r\n")), "HD s300 X W");
        assert_eq!(client.ask(format!("mg k{number} s\r\n")), "HD s300 Z X");
    }
    let brought_back = client.stat("recache_from_extstore") - before;
    assert!(brought_back > 0);
}

/// All items of a tag become stale, those on flash too.
#[test]
fn tags() {
    let tagged = |client: &mut Client, number| {
        let head = format!("ms k{number} 300 Gtag{}\r\n", number % 2);
        let request = [head.as_bytes(), &value(number, 300), b"\r\n"].concat();
        assert_eq!(client.ask(request), "HD");
    };
    over_flash(tagged, |client, number| {
        if number < 2 {
            let flag = ["", " I"][number];
            assert_eq!(client.ask(format!("md tag{number} G{flag}\r\n")), "HD");
        }
        let due = ["EN", "HD s300 X W"][number % 2];
        assert_eq!(client.ask(format!("mg k{number} s\r\n")), due);
    });
}

#[test]
fn meta_deletes_with_conditions() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    let mut shown = Vec::new();
    for number in 0..COUNT {
        stored(&mut client, number);
        shown.push(shown_cas(&mut client, number));
    }
    client.push_out();
    for (number, cas) in shown.into_iter().enumerate() {
        let key = format!("k{number}");
        if !is_there(&mut client, &key) {
            continue;
        }
        assert_eq!(client.ask(format!("md {key} C{}\r\n", cas + 7)), "EX");
        assert_eq!(client.ask(format!("md {key} C{cas}\r\n")), "HD");
        assert_eq!(client.get(&key), None);
    }
    assert!(client.stat("recache_from_extstore") > COUNT as u64 / 10);
}

/// A plain delete of an item on flash reads nothing, and the item stays away.
#[test]
fn deletes() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    for number in 0..COUNT {
        stored(&mut client, number);
    }
    client.push_out();
    let reads = client.stat("extstore_objects_read");
    let mut deleted = 0;
    for number in 0..COUNT {
        deleted += usize::from(client.ask(format!("delete k{number}\r\n")) == "DELETED");
        assert_eq!(client.get(&format!("k{number}")), None);
        assert_eq!(
            client.ask(format!("add k{number} 0 0 1\r\n1\r\n")),
            "STORED"
        );
    }
    assert!(deleted > COUNT / 10, "{deleted}");
    // Another key of the same tag may be read now and then.
    assert!(client.stat("extstore_objects_read") - reads < 5);
}

/// What was on flash at a flush does not come back, and what is stored afterwards does.
#[test]
fn flushes() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    for number in 0..COUNT {
        stored(&mut client, number);
    }
    client.push_out();
    assert_eq!(client.ask("flush_all\r\n"), "OK");
    for number in 0..COUNT {
        assert_eq!(client.get(&format!("k{number}")), None);
    }
    for number in 0..COUNT {
        client.set(&format!("k{number}"), &value(number + 1, 400));
    }
    client.push_out();
    let mut found = 0;
    for number in 0..COUNT {
        if let Some(bytes) = client.get(&format!("k{number}")) {
            assert!(bytes == value(number + 1, 400), "k{number}");
            found += 1;
        }
    }
    assert!(found > COUNT / 10, "{found}");
}
