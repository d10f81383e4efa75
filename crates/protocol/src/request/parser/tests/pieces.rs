//! Bytes in pieces: what is seen does not depend on where they are cut.

use std::format;
use std::string::String;
use std::vec::Vec;

use proptest::prelude::*;

use super::{Seen, seen, seen_in_pieces};
use crate::error_line::ErrorLine;
use crate::limits::{KEY_LEN_MAX, Limits};
use crate::op::Op;
use crate::request::line::{Line, Parsed};
use crate::request::parser::Parser;
use crate::request::step::{CloseReason, Step};
use crate::request::{classic, command, fast, meta};

fn limits() -> impl Strategy<Value = Limits> {
    let gather_max = prop_oneof![Just(24), Just(60), Just(1 << 14)];
    (gather_max, 60u32..200).prop_map(|(gather_max, item_size_max)| Limits {
        gather_max,
        item_size_max,
        ..Limits::default()
    })
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => "[a-zA-Z0-9=/]{1,12}".prop_map(String::into_bytes),
        1 => Just(std::vec![b'k'; KEY_LEN_MAX]),
        1 => Just(std::vec![b'k'; KEY_LEN_MAX + 1]),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ]
}

/// A key of any length. Letters that follow each other show where a span is wrong, and take less to make
/// than letters by chance.
fn long_key() -> impl Strategy<Value = String> {
    (0..26u8, 1..=KEY_LEN_MAX).prop_map(|(first, len)| {
        let letters = (b'a'..=b'z').cycle().skip(usize::from(first));
        letters.take(len).map(char::from).collect()
    })
}

fn word() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        key(),
        "-?[0-9]{1,3}".prop_map(String::into_bytes),
        "-?[0-9]{9,23}".prop_map(String::into_bytes),
        "[bcCEfFhklOqstuvNRTxIMJDPLz]([0-9]{0,4}|[A-Z+-])".prop_map(String::into_bytes),
        Just(b"noreply".to_vec()),
        Just(Vec::new()),
    ]
}

fn command() -> impl Strategy<Value = &'static str> {
    prop::sample::select(
        &[
            "get",
            "gets",
            "gat",
            "gats",
            "set",
            "add",
            "replace",
            "append",
            "prepend",
            "cas",
            "delete",
            "incr",
            "decr",
            "touch",
            "mg",
            "ms",
            "md",
            "ma",
            "me",
            "mn",
            "flush_all",
            "verbosity",
            "version",
            "stats",
            "shutdown",
            "slabs",
            "lru",
            "watch",
            "quit",
            "",
            "ge",
            "GET",
        ][..],
    )
}

/// A line, likely to be a request, without the body that it may announce.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let gap = prop_oneof![9 => Just(&b" "[..]), 1 => Just(&b"  "[..])];
    let end = prop_oneof![
        8 => Just(&b"\r\n"[..]),
        1 => Just(&b"\n"[..]),
        1 => Just(&b" \r\r\n"[..]),
    ];
    let words = prop::collection::vec(word(), 0..7);
    (command(), gap, words, end).prop_map(|(command, gap, words, end)| {
        let mut line = command.as_bytes().to_vec();
        for word in words {
            line.extend_from_slice(gap);
            line.extend_from_slice(&word);
        }
        line.extend_from_slice(end);
        line
    })
}

/// A store request, most often with the right end.
fn stored() -> impl Strategy<Value = Vec<u8>> {
    let command = prop::sample::select(&["set", "add", "cas", "append", "ms"][..]);
    let value = prop::collection::vec(any::<u8>(), 0..40);
    let end = prop_oneof![8 => Just(&b"\r\n"[..]), 1 => Just(&b"xx"[..])];
    (command, key(), value, any::<bool>(), end).prop_map(|(command, key, value, noreply, end)| {
        let len = value.len();
        let tail = match (command, noreply) {
            ("ms", false) => format!(" {len} Oo k s\r\n"),
            ("ms", true) => format!(" {len} T5 q\r\n"),
            ("cas", _) => format!(" 1 0 {len} 7\r\n"),
            (_, true) => format!(" 0 9 {len} noreply\r\n"),
            (_, false) => format!(" 5 0 {len}\r\n"),
        };
        let head = [command.as_bytes(), b" ", &key, tail.as_bytes()].concat();
        [&head[..], &value, end].concat()
    })
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => line(),
        2 => stored(),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

/// The shortest piece. Before each of its pieces a line that has no end yet is searched again, so that many
/// of one byte take Miri long.
const PIECE_LEN_MIN: usize = if cfg!(miri) { 31 } else { 1 };

fn splits() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        1 => Just(std::vec![PIECE_LEN_MIN]),
        2 => prop::collection::vec(PIECE_LEN_MIN..50, 1..12),
    ]
}

