//! Connections to a fake server.

use std::sync::Arc;

use super::*;
use crate::fake;
use crate::workload::{KeyFormat, Popularity, Sampler, Values};

const KEY_SIZE: usize = 6;

fn parts(value_size: usize) -> (KeyFormat, Arc<Values>) {
    let keys = KeyFormat::new(KEY_SIZE, 1000).unwrap();
    (keys, Arc::new(Values::new(value_size)))
}

#[test]
fn what_is_filled_is_found_and_right() {
    let target = fake::serve();
    // Values larger than a read, so that replies come in parts.
    let (keys, values) = parts(700_000);
    let filling = Requests::filling(keys, values.clone(), 0..20);
    let filled = Engine::connect(&target, 3, 4, &filling).unwrap().finish();
    let filled = filled.unwrap();
    assert_eq!((filled.replies, filled.stored, filled.refused), (20, 20, 0));
    let read = |values, keys_per_get| {
        let requests = Requests::new(keys, values, Sampler::Sequence(0..30), keys_per_get, 0.0);
        let mut engine = Engine::connect(&target, 2, 4, &requests).unwrap();
        engine.finish().unwrap()
    };
    for keys_per_get in [1, 7] {
        let found = read(values.clone(), keys_per_get);
        assert_eq!((found.hits, found.misses, found.wrong), (20, 10, 0));
        let strange = read(Arc::new(Values::new(1)), keys_per_get);
        assert_eq!((strange.hits, strange.misses, strange.wrong), (0, 10, 20));
        assert!(strange.example.unwrap().contains("not the one"));
    }
}

#[test]
fn a_stretch_counts_what_came_back() {
    let target = fake::serve();
    let (keys, values) = parts(10);
    let filling = Requests::filling(keys, values.clone(), 0..500);
    Engine::connect(&target, 2, 8, &filling)
        .unwrap()
        .finish()
        .unwrap();
    let sampler = Sampler::new(Popularity::Uniform, 1000, 1);
    let requests = Requests::new(keys, values, sampler, 5, 0.0);
    let mut engine = Engine::connect(&target, 4, 3, &requests).unwrap();
    engine.run(Duration::from_millis(5)).unwrap();
    let measured = engine.run(Duration::from_millis(50)).unwrap();
    assert!(measured.replies >= 12, "{measured:?}");
    assert_eq!(measured.replies, measured.gets);
    assert_eq!(measured.latency_ns.len(), measured.replies);
    // Half of the keys are there.
    let found = measured.hits as f64 / measured.gets as f64 / 5.0;
    assert!((0.3..0.7).contains(&found), "{found}");
    assert_eq!(measured.hits + measured.misses, 5 * measured.gets);
}

#[test]
fn a_server_that_leaves_behind_an_answer_ends_the_load() {
    let (keys, values) = parts(10);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::Tcp(listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        io::Read::read(&mut stream, &mut [0; 4096]).unwrap();
        // The answer to the first of two, and the end right behind it.
        io::Write::write_all(&mut stream, b"STORED\r\n").unwrap();
    });
    let filling = Requests::filling(keys, values, 0..2);
    let mut engine = Engine::connect(&target, 1, 2, &filling).unwrap();
    assert!(engine.links[0].ask(0) && engine.links[0].ask(0));
    let mut measured = Measured::new();
    engine.links[0].send(engine.clock, &mut measured).unwrap();
    // Both are there when they are looked at.
    server.join().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let mut outcome = Ok(());
    while outcome.is_ok() {
        outcome = engine.wait(Duration::from_secs(60));
        assert!(!engine.events.is_empty(), "nothing tells of the end");
        outcome = outcome.and_then(|()| engine.serve(&mut measured, |_, _, _| Ok(())));
    }
    assert!(matches!(outcome, Err(Error::Io(_))), "{outcome:?}");
    assert_eq!(measured.replies, 1);
}

#[test]
fn an_answer_out_of_step_ends_the_load() {
    let (keys, values) = parts(10);
    let mut plan = Requests::filling(keys, values, 0..500).plan().clone();
    plan.mix = "touch".parse().unwrap();
    let touches = Requests::planned(plan.into(), Sampler::Sequence(0..10), 1);
    // The test server does not know the word, and says so.
    let refused = Engine::connect(&fake::serve(), 1, 1, &touches)
        .unwrap()
        .finish();
    assert_eq!(refused.unwrap().refused, 10);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::Tcp(listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        io::Write::write_all(&mut stream, b"DELETED\r\n").unwrap();
        std::thread::sleep(Duration::from_secs(60));
    });
    let outcome = Engine::connect(&target, 1, 1, &touches).unwrap().finish();
    assert!(matches!(outcome, Err(Error::Unexpected(_))), "{outcome:?}");
}
