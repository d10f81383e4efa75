//! Every command by table.

use std::format;
use std::string::String;
use std::vec::Vec;

use super::{Seen, seen};
use crate::error_line::ErrorLine;
use crate::expiry::{Exptime, TtlStart};
use crate::flags::{Echo, Flags, TagNames};
use crate::limits::{KEY_LEN_MAX, Limits};
use crate::op::{AdminCommand, MetaArithmetic, Op, ShutdownMode, Store, StoreMode, StoreReply};

/// The one operation of `text`, and the bytes of its spans.
fn one(text: &str) -> (Op, Vec<Vec<u8>>) {
    let mut seen = seen(text.as_bytes(), &Limits::default());
    assert_eq!(seen.pop(), Some(Seen::Rest(0)), "{text:?}");
    match (seen.pop(), seen.pop()) {
        (Some(Seen::Op(op, pieces)), None) => (op, pieces),
        other => panic!("{text:?}: {other:?}"),
    }
}

/// What `text` with `mn` behind it comes to: errors, the names of other
/// operations, and whether something is passed over.
fn told(text: &[u8]) -> String {
    let mut told = Vec::new();
    for seen in seen(&[text, b"mn\r\n"].concat(), &Limits::default()) {
        match seen {
            Seen::Op(Op::Error { error, noreply }, _) => {
                let silent = if noreply { " silent" } else { "" };
                told.push(format!("{error:?}{silent}"));
            }
            Seen::Op(Op::MetaNoop, _) => told.push("mn".into()),
            Seen::Op(op, _) => {
                let name = format!("{op:?}");
                let end = name.find([' ', '(']).unwrap_or(name.len());
                told.push(name[..end].into());
            }
            Seen::Skipped(_) => told.push("skip".into()),
            Seen::Close(reason) => told.push(format!("{reason:?}")),
            Seen::Rest(0) => {}
            Seen::Rest(len) => told.push(format!("rest {len}")),
            Seen::Streamed(..) => told.push("streamed".into()),
        }
    }
    told.join(", ")
}

