use std::vec::Vec;

use proptest::prelude::*;

use super::{Answer, LINE_LEN_MAX, Part, ResponseStep, Responses};

/// What a client sees, no matter how the bytes are cut into pieces.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Line(Answer, Vec<u8>),
    Value(Vec<u8>, u32, u32, Option<u64>),
    MetaValue(u32, Vec<u8>),
    Body(Vec<u8>),
    Complete,
    Bad,
}

/// Feeds `bytes` in pieces of the lengths that `split` gives.
fn seen(bytes: &[u8], mut split: impl FnMut() -> usize) -> Vec<Seen> {
    let mut responses = Responses::new();
    let mut seen = Vec::new();
    let mut body = Vec::new();
    let (mut front, mut end) = (0, 0);
    loop {
        let input = &bytes[front..end];
        match responses.next(input) {
            ResponseStep::More { at_least } => {
                assert!(at_least as usize > input.len());
                if end == bytes.len() {
                    return seen;
                }
                end = bytes.len().min(end + split().max(1));
            }
            ResponseStep::Part {
                consumed,
                part,
                complete,
            } => {
                assert!(consumed > 0 && consumed as usize <= input.len());
                match part {
                    Part::Line { answer, line } => {
                        seen.push(Seen::Line(answer, line.of(input).to_vec()));
                    }
                    Part::Value {
                        key,
                        client_flags,
                        value_len,
                        cas,
                    } => seen.push(Seen::Value(
                        key.of(input).to_vec(),
                        client_flags,
                        value_len,
                        cas,
                    )),
                    Part::MetaValue { value_len, flags } => {
                        seen.push(Seen::MetaValue(value_len, flags.of(input).to_vec()));
                    }
                    Part::Body { bytes, last } => {
                        assert!(last || bytes.len > 0);
                        body.extend_from_slice(bytes.of(input));
                        if last {
                            seen.push(Seen::Body(core::mem::take(&mut body)));
                        }
                    }
                }
                if complete {
                    seen.push(Seen::Complete);
                }
                front += consumed as usize;
            }
            ResponseStep::Bad => {
                seen.push(Seen::Bad);
                return seen;
            }
        }
    }
}

#[test]
fn answers() {
    let text = b"VALUE a 7 3\r\nx\r\n\r\nVALUE b 0 0 99\r\n\r\nEND\r\n\
        VA 2 s2 Oq\r\n\r\n\r\nHD c5\r\n12  \r\nSTAT pid 1\r\nEND\r\nCLIENT_ERROR bad data chunk\r\n\
        CONFIG cluster 0 3\r\n1\na\r\nEND\r\nMN\n";
    let line = |answer, text: &[u8]| Seen::Line(answer, text.to_vec());
    let expected = [
        Seen::Value(b"a".to_vec(), 7, 3, None),
        Seen::Body(b"x\r\n".to_vec()),
        Seen::Value(b"b".to_vec(), 0, 0, Some(99)),
        Seen::Body(Vec::new()),
        line(Answer::End, b"END"),
        Seen::Complete,
        Seen::MetaValue(2, b" s2 Oq".to_vec()),
        Seen::Body(b"\r\n".to_vec()),
        Seen::Complete,
        line(Answer::MetaDone, b"HD c5"),
        Seen::Complete,
        line(Answer::Number(12), b"12  "),
        Seen::Complete,
        line(Answer::Listed, b"STAT pid 1"),
        line(Answer::End, b"END"),
        Seen::Complete,
        line(Answer::ClientError, b"CLIENT_ERROR bad data chunk"),
        Seen::Complete,
        Seen::Value(b"cluster".to_vec(), 0, 3, None),
        Seen::Body(b"1\na".to_vec()),
        line(Answer::End, b"END"),
        Seen::Complete,
        line(Answer::MetaNoop, b"MN"),
        Seen::Complete,
    ];
    assert_eq!(seen(text, || usize::MAX / 2), expected);
    assert_eq!(seen(text, || 1), expected);
}

#[test]
fn every_line_has_its_answer() {
    let table: [(&[u8], Answer); 20] = [
        (b"STORED", Answer::Stored),
        (b"NOT_STORED", Answer::NotStored),
        (b"EXISTS", Answer::Exists),
        (b"NOT_FOUND", Answer::NotFound),
        (b"DELETED", Answer::Deleted),
        (b"TOUCHED", Answer::Touched),
        (b"OK", Answer::Ok),
        (b"RESET", Answer::Reset),
        (b"VERSION 1.6.45", Answer::Version),
        (b"EN", Answer::MetaMiss),
        (b"NF Oa", Answer::MetaNotFound),
        (b"EX", Answer::MetaExists),
        (b"NS", Answer::MetaNotStored),
        (b"ME a exp=-1", Answer::MetaDebug),
        (b"key=a exp=-1", Answer::Listed),
        (b"ERROR", Answer::Error),
        (b"SERVER_ERROR out of memory", Answer::ServerError),
        (b"SERVER_ERROR: shutdown not enabled", Answer::ServerError),
        (b"BUSY now", Answer::Other),
        (b"", Answer::Other),
    ];
    for (text, answer) in table {
        assert_eq!(Answer::of(text), answer, "{text:?}");
    }
}

#[test]
fn what_is_no_answer() {
    for text in [
        &b"VALUE a 0\r\n"[..],
        b"VALUE a x 1\r\n",
        b"VALUE  a 0 1\r\n",
        b"VALUE a 0 4294967296\r\n",
        b"VALUE a 0 1 x\r\n",
        b"VA \r\n",
        b"VA  2\r\n",
        b"VA -1\r\n",
        &[b'x'; LINE_LEN_MAX],
    ] {
        assert_eq!(seen(text, || usize::MAX / 2), [Seen::Bad], "{text:?}");
        assert_eq!(seen(text, || 1), [Seen::Bad], "{text:?}");
    }
    let cut = seen(b"VA 1\r\nxyz", || 1);
    assert_eq!(cut.last(), Some(&Seen::Bad));
}

proptest! {
    #[test]
    fn splits_do_not_matter(
        pieces in prop::collection::vec(prop_oneof![
            Just(&b"VALUE key 0 5\r\nab\r\nc\r\n"[..]),
            Just(&b"VA 3 k\r\n\r\n\r\r\n"[..]),
            Just(&b"VA 0\r\n\r\n"[..]),
            Just(&b"END\r\n"[..]),
            Just(&b"HD\r\n"[..]),
            Just(&b"\r\n"[..]),
            Just(&b"VA"[..]),
            Just(&b" 1 "[..]),
        ], 0..12),
        splits in prop::collection::vec(1usize..9, 1..9),
    ) {
        let bytes = pieces.concat();
        let mut splits = splits.iter().cycle();
        let whole = seen(&bytes, || bytes.len());
        prop_assert_eq!(seen(&bytes, || *splits.next().unwrap_or(&1)), whole);
    }
}
