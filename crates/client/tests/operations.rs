//! Every operation against coua and memcached, over TCP and unix sockets, in both dialects.

mod support;

use std::time::Duration;

use coua_client::wire::Status;
use coua_client::{
    Batch, Client, Config, DialectChoice, Error, Expiry, KeyError, Meta, Refusal, RequestError,
    StoreMode, StoreOutcome,
};

use support::{Over, Program, Server, poll};

const HOUR: Duration = Duration::from_secs(3600);

/// Runs `test` against every server, over everything, in every dialect.
fn everywhere(test: impl Fn(&Client, DialectChoice)) {
    for program in [Program::Coua, Program::Memcached] {
        for over in [Over::Tcp, Over::Unix] {
            let server = Server::start(program, over);
            for dialect in [DialectChoice::Ask, DialectChoice::Classic] {
                let config = Config::new(&server.address).expect("an address");
                let patient = config.operation_timeout(support::PATIENCE);
                let client = Client::new(patient.dialect(dialect));
                client.flush_all(Duration::ZERO).expect("it is flushed");
                test(&client, dialect);
            }
        }
    }
}

#[test]
fn values_come_back() -> Result<(), Error> {
    everywhere(|cache, _| {
        let run = || -> Result<(), Error> {
            assert_eq!(cache.get("k")?, None);
            cache.set("k", "value", HOUR)?;
            let value = cache.get("k")?.expect("a hit");
            assert_eq!(
                (&value.bytes[..], value.client_flags, value.cas),
                (&b"value"[..], 0, None)
            );
            let outcome = cache.store(
                StoreMode::Set,
                "k",
                b"\r\nEND\r\n\0",
                u32::MAX,
                Expiry::NEVER,
            )?;
            assert_eq!(outcome, StoreOutcome::Stored);
            let value = cache.get("k")?.expect("a hit");
            assert_eq!(
                (&value.bytes[..], value.client_flags),
                (&b"\r\nEND\r\n\0"[..], u32::MAX)
            );
            cache.set("k", "", HOUR)?;
            assert_eq!(cache.get("k")?.expect("a hit").bytes, b"");
            cache.set("k", "gone", Expiry::NOW)?;
            assert_eq!(cache.get("k")?, None);
            Ok(())
        };
        run().expect("no operation fails");
    });
    Ok(())
}

#[test]
fn conditions() {
    everywhere(|cache, _| {
        let run = || -> Result<(), Error> {
            assert!(!cache.replace("k", "0", HOUR)?);
            assert!(!cache.append("k", "0")?);
            assert!(!cache.prepend("k", "0")?);
            assert!(cache.add("k", "1", HOUR)?);
            assert!(!cache.add("k", "2", HOUR)?);
            assert!(cache.append("k", ">")?);
            assert!(cache.prepend("k", "<")?);
            let seen = cache.gets("k")?.expect("a hit");
            assert_eq!(seen.bytes, b"<1>");
            let cas = seen.cas.expect("gets tells it");
            assert!(cache.replace("k", "3", HOUR)?);
            assert_eq!(cache.cas("k", "4", HOUR, cas)?, StoreOutcome::Exists);
            let cas = cache.gets("k")?.and_then(|seen| seen.cas).expect("a CAS");
            assert_eq!(cache.cas("k", "5", HOUR, cas)?, StoreOutcome::Stored);
            assert_eq!(cache.cas("other", "5", HOUR, cas)?, StoreOutcome::Missing);
            assert_eq!(cache.get("k")?.expect("a hit").bytes, b"5");
            assert!(cache.delete("k")?);
            assert!(!cache.delete("k")?);
            Ok(())
        };
        run().expect("no operation fails");
    });
}