#[test]
fn errors() {
    let table: &[(&str, &str)] = &[
        // Too short, unknown, and what is no command.
        ("\r\n", "BadFormat, mn"),
        ("\n", "BadFormat, mn"),
        ("mn\n", "BadFormat, mn"),
        ("ab\n", "BadFormat, mn"),
        ("abc\n", "Unknown, mn"),
        ("    \r\n", "Unknown, mn"),
        ("GET a\r\n", "Unknown, mn"),
        ("get\ta\r\n", "Unknown, mn"),
        (" get a\r\n", "Unknown, mn"),
        (" version\r\n", "Unknown, mn"),
        (" watch\r\n", "Unknown, mn"),
        ("mx a\r\n", "Unknown, mn"),
        ("foo noreply\r\n", "Unknown silent, mn"),
        ("GET / HTTP/1.1\r\n", "Http"),
        ("GET / HTTP/1.1 \r\n", "Http"),
        ("HTTP/1.1\r\n", "Unknown, mn"),
        ("GET / HTTP\r\n", "Unknown, mn"),
        // Too few words are told, noreply or not.
        ("get\r\n", "BadFormat, mn"),
        ("get  \r\n", "BadFormat, mn"),
        ("gat 0\r\n", "BadFormat, mn"),
        ("delete\r\n", "BadFormat, mn"),
        ("incr noreply\r\n", "BadFormat, mn"),
        ("touch noreply\r\n", "BadFormat, mn"),
        ("set k 0 noreply\r\n", "BadFormat, mn"),
        ("mg\r\n", "BadFormat, mn"),
        ("ms k\r\n", "BadFormat, mn"),
        ("me\r\n", "BadFormat, mn"),
        // Numbers.
        ("gat x k\r\n", "BadExptime, mn"),
        ("incr k -1\r\n", "BadDelta, mn"),
        ("incr k noreply\r\n", "BadDelta silent, mn"),
        ("touch k x noreply\r\n", "BadExptime silent, mn"),
        ("verbosity\r\n", "BadFormat, mn"),
        ("verbosity x noreply\r\n", "BadFormat silent, mn"),
        // Without a length there is no body; with one it is swallowed.
        ("set k 0 0 x\r\n", "BadFormat, mn"),
        ("set k 0 0 -1 noreply\r\n", "BadFormat, mn"),
        ("set k 0 0 2147483646\r\n", "BadFormat, mn"),
        ("set k -1 0 2\r\nab\r\n", "skip, BadFormat, mn"),
        (
            "set k 0 x 2 noreply\r\nab\r\n",
            "skip, BadFormat silent, mn",
        ),
        ("cas k 0 0 2\r\nab\r\n", "skip, BadFormat, mn"),
        (
            "cas k 0 0 2 noreply\r\nab\r\n",
            "skip, BadFormat silent, mn",
        ),
        ("set k 0 0 1\r\nabc", "BadDataChunk, mn"),
        ("set k 0 0 1 noreply\r\nabc", "BadDataChunk silent, mn"),
        ("ms k 1 q\r\nabc", "BadDataChunk, mn"),
        ("set k 0 0 2000000\r\n", "StoreRefused, skip"),
        ("ms k x\r\n", "BadFormat, mn"),
        // Meta flags: the last error counts, but some end it.
        ("mg k {\r\n", "BadFormat, mn"),
        ("ms k 2 {\r\n", "BadFormat, mn"),
        ("mg k 1\r\n", "UnknownFlag, mn"),
        ("mg k S\r\n", "UnknownFlag, mn"),
        ("mg k v v\r\n", "DuplicateFlag, mn"),
        ("mg k T v v\r\n", "DuplicateFlag, mn"),
        ("mg k T Cx F\r\n", "BadToken, mn"),
        ("mg k F Jx\r\n", "BadInitial, mn"),
        ("mg k J D\r\n", "BadDeltaFlag, mn"),
        ("mg k Fx\r\n", "BadFormat, mn"),
        ("mg k- b\r\n", "BadBase64Key, mn"),
        ("mg k- b T\r\n", "BadToken, mn"),
        ("ma k v v\r\n", "BadArithmeticFlag, mn"),
        ("ma k {\r\n", "BadFormat, mn"),
        ("ma k MX\r\n", "BadArithmeticMode, mn"),
        ("ma k M\r\n", "BadArithmeticMode, mn"),
        ("ms k 2 MX\r\nab\r\n", "skip, BadStoreMode, mn"),
        ("ms k 2 M k\r\nab\r\n", "skip, BadStoreMode, mn"),
        ("ms k 2 z\r\nab\r\n", "skip, UnknownFlag, mn"),
        ("me k- b b\r\n", "BadFormat, mn"),
        ("me k {\r\n", "BadFormat, mn"),
    ];
    for (text, expected) in table {
        assert_eq!(told(text.as_bytes()), *expected, "{text:?}");
    }
    assert_eq!(told(b"\x00\x80\xff\xff\r\n"), "Unknown, mn");
    // It is the connection's first byte that tells the dialect.
    assert_eq!(told(b"\x80\r\n"), "rest 7");
    assert_eq!(told(b"mn\r\n\x80\x01\r\n"), "mn, Unknown, mn");
}

#[test]
fn errors_of_length() {
    let long = "k".repeat(KEY_LEN_MAX + 1);
    let opaque = "x".repeat(32);
    let words = " x".repeat(18);
    for (text, expected) in [
        (format!("get {long}\r\n"), "BadFormat, mn"),
        (format!("get a b {long} c noreply\r\n"), "BadFormat, mn"),
        (format!("delete {long} noreply\r\n"), "BadFormat silent, mn"),
        (format!("set {long} 0 0 2\r\nab\r\n"), "skip, BadFormat, mn"),
        (format!("mg {long} z\r\n"), "BadFormat, mn"),
        (format!("ms {long} 2\r\nab\r\n"), "skip, BadFormat, mn"),
        (format!("me {long}\r\n"), "BadFormat, mn"),
        (format!("mg k O{opaque}\r\n"), "OpaqueTooLong, mn"),
        (format!("mg k O{}\r\n", &opaque[1..]), "MetaGet, mn"),
        (
            format!("ms k 2 q O{opaque}\r\nab\r\n"),
            "skip, OpaqueTooLong, mn",
        ),
        (format!("mg k{words}\r\n"), "DuplicateFlag, mn"),
        (format!("mg k x{words}\r\n"), "TooManyFlags, mn"),
    ] {
        assert_eq!(told(text.as_bytes()), expected, "{text:?}");
    }
}

