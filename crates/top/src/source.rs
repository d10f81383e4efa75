//! Asking the server, on a thread of its own: a server that does not answer must not keep keys waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use coua::metrics::status::Status;
use ureq::Agent;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes of an answer at most: a thousand workers take a tenth of it.
const LEN_MAX: u64 = 2 << 20;

/// What came of a question.
pub(crate) enum News {
    /// The answer.
    Said(Box<Status>),
    /// Why there is none.
    Failed(String),
}

/// A thread that asks.
pub(crate) struct Source {
    news: Receiver<News>,
    interval_ms: Arc<AtomicU64>,
}

/// An address with a port, from one or from a port.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let whole = match text.parse::<u16>() {
        Ok(port) => format!("127.0.0.1:{port}"),
        Err(_) => text
            .trim_start_matches("http://")
            .trim_end_matches('/')
            .to_owned(),
    };
    let port = whole.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(1..)) if !whole.contains(['/', '@', '?', '#', ' ']) => Ok(whole),
        _ => Err("give an address with a port, such as 127.0.0.1:9150".to_owned()),
    }
}

/// One question.
///
/// # Errors
/// There is no answer, or it is not one of coua's.
pub(crate) fn ask(server: &str) -> Result<Status> {
    let config = Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        // What the environment names is for other machines than these.
        .proxy(None)
        .max_redirects(0)
        .build();
    let url = format!("http://{server}/status.json");
    let mut answer = Agent::new_with_config(config)
        .get(&url)
        .call()
        .with_context(|| url.clone())?;
    let body = answer.body_mut().with_config().limit(LEN_MAX);
    let text = body.read_to_string().with_context(|| url.clone())?;
    serde_json::from_str(&text).with_context(|| format!("{url}: not a coua's answer"))
}

impl Source {
    /// Begins to ask.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(crate) fn start(server: &str, interval: Duration) -> Result<Source> {
        let (tell, news) = sync_channel(4);
        let source = Source {
            news,
            interval_ms: Arc::default(),
        };
        source.set_interval(interval);
        let (server, interval_ms) = (server.to_owned(), Arc::clone(&source.interval_ms));
        let thread = Builder::new().name("coua-top-source".to_owned());
        thread.spawn(move || ask_again(&server, &interval_ms, &tell))?;
        Ok(source)
    }

    /// What has come since the last call.
    pub(crate) fn news(&mut self) -> impl Iterator<Item = News> {
        self.news.try_iter()
    }

    /// Changes how often is asked.
    pub(crate) fn set_interval(&self, interval: Duration) {
        let ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        self.interval_ms.store(ms, Relaxed);
    }
}

/// Asks until nobody listens any more.
fn ask_again(server: &str, interval_ms: &AtomicU64, tell: &SyncSender<News>) {
    loop {
        let began = Instant::now();
        let news = match ask(server) {
            Ok(status) => News::Said(Box::new(status)),
            Err(error) => News::Failed(format!("{error:#}")),
        };
        if tell.send(news).is_err() {
            return;
        }
        // In short steps, for the interval may become shorter meanwhile.
        while began.elapsed() < Duration::from_millis(interval_ms.load(Relaxed)) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_ports() {
        assert_eq!(address("9150").as_deref(), Ok("127.0.0.1:9150"));
        assert_eq!(address("http://[::1]:9150/").as_deref(), Ok("[::1]:9150"));
        assert_eq!(address("cache1:9150").as_deref(), Ok("cache1:9150"));
        for wrong in ["", "cache1", "cache1:0", "a@b:1", "a/b:1", "99999"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