proptest! {
    #[test]
    fn splits_do_not_matter(
        requests in prop::collection::vec(request(), 1..7),
        splits in splits(),
        limits in limits(),
    ) {
        // What becomes of a longer line without an end depends on how it comes.
        let mut bytes = requests.concat();
        bytes.truncate(2048);
        let mut splits = splits.iter().cycle();
        let pieces = seen_in_pieces(&bytes, &limits, || *splits.next().unwrap_or(&1));
        prop_assert_eq!(pieces, seen(&bytes, &limits));
    }

    #[test]
    fn any_bytes_in_any_split(
        bytes in prop::collection::vec(any::<u8>(), 0..if cfg!(miri) { 1000 } else { 6000 }),
        splits in splits(),
    ) {
        // What holds of every step is asserted on the way.
        let limits = Limits { gather_max: 64, line_max: 2100, ..Limits::default() };
        let mut splits = splits.iter().cycle();
        seen_in_pieces(&bytes, &limits, || *splits.next().unwrap_or(&1));
    }

    #[test]
    fn the_fast_path_reads_what_the_parser_reads(
        request in prop_oneof![
            stored(),
            line(),
            (key(), "( noreply| |)(\r|)\n").prop_map(|(key, end)| {
                [b"get ", &key[..], end.as_bytes()].concat()
            }),
            "set [a-z]{1,5} [0-9]{1,10} -?[0-9]{1,10} [0-9]{1,4}( noreply|)( |)(\r|)\n"
                .prop_map(String::into_bytes),
            "m[gs] [a-zA-Z=]{1,8}( [0-9]{1,3}|)( [bcCEfFhklOqstuvNRTxIMJDPLz][0-9E]{0,2}){0,5} {0,1}\r\n"
                .prop_map(String::into_bytes),
        ],
        limits in limits(),
    ) {
        let len = memchr::memchr(b'\n', &request).map_or(0, |at| at + 1);
        let line = Line::new(&request[..len]);
        if let Some(get) = fast::get(&request) {
            prop_assert_eq!(get.consumed, line.len);
            let Parsed::Keys(mut keys) = command::parse(&line, &limits) else {
                panic!("no get: {request:?}");
            };
            let lookup = keys.lookup;
            let taken = keys.take(&request).expect("it has a key");
            prop_assert_eq!((get.key, get.cas), (taken.key, lookup.cas));
            prop_assert_eq!((taken.last, lookup.touch), (true, None));
        }
        if let Some((consumed, meta)) = meta::fast_get(&request) {
            prop_assert_eq!(consumed, line.len);
            let Parsed::Op(op) = command::parse(&line, &limits) else {
                panic!("no mg: {request:?}");
            };
            prop_assert_eq!(op, Op::MetaGet(meta));
        }
        if let Some((consumed, store)) = meta::fast_set(&request, &limits) {
            prop_assert_eq!(consumed, line.len);
            let Parsed::Store(looked) = command::parse(&line, &limits) else {
                panic!("no ms: {request:?}");
            };
            prop_assert_eq!(store, looked);
        }
        if let Some((consumed, store)) = fast::set(&request) {
            prop_assert_eq!(consumed, line.len);
            match (classic::sized(store, &limits), command::parse(&line, &limits)) {
                (Parsed::Store(store), Parsed::Store(looked)) => {
                    prop_assert_eq!(store, looked);
                }
                (Parsed::Refused(refused), Parsed::Refused(looked)) => {
                    prop_assert_eq!(refused, looked);
                }
                _ => panic!("no set: {request:?}"),
            }
        }
    }

    #[test]
    fn long_gets_are_answered_key_by_key(
        keys in prop::collection::vec(long_key(), 30..if cfg!(miri) { 40 } else { 120 }),
        cas: bool,
        spaces in 1usize..4,
        end in prop_oneof![Just("\r\n"), Just("\n"), Just(" \r\n")],
        splits in splits(),
        line_max in 2049u32..4000,
    ) {
        let gap = " ".repeat(spaces);
        let command = if cas { "gets" } else { "get" };
        let line = format!("{command}{gap}{}{end}mn\r\n", keys.join(&gap));
        let limits = Limits { line_max, ..Limits::default() };
        let mut splits = splits.iter().cycle();
        let pieces = seen_in_pieces(line.as_bytes(), &limits, || *splits.next().unwrap_or(&1));
        let mut found = Vec::new();
        let mut ends = 0;
        for piece in pieces {
            match piece {
                Seen::Op(Op::Get { cas: sent, last, .. }, key) => {
                    prop_assert_eq!((sent, ends), (cas, 0));
                    ends += usize::from(last);
                    found.push(String::from_utf8(key.concat()).expect("ASCII"));
                }
                Seen::Op(Op::GetEnd, _) => ends += 1,
                Seen::Op(Op::MetaNoop, _) => ends += 10,
                Seen::Skipped(_) => {}
                other => prop_assert_eq!(other, Seen::Rest(0)),
            }
        }
        prop_assert_eq!((found, ends), (keys, 11));
    }
}

