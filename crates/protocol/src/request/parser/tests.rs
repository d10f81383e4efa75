mod binary;
mod commands;
mod locked;
mod pieces;

use std::format;
use std::vec::Vec;

use super::{CloseReason, Dialect, Parser, REQUEST_MAGIC, Step};
use crate::binary::BinaryCommand;
use crate::limits::Limits;
use crate::login::Attempt;
use crate::op::{Op, StoreMode};
use crate::request::fast::PlainSet;
use crate::span::Span;

/// What a server sees, independent of how the bytes came.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    /// An operation whose spans have been moved to the front, and their bytes.
    Op(Op, Vec<Vec<u8>>),
    /// A streamed value, and whether its end was right.
    Streamed(Vec<u8>, bool),
    /// So many bytes were passed over.
    Skipped(usize),
    Close(CloseReason),
    /// So many bytes are left, of a request that is not whole.
    Rest(usize),
}

/// What is seen of `bytes` at once: as the first of a connection, which are looked
/// at, and as later ones, for which the fast path may do.
fn seen(bytes: &[u8], limits: &Limits) -> Vec<Seen> {
    let whole = || usize::MAX / 2;
    let seen = seen_in_pieces(bytes, limits, whole);
    if bytes.first() != Some(&REQUEST_MAGIC) {
        let mut later = seen_in_pieces(&[b"mn\r\n", bytes].concat(), limits, whole);
        assert_eq!(later.remove(0), Seen::Op(Op::MetaNoop, Vec::new()));
        assert_eq!(later, seen);
    }
    seen
}

/// Feeds `bytes` in pieces of the lengths that `split` gives, and checks on the
/// way what holds of every step.
fn seen_in_pieces(bytes: &[u8], limits: &Limits, split: impl FnMut() -> usize) -> Vec<Seen> {
    seen_by(Parser::new(), bytes, limits, split)
}

/// As [`seen_in_pieces`], by a parser at the beginning of a connection.
fn seen_by(
    mut parser: Parser,
    bytes: &[u8],
    limits: &Limits,
    mut split: impl FnMut() -> usize,
) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut body = Vec::new();
    let (mut front, mut end) = (0, 0);
    loop {
        let input = &bytes[front..end];
        let fast = parser.front();
        let plain = fast.and_then(|fast| fast.next_set(input, limits));
        let get = fast.and_then(|fast| fast.next_get(input));
        let step = parser.next(input, limits);
        if let Some(set) = plain
            && set.consumed <= limits.gather_max
        {
            is_same_set(&set, &step);
        }
        if let Some(get) = get {
            let (key, cas, last) = (get.key, get.cas, get.last);
            let op = Op::Get { key, cas, last };
            let consumed = get.consumed;
            assert_eq!(step, Step::Op { consumed, op });
            assert!(parser.front().is_some());
        }
        let consumed = match step {
            Step::More { at_least } => {
                assert!(at_least as usize > input.len());
                if end == bytes.len() {
                    seen.push(Seen::Rest(input.len()));
                    return seen;
                }
                end = bytes.len().min(end + split().max(1));
                continue;
            }
            Step::Op { consumed, op } => {
                match op {
                    Op::StoreBody { bytes } => {
                        assert!(bytes.len > 0);
                        body.extend_from_slice(bytes.of(input));
                    }
                    Op::StoreEnd { bytes, terminated } => {
                        body.extend_from_slice(bytes.of(input));
                        seen.push(Seen::Streamed(core::mem::take(&mut body), terminated));
                    }
                    _ => {
                        if answers_refusal(&op, seen.last()) {
                            skip(&mut seen, consumed);
                        }
                        seen.push(at_front(op, input));
                    }
                }
                consumed
            }
            Step::Skip { consumed } => {
                skip(&mut seen, consumed);
                consumed
            }
            Step::Close { reason } => {
                seen.push(Seen::Close(reason));
                return seen;
            }
        };
        assert!(consumed > 0 && consumed as usize <= input.len());
        front += consumed as usize;
    }
}

/// So many bytes more were passed over.
fn skip(seen: &mut Vec<Seen>, consumed: u32) {
    match seen.last_mut() {
        Some(Seen::Skipped(skipped)) => *skipped += consumed as usize,
        _ => seen.push(Seen::Skipped(consumed as usize)),
    }
}

/// Whether an operation that follows `last` answers a request that was refused before its body: then
/// it uses up as much of the body as came in its last piece.
fn answers_refusal(op: &Op, last: Option<&Seen>) -> bool {
    let is_error = match op {
        Op::Error { .. } => true,
        Op::Binary(binary) => matches!(binary.command, BinaryCommand::Error { .. }),
        _ => false,
    };
    let is_behind_body = matches!(
        last,
        Some(Seen::Skipped(_) | Seen::Op(Op::StoreRefused(_), _))
    );
    is_error && is_behind_body
}