#[test]
fn numbers_and_expiry() {
    everywhere(|cache, _| {
        let run = || -> Result<(), Error> {
            assert_eq!(cache.increment("n", 1)?, None);
            cache.set("n", "10", HOUR)?;
            assert_eq!(cache.increment("n", 5)?, Some(15));
            assert_eq!(cache.decrement("n", 9)?, Some(6));
            assert_eq!(cache.decrement("n", 9)?, Some(0));
            cache.set("n", u64::MAX.to_string(), HOUR)?;
            assert_eq!(cache.increment("n", 2)?, Some(1));
            cache.set("text", "ten", HOUR)?;
            let refused = cache.increment("text", 1).expect_err("it is no number");
            assert!(
                matches!(
                    &refused,
                    Error::Refused {
                        refusal: Refusal::Client(_),
                        ..
                    }
                ),
                "{refused}"
            );
            assert!(refused.had_no_effect());
            assert_eq!(cache.get("text")?.expect("a hit").bytes, b"ten");

            assert!(!cache.touch("missing", HOUR)?);
            assert!(cache.touch("text", HOUR)?);
            let value = cache.get_and_touch("text", HOUR)?.expect("a hit");
            assert!(value.cas.is_some());
            assert!(cache.touch("text", Expiry::NOW)?);
            assert_eq!(cache.get("text")?, None);
            assert_eq!(cache.get_and_touch("text", HOUR)?, None);
            Ok(())
        };
        run().expect("no operation fails");
    });
}

#[test]
fn many_keys() {
    everywhere(|cache, _| {
        let keys: Vec<String> = (0..3000).map(|number| format!("key-{number}")).collect();
        let mut batch = Batch::new();
        let tickets: Vec<_> = (0..3000)
            .step_by(3)
            .map(|number| batch.set(&keys[number], format!("value {number}"), HOUR))
            .collect();
        let deleted = batch.delete("key-0");
        let added = batch.store(StoreMode::Add, "key-0", "again", 5, HOUR);
        let read = batch.get("key-0");
        let bad = batch.get("a key");
        let last = batch.increment("nothing", 1);
        assert_eq!(batch.len(), 1005);
        let mut results = cache.run(batch);
        for ticket in tickets {
            results.take(ticket).expect("stored");
        }
        assert!(results.take(deleted).expect("an answer"));
        assert_eq!(
            results.take(added).expect("an answer"),
            StoreOutcome::Stored
        );
        assert_eq!(
            results.take(read).expect("an answer").expect("a hit").bytes,
            b"again"
        );
        assert!(results.first_error().is_some());
        let refused = results.take(bad).expect_err("a blank");
        assert!(matches!(
            refused,
            Error::Request(RequestError::Key(KeyError::Unprintable { .. }))
        ));
        assert!(results.first_error().is_none());
        assert_eq!(results.take(last).expect("an answer"), None);

        let values = cache.get_many(&keys).expect("all servers are there");
        assert_eq!(values.len(), keys.len());
        for (number, value) in values.iter().enumerate() {
            let expected = match number {
                0 => Some("again".to_owned()),
                _ if number % 3 == 0 => Some(format!("value {number}")),
                _ => None,
            };
            let value = value
                .as_ref()
                .map(|value| String::from_utf8_lossy(&value.bytes));
            assert_eq!(value.as_deref(), expected.as_deref());
        }
        let each = cache.get_many_each(&["key-3", "a key", "key-1"]);
        assert!(matches!(&each[0], Ok(Some(value)) if value.bytes == b"value 3"));
        assert!(matches!(&each[1], Err(Error::Request(_))));
        assert!(matches!(&each[2], Ok(None)));
        assert!(
            cache
                .get_many::<&str>(&[])
                .expect("nothing fails")
                .is_empty()
        );
    });
}

#[test]
fn large_values() {
    everywhere(|cache, dialect| {
        let value: Vec<u8> = (0..1_000_000u32)
            .map(|at| at.to_le_bytes()[at as usize % 3])
            .collect();
        for number in 0..8 {
            cache
                .set(format!("large-{number}"), &value, HOUR)
                .expect("it fits");
        }
        // More than sockets hold, both ways at once.
        let keys: Vec<String> = (0..8).map(|number| format!("large-{number}")).collect();
        let values = cache.get_many(&keys).expect("they are there");
        assert!(
            values
                .iter()
                .all(|got| got.as_ref().is_some_and(|got| got.bytes == value))
        );
        let mut batch = Batch::new();
        let mut tickets = Vec::new();
        for key in &keys {
            tickets.push((batch.set(key, &value, HOUR), batch.get(key)));
        }
        let mut results = cache.run(batch);
        for (set, get) in tickets {
            results.take(set).expect("it fits");
            assert_eq!(
                results.take(get).expect("an answer").expect("a hit").bytes,
                value
            );
        }

        let too_large = vec![b'x'; 2 << 20];
        let refused = cache
            .set("too-large", &too_large, HOUR)
            .expect_err("1 MiB is the limit");
        let Error::Refused {
            refusal: Refusal::Server(text),
            ..
        } = &refused
        else {
            panic!("{refused:?}, {dialect:?}");
        };
        assert_eq!(text, "object too large for cache");
        assert_eq!(
            cache.get("too-large").expect("the connection goes on"),
            None
        );
        assert_eq!(
            cache
                .get("large-0")
                .expect("an answer")
                .expect("a hit")
                .bytes,
            value
        );
    });
}