/// The errors and the other operations, counted, of a line that comes in pieces
/// of 100 bytes.
fn slowly(line: &[u8]) -> (Vec<ErrorLine>, usize, Option<CloseReason>) {
    let limits = Limits {
        line_max: 3000,
        ..Limits::default()
    };
    let (mut errors, mut others, mut close) = (Vec::new(), 0, None);
    for piece in seen_in_pieces(line, &limits, || 100) {
        match piece {
            Seen::Op(Op::Error { error, .. }, _) => errors.push(error),
            Seen::Op(..) => others += 1,
            Seen::Close(reason) => close = Some(reason),
            _ => {}
        }
    }
    (errors, others, close)
}

#[test]
fn lines_that_are_too_long() {
    let long = "k".repeat(300);
    let keys = "key ".repeat(1000);
    let closed = (Vec::new(), 0, Some(CloseReason::LineTooLong));
    let bad = std::vec![ErrorLine::BadFormat];
    let table = [
        (format!("set {keys}"), closed.clone()),
        (format!("gat 0 {keys}"), closed.clone()),
        (format!("{}get {keys}\r\n", " ".repeat(101)), closed),
        (
            format!("{}get {keys}\r\nmn\r\n", " ".repeat(100)),
            (std::vec![ErrorLine::Unknown], 1, None),
        ),
        (
            format!("get {keys}{long} {keys}\r\nmn\r\n"),
            (bad.clone(), 1001, None),
        ),
        (
            format!("get {keys}{long}\r\nmn\r\n"),
            (bad.clone(), 1001, None),
        ),
        (
            format!("get {keys}{}\r\nmn\r\n", "k".repeat(9999)),
            (bad.clone(), 1001, None),
        ),
        (
            format!("get {}\r\nmn\r\n", " ".repeat(9999)),
            (bad, 1, None),
        ),
    ];
    for (line, expected) in table {
        assert_eq!(slowly(line.as_bytes()), expected, "{}", &line[..20]);
    }
}

#[test]
fn a_line_without_an_end_is_waited_for_just_so_long() {
    let limits = Limits::default();
    let line = [b'x'; 2049];
    let at_least = 2049;
    assert_eq!(
        Parser::new().next(&line[..2048], &limits),
        Step::More { at_least }
    );
    let reason = CloseReason::LineTooLong;
    assert_eq!(Parser::new().next(&line, &limits), Step::Close { reason });
}

#[test]
fn the_last_key_of_a_long_get_may_be_the_longest() {
    let limits = Limits {
        line_max: 3000,
        ..Limits::default()
    };
    for end in ["\r\n", "\n", " \r\n"] {
        let line = format!(
            "get {}{end}",
            "k".repeat(250) + &" key".repeat(1000) + " " + &"k".repeat(250)
        );
        let keys = seen_in_pieces(line.as_bytes(), &limits, || PIECE_LEN_MIN);
        let found = keys
            .iter()
            .filter(|seen| matches!(seen, Seen::Op(Op::Get { .. }, _)));
        assert_eq!(found.count(), 1002, "{end:?}");
    }
}

#[test]
fn whole_requests_are_waited_for() {
    let limits = Limits::default();
    let bytes = b"set k 0 0 5\r\nvalue\r\n";
    let mut parser = Parser::new();
    for (held, at_least) in [(0, 1), (1, 2), (12, 13), (13, 20), (19, 20)] {
        assert_eq!(
            parser.next(&bytes[..held], &limits),
            Step::More { at_least }
        );
        assert_eq!(parser.is_between_requests(), held == 0);
    }
    assert!(matches!(
        parser.next(bytes, &limits),
        Step::Op { consumed: 20, op: Op::Store(store) } if store.value.of(bytes) == b"value"
    ));
}
