use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use ::tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use ::tokio::sync::oneshot;

use super::*;
use crate::expiry::Expiry;
use crate::tokio::line::{Answer, IN_FLIGHT};
use crate::tokio::transport::{Connecting, Transport};
use crate::wire::{Reply, StoreMode};

/// A connection whose other end a test holds.
#[derive(Debug)]
struct Pipe(Mutex<Option<DuplexStream>>);

impl Connect for Pipe {
    fn connect<'c>(&'c self, _: &'c Address) -> Connecting<'c> {
        let stream = self.0.lock().expect("no panic").take();
        Box::pin(async move { Ok(Box::new(stream.expect("once")) as Box<dyn Transport>) })
    }
}

#[derive(Clone, Debug, Default)]
struct Counter {
    answered: Arc<AtomicU32>,
    failed: Arc<AtomicU32>,
}

impl Watch for Counter {
    fn opened(&self) {}

    fn closed(&self, _: &Cause) {}

    fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&self, _: &Cause) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `test` with the queue of a connection and its server's end; says how often it answered and failed.
fn with_connection<F: Future<Output = ()>>(
    test: impl FnOnce(mpsc::Sender<Command>, DuplexStream) -> F,
) -> (u32, u32) {
    let (own, server) = duplex(1 << 10);
    let config = Config::new("server").expect("an address");
    let config = config.dialect(DialectChoice::Meta);
    let (queue, commands) = mpsc::channel(IN_FLIGHT);
    let counter = Counter::default();
    let address = config.servers[0].0.clone();
    let pipe = Arc::new(Pipe(Mutex::new(Some(own))));
    let serving = serve(
        pipe,
        address,
        Arc::new(config),
        commands,
        SharedSlot::default(),
        counter.clone(),
    );
    let runtime = ::tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let both = async { ::tokio::join!(serving, test(queue, server)) };
    runtime.expect("a runtime").block_on(both);
    let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
    (count(&counter.answered), count(&counter.failed))
}

async fn ask(
    queue: &mpsc::Sender<Command>,
    request: Request<'static>,
) -> oneshot::Receiver<Answer> {
    let (caller, answer) = oneshot::channel();
    let request = Box::new(request);
    let sent = queue.send(Command::One { request, caller }).await;
    sent.expect("the connection is there");
    answer
}

async fn expect(server: &mut DuplexStream, bytes: &[u8]) {
    let mut got = vec![0; bytes.len()];
    server.read_exact(&mut got).await.expect("a request");
    assert_eq!(got, bytes);
}

#[test]
fn a_server_may_close_a_connection_that_is_not_used() {
    let counts = with_connection(|queue, mut server| async move {
        let answer = ask(&queue, Request::get(b"key")).await;
        expect(&mut server, b"mg key v f\r\n").await;
        server.write_all(b"EN\r\n").await.expect("it is read");
        assert!(answer.await.expect("an answer").is_ok());
        drop(server);
        queue.closed().await;
    });
    assert_eq!(counts, (1, 0));
}

#[test]
fn a_server_that_closes_while_it_is_asked_has_failed_once() {
    let counts = with_connection(|queue, mut server| async move {
        let set = Request::store(StoreMode::Set, b"key", b"v", 0, Expiry::NEVER);
        let answers = [
            ask(&queue, set).await,
            ask(&queue, Request::get(b"key")).await,
        ];
        expect(&mut server, b"ms key 1\r\nv\r\nmg key v f\r\n").await;
        server.write_all(b"H").await.expect("it is read");
        drop(server);
        let effects = [Effect::Unknown, Effect::Reads];
        for (answer, expected) in answers.into_iter().zip(effects) {
            match answer.await.expect("an answer") {
                Err(Lost::Connection(effect, Cause::Closed)) => assert_eq!(effect, expected),
                other => panic!("{other:?}"),
            }
            assert!(
                queue.is_closed(),
                "nobody finds it when a caller tries again"
            );
        }
    });
    assert_eq!(counts, (0, 1));
}

#[test]
fn a_caller_that_is_gone_costs_no_request_and_no_answer() {
    let counts = with_connection(|queue, mut server| async move {
        drop(ask(&queue, Request::get(b"gone")).await);
        let waiting = ask(&queue, Request::get(b"one")).await;
        let other = ask(&queue, Request::get(b"two")).await;
        expect(&mut server, b"mg one v f\r\nmg two v f\r\n").await;
        drop(waiting);
        server
            .write_all(b"VA 1 f0\r\n1\r\nVA 1 f0\r\n2\r\n")
            .await
            .expect("it is read");
        match other.await.expect("an answer") {
            Ok(Reply::Item(item)) => assert_eq!(item.value.as_deref(), Some(&b"2"[..])),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(counts, (1, 0));
}
