//! Binary requests, whole and in pieces.

use std::vec;
use std::vec::Vec;

use super::{Seen, at_front, seen, seen_in_pieces};
use crate::binary::{Binary, BinaryCommand, BinaryRequestId, Status};
use crate::limits::Limits;
use crate::op::{Op, Store, StoreMode, StoreReply};
use crate::request::parser::{Dialect, Parser};
use crate::request::step::{CloseReason, Step};
use crate::span::Span;

/// A request. Its opaque and CAS come from its opcode.
fn request(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    with_cas(opcode, extras, key, value, 0)
}

fn with_cas(opcode: u8, extras: &[u8], key: &[u8], value: &[u8], cas: u64) -> Vec<u8> {
    let body_len = u32::try_from(extras.len() + key.len() + value.len()).unwrap();
    let mut bytes = vec![0x80, opcode];
    bytes.extend(u16::try_from(key.len()).unwrap().to_be_bytes());
    bytes.extend([u8::try_from(extras.len()).unwrap(), 0xda, 0x7a, 0x7a]);
    bytes.extend(body_len.to_be_bytes());
    bytes.extend(asked(opcode).opaque.to_be_bytes());
    bytes.extend(cas.to_be_bytes());
    bytes.extend([extras, key, value].concat());
    bytes
}

fn asked(opcode: u8) -> BinaryRequestId {
    BinaryRequestId {
        opcode,
        opaque: 0xdead_be00 | u32::from(opcode),
    }
}

fn binary(opcode: u8, command: BinaryCommand) -> Op {
    Op::Binary(Binary {
        asked: asked(opcode),
        command,
    })
}