#[test]
fn meta_commands() {
    everywhere(|cache, dialect| {
        let reply = cache.meta(
            "k",
            Meta::set(b"value")
                .set_client_flags(7)
                .set_expiry(Expiry::after(HOUR))
                .cas(),
        );
        if dialect == DialectChoice::Classic {
            let refused = reply.expect_err("classic text has none");
            return assert!(matches!(
                refused,
                Error::Request(RequestError::NeedsMeta(_))
            ));
        }
        let run = || -> Result<(), Error> {
            let cas = reply?.flags.cas.expect("it was asked for");
            let all = Meta::get()
                .value()
                .client_flags()
                .cas()
                .ttl()
                .size()
                .hit_before()
                .last_access()
                .key()
                .opaque(b"o1");
            let item = cache.meta("k", all)?;
            assert_eq!(
                (item.status, item.value.as_deref()),
                (Status::Done, Some(&b"value"[..]))
            );
            let flags = item.flags;
            let details = flags.details();
            assert_eq!(
                (flags.client_flags, flags.cas, details.size),
                (7, Some(cas), Some(5))
            );
            assert!(
                details
                    .ttl_seconds
                    .is_some_and(|ttl| (3000..=3600).contains(&ttl))
            );
            assert_eq!(
                (details.hit_before, details.last_access_seconds.is_some()),
                (Some(false), true)
            );
            assert_eq!(
                (details.key.as_deref(), details.opaque.as_deref()),
                (Some(&b"k"[..]), Some(&b"o1"[..]))
            );
            assert!(!flags.stale && !flags.won && !flags.already_won && details.other.is_empty());

            // Stale while one client recomputes.
            let stale = Meta::delete().invalidate().set_expiry(Expiry::after(HOUR));
            assert_eq!(cache.meta("k", stale)?.status, Status::Done);
            let ask = || Meta::get().value().cas();
            let first = cache.meta("k", ask())?;
            assert!(first.flags.stale && first.flags.won && !first.flags.already_won);
            let second = cache.meta("k", ask())?;
            assert!(second.flags.stale && !second.flags.won && second.flags.already_won);
            let fresh = Meta::set(b"new").compare_cas(first.flags.cas.expect("a CAS"));
            assert_eq!(cache.meta("k", fresh)?.status, Status::Done);
            assert_eq!(
                cache.meta("k", Meta::set(b"no").compare_cas(1))?.status,
                Status::Exists
            );
            assert_eq!(cache.meta("k", ask())?.value.as_deref(), Some(&b"new"[..]));

            // A lease on a miss.
            let lease = || Meta::get().value().vivify(Expiry::after(HOUR));
            assert!(cache.meta("lease", lease())?.flags.won);
            assert!(cache.meta("lease", lease())?.flags.already_won);
            assert_eq!(
                cache.meta("none", Meta::get().value())?.status,
                Status::Missing
            );
            assert_eq!(cache.meta("none", Meta::delete())?.status, Status::Missing);
            assert_eq!(
                cache.meta("k", Meta::set(b"x").mode(b'E'))?.status,
                Status::NotStored
            );

            let count = || {
                Meta::arithmetic()
                    .value()
                    .delta(3)
                    .initial(10)
                    .vivify(Expiry::NEVER)
            };
            assert_eq!(
                cache.meta("count", count())?.value.as_deref(),
                Some(&b"10"[..])
            );
            assert_eq!(
                cache.meta("count", count())?.value.as_deref(),
                Some(&b"13"[..])
            );
            // A flag that no server knows is refused, and the connection or the next one goes on.
            let unknown = cache
                .meta("k", Meta::get().flag(b'?'))
                .expect_err("no letter");
            assert!(matches!(unknown, Error::Request(RequestError::Flag(b'?'))));
            let bad = cache
                .meta("k", Meta::set(b"x").flag_with(b'T', b"soon"))
                .expect_err("no number");
            assert!(
                matches!(
                    bad,
                    Error::Refused {
                        refusal: Refusal::Client(_),
                        ..
                    }
                ),
                "{bad}"
            );
            assert_eq!(cache.meta("k", ask())?.value.as_deref(), Some(&b"new"[..]));
            Ok(())
        };
        run().expect("no operation fails");
    });
}

