//! Files that cannot be taken over, and those that cannot be used at all.

use std::fs::{self, File, OpenOptions};

use rustix::process::Signal;

use crate::MemoryFile;
use crate::process::{Client, Folder, Process, coua};

/// The status of a program whom the system refuses something.
const OS_ERROR: i32 = 71;

/// Starts coua on the file, which begins empty; why, and that it serves.
fn begins_empty(file: &MemoryFile, flags: &[&str]) -> String {
    let process = Process::start(coua(&[flags, &["-e", file.text()]].concat()));
    let mut client = Client::connect(process.address());
    assert_eq!(client.ask("set k 0 0 1\r\nv\r\n"), "STORED");
    assert_eq!(client.stat("stats", "curr_items"), "1");
    let line = process.hear("the cache begins");
    let about = process.said();
    let about = about.lines().filter(|line| line.contains(file.text()));
    assert_eq!(about.count(), 1, "{}", process.said());
    let why = line
        .split_once("begins empty: ")
        .map(|(_, why)| why.to_owned());
    why.unwrap_or_else(|| panic!("{line}"))
}

/// A file that a killed server has left, with items.
fn left() -> MemoryFile {
    let file = MemoryFile::new();
    let process = Process::start(coua(&["-e", file.text()]));
    let mut client = Client::connect(process.address());
    for key in 0..1000 {
        assert_eq!(client.ask(&format!("set k{key} 0 0 1\r\nv\r\n")), "STORED");
    }
    process.signal(Signal::KILL);
    process.end();
    file
}

fn set_len(file: &MemoryFile, change: impl FnOnce(u64) -> u64) {
    let opened = OpenOptions::new()
        .write(true)
        .open(&file.0)
        .expect("it is there");
    let len = opened.metadata().expect("it is there").len();
    opened.set_len(change(len)).expect("it is ours");
}

#[test]
fn files_of_another_kind_are_written_over() {
    let file = MemoryFile::new();
    for text in [&b"a text"[..], &[b'x'; 4 << 20]] {
        fs::write(&file.0, text).expect("it is ours");
        let why = begins_empty(&file, &[]);
        assert_eq!(
            why,
            "the file held no store of coua",
            "{} bytes",
            text.len()
        );
    }
    fs::write(&file.0, vec![0; 4 << 20]).expect("it is ours");
    assert_eq!(begins_empty(&file, &[]), "the file is new");
    let _ = fs::remove_file(&file.0);
    File::create(&file.0).expect("it is ours");
    assert_eq!(begins_empty(&file, &[]), "the file is new");
}

#[test]
fn files_of_another_length_begin_empty() {
    for change in [
        |len| len / 2,
        |len| len - 1,
        |len: u64| len + (2 << 20),
        |_| 4096,
    ] {
        let file = left();
        set_len(&file, change);
        let why = begins_empty(&file, &[]);
        let is_said = why.contains("shorter or longer") || why.contains("no store of coua");
        assert!(is_said, "{why}");
    }
}

#[test]
fn damaged_files_begin_empty() {
    use std::os::unix::fs::FileExt;
    let file = left();
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&file.0)
        .expect("it is there");
    let mut bytes = [0; 64];
    opened.read_exact_at(&mut bytes, 0).expect("it is there");
    // The first bytes say what the file is, and the others how it is laid out.
    bytes[24..48].fill(0xa5);
    opened.write_all_at(&bytes, 0).expect("it is ours");
    let why = begins_empty(&file, &[]);
    assert!(why.contains("damaged") || why.contains("version"), "{why}");
}

#[test]
fn copies_begin_empty() {
    let (file, copy) = (left(), MemoryFile::new());
    fs::copy(&file.0, &copy.0).expect("both are ours");
    let why = begins_empty(&copy, &[]);
    assert!(why.contains("copy"), "{why}");
}

#[test]
fn a_file_in_use_is_refused() {
    let file = MemoryFile::new();
    let process = Process::start(coua(&["-e", file.text()]));
    let mut client = Client::connect(process.address());
    assert_eq!(client.ask("set k 0 0 1\r\nv\r\n"), "STORED");
    let end = Process::start(coua(&["-e", file.text()])).end();
    let line = end.one_line(OS_ERROR);
    assert!(
        line.contains(file.text()) && line.contains("another process uses it"),
        "{line}"
    );
    let end = Process::start(coua(&["-d", "-e", file.text()])).end();
    assert!(end.one_line(OS_ERROR).contains(file.text()));
    // The one that uses it has not noticed.
    assert_eq!(client.ask("mg k\r\n"), "HD");
}

#[test]
fn what_is_no_ordinary_file_is_refused() {
    let folder = Folder::new();
    for path in [
        folder.text(""),
        folder.text("no/such/folder"),
        "/dev/null".to_owned(),
    ] {
        let end = Process::start(coua(&["-e", &path])).end();
        let line = end.one_line(OS_ERROR);
        assert!(line.contains(&path), "{line}");
    }
}
