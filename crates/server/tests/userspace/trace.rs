//! Traces of all frames (`--pcap`), read as Wireshark would.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::scene::{ADDRESSES, Scene, exchange, refused};

/// The bytes of a frame before those of TCP, with no option.
const BEFORE_TCP: usize = 14 + 20;

/// A flag of TCP.
const SYN: u8 = 2;

/// A frame of a trace.
struct Frame {
    is_sent: bool,
    bytes: Vec<u8>,
}

impl Frame {
    fn is_syn(&self) -> bool {
        // IPv4 with TCP, and only this flag.
        self.bytes.len() > BEFORE_TCP + 13
            && self.bytes[12..14] == [8, 0]
            && self.bytes[23] == 6
            && self.bytes[BEFORE_TCP + 13] == SYN
    }

    fn has(&self, text: &[u8]) -> bool {
        self.bytes.windows(text.len()).any(|part| part == text)
    }
}

fn path(name: &str) -> PathBuf {
    let name = format!("{name}-{}.pcap", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The frames of a file, which goes.
fn read(path: &Path) -> Vec<Frame> {
    let mode = fs::metadata(path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "what clients say is nobody else's");
    let all = fs::read(path).expect("a file");
    fs::remove_file(path).expect("a file");
    let word = |at: usize| u32::from_le_bytes(all[at..at + 4].try_into().expect("four bytes"));
    let header = [0, 4, 8, 28].map(word);
    assert_eq!(header, [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1]);
    let (mut frames, mut at) = (Vec::new(), 0);
    while at < all.len() {
        let len = word(at + 4) as usize;
        assert_eq!(word(at + len - 4) as usize, len, "both lengths of a block");
        if word(at) == 6 {
            let bytes = all[at + 28..][..word(at + 20) as usize].to_vec();
            let is_sent = word(at + len - 12) == 2;
            frames.push(Frame { is_sent, bytes });
        }
        at += len;
    }
    frames
}

/// Connects and talks, then ends the server: the frames of all its workers.
fn frames_of(driver: &str, workers: usize, names: &[PathBuf], flag: &Path) -> Vec<Frame> {
    let (workers, flag) = (workers.to_string(), flag.to_str().expect("text"));
    let scene = Scene::open(driver, &["--pcap", flag, "-t", &workers]);
    for number in 0..20 {
        let mut client = scene.connect(ADDRESSES[0]);
        let set = format!("set traced{number} 0 0 2\r\nhi\r\n");
        exchange(&mut client, set.as_bytes(), b"STORED\r\n");
        exchange(
            &mut client,
            format!("mg traced{number} v k\r\n").as_bytes(),
            b"VA 2 k",
        );
    }
    scene.stop();
    names.iter().flat_map(|name| read(name)).collect()
}

fn check(frames: &[Frame]) {
    let came = |is: &dyn Fn(&Frame) -> bool| frames.iter().any(|frame| !frame.is_sent && is(frame));
    let left = |is: &dyn Fn(&Frame) -> bool| frames.iter().any(|frame| frame.is_sent && is(frame));
    assert!(came(&Frame::is_syn));
    for number in 0..20 {
        let asks = format!("mg traced{number} v k\r\n");
        let answer = format!("VA 2 ktraced{number}\r\nhi\r\n");
        assert!(came(&|frame| frame.has(asks.as_bytes())), "{asks}");
        assert!(left(&|frame| frame.has(answer.as_bytes())), "{answer}");
        assert!(!left(&|frame| frame.has(asks.as_bytes())), "{asks}");
    }
}

#[test]
fn of_one_worker() {
    for driver in ["packet", "xdp"] {
        let path = path(driver);
        // What was there goes.
        fs::write(&path, "old").expect("a folder to write to");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        check(&frames_of(driver, 1, std::slice::from_ref(&path), &path));
    }
}

#[test]
fn of_several_workers() {
    let path = path("several");
    let of = |number: usize| PathBuf::from(format!("{}.{number}", path.display()));
    check(&frames_of("packet", 2, &[of(0), of(1)], &path));
    assert!(!path.exists());
}

#[test]
fn where_no_file_can_be() {
    let (status, said) = refused(&[
        "--net",
        "packet:eth0",
        "--address",
        "10.77.0.1/24",
        "--pcap",
        "/proc/none/frames",
    ]);
    assert_eq!(status, Some(71), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("coua: --pcap: cannot write /proc/none/frames: "),
        "{said}"
    );
}