fn first(bytes: &[u8]) -> Op {
    match Parser::new().next(bytes, &Limits::default()) {
        Step::Op { consumed, op } => {
            assert_eq!(consumed as usize, bytes.len());
            op
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_command_is_read() {
    let key = |extras: u32| Span {
        start: 24 + extras,
        len: 3,
    };
    let get = |touch: Option<i32>, with_key, with_value| BinaryCommand::Get {
        key: key(if touch.is_some() { 4 } else { 0 }),
        touch,
        with_key,
        with_value,
    };
    for (opcode, with_key) in [(0x00, false), (0x09, false), (0x0c, true), (0x0d, true)] {
        let expected = binary(opcode, get(None, with_key, true));
        assert_eq!(first(&request(opcode, b"", b"key", b"")), expected);
    }
    let touching = [
        (0x1c, false, false),
        (0x1d, false, true),
        (0x1e, false, true),
        (0x23, true, true),
        (0x24, true, true),
    ];
    for (opcode, with_key, with_value) in touching {
        let expected = binary(opcode, get(Some(258), with_key, with_value));
        assert_eq!(
            first(&request(opcode, &[0, 0, 1, 2], b"key", b"")),
            expected
        );
    }
    for opcode in [0x04, 0x14] {
        let delete = BinaryCommand::Delete {
            key: key(0),
            cas: 9,
        };
        assert_eq!(
            first(&with_cas(opcode, b"", b"key", b"", 9)),
            binary(opcode, delete)
        );
    }
    for (opcode, decrement) in [(0x05, false), (0x06, true), (0x15, false), (0x16, true)] {
        for (exptime, vivify) in [
            (7u32, Some(7)),
            (u32::MAX, None),
            (u32::MAX - 1, Some(i32::MAX)),
        ] {
            let extras = [
                &5u64.to_be_bytes()[..],
                &6u64.to_be_bytes(),
                &exptime.to_be_bytes(),
            ]
            .concat();
            let arithmetic = BinaryCommand::Arithmetic {
                key: key(20),
                delta: 5,
                initial: 6,
                vivify,
                decrement,
                cas: 1,
            };
            assert_eq!(
                first(&with_cas(opcode, &extras, b"key", b"", 1)),
                binary(opcode, arithmetic)
            );
        }
    }
    for opcode in [0x08, 0x18] {
        let flush = |delay| binary(opcode, BinaryCommand::FlushAll { delay });
        assert_eq!(first(&request(opcode, b"", b"", b"")), flush(0));
        assert_eq!(first(&request(opcode, &[0, 0, 0, 3], b"", b"")), flush(3));
    }
    let bare = [
        (0x0a, BinaryCommand::Noop),
        (0x0b, BinaryCommand::Version),
        (0x07, BinaryCommand::Quit),
        (0x17, BinaryCommand::Quit),
    ];
    for (opcode, command) in bare {
        assert_eq!(
            first(&request(opcode, b"", b"", b"")),
            binary(opcode, command)
        );
    }
    let stats = BinaryCommand::Stats { args: key(0) };
    assert_eq!(first(&request(0x10, b"", b"key", b"")), binary(0x10, stats));
}

#[test]
fn stores_are_those_of_the_text() {
    let extras = [&7u32.to_be_bytes()[..], &8u32.to_be_bytes()].concat();
    let stores = [
        (0x01, StoreMode::Set),
        (0x02, StoreMode::Add),
        (0x03, StoreMode::Replace),
        (0x0e, StoreMode::Append),
        (0x0f, StoreMode::Prepend),
        (0x11, StoreMode::Set),
        (0x12, StoreMode::Add),
        (0x13, StoreMode::Replace),
        (0x19, StoreMode::Append),
        (0x1a, StoreMode::Prepend),
    ];
    for (opcode, mode) in stores {
        let adds = matches!(mode, StoreMode::Append | StoreMode::Prepend);
        let extras = if adds { &[] } else { &extras[..] };
        let at = 24 + u32::try_from(extras.len()).unwrap();
        for cas in [0, 5] {
            let expected = Store {
                key: Span { start: at, len: 2 },
                value: Span {
                    start: at + 2,
                    len: 5,
                },
                tokens: Span::default(),
                value_len: 5,
                client_flags: if adds { 0 } else { 7 },
                exptime: if adds { 0 } else { 8 }.into(),
                cas,
                explicit_cas: 0,
                explicit: false,
                key_base64: false,
                invalidate: false,
                mode: if cas != 0 && !adds {
                    StoreMode::Cas
                } else {
                    mode
                },
                reply: StoreReply::Binary(asked(opcode)),
            };
            let bytes = with_cas(opcode, extras, b"\r\n", b"value", cas);
            assert_eq!(first(&bytes), Op::Store(expected));
        }
    }
}

#[test]
fn what_cannot_be_closes_the_connection() {
    use Status::{InvalidArguments, UnknownCommand};
    let long_key = [b'k'; 251];
    let mut key_outside = request(0x00, b"", b"key", b"");
    key_outside[11] = 2;
    let mut too_long = request(0x01, &[0; 8], b"key", b"");
    too_long[8..12].copy_from_slice(&((1u32 << 30) + 1).to_be_bytes());
    let cases = [
        (key_outside, UnknownCommand),
        (too_long, InvalidArguments),
        (request(0x00, b"", &long_key, b""), InvalidArguments),
        (request(0x00, b"", b"", b""), InvalidArguments),
        (request(0x00, b"x", b"key", b""), InvalidArguments),
        (request(0x0c, b"", b"key", b"v"), InvalidArguments),
        (request(0x01, &[0; 4], b"key", b"v"), InvalidArguments),
        (request(0x01, &[0; 8], b"", b"v"), InvalidArguments),
        (request(0x04, b"", b"key", b"v"), InvalidArguments),
        (request(0x05, &[0; 16], b"key", b""), InvalidArguments),
        (request(0x07, b"", b"key", b""), InvalidArguments),
        (request(0x08, &[0; 3], b"", b""), InvalidArguments),
        (request(0x0a, b"", b"", b"v"), InvalidArguments),
        (request(0x0e, &[0; 8], b"key", b"v"), InvalidArguments),
        (request(0x10, &[0; 4], b"key", b""), InvalidArguments),
        (request(0x1d, b"", b"key", b""), InvalidArguments),
        (request(0x20, b"", b"key", b""), InvalidArguments),
        (request(0x21, b"", b"", b"v"), InvalidArguments),
    ];
    for (bytes, status) in cases {
        let Step::Op { consumed, op } = Parser::new().next(&bytes, &Limits::default()) else {
            panic!("{bytes:?}");
        };
        let closes = true;
        assert_eq!(
            op,
            binary(bytes[1], BinaryCommand::Error { status, closes }),
            "{bytes:?}"
        );
        assert!(op.closes() && consumed as usize <= bytes.len());
    }
}

#[test]
fn what_is_not_known_is_passed_over() {
    for (opcode, key) in [
        (0x1b, &b"key"[..]),
        (0x1f, b""),
        (0x21, b"PLAIN"),
        (0x22, b"PLAIN"),
        (0x25, b"k"),
        (0xff, b"key"),
    ] {
        let bytes = [
            request(opcode, b"", key, b"value"),
            request(0x0a, b"", b"", b""),
        ]
        .concat();
        let unknown = error(opcode, Status::UnknownCommand);
        let expected = [
            Seen::Skipped(24 + key.len() + 5),
            Seen::Op(unknown, Vec::new()),
            Seen::Op(binary(0x0a, BinaryCommand::Noop), Vec::new()),
            Seen::Rest(0),
        ];
        assert_eq!(seen(&bytes, &Limits::default()), expected);
    }
}

/// What answers a request of that opcode that is refused, and whose connection goes on.
fn error(opcode: u8, status: Status) -> Op {
    let closes = false;
    binary(opcode, BinaryCommand::Error { status, closes })
}

#[test]
fn a_value_that_is_too_large_is_refused_and_passed_over() {
    let limits = Limits {
        item_size_max: 1024,
        ..Limits::default()
    };
    let bytes = [
        request(0x01, &[0; 8], b"k", &[b'v'; 1000]),
        request(0x0a, b"", b"", b""),
    ]
    .concat();
    let seen = seen(&bytes, &limits);
    assert!(
        matches!(
            &seen[..],
            [
                Seen::Op(Op::StoreRefused(refused), _),
                Seen::Skipped(1000),
                Seen::Op(too_large, _),
                Seen::Op(Op::Binary(_), _),
                Seen::Rest(0),
            ] if refused.unlink && *too_large == error(0x01, Status::TooLarge)
        ),
        "{seen:?}"
    );
}

#[test]
fn pieces_of_any_length_say_the_same() {
    let bytes = [
        request(0x01, &[0; 8], b"key", &[b'v'; 300]),
        request(0x00, b"", b"key", b""),
        request(0x11, &[0; 8], b"key", b""),
        request(0xaa, b"xx", b"key", b"no such"),
        request(0x0f, b"", b"key", b"p"),
        request(0x0d, b"", b"k\0y", b""),
        request(0x0a, b"", b"", b""),
    ]
    .concat();
    for (gather_max, streamed) in [(0, 2), (100, 1), (16 << 10, 0)] {
        let limits = Limits {
            gather_max,
            ..Limits::default()
        };
        let expected = seen(&bytes, &limits);
        assert_eq!(expected.len(), 9 + streamed, "{expected:?}");
        for len in [1, 2, 3, 23, 24, 25, 100] {
            assert_eq!(seen_in_pieces(&bytes, &limits, || len), expected, "{len}");
        }
    }
}

#[test]
fn other_bytes_end_a_binary_connection_and_a_text_connection_goes_on() {
    let noop = request(0x0a, b"", b"", b"");
    let seen = seen(&[&noop[..], &[b' '; 24]].concat(), &Limits::default());
    assert_eq!(seen[1..], [Seen::Close(CloseReason::BadMagic)]);
    let mut binary_only = Parser::of(Dialect::Binary);
    let close = Step::Close {
        reason: CloseReason::BadMagic,
    };
    assert_eq!(
        binary_only.next(b"get and two dozen others\r\n", &Limits::default()),
        close
    );
    let mut text_only = Parser::of(Dialect::Text);
    let step = text_only.next(&[&noop[..], b"\n"].concat(), &Limits::default());
    let Step::Op { op, .. } = step else {
        panic!("{step:?}");
    };
    assert!(matches!(at_front(op, &noop), Seen::Op(Op::Error { .. }, _)));
}
