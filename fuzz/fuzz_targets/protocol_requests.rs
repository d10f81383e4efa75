//! Requests in pieces: no panic, no standing still, every span inside of its
//! input, and the same operations however the bytes are cut.
#![no_main]

use coua_protocol::{Attempt, BinaryCommand, Dialect, Limits, Op, Parser, Span, Step};
use libfuzzer_sys::fuzz_target;

/// Up to this many bytes a line without an end is waited for, whatever it is.
const SAME_MAX: usize = 2048;

fuzz_target!(|data: &[u8]| {
    let Some((&[sizes, seed], bytes)) = data.split_first_chunk() else {
        return;
    };
    let limits = Limits {
        item_size_max: [70, 100, 1 << 10, 1 << 20][usize::from(sizes & 3)],
        gather_max: [0, 30, 100, 1 << 14][usize::from(sizes >> 2 & 3)],
        cas: sizes & 16 != 0,
        line_max: 2100,
        sasl: sizes & 32 != 0,
    };
    let mut random = u32::from(seed) | 1;
    let mut piece = || {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        match seed {
            0 => 1,
            _ => random as usize % 32 + 1,
        }
    };
    let parser = match sizes & 64 {
        0 => Parser::new(),
        _ => Parser::locked(Dialect::Unknown),
    };
    let pieces = run(parser, bytes, &limits, &mut piece);
    if bytes.len() <= SAME_MAX {
        assert_eq!(pieces, run(parser, bytes, &limits, &mut || bytes.len()));
    }
});

/// The operations, with spans as of all the bytes; what is left of a request that
/// is not whole; and whether the connection was closed.
fn run(
    mut parser: Parser,
    bytes: &[u8],
    limits: &Limits,
    piece: &mut impl FnMut() -> usize,
) -> (Vec<Op>, usize, bool) {
    let is_locked = parser.is_locked();
    let mut ops = Vec::new();
    let (mut front, mut end) = (0, 0);
    loop {
        let input = &bytes[front..end];
        match parser.next(input, limits) {
            Step::More { at_least } => {
                assert!(at_least as usize > input.len());
                if end == bytes.len() {
                    return (ops, input.len(), false);
                }
                end = bytes.len().min(end + piece());
            }
            Step::Op { consumed, op } => {
                assert!(consumed > 0 && consumed as usize <= input.len());
                let op = op.shifted(u32::try_from(front).expect("short"));
                inside(&op, &bytes[..end]);
                front += consumed as usize;
                assert!(!is_locked || is_outside(&op) && parser.is_locked());
                let mut op = op;
                if let Op::StoreEnd { bytes, .. } = &mut op {
                    // A value's last bytes come with its end, and how many depends on the pieces.
                    let last = std::mem::take(bytes);
                    match ops.last_mut() {
                        Some(Op::StoreBody { bytes }) => bytes.len += last.len,
                        _ if last.len > 0 => ops.push(Op::StoreBody { bytes: last }),
                        _ => {}
                    }
                }
                match (ops.last_mut(), op) {
                    (Some(Op::StoreBody { bytes }), Op::StoreBody { bytes: next }) => {
                        assert_eq!(next.start, bytes.start + bytes.len);
                        bytes.len += next.len;
                    }
                    _ => ops.push(op),
                }
            }
            Step::Skip { consumed } => {
                assert!(consumed > 0 && consumed as usize <= input.len());
                front += consumed as usize;
            }
            Step::Close { .. } => return (ops, 0, true),
        }
    }
}

/// Whether somebody who has not logged in may ask that.
fn is_outside(op: &Op) -> bool {
    match op {
        Op::Login(_) | Op::Error { .. } => true,
        Op::Binary(binary) => matches!(
            binary.command,
            BinaryCommand::Version | BinaryCommand::SaslMechanisms | BinaryCommand::Error { .. }
        ),
        _ => false,
    }
}

/// Reads what the operation's spans name.
fn inside(op: &Op, bytes: &[u8]) {
    let key = |key: Span| assert!(key.of(bytes).len() <= coua_protocol::KEY_LEN_MAX);
    match op {
        Op::Get { key: name, .. } | Op::GetAndTouch { key: name, .. } => key(*name),
        Op::Store(store) | Op::StoreStream(store) => {
            key(store.key);
            assert!(store.value.of(bytes).len() <= store.value_len as usize);
            let echo = coua_protocol::Echo::of(store.tokens.of(bytes));
            assert!(echo.flags().count() <= 4);
        }
        Op::MetaGet(meta) | Op::MetaDelete(meta) => {
            key(meta.key);
            assert!(meta.flags(bytes).all(|(letter, _)| meta.set.has(letter)));
            if meta.key_base64() {
                let mut decoded = [0; coua_protocol::KEY_LEN_MAX];
                assert!(coua_protocol::base64::decode(meta.key.of(bytes), &mut decoded).is_some());
            }
        }
        Op::MetaArithmetic(change) => key(change.meta.key),
        Op::StoreBody { bytes: value } => assert!(!value.of(bytes).is_empty()),
        Op::Binary(request) => match request.command {
            BinaryCommand::Get { key: name, .. }
            | BinaryCommand::Delete { key: name, .. }
            | BinaryCommand::Arithmetic { key: name, .. }
            | BinaryCommand::Stats { args: name } => key(name),
            _ => {}
        },
        Op::Login(login) => {
            if let Attempt::Password { user, password } = login.attempt {
                assert!(user.of(bytes).len() + password.of(bytes).len() <= 1024);
            }
        }
        Op::Stats { args } | Op::Admin { args, .. } => {
            let _ = args.of(bytes);
        }
        _ => {}
    }
}
