//! What `watch evictions` tells of items that go to flash.

use std::collections::BTreeSet;

use crate::scene::Scene;

#[test]
fn watchers_hear_of_items_that_leave_for_flash() {
    const COUNT: usize = 3000;
    let scene = Scene::new(&["-o", "watcher_logbuf_size=8192"]);
    let mut watcher = scene.client();
    assert_eq!(watcher.ask("watch evictions\r\n"), "OK");
    let mut client = scene.client();
    client.set("read", b"x");
    client.send("get read\r\n");
    assert_eq!(client.values().len(), 1);
    client.fill("k", COUNT, 1000);
    client.push_out();
    // Items leave in no order of their own; a thousand lines of ours are there in any case.
    let mut seen = BTreeSet::new();
    while seen.len() < 1000 {
        let line = watcher.log_line();
        let Some((_, rest)) = line.split_once(" type=extwrite key=") else {
            assert!(line.contains(" type=eviction key="), "{line}");
            continue;
        };
        let (key, rest) = rest.split_once(' ').expect("more words");
        let words: Vec<&str> = rest.split(' ').collect();
        let [fetch, ttl, la, class, bucket] = words[..] else {
            panic!("{line}");
        };
        assert_eq!(
            (ttl, class, bucket),
            ("ttl=-1", "clsid=1", "bucket=0"),
            "{line}"
        );
        assert!(la.starts_with("la="), "{line}");
        if key.starts_with('k') {
            assert_eq!(fetch, "fetch=no", "{line}");
            assert!(seen.insert(key.to_owned()), "twice: {line}");
        }
    }
    assert!(client.stat("extstore_objects_written") >= 1000);
}
