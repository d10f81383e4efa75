use std::string::ToString;

use proptest::prelude::*;

use super::{Full, Line, MetaDebug, MetaFacts, MetaHead, MetaKey, Reply};
use crate::error_line::ErrorLine;
use crate::flags::Flags;

/// The bytes that `write` appends. It must fail in every shorter room.
fn written(write: impl Fn(&mut Reply<'_>) -> Result<(), Full>) -> std::vec::Vec<u8> {
    let mut room = [0xa5; 2048];
    let mut reply = Reply::new(&mut room);
    assert_eq!(write(&mut reply), Ok(()));
    let text = reply.written().to_vec();
    for len in 0..text.len() {
        let mut room = std::vec![0xa5; len];
        let mut reply = Reply::new(&mut room);
        let needed = text.len();
        assert_eq!(write(&mut reply), Err(Full { needed }));
        assert!(reply.is_empty());
    }
    text
}

#[test]
fn classic() {
    let check = |text: &[u8], expected: &str| assert_eq!(text, expected.as_bytes());
    check(&written(|r| r.line(Line::Stored)), "STORED\r\n");
    check(&written(|r| r.error(ErrorLine::Unknown)), "ERROR\r\n");
    check(&written(|r| r.number(0)), "0\r\n");
    check(
        &written(|r| r.value(b"key", 0, None, b"value", false)),
        "VALUE key 0 5\r\nvalue\r\n",
    );
    check(
        &written(|r| r.value(b"k", u32::MAX, Some(u64::MAX), b"", true)),
        "VALUE k 4294967295 0 18446744073709551615\r\n\r\nEND\r\n",
    );
    check(
        &written(|r| r.value_line(b"k", 1, None, 1 << 30)),
        "VALUE k 1 1073741824\r\n",
    );
    check(&written(|r| r.stat(b"pid", b"1")), "STAT pid 1\r\n");
    check(&written(|r| r.version(b"1.6.45")), "VERSION 1.6.45\r\n");
}

#[test]
fn keys_and_values_of_every_length_are_whole() {
    let letters: std::vec::Vec<u8> = (0..70).map(|at| b'0' + at).collect();
    for len in 0..=letters.len() {
        let value = &letters[..len];
        let key = if len == 0 { b"k" } else { value };
        let mut expected = b"VALUE ".to_vec();
        expected.extend_from_slice(key);
        expected.extend_from_slice(std::format!(" 0 {len}\r\n").as_bytes());
        expected.extend_from_slice(value);
        expected.extend_from_slice(b"\r\n");
        assert_eq!(written(|r| r.value(key, 0, None, value, false)), expected);
    }
}

#[test]
fn replies_follow_each_other() {
    let mut room = [0; 20];
    let mut reply = Reply::new(&mut room);
    assert_eq!(reply.line(Line::Deleted), Ok(()));
    assert_eq!((reply.len(), reply.free()), (9, 11));
    assert_eq!(reply.line(Line::NotStored), Err(Full { needed: 12 }));
    assert_eq!(reply.line(Line::NotFound), Ok(()));
    assert_eq!(reply.written(), b"DELETED\r\nNOT_FOUND\r\n");
    assert_eq!(reply.bytes(b"x"), Err(Full { needed: 1 }));
}

#[test]
fn meta_flags_are_answered_in_the_order_sent() {
    let facts = MetaFacts {
        key: MetaKey {
            bytes: b"key",
            base64: false,
        },
        cas: Some(7),
        value_len: Some(2),
        client_flags: Some(30),
        ttl: Some(-1),
        idle: Some(4),
        fetched: Some(true),
        ..MetaFacts::default()
    };
    let hit = |flags: &str, facts: &MetaFacts<'_>| {
        let text = written(|r| r.meta_value(Flags::new(flags.as_bytes()), facts, b"ab"));
        std::string::String::from_utf8(text).expect("ASCII")
    };
    assert_eq!(hit("", &facts), "VA 2\r\nab\r\n");
    assert_eq!(
        hit("v q t c s f l h k Oabc N30 T1", &facts),
        "VA 2 t-1 c7 s2 f30 l4 h1 kkey Oabc\r\nab\r\n"
    );
    assert_eq!(
        hit("Oabc kx  h c", &facts),
        "VA 2 Oabc kkey h1 c7\r\nab\r\n"
    );
    let marked = MetaFacts {
        key: MetaKey {
            bytes: b"\0k",
            base64: true,
        },
        ttl: Some(90),
        fetched: Some(false),
        stale: true,
        won: true,
        ..facts
    };
    assert_eq!(hit("k t h", &marked), "VA 2 kAGs= b t90 h0 X W\r\nab\r\n");
    let lost = MetaFacts {
        token_sent: true,
        stale: true,
        ..facts
    };
    assert_eq!(hit("", &lost), "VA 2 Z X\r\nab\r\n");
}

#[test]
fn meta_heads() {
    let facts = MetaFacts {
        key: MetaKey {
            bytes: b"key",
            base64: false,
        },
        ..MetaFacts::default()
    };
    for (head, text) in [
        (MetaHead::Value(0), "VA 0"),
        (MetaHead::Done, "HD"),
        (MetaHead::Miss, "EN"),
        (MetaHead::NotFound, "NF"),
        (MetaHead::Exists, "EX"),
        (MetaHead::NotStored, "NS"),
    ] {
        // Without facts only the key and the opaque are answered.
        let text = text.to_string() + " O1 kkey\r\n";
        let flags = Flags::new(b"c t s f l h O1 k v");
        let line = written(|r| r.meta(head, flags.clone(), &facts));
        assert_eq!(line, text.as_bytes());
    }
    let number = written(|r| r.meta_number(Flags::new(b"O1"), &facts, 1234));
    assert_eq!(number, b"VA 4 O1\r\n1234\r\n");
}

#[test]
fn meta_debug() {
    let item = MetaDebug {
        tags: [0; 4],
        key: MetaKey {
            bytes: b"a",
            base64: true,
        },
        ttl: -1,
        idle: 3,
        cas: 9,
        fetched: false,
        class: 1,
        size: 61,
    };
    assert_eq!(
        written(|r| r.meta_debug(&item)),
        b"ME YQ== exp=-1 la=3 cas=9 fetch=no cls=1 size=61\r\n"
    );
}

#[test]
fn numbers_have_no_digit_too_many_where_their_length_changes() {
    for power in 0..19 {
        let power = 10u64.pow(power);
        for number in [power - 1, power, power + 1, 9 * power, power / 100 * 101] {
            let text = written(|r| r.number(number));
            assert_eq!(text, (number.to_string() + "\r\n").into_bytes());
        }
    }
}

proptest! {
    #[test]
    fn numbers_are_decimal(number: u64, shift in 0u32..64) {
        let number = number >> shift;
        let mut room = [0; 22];
        let mut reply = Reply::new(&mut room);
        prop_assert_eq!(reply.number(number), Ok(()));
        let expected = number.to_string() + "\r\n";
        prop_assert_eq!(reply.written(), expected.as_bytes());
    }
}
