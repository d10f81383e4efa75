//! Both clients over TLS, against coua and memcached with `-Z`.

mod support;

use std::time::Duration;

use coua_client::{Batch, Cause, Client, Config, Error, Expiry, Tls, TlsError};
use support::certificates::{certificate, server};
use support::{Over, PATIENCE, Program, Server};

const PROGRAMS: [Program; 2] = [Program::Coua, Program::Memcached];

fn config(server: &Server) -> Config {
    let config = Config::new(&server.address).expect("an address");
    config.operation_timeout(PATIENCE).connect_timeout(PATIENCE)
}

/// Bytes that are nowhere the same.
fn large() -> Vec<u8> {
    (0..900_000_u32)
        .flat_map(|number| {
            (number.wrapping_mul(2_654_435_761) >> 24)
                .to_le_bytes()
                .into_iter()
                .take(1)
        })
        .collect()
}

#[test]
fn synchronous() {
    for program in PROGRAMS {
        let (server, certificate, _folder) = server(program);
        let tls = Tls::new(&certificate).expect("it is a certificate");
        let cache = Client::builder(config(&server)).transport(tls).build();
        cache.set("k", "v", Expiry::NEVER).expect("it is stored");
        let value = cache.get("k").expect("an answer").expect("it is there");
        assert_eq!(value.bytes, b"v");
        // More than a record, and more than the socket takes at once.
        let large = large();
        let mut batch = Batch::new();
        let sets: Vec<_> = (0..8)
            .map(|index| batch.set(format!("large:{index}"), &large, Expiry::NEVER))
            .collect();
        let mut results = cache.run(batch);
        for set in sets {
            results.take(set).expect("it is stored");
        }
        let keys: Vec<String> = (0..8).map(|index| format!("large:{index}")).collect();
        for value in cache.get_many(&keys).expect("answers") {
            assert!(value.expect("it is there").bytes == large);
        }
        // Longer than the time after which an idle connection is looked at.
        std::thread::sleep(Duration::from_millis(300));
        assert!(cache.get("k").expect("an answer").is_some());
    }
}

#[test]
fn on_tokio() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for program in PROGRAMS {
        let (server, certificate, _folder) = server(program);
        let tls = Tls::new(&certificate).expect("it is a certificate");
        let builder = coua_client::tokio::Client::builder(config(&server));
        let cache = builder.transport(tls).build();
        let large = large();
        runtime.block_on(async {
            cache
                .set("k", &large, Expiry::NEVER)
                .await
                .expect("it is stored");
            let value = cache.get("k").await.expect("an answer");
            assert!(value.expect("it is there").bytes == large);
        });
    }
}

/// A server whose certificate nobody trusts, one for another name, and one without encryption.
#[test]
fn who_is_not_trusted() {
    let (server, own, _folder) = server(Program::Coua);
    let folder = tempfile::tempdir().expect("a folder");
    let (other, _) = certificate(folder.path());
    let other = std::fs::read(other).expect("it was made");
    let plain = Server::start(Program::Coua, Over::Tcp);
    let another = Tls::new(&own).and_then(|tls| tls.server_name("cache.example"));
    let cases = [
        (&server, Tls::new(&other)),
        (&server, another),
        (&plain, Tls::new(&own)),
    ];
    for (server, tls) in cases {
        let tls = tls.expect("it can be tried");
        let cache = Client::builder(config(server)).transport(tls).build();
        let error = cache
            .set("k", "v", Expiry::NEVER)
            .expect_err("it is not trusted");
        let is_refused = matches!(
            &error,
            Error::NotSent {
                cause: Cause::Tls(_),
                ..
            }
        );
        assert!(is_refused, "{error:?}");
    }
    assert!(matches!(
        Tls::new(b"no certificate"),
        Err(TlsError::Pem(..))
    ));
}
