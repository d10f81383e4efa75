//! `--metrics`: what this server measures, over HTTP, for Prometheus and for health checks.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page for people, with live graphs of what `/status.json` says |
//! | `/status.json` | the counts that the page and `coua-top` show |
//! | `/metrics` | all series, as OpenMetrics to who asks for that, else in Prometheus' text format |
//! | `/healthz` | 200 as long as the process answers |
//! | `/readyz` | 200 while requests are served, 503 from when the server begins to end |
//!
//! # Concurrency
//! One thread accepts, and each connection has a thread of its own for its one request, a few at a
//! time. They read what workers count and never wait for one.
//!
//! # Not here
//! Encryption and access control: bind it to an address that only the monitoring reaches.

mod exposition;
mod http;
mod series;
pub mod status;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::Builder;
use std::time::Duration;

use crate::shared::Shared;
use exposition::Format;
use http::{Answer, Request};
use status::Kept;

/// Requests that are answered at a time; any more are closed unanswered.
const CONNECTIONS_MAX: usize = 8;

/// How long to wait after the system refused to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket for scrapes that nobody answers yet.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
}

impl Endpoint {
    /// Listens at an address.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(address: SocketAddr) -> io::Result<Endpoint> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(Endpoint { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until the process ends.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn serve(self, shared: Arc<Shared>) -> io::Result<()> {
        let serve = move || {
            let answers = Arc::new(Answers {
                shared,
                status: Kept::default(),
                open: AtomicUsize::new(0),
            });
            loop {
                match self.listener.accept() {
                    Ok((stream, _)) => start(stream, &answers),
                    Err(_) => std::thread::sleep(ACCEPT_PAUSE),
                }
            }
        };
        let thread = Builder::new().name("coua-metrics".to_owned()).spawn(serve);
        thread.map(drop)
    }
}

/// What all requests are answered from.
struct Answers {
    shared: Arc<Shared>,
    status: Kept,
    /// Requests that are being answered.
    open: AtomicUsize,
}

/// Answers one connection, on a thread of its own.
fn start(stream: TcpStream, answers: &Arc<Answers>) {
    if answers.open.fetch_add(1, Relaxed) >= CONNECTIONS_MAX {
        answers.open.fetch_sub(1, Relaxed);
        return;
    }
    let own = Arc::clone(answers);
    let answer = move || {
        // Who does not read the answer does not miss it.
        let _ = http::serve(&stream, |request| own.answer(request));
        own.open.fetch_sub(1, Relaxed);
    };
    let thread = Builder::new().name("coua-scrape".to_owned()).spawn(answer);
    if thread.is_err() {
        answers.open.fetch_sub(1, Relaxed);
    }
}

impl Answers {
    fn answer(&self, request: &Request<'_>) -> Answer {
        let shared = &self.shared;
        match request.path {
            "/metrics" => {
                let format = Format::asked_for(request.accept);
                Answer::ok(format.content_type(), series::write(shared, format))
            }
            "/healthz" => Answer::ok(TEXT, "ok\n"),
            "/readyz" if shared.is_stopping() => Answer::unavailable("the server is ending\n"),
            "/readyz" => Answer::ok(TEXT, "ok\n"),
            "/" => Answer::ok(HTML, PAGE),
            "/status.json" => Answer::ok(JSON, self.status.text(shared)),
            _ => Answer::not_found(),
        }
    }
}

/// The page: one file that needs no other.
const PAGE: &str = include_str!("metrics/status.html");

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
