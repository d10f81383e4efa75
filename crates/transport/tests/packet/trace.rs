//! Traces, read by tcpdump.

use std::io::Write;
use std::process::{Command, Stdio};

use coua_tcp::nic::{Mac, Nic};
use coua_transport::userspace::pcap::Traced;

use crate::frames::{datagram, filler};
use crate::netns::Pair;
use crate::{open, receive, send};

/// 2023-11-14, to the nanosecond.
const BEGIN_NS: u64 = 1_700_000_000_123_456_789;

#[test]
fn tcpdump_reads_all_frames_and_times() {
    let pair = Pair::new();
    let mut file = Vec::new();
    let mut peers = open(&pair.peers);
    let macs = [peers.features().mac, Mac(pair.ours.mac())];
    let request = |at: u16| datagram(macs, (2, at), (1, 9), &filler(at.into(), at.into()));
    let reply = |at: u16| {
        let turned = [macs[1], macs[0]];
        datagram(
            turned,
            (1, 9),
            (2, at),
            &filler(at.into(), 1472 - usize::from(at)),
        )
    };
    let mut now_ns = BEGIN_NS;
    let clock = || {
        now_ns += 1_000_000_001;
        now_ns
    };
    let mut ours = Traced::new(open(&pair.ours), &mut file, clock).expect("memory takes it");
    for at in 0..1000 {
        send(&mut peers, &request(at));
        peers.flush();
        assert!(receive(&mut ours, 1) == [request(at)], "request {at}");
        send(&mut ours, &reply(at));
        ours.flush();
        assert!(receive(&mut peers, 1) == [reply(at)], "reply {at}");
    }
    assert!(ours.take_error().is_none());
    drop(ours);
    let read = tcpdump(&file);
    assert_eq!(read.len(), 2000);
    for (at, (time, bytes)) in (0..).zip(&read) {
        let time_ns = BEGIN_NS + u64::from(at + 1) * 1_000_000_001;
        let expected = format!("{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000);
        assert_eq!(*time, expected, "frame {at}");
        let frame = if at % 2 == 0 {
            request(at / 2)
        } else {
            reply(at / 2)
        };
        assert!(*bytes == frame, "frame {at}");
    }
}

/// Time and bytes of each frame of a file.
fn tcpdump(file: &[u8]) -> Vec<(String, Vec<u8>)> {
    let words = "-r - -n -t -t -xx --time-stamp-precision=nano";
    let mut child = Command::new("tcpdump")
        .args(words.split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test needs the program tcpdump (package tcpdump)");
    let mut input = child.stdin.take().expect("it is piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(file).expect("tcpdump reads it all"));
        child.wait_with_output().expect("tcpdump ends")
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let mut frames: Vec<(String, Vec<u8>)> = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        // `0x0010:  0800 4500 …` belongs to the line before it that begins with a time.
        if let Some((_, digits)) = line.trim_start().split_once(":  ")
            && line.starts_with('\t')
        {
            let (_, bytes) = frames.last_mut().expect("a time comes first");
            let digits: String = digits.split(' ').collect();
            bytes.extend((0..digits.len()).step_by(2).map(|at| {
                u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits")
            }));
        } else {
            let time = line.split(' ').next().unwrap_or_default();
            frames.push((time.to_owned(), Vec::new()));
        }
    }
    frames
}
