use std::fmt::Write;

use proptest::prelude::*;

use super::super::{Distribution, Place, Router};
use super::*;

/// What libmemcached and spymemcached say, as `tests/vectors/make` asks them.
const VECTORS: &str = include_str!("../../../tests/vectors/distribution.txt");

fn keys() -> impl Iterator<Item = String> {
    let ascii = (0..10_000).map(|number| format!("key-{number}"));
    ascii.chain((10_000..20_000).map(|number| format!("schl\u{fc}ssel:{number}")))
}

fn place(text: &str) -> Place {
    let mut parts = text.split(':');
    let mut part = || parts.next().expect("HOST:PORT:WEIGHT");
    Place {
        host: part().to_owned(),
        port: part().parse().expect("a port"),
        weight: part().parse().expect("a weight"),
    }
}

#[test]
fn twenty_thousand_keys_as_the_libraries_spread_them() {
    let mut cases = 0;
    let mut lines = VECTORS.lines().filter(|line| !line.starts_with('#'));
    while let Some(head) = lines.next() {
        let mut words = head.split(' ').skip(1);
        let distribution = match (words.next(), words.next()) {
            (Some("libmemcached"), Some("ketama")) => Distribution::Ketama,
            (Some("spymemcached"), Some("ketama")) => Distribution::KetamaSpymemcached,
            (Some("libmemcached"), Some("modula")) => Distribution::Modula,
            other => panic!("{other:?}"),
        };
        let places: Vec<Place> = words.map(place).collect();
        let router = Router::new(distribution, &places);
        let spread: String = keys()
            .map(|key| char::from(b'0' + u8::try_from(router.home(key.as_bytes())).expect("few")))
            .collect();
        let mut expect = |name: &str, actual: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name));
            assert_eq!(line, Some(actual), "{head}");
        };
        let mut digest = String::new();
        for byte in Md5::digest(&spread) {
            write!(digest, "{byte:02x}").expect("it is a string");
        }
        expect("md5 ", &digest);
        expect("first ", &spread[..150]);
        expect("last ", &spread[spread.len() - 150..]);
        cases += 1;
    }
    assert_eq!(cases, 13);
}

proptest! {
    /// Without a server, its keys go where a ring that never had it has them, and no other key moves.
    #[test]
    fn ejection_is_a_smaller_ring(servers in 2usize..9, gone in 0usize..9, seed in any::<u32>()) {
        let gone = gone % servers;
        let all: Vec<Place> = (0..servers)
            .map(|server| place(&format!("10.0.0.{server}:{}:1", 11211 + server % 2)))
            .collect();
        let mut fewer = all.clone();
        fewer.remove(gone);
        for distribution in [Distribution::KetamaSpymemcached, Distribution::Modula] {
            let (whole, small) = (Router::new(distribution, &all), Router::new(distribution, &fewer));
            for number in 0..50 {
                let key = format!("{seed}-{number}");
                let home = whole.home(key.as_bytes());
                let now = whole.among(key.as_bytes(), |server| server != gone).expect("one is there");
                let expected = small.home(key.as_bytes());
                let expected = expected + usize::from(expected >= gone);
                if home != gone {
                    prop_assert_eq!(now, home);
                }
                if home == gone || distribution != Distribution::Modula {
                    prop_assert_eq!(now, expected);
                }
            }
        }
    }
}

#[test]
fn nobody_is_there() {
    for distribution in [Distribution::Ketama, Distribution::Modula] {
        for servers in 1..3 {
            let places = vec![place("10.0.0.1:11211:1"); servers];
            assert_eq!(
                Router::new(distribution, &places).among(b"key", |_| false),
                None
            );
        }
    }
}