/// The keys that `text` looks up: key, with CAS, last, touched.
fn lookups(text: &str) -> Vec<(String, bool, bool, Option<i32>)> {
    let mut lookups = Vec::new();
    for seen in seen(text.as_bytes(), &Limits::default()) {
        let (key, cas, last, touch) = match seen {
            Seen::Op(Op::Get { cas, last, .. }, key) => (key, cas, last, None),
            Seen::Op(
                Op::GetAndTouch {
                    exptime, cas, last, ..
                },
                key,
            ) => (key, cas, last, Some(exptime)),
            other => {
                assert_eq!(other, Seen::Rest(0));
                continue;
            }
        };
        let key = String::from_utf8(key.concat()).expect("ASCII");
        lookups.push((key, cas, last, touch));
    }
    lookups
}

#[test]
fn keys_come_one_by_one() {
    let key = |key: &str, cas, last, touch| (String::from(key), cas, last, touch);
    assert_eq!(lookups("get key\r\n"), [key("key", false, true, None)]);
    assert_eq!(
        lookups("get  a  b\tc noreply \n"),
        [
            key("a", false, false, None),
            key("b\tc", false, false, None),
            key("noreply", false, true, None)
        ]
    );
    assert_eq!(
        lookups("gets a b\r\n"),
        [key("a", true, false, None), key("b", true, true, None)]
    );
    assert_eq!(lookups("gat -5 a\r\n"), [key("a", false, true, Some(-5))]);
    assert_eq!(
        lookups("gats  0  a  b\r\n"),
        [
            key("a", true, false, Some(0)),
            key("b", true, true, Some(0))
        ]
    );
    // A line may have any number of keys, but each of them is bounded.
    let count = if cfg!(miri) { 300 } else { 10_000 };
    let many = format!("get {}\r\n", "0123456789 ".repeat(count));
    let found = lookups(&many);
    assert_eq!(found.len(), count);
    assert!(found.iter().rev().skip(1).all(|(_, _, last, _)| !last) && found[count - 1].2);
}

fn store(text: &str) -> (Store, Vec<Vec<u8>>) {
    match one(text) {
        (Op::Store(store), pieces) => (store, pieces),
        other => panic!("{text:?}: {other:?}"),
    }
}

#[test]
fn classic_stores() {
    for (name, mode) in [
        ("set", StoreMode::Set),
        ("add", StoreMode::Add),
        ("replace", StoreMode::Replace),
        ("append", StoreMode::Append),
        ("prepend", StoreMode::Prepend),
    ] {
        let (stored, pieces) = store(&format!("{name} key 7 -1 4\r\n\0\r\n \r\n"));
        assert_eq!(pieces, [b"key".to_vec(), Vec::new(), b"\0\r\n ".to_vec()]);
        assert_eq!((stored.mode, stored.reply), (mode, StoreReply::Classic));
        assert_eq!(
            (stored.client_flags, stored.exptime, stored.cas),
            (7, Exptime::from(-1), 0)
        );
        assert_eq!(stored.explicit_cas(), None);
    }
    let (stored, _) = store("cas k 0 0 0 18446744073709551615 noreply\r\n\r\n");
    assert_eq!(
        (stored.mode, stored.reply),
        (StoreMode::Cas, StoreReply::None)
    );
    assert_eq!(stored.cas, u64::MAX);
    // C's numbers: white space other than spaces, and halves that are cut off.
    let numbers = |text| {
        let (stored, _) = store(text);
        (stored.client_flags, stored.exptime, stored.value_len)
    };
    assert_eq!(
        numbers("set k 4294967301 4294967295 -\r\n\r\n"),
        (5, Exptime::from(-1), 0)
    );
    assert_eq!(numbers("set k \t 3 1\r\na\r\n"), (3, Exptime::from(3), 1));
    assert_eq!(numbers("set k 3\t +4 1\r\na\r\n"), (3, Exptime::from(4), 1));
}