/// What the fast path saw is what the parser sees.
fn is_same_set(set: &PlainSet, step: &Step) {
    let Step::Op { consumed, op } = step else {
        panic!("{set:?}, not {step:?}");
    };
    let Op::Store(store) = op else {
        panic!("{set:?}, not {op:?}");
    };
    assert_eq!((set.consumed, set.key), (*consumed, store.key));
    let flags_and_expiry = (store.client_flags, store.exptime);
    assert_eq!((set.client_flags, set.exptime.into()), flags_and_expiry);
    assert_eq!((set.value, set.reply), (store.value, store.reply));
    let others = (store.mode, store.explicit_cas(), store.key_base64);
    assert_eq!(others, (StoreMode::Set, None, false));
}

fn at_front(op: Op, input: &[u8]) -> Seen {
    let seen = moved_to_front(op, input);
    let later = moved_to_front(op.shifted(3), &[b"...", input].concat());
    assert_eq!(seen, later);
    seen
}

fn moved_to_front(mut op: Op, input: &[u8]) -> Seen {
    let mut pieces = Vec::new();
    let mut take = |span: &mut Span| {
        pieces.push(span.of(input).to_vec());
        span.start = 0;
    };
    match &mut op {
        Op::Get { key, .. }
        | Op::GetAndTouch { key, .. }
        | Op::Delete { key, .. }
        | Op::Touch { key, .. }
        | Op::MetaDebug { key, .. } => take(key),
        Op::Arithmetic(arithmetic) => take(&mut arithmetic.key),
        Op::StoreRefused(refused) => take(&mut refused.key),
        Op::Store(store) | Op::StoreStream(store) => {
            take(&mut store.key);
            take(&mut store.tokens);
            take(&mut store.value);
        }
        Op::MetaGet(meta) | Op::MetaDelete(meta) => {
            take(&mut meta.key);
            take(&mut meta.tokens);
        }
        Op::MetaArithmetic(arithmetic) => {
            take(&mut arithmetic.meta.key);
            take(&mut arithmetic.meta.tokens);
        }
        Op::Stats { args } | Op::Admin { args, .. } => take(args),
        Op::Binary(request) => match &mut request.command {
            BinaryCommand::Get { key, .. }
            | BinaryCommand::Delete { key, .. }
            | BinaryCommand::Arithmetic { key, .. }
            | BinaryCommand::Stats { args: key } => take(key),
            BinaryCommand::FlushAll { .. }
            | BinaryCommand::Noop
            | BinaryCommand::Version
            | BinaryCommand::Quit
            | BinaryCommand::SaslMechanisms
            | BinaryCommand::Error { .. } => {}
        },
        Op::Login(login) => {
            if let Attempt::Password { user, password } = &mut login.attempt {
                take(user);
                take(password);
            }
        }
        Op::StoreBody { .. }
        | Op::StoreEnd { .. }
        | Op::GetEnd
        | Op::MetaNoop
        | Op::FlushAll { .. }
        | Op::Version
        | Op::Verbosity { .. }
        | Op::Quit
        | Op::Shutdown { .. }
        | Op::Error { .. } => {}
    }
    Seen::Op(op, pieces)
}

/// Which spellings the fast path knows; that it reads them as the parser does is checked wherever that runs.
#[test]
fn plain_sets_take_the_fast_path() {
    let (parser, limits) = (Parser::of(Dialect::Text), Limits::default());
    let front = parser.front().expect("between two requests");
    let is_plain = |text: &str| front.next_set(text.as_bytes(), &limits).is_some();
    for plain in [
        "set k 0 0 2\r\nhi\r\n",
        "set k 0 0 0\r\n\r\nget k\r\n",
        "set k 0 100 2\r\nhi\r\n",
        "set k 123456789 999999999 2 noreply\r\nhi\r\n",
        "ms k 2\r\nhi\r\n",
        "ms k 2 T60 F5\r\nhi\r\n",
        "ms k 2 q\r\nhi\r\n",
    ] {
        assert!(is_plain(plain), "{plain:?}");
    }
    for other in [
        "",
        "set k 0 0 2\r\nhi\r",
        "set k 0 0 2\r\nhi!\r\n",
        "set k 0 0 2\nhi\r\n",
        "set k 0 0 2 \r\nhi\r\n",
        "set k 0 -1 2\r\nhi\r\n",
        "set k 0 0 2",
        "set k 4294967295 0 2\r\nhi\r\n",
        "set  k 0 0 2\r\nhi\r\n",
        "add k 0 0 2\r\nhi\r\n",
        "ms k 2 c\r\nhi\r\n",
        "ms k 2 ME\r\nhi\r\n",
        "ms aGk= 2 b\r\nhi\r\n",
    ] {
        assert!(!is_plain(other), "{other:?}");
    }
    let large = format!("set k 0 0 1048577\r\n{}\r\n", "v".repeat(1_048_577));
    assert!(!is_plain(&large));
    assert!(Parser::new().front().is_none());
}
