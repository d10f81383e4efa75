//! Servers that serve only those who log in.

mod support;

use std::fs;

use coua_client::{Cause, Client, Config, DialectChoice, Error, Expiry};
use support::{Over, PATIENCE, Program, Server};

const PROGRAMS: [Program; 2] = [Program::Coua, Program::Memcached];

fn config(server: &Server, dialect: DialectChoice) -> Config {
    let config = Config::new(&server.address).expect("an address");
    config
        .dialect(dialect)
        .operation_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
}

/// The server, and the folder that holds its users.
fn server(program: Program, over: Over) -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let users = folder.path().join("users");
    fs::write(&users, "alice:secret\nbob:pa:ss word\n").expect("it is written");
    let users = users.display().to_string();
    (Server::start_with(program, over, &["-Y", &users]), folder)
}

fn is_turned_away(error: &Error) -> bool {
    matches!(error, Error::NotSent { cause: Cause::TurnedAway(why), .. } if why.to_string().contains("auth"))
}

#[test]
fn who_logs_in_is_served() {
    for program in PROGRAMS {
        for over in [Over::Tcp, Over::Unix] {
            let (server, _users) = server(program, over);
            for dialect in [
                DialectChoice::Ask,
                DialectChoice::Meta,
                DialectChoice::Classic,
            ] {
                for (user, password) in [("alice", "secret"), ("bob", "pa:ss word")] {
                    let cache = Client::new(config(&server, dialect).login(user, password));
                    cache.set(user, password, Expiry::NEVER).expect("it may");
                    let value = cache.get(user).expect("it may").expect("it is there");
                    assert_eq!(value.bytes, password.as_bytes());
                    // The login is no item.
                    assert_eq!(cache.get("login").expect("it may"), None);
                }
            }
        }
    }
}

#[test]
fn who_does_not_is_turned_away() {
    for program in PROGRAMS {
        let (server, _users) = server(program, Over::Tcp);
        let (open, wrong) = (config(&server, DialectChoice::Ask), "wrong");
        let cache = Client::new(open.clone().login("alice", wrong));
        let error = cache.set("k", "v", Expiry::NEVER).expect_err("it may not");
        assert!(is_turned_away(&error), "{error:?}");
        assert!(!format!("{:?}", open.login("alice", wrong)).contains(wrong));
        let cache = Client::new(config(&server, DialectChoice::Ask));
        let error = cache.get("k").expect_err("it may not");
        // Whoever says something else first gets no word.
        assert!(matches!(&error, Error::NotSent { .. }), "{error:?}");
    }
}

#[test]
fn on_tokio() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for program in PROGRAMS {
        let (server, _users) = server(program, Over::Tcp);
        let login = |password| config(&server, DialectChoice::Ask).login("alice", password);
        runtime.block_on(async {
            let cache = coua_client::tokio::Client::new(login("secret"));
            cache.set("k", "v", Expiry::NEVER).await.expect("it may");
            let value = cache.get("k").await.expect("it may").expect("it is there");
            assert_eq!(value.bytes, b"v");
            let cache = coua_client::tokio::Client::new(login("wrong"));
            let error = cache.get("k").await.expect_err("it may not");
            assert!(is_turned_away(&error), "{program:?}: {error:?}");
        });
    }
}