#[test]
fn meta_stores() {
    let (stored, pieces) = store("ms key 2\r\nab\r\n");
    assert_eq!(pieces, [b"key".to_vec(), Vec::new(), b"ab".to_vec()]);
    assert_eq!(
        (stored.mode, stored.reply),
        (StoreMode::Set, StoreReply::Meta)
    );
    for (flags, mode) in [
        ("", StoreMode::Set),
        ("MS", StoreMode::Set),
        ("M\0", StoreMode::Set),
        ("ME", StoreMode::Add),
        ("MA", StoreMode::Append),
        ("MP", StoreMode::Prepend),
        ("MRx", StoreMode::Replace),
        ("MA N9", StoreMode::AppendVivify),
        ("N9 MP", StoreMode::PrependVivify),
        ("C7", StoreMode::Cas),
        ("C7 MR", StoreMode::Cas),
        ("C7 ME", StoreMode::Add),
        ("C7 MA", StoreMode::Append),
    ] {
        let (stored, _) = store(&format!("ms key 2 T5 {flags}\r\nab\r\n"));
        let vivifies = flags.contains('N');
        assert_eq!(stored.mode, mode, "{flags}");
        let exptime = Exptime::from(if vivifies { 9 } else { 5 });
        assert_eq!(stored.exptime, exptime, "{flags}");
        assert_eq!(stored.cas, if flags.contains('C') { 7 } else { 0 });
    }
    let (stored, pieces) = store("ms a2V5 2 b Oxy k F8 q E0 I s C3 c\r\nab\r\n");
    assert_eq!(
        (stored.mode, stored.reply),
        (StoreMode::Cas, StoreReply::MetaQuiet)
    );
    assert_eq!((stored.explicit_cas(), stored.client_flags), (Some(0), 8));
    assert!(stored.key_base64 && stored.invalidate);
    let echo = Echo::of(&pieces[1]);
    let flags: Vec<_> = echo.flags().collect();
    let expected: [(u8, &[u8]); 4] = [(b'O', b"xy"), (b'k', b""), (b's', b""), (b'c', b"")];
    assert_eq!(flags, expected);
    // Without a CAS to compare with, nothing becomes stale.
    assert!(!store("ms key 2 I\r\nab\r\n").0.invalidate);
}

#[test]
fn an_echo_holds_all_that_a_reply_takes() {
    let opaque = "x".repeat(31);
    let tokens = format!("kargument c9 v O{opaque} q s");
    let echo = Echo::of(tokens.as_bytes());
    let flags: Vec<_> = echo.flags().collect();
    let expected: [(u8, &[u8]); 4] = [
        (b'k', b""),
        (b'c', b""),
        (b'O', opaque.as_bytes()),
        (b's', b""),
    ];
    assert_eq!(flags, expected);
    // More than any accepted request has does no harm.
    let long = "y".repeat(100);
    assert_eq!(
        Echo::of(format!("k O{long} s").as_bytes()).flags().count(),
        1
    );
}

#[test]
fn the_item_size_is_that_of_memcached() {
    let refused = |command: &str, limits: &Limits| {
        let text = format!("{command}\r\n");
        match seen(text.as_bytes(), limits).first() {
            Some(Seen::Op(Op::StoreRefused(refused), _)) => Some(*refused),
            Some(Seen::Op(Op::StoreStream(_), _)) => None,
            other => panic!("{command}: {other:?}"),
        }
    };
    let limits = Limits::default();
    for (fits, too_large) in [
        ("set k 0 0 1048516", "set k 0 0 1048517"),
        ("set k 1 0 1048512", "set k 1 0 1048513"),
        ("set k 4294967296 0 1048516", "set k 4294967296 0 1048517"),
        ("set 0123456789 0 0 1048507", "set 0123456789 0 0 1048508"),
        ("ms k 1048516", "ms k 1048517"),
        ("ms k 1048512 F1", "ms k 1048513 F1"),
        ("ms a2V5 1048514 b", "ms a2V5 1048515 b"),
    ] {
        assert_eq!(refused(fits, &limits), None, "{fits}");
        let refused = refused(too_large, &limits).expect(too_large);
        assert!(refused.unlink, "{too_large}");
    }
    let bare = Limits {
        cas: false,
        ..limits
    };
    assert_eq!(refused("set k 0 0 1048524", &bare), None);
    assert!(refused("set k 0 0 1048525", &bare).is_some());
    let add = refused("add k 0 0 9999999 noreply", &limits).expect("too large");
    assert_eq!((add.unlink, add.value_len), (false, 9_999_999));
    let meta = refused("ms k 9999999 ME q", &limits).expect("too large");
    assert!(meta.unlink);
}

