//! What an observer is told of a server that is killed and comes back.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use coua_client::{Client, Config, Event, Expiry};
use support::{Over, Program, Server, poll};

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<&'static str>>>);

impl Told {
    fn watching(&self, server: &Server) -> Config {
        let (told, address) = (self.clone(), server.address.clone());
        let config = Config::new(&server.address).expect("an address");
        config
            .connections_per_server(1)
            .ejection_wait(Duration::from_millis(50), Duration::from_millis(50))
            .observer(move |name, event| {
                assert_eq!(name, address);
                told.0.lock().expect("no panic").push(match event {
                    Event::Connected => "connected",
                    Event::Lost(_) => "lost",
                    Event::Ejected => "ejected",
                    Event::Returned => "returned",
                    _ => "another",
                });
            })
    }

    fn all(&self) -> Vec<&'static str> {
        self.0.lock().expect("no panic").clone()
    }
}

const EXPECTED: [&str; 5] = ["connected", "lost", "ejected", "connected", "returned"];

#[test]
fn synchronous() {
    let mut server = Server::start(Program::Coua, Over::Tcp);
    let told = Told::default();
    let cache = Client::new(told.watching(&server));
    cache.set("k", "v", Expiry::NEVER).expect("it is stored");
    cache.get("k").expect("an answer");
    assert_eq!(told.all(), ["connected"]);
    server.kill();
    poll("an ejection", || {
        let _ = cache.get("k");
        told.all().contains(&"ejected").then_some(())
    });
    server.restart();
    poll("an answer", || cache.get("k").ok());
    assert_eq!(told.all(), EXPECTED);
}

#[test]
fn on_tokio() {
    let mut server = Server::start(Program::Coua, Over::Tcp);
    let told = Told::default();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let cache = coua_client::tokio::Client::new(told.watching(&server));
    let get = || runtime.block_on(cache.get("k"));
    get().expect("an answer");
    get().expect("an answer");
    assert_eq!(told.all(), ["connected"]);
    server.kill();
    poll("an ejection", || {
        let _ = get();
        told.all().contains(&"ejected").then_some(())
    });
    server.restart();
    poll("an answer", || get().ok());
    poll("the return", || {
        told.all().contains(&"returned").then_some(())
    });
    assert_eq!(told.all(), EXPECTED);
}
