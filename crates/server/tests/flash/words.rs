//! What the server says of flash: at the start, in `stats` and `stats settings`, and where it cannot be had.

use crate::process::{Folder, Process, coua, wrapped};
use crate::scene::Scene;
use crate::support::is_root;

#[test]
fn the_start_says_how_devices_are_reached() {
    let scene = Scene::new(&[]);
    scene.process.listening();
    let line = scene.process.hear("flash: 2");
    assert!(line.contains("segments"), "{line}");
    let line = scene.process.hear(&scene.folder.text("flash"));
    assert!(
        line.contains("256 MiB, sectors of") && line.contains(", by "),
        "{line}"
    );
    scene.process.hear("flash takes");
}

#[test]
fn statistics_have_extstores_keys() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    let stats = client.stats();
    for key in [
        "get_extstore",
        "recache_from_extstore",
        "miss_from_extstore",
        "badcrc_from_extstore",
        "extstore_pages_free",
        "extstore_objects_used",
        "extstore_bytes_written",
        "extstore_io_queue",
        "coua_flash_items",
        "coua_memory_flash",
    ] {
        assert!(stats.contains_key(key), "no {key}");
    }
    let limit: u64 = stats["extstore_limit_maxbytes"].parse().expect("a number");
    assert!((240 << 20..=256 << 20).contains(&limit), "{limit}");
    client.send("stats settings\r\n");
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line| line != "END") {
        lines.push(client.line());
    }
    assert!(lines.contains(&"STAT ext_item_size 1".to_owned()));
    assert!(lines.contains(&format!("STAT coua_flash {}", scene.folder.text("flash"))));
}

/// Counts begin anew at a reset, and what there is stays.
#[test]
fn a_reset_leaves_what_there_is() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    client.push_out();
    let before = client.stats();
    assert_ne!(before["extstore_objects_written"], "0");
    assert_eq!(client.ask("stats reset\r\n"), "RESET");
    let after = client.stats();
    assert_eq!(after["extstore_bytes_written"], "0");
    assert_eq!(
        after["extstore_objects_used"],
        before["extstore_objects_used"]
    );
}

#[test]
fn what_cannot_be_had_is_said_in_one_line() {
    let folder = Folder::new();
    let file = folder.text("flash");
    for (flags, due) in [
        (
            vec!["-o", "ext_path=/no/such/folder:64m"],
            "-o ext_path: /no/such/folder: open:",
        ),
        (
            vec!["--flash", "/dev/null"],
            "--flash: /dev/null: it is not a device of the right kind",
        ),
        (vec!["--flash", "0000:ff:1f.7"], "--flash: 0000:ff:1f.7/1: "),
    ] {
        let end = Process::start(coua(&flags)).end();
        let line = end.one_line(71);
        assert!(line.contains(due), "{line}");
    }
    let path = format!("ext_path={file}:64m");
    let end = Process::start(coua(&["-m", "12", "-o", &path])).end();
    let line = end.one_line(71);
    assert!(
        line.contains("-m: flash takes") && line.contains("fewer threads (-t)"),
        "{line}"
    );
    // Two servers do not share a file.
    let first = Process::start(coua(&["-o", &path]));
    first.listening();
    let end = Process::start(coua(&["-o", &path])).end();
    let line = end.one_line(71);
    assert!(line.contains("another process uses it"), "{line}");
}

/// A user who may lock little memory has io_uring all the same, with memory that is not registered.
#[test]
fn a_limit_of_locked_memory_leaves_io_uring() {
    let folder = Folder::new();
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(""), everyone).expect("it is ours");
    let path = format!("ext_path={}:256m", folder.text("flash"));
    // An ordinary user is needed: root's memory is not counted.
    let mut wrapper = vec!["prlimit", "--memlock=65536:65536"];
    if is_root() {
        wrapper.extend(["setpriv", "--reuid=65534", "--clear-groups"]);
    }
    let process = Process::start(wrapped(&wrapper, &["-m", "32", "-o", &path]));
    process.listening();
    let line = process.hear(", by ");
    // Where this kernel or a profile refuses io_uring, it is for another reason.
    let is_refused = line.contains("no io_uring: ");
    assert!(
        !line.contains("no io_uring: Cannot allocate memory"),
        "{line}"
    );
    assert!(
        is_refused || line.contains("memory not registered"),
        "{line}"
    );
}