/// A client that reads while it writes would take an earlier answer for the end of its request.
#[test]
fn a_refusal_is_answered_behind_the_last_byte_of_the_body() {
    let limits = Limits {
        item_size_max: 1024,
        ..Limits::default()
    };
    for (head, error, noreply) in [
        ("set k 0 0 2000", ErrorLine::TooLarge, false),
        ("add k 0 0 2000 noreply", ErrorLine::TooLarge, true),
        ("ms k 2000 q", ErrorLine::TooLarge, false),
        ("ms k 2000 z", ErrorLine::UnknownFlag, false),
        ("set k -1 0 2000", ErrorLine::BadFormat, false),
    ] {
        let text = format!("{head}\r\n{}\r\n", "v".repeat(2000));
        let early = seen(&text.as_bytes()[..text.len() - 1], &limits);
        let is_answer = |seen: &Seen| matches!(seen, Seen::Op(Op::Error { .. }, _));
        assert!(!early.iter().any(is_answer), "{head}: {early:?}");
        let whole = seen(text.as_bytes(), &limits);
        let answer = Seen::Op(Op::Error { error, noreply }, Vec::new());
        assert_eq!(whole[whole.len() - 2..], [answer, Seen::Rest(0)], "{head}");
    }
}

#[test]
fn changes() {
    let deleted = |text: &str| match one(text) {
        (Op::Delete { noreply, .. }, key) => (noreply, key.concat()),
        other => panic!("{text:?}: {other:?}"),
    };
    assert_eq!(deleted("delete k\r\n"), (false, b"k".to_vec()));
    assert_eq!(deleted("delete k 0 noreply\r\n"), (true, b"k".to_vec()));
    // The last word is the key, too.
    assert_eq!(deleted("delete noreply\r\n"), (true, b"noreply".to_vec()));
    // Only so many words count.
    let words = format!("delete k{} noreply\r\n", " x".repeat(21));
    assert_eq!(deleted(&words), (false, b"k".to_vec()));
    let changed = |text: &str| match one(text).0 {
        Op::Arithmetic(change) => (change.delta, change.decrement, change.noreply),
        other => panic!("{text:?}: {other:?}"),
    };
    assert_eq!(
        changed("incr k 18446744073709551615 noreply\r\n"),
        (u64::MAX, false, true)
    );
    assert_eq!(changed("decr k 1 2\r\n"), (1, true, false));
    assert!(matches!(
        one("touch k -2147483648\r\n").0,
        Op::Touch {
            exptime: i32::MIN,
            noreply: false,
            ..
        }
    ));
}

#[test]
fn meta_requests() {
    let (op, pieces) = one("mg a2V5  q b  T30 C5 E6 N-1 R4 Oz v PX L\r\n");
    let Op::MetaGet(get) = op else {
        panic!("{op:?}");
    };
    assert_eq!(pieces, [&b"a2V5"[..], b"q b  T30 C5 E6 N-1 R4 Oz v PX L"]);
    assert!(get.quiet() && get.key_base64() && get.set.has(b'v') && !get.set.has(b't'));
    assert_eq!(
        (get.touch(), get.vivify(), get.recache()),
        (
            Some(Exptime::from(30)),
            Some(Exptime::from(-1)),
            Some(Exptime::from(4))
        )
    );
    assert_eq!((get.cas(), get.explicit_cas()), (Some(5), Some(6)));
    let Op::MetaDelete(delete) = one("md k x F3 I\n").0 else {
        panic!("no md");
    };
    assert_eq!(
        (delete.touch(), delete.vivify(), delete.recache()),
        (None, None, None)
    );
    assert_eq!((delete.cas(), delete.explicit_cas()), (None, None));
    assert!(delete.set.has(b'x') && delete.set.has(b'I') && !delete.quiet());
    assert_eq!(delete.client_flags, 3);
    for (flags, expected) in [
        ("", (1, 0, false)),
        ("D5 J7 MD", (5, 7, true)),
        ("M- D0", (0, 0, true)),
        ("M+", (1, 0, false)),
        ("MI", (1, 0, false)),
    ] {
        let Op::MetaArithmetic(change) = one(&format!("ma k {flags}\r\n")).0 else {
            panic!("no ma");
        };
        let MetaArithmetic {
            delta,
            initial,
            decrement,
            ..
        } = change;
        assert_eq!((delta, initial, decrement), expected, "{flags}");
    }
    // One flag b is not enough for me.
    for (text, expected) in [
        ("me k b\r\n", false),
        ("me a2V5 b b\r\n", true),
        ("me k v b\r\n", false),
    ] {
        assert!(
            matches!(one(text).0, Op::MetaDebug { base64, .. } if base64 == expected),
            "{text:?}"
        );
    }
    assert_eq!(one("mn anything\r\n").0, Op::MetaNoop);
    for flags in ["", "v", "v t", "v  t", "v ", "O", "T0"] {
        let (_, pieces) = one(&format!("mg k {flags}\r\n"));
        assert_eq!(pieces[1], flags.trim_end().as_bytes());
        let (_, pieces) = one(&format!("ms k 1 {flags}\r\nx\r\n"));
        assert_eq!(pieces[1], flags.trim_end().as_bytes());
    }
}

