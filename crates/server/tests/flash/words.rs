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

/// A line of four for each segment, as memcached has for its pages.
#[test]
fn statistics_of_segments() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    client.push_out();
    client.send("stats extstore\r\n");
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line| line != "END") {
        lines.push(client.line());
    }
    let segments = usize::try_from(client.stat("coua_flash_segments")).expect("few");
    assert_eq!(lines.len(), 4 * segments + 1);
    assert!(lines[0].starts_with("STAT 0:version ") && lines[0] != "STAT 0:version 0");
    assert_eq!(lines[1], format!("STAT 0:bytes {}", 1 << 20));
    assert_eq!(
        lines[4 * segments - 1],
        format!("STAT {}:free_bucket 0", segments - 1)
    );
    let used = lines
        .iter()
        .filter(|line| line.ends_with(&format!(":bytes {}", 1 << 20)));
    let due = client.stat("extstore_pages_used");
    assert!((due / 2..=due).contains(&(used.count() as u64)), "{due}");
}

/// The page of `--metrics` has what is on flash.
#[test]
fn the_status_has_flash() {
    let scene = Scene::new(&["--metrics", "127.0.0.1:0"]);
    let mut client = scene.client();
    client.push_out();
    let line = scene.process.hear("metrics on ");
    let address = line.split("http://").nth(1).expect("an address");
    let address = address.split('/').next().expect("an address");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    std::io::Write::write_all(&mut stream, b"GET /status.json HTTP/1.0\r\n\r\n").expect("open");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text).expect("an answer");
    let flash = text.split("\"flash\":{").nth(1).expect("flash is there");
    assert!(
        flash.contains("\"items\":") && flash.contains("\"devices\":1"),
        "{flash}"
    );
    assert!(!flash.starts_with("\"items\":0,"), "{flash}");
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
    for (flags, due) in [
        (
            vec!["-o", "ext_admission=lru"],
            "-o ext_admission cannot be 'lru': it takes all, read or twice",
        ),
        (
            vec!["-o", "ext_write_budget=5"],
            "-o ext_write_budget cannot be '5': it takes bytes a day",
        ),
    ] {
        let end = Process::start(coua(&flags)).end();
        let line = end.one_line(64);
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
