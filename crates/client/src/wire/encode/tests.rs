use super::*;
use crate::key::KeyError;
use crate::wire::meta::Meta;

fn encoded(request: &Request<'_>, dialect: Dialect) -> Result<String, RequestError> {
    let limits = Limits {
        binary_keys: true,
        value_len_max: 100,
        ..Limits::default()
    };
    let mut out = Vec::new();
    encode(request, dialect, &limits, &mut out)?;
    Ok(String::from_utf8(out).expect("the tests send ASCII"))
}

#[test]
fn both_dialects() {
    let hour = Expiry::from_wire(3600);
    let store = |mode| Request::store(mode, b"k", b"abc", 7, hour);
    let plain = Request::store(StoreMode::Set, b"k", b"", 0, Expiry::NEVER);
    let table = [
        (Request::get(b"k"), "mg k v f", "get k"),
        (Request::gets(b"k"), "mg k v f c", "gets k"),
        (
            Request::get_and_touch(b"k", hour),
            "mg k v f c T3600",
            "gats 3600 k",
        ),
        (plain, "ms k 0\r\n", "set k 0 0 0\r\n"),
        (
            store(StoreMode::Set),
            "ms k 3 F7 T3600\r\nabc",
            "set k 7 3600 3\r\nabc",
        ),
        (
            store(StoreMode::Add),
            "ms k 3 F7 T3600 ME\r\nabc",
            "add k 7 3600 3\r\nabc",
        ),
        (
            store(StoreMode::Replace),
            "ms k 3 F7 T3600 MR\r\nabc",
            "replace k 7 3600 3\r\nabc",
        ),
        (
            store(StoreMode::Append),
            "ms k 3 F7 T3600 MA\r\nabc",
            "append k 7 3600 3\r\nabc",
        ),
        (
            store(StoreMode::Prepend),
            "ms k 3 F7 T3600 MP\r\nabc",
            "prepend k 7 3600 3\r\nabc",
        ),
        (
            store(StoreMode::Cas(9)),
            "ms k 3 F7 T3600 C9\r\nabc",
            "cas k 7 3600 3 9\r\nabc",
        ),
        (Request::delete(b"k"), "md k", "delete k"),
        (Request::touch(b"k", Expiry::NOW), "mg k T-1", "touch k -1"),
        (Request::increment(b"k", 5, None), "ma k v D5", "incr k 5"),
        (
            Request::decrement(b"k", u64::MAX, None),
            "ma k v D18446744073709551615 MD",
            "decr k 18446744073709551615",
        ),
        (Request::flush_all(0), "flush_all", "flush_all"),
        (Request::flush_all(10), "flush_all 10", "flush_all 10"),
        (Request::stats(b""), "stats", "stats"),
        (Request::stats(b"items"), "stats items", "stats items"),
        (Request::version(), "version", "version"),
    ];
    for (request, meta, classic) in table {
        for (dialect, expected) in [(Dialect::Meta, meta), (Dialect::Classic, classic)] {
            let expected = Ok(format!("{expected}\r\n"));
            assert_eq!(encoded(&request, dialect), expected);
            assert_eq!(encoded(&request.clone().into_owned(), dialect), expected);
        }
    }
}

#[test]
fn what_only_meta_has() {
    let initial = Some((10, Expiry::NEVER));
    let meta = Meta::set(b"v").set_client_flags(3).flag_with(b'y', b"tag");
    let table = [
        (
            Request::increment(b"k", 1, initial),
            "ma k v D1 N0 J10\r\n",
            "an initial number",
        ),
        (Request::get(b"a b"), "mg YSBi b v f\r\n", "a binary key"),
        (
            Request::meta(b"k", meta),
            "ms k 1 F3 ytag\r\nv\r\n",
            "a meta command",
        ),
    ];
    for (request, expected, what) in table {
        assert_eq!(encoded(&request, Dialect::Meta).as_deref(), Ok(expected));
        assert_eq!(
            encoded(&request, Dialect::Classic),
            Err(RequestError::NeedsMeta(what))
        );
    }
}

#[test]
fn what_cannot_be_sent_leaves_nothing() {
    let long = [b'x'; 101];
    let set = |value| Request::store(StoreMode::Set, b"k", value, 0, Expiry::NEVER);
    let flag = |meta| Request::meta(b"k", meta);
    let table = [
        (Request::get(b""), RequestError::Key(KeyError::Empty)),
        (set(&long), RequestError::TooLarge { len: 101, max: 100 }),
        (
            flag(Meta::set(&long)),
            RequestError::TooLarge { len: 101, max: 100 },
        ),
        (flag(Meta::get().flag(b'q')), RequestError::Flag(b'q')),
        (flag(Meta::get().flag(b'b')), RequestError::Flag(b'b')),
        (flag(Meta::get().flag(b'\n')), RequestError::Flag(b'\n')),
        (
            flag(Meta::get().opaque(b"a\r\nb")),
            RequestError::FlagArgument(b'O'),
        ),
        (
            flag(Meta::get().opaque(&[b'o'; 251])),
            RequestError::FlagArgument(b'O'),
        ),
        (
            Request::stats(b"a\r\nflush_all"),
            RequestError::StatsArgument,
        ),
    ];
    for (request, expected) in table {
        for dialect in [Dialect::Meta, Dialect::Classic] {
            assert_eq!(encoded(&request, dialect), Err(expected));
        }
    }
}

#[test]
fn numbers() {
    for value in [0, 9, 10, 1234567890, u64::MAX] {
        let mut out = Vec::new();
        number(&mut out, value);
        assert_eq!(out, value.to_string().as_bytes());
    }
}

#[test]
fn what_may_be_asked_again() {
    assert!(Request::get(b"k").reads_only());
    assert!(Request::meta(b"k", Meta::get().value().ttl()).reads_only());
    assert!(!Request::meta(b"k", Meta::get().vivify(Expiry::NEVER)).reads_only());
    assert!(!Request::meta(b"k", Meta::get().flag(b'z')).reads_only());
    assert!(!Request::get_and_touch(b"k", Expiry::NEVER).reads_only());
    assert!(!Request::delete(b"k").reads_only());
    assert!(!Request::stats(b"reset").reads_only());
}