#[test]
fn time_flags_act_in_the_order_sent() {
    const NOW: u32 = 1_800_000_000;
    const NOW_MS: u64 = NOW as u64 * 1000 + 250;
    let seconds = |ms: u64| {
        assert_eq!(ms % 1000, 0);
        u32::try_from(ms / 1000).unwrap()
    };
    let walk = |flags: &str, item: TtlStart| {
        let Op::MetaGet(meta) = one(&format!("mg k {flags}\r\n")).0 else {
            panic!("no mg");
        };
        let walk = meta.walk_ttl(item, NOW_MS, NOW - 100);
        let left = match seconds(walk.expiry_shown_ms) {
            0 => -1,
            expiry => i64::from(expiry) - i64::from(NOW),
        };
        assert_eq!(walk.ttl_shown(NOW_MS), left);
        assert_eq!(walk.ttl_shown(u64::MAX), left.min(0));
        (
            seconds(walk.expiry_ms),
            seconds(walk.expiry_shown_ms),
            walk.won,
        )
    };
    let item = TtlStart {
        expiry_ms: u64::from(NOW + 50) * 1000,
        ..TtlStart::default()
    };
    assert_eq!(walk("v", item), (NOW + 50, NOW + 50, false));
    assert_eq!(walk("T9 t", item), (NOW + 9, NOW + 9, false));
    assert_eq!(walk("t T9", item), (NOW + 9, NOW + 50, false));
    assert_eq!(walk("T0 t", item), (0, 0, false));
    assert_eq!(walk("R30", item), (NOW + 50, NOW + 50, false));
    assert_eq!(walk("R51", item), (NOW + 50, NOW + 50, true));
    assert_eq!(walk("T9 R30", item), (NOW + 9, NOW + 50, true));
    assert_eq!(walk("R30 T9", item), (NOW + 9, NOW + 50, false));
    assert_eq!(walk("N30 T9", item), (NOW + 9, NOW + 50, false));
    assert_eq!(walk("T0 R30", item), (0, NOW + 50, false));
    let sent = TtlStart {
        token_sent: true,
        ..item
    };
    assert_eq!(walk("R60", sent), (NOW + 50, NOW + 50, false));
    let stale = TtlStart {
        stale: true,
        ..item
    };
    assert_eq!(walk("v", stale), (NOW + 50, NOW + 50, true));
    let lost = TtlStart {
        token_sent: true,
        ..stale
    };
    assert_eq!(walk("R60", lost), (NOW + 50, NOW + 50, false));
    let created = TtlStart {
        created: true,
        ..TtlStart::default()
    };
    assert_eq!(walk("t N30", created), (NOW + 30, 0, true));
    assert_eq!(walk("N30 t R60", created), (NOW + 30, NOW + 30, true));
    assert_eq!(walk("T9 N0 t", created), (0, 0, true));
}