#[test]
fn binary_keys() {
    for program in [Program::Coua, Program::Memcached] {
        let server = Server::start(program, Over::Tcp);
        let config = Config::new(&server.address)
            .expect("an address")
            .binary_keys(true);
        let cache = Client::new(config);
        let key = b"\0 binary\r\nkey";
        cache.set(key, "value", HOUR).expect("it is sent in base64");
        assert_eq!(
            cache.get(key).expect("an answer").expect("a hit").bytes,
            b"value"
        );
        let values = cache.get_many(&[&key[..], b"other\n"]).expect("an answer");
        assert!(values[0].is_some() && values[1].is_none());
        let item = cache.meta(key, Meta::get().key()).expect("an answer");
        assert_eq!(item.flags.details().key.as_deref(), Some(&key[..]));
        assert!(cache.delete(key).expect("an answer"));

        // Classic text cannot have them, and the others of a multi-get go on.
        let config = Config::new(&server.address).expect("an address");
        let config = config.binary_keys(true).dialect(DialectChoice::Classic);
        let each = Client::new(config).get_many_each(&[&b"a"[..], key, b"b"]);
        assert!(matches!(
            each[..],
            [
                Ok(None),
                Err(Error::Request(RequestError::NeedsMeta(_))),
                Ok(None)
            ]
        ));
    }
}

#[test]
fn whole_servers() {
    let servers = [
        Server::start(Program::Coua, Over::Tcp),
        Server::start(Program::Memcached, Over::Unix),
        Server::start(Program::Memcached, Over::Tcp),
    ];
    let addresses = servers.each_ref().map(|server| server.address.clone());
    let cache = Client::connect(&addresses.join(", ")).expect("addresses");
    let versions = cache.version();
    assert_eq!(versions.len(), 3);
    for ((name, version), address) in versions.iter().zip(&addresses) {
        assert_eq!(name, address);
        assert!(
            version.as_ref().is_ok_and(|version| version.contains('.')),
            "{version:?}"
        );
    }
    let keys: Vec<String> = (0..300).map(|number| format!("key-{number}")).collect();
    for key in &keys {
        cache.set(key, key, Expiry::NEVER).expect("stored");
    }
    let values = cache.get_many(&keys).expect("all are there");
    assert!(keys.iter().zip(&values).all(|(key, value)| {
        value
            .as_ref()
            .is_some_and(|value| value.bytes == key.as_bytes())
    }));
    for (name, stats) in cache.stats("") {
        let stats = stats.expect("it has some");
        let items = stats.iter().find(|(name, _)| name == "curr_items");
        let items: u32 = items.expect("a count").1.parse().expect("a number");
        assert!((50..150).contains(&items), "{name} has {items}");
    }
    assert!(
        cache
            .stats("settings")
            .iter()
            .all(|(_, stats)| stats.as_ref().is_ok_and(|lines| lines.len() > 10))
    );
    assert!(cache.stats("reset").iter().all(|(_, stats)| stats.is_ok()));
    cache.flush_all(Duration::ZERO).expect("all are flushed");
    // memcached's flush takes what is of an earlier second.
    poll("all items are gone", || {
        let values = cache.get_many(&keys).expect("an answer");
        values.iter().all(Option::is_none).then_some(())
    });
}