#[test]
fn commands_of_the_server() {
    for (text, delay, noreply) in [
        ("flush_all\r\n", Some(0), false),
        ("flush_all noreply\r\n", Some(0), true),
        ("  flush_all 5 x\r\n", Some(5), false),
        ("flush_all -5 noreply\r\n", Some(-5), true),
        ("flush_all noreply x\r\n", None, false),
        ("flush_all x noreply\r\n", None, true),
    ] {
        assert_eq!(one(text).0, Op::FlushAll { delay, noreply }, "{text:?}");
    }
    let noreply = false;
    for (text, mode) in [
        ("shutdown\r\n", ShutdownMode::Now),
        ("shutdown graceful\r\n", ShutdownMode::Graceful),
        ("shutdown g\r\n", ShutdownMode::Graceful),
        ("shutdown gracefully\r\n", ShutdownMode::Unknown),
        ("shutdown graceful now\r\n", ShutdownMode::Unknown),
    ] {
        assert_eq!(one(text).0, Op::Shutdown { mode, noreply }, "{text:?}");
    }
    assert_eq!(one("version x\r\n").0, Op::Version);
    assert_eq!(one("quit now\r\n").0, Op::Quit);
    let verbosity = Op::Verbosity {
        level: 9,
        noreply: true,
    };
    assert_eq!(one("verbosity 9 noreply\r\n").0, verbosity);
    let (op, args) = one("stats  items noreply\r\n");
    assert!(matches!(op, Op::Stats { .. }));
    assert_eq!(args, [b"  items noreply".to_vec()]);
    for (name, expected) in [
        ("slabs", AdminCommand::Slabs),
        (" lru", AdminCommand::Lru),
        ("lru_crawler", AdminCommand::LruCrawler),
        ("cache_memlimit", AdminCommand::CacheMemlimit),
        ("extstore", AdminCommand::Extstore),
        ("refresh_certs", AdminCommand::RefreshCerts),
        ("config", AdminCommand::Config),
        ("watch", AdminCommand::Watch),
    ] {
        let (op, args) = one(&format!("{name} a b noreply\r\n"));
        let Op::Admin {
            command, noreply, ..
        } = op
        else {
            panic!("{op:?}");
        };
        assert_eq!(command, expected);
        assert_eq!(noreply, command != AdminCommand::Watch);
        assert_eq!(args, [b" a b noreply".to_vec()]);
    }
}

#[test]
fn times_may_be_milliseconds() {
    let (op, _) = one("mg k T250ms N-1ms R9000000000ms tms\r\n");
    let Op::MetaGet(get) = op else {
        panic!("{op:?}");
    };
    assert_eq!(
        (get.touch(), get.vivify(), get.recache()),
        (
            Some(Exptime::of_millis(250)),
            Some(Exptime::of_millis(-1)),
            Some(Exptime::of_millis(9_000_000_000))
        )
    );
    let (op, _) = one("ms k 1 T1ms\r\nx\r\n");
    let Op::Store(store) = op else {
        panic!("{op:?}");
    };
    assert_eq!(store.exptime, Exptime::of_millis(1));
    for bad in [
        "Tms",
        "T-ms",
        "T1m",
        "T1mss",
        "T1 ms",
        "T99999999999999999999ms",
        "T1.5ms",
    ] {
        let (op, _) = one(&format!("mg k {bad}\r\n"));
        assert!(matches!(op, Op::Error { .. }), "{bad}: {op:?}");
    }
}

#[test]
fn tags_are_names_with_commas_between_them() {
    let names = |flags: &str| -> Vec<Vec<u8>> {
        let (op, pieces) = one(&format!("ms k 1 {flags}\r\nx\r\n"));
        assert!(matches!(op, Op::Store(_)), "{op:?}");
        let names = TagNames::of(Flags::new(&pieces[1]));
        names.map(<[u8]>::to_vec).collect()
    };
    assert!(names("v").is_empty());
    assert_eq!(names("c Gone T5"), [b"one"]);
    assert_eq!(names("Ga,b:c,d,e"), [&b"a"[..], b"b:c", b"d", b"e"]);
    let long = "n".repeat(KEY_LEN_MAX);
    assert_eq!(names(&format!("G{long}"))[0].len(), KEY_LEN_MAX);
    for bad in [
        "G,",
        "Ga,",
        "G,a",
        "Ga,,b",
        "Ga,b,c,d,e",
        &format!("G{long}n"),
    ] {
        let error = Op::Error {
            error: ErrorLine::BadTags,
            noreply: false,
        };
        assert_eq!(one(&format!("mg k {bad}\r\n")).0, error, "{bad}");
    }
    // Without names the key is one.
    for (text, names_tag) in [("mg k G", true), ("md k G I", true), ("mg k Ga N5", false)] {
        let (Op::MetaGet(meta) | Op::MetaDelete(meta)) = one(&format!("{text}\r\n")).0 else {
            panic!("{text}");
        };
        assert_eq!(meta.names_tag(), names_tag, "{text}");
    }
    for bad in ["md k Ga", "ma k G"] {
        assert!(
            matches!(one(&format!("{bad}\r\n")).0, Op::Error { .. }),
            "{bad}"
        );
    }
}
