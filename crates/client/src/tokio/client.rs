//! Servers, and operations on them.

use std::sync::Arc;
use std::time::Duration;

use ::tokio::sync::oneshot;

use crate::batch::{Answered, Batch, Results};
use crate::config::Config;
use crate::discovery::Discovery;
use crate::error::Error;
use crate::expiry::Expiry;
use crate::fleet::Fleet;
use crate::health::Admission;
use crate::key;
use crate::operations::operations;
use crate::outcome::{EachServer, Outcome, Statistics, StoreOutcome, Value};
use crate::selection::{ATTEMPTS, may_repeat};
use crate::tokio::follow::{Follower, follow};
use crate::tokio::line::Command;
use crate::tokio::servers::Servers;
use crate::tokio::transport::{Connect, Sockets};
use crate::wire::{Effect, ItemReply, Meta, Reply, Request, RequestError, StoreMode};

/// Keys of one multi-get. A larger request is several of them, one after another.
const MULTI_KEYS: usize = 256;

/// An asynchronous client of one or more servers. Clones share connections.
///
/// The operations and what they fail with are those of [`crate::Client`]. They must be called within a
/// tokio runtime with I/O and time. A future that is dropped may have sent its request, and the server may
/// execute it.
///
/// A connection takes up to 1024 requests at a time; further callers wait, for no longer than the time
/// limit of an operation. A connection on which the server sends nothing for that time, although it was
/// asked, is closed.
#[derive(Clone, Debug)]
pub struct Client {
    fleet: Arc<Fleet<Servers>>,
    /// Whoever keeps the servers up to date.
    _follower: Option<Follower>,
}

/// Makes a [`Client`] with other than plain sockets.
#[derive(Debug)]
pub struct Builder {
    config: Config,
    connect: Arc<dyn Connect>,
}

impl Builder {
    /// Has connections made by `connect`.
    #[must_use]
    pub fn transport(mut self, connect: impl Connect + 'static) -> Builder {
        self.connect = Arc::new(connect);
        self
    }

    /// The client. Connections are opened when they are needed.
    #[must_use]
    pub fn build(self) -> Client {
        Client {
            fleet: Arc::new(Fleet::Fixed(Servers::new(self.config, self.connect))),
            _follower: None,
        }
    }

    /// A client of the servers that those in the settings tell of, which are asked now and later by a task.
    ///
    /// # Errors
    /// When nobody tells; [`Error::Discovery`] when what is told is no list of servers.
    pub async fn discover(self, discovery: Discovery) -> Result<Client, Error> {
        let sources = Servers::new(self.config, self.connect);
        let (fleet, follower) = follow(sources, discovery).await?;
        Ok(Client {
            fleet,
            _follower: Some(follower),
        })
    }
}

impl Client {
    /// A client with the default settings, of servers in a list that commas separate. It opens no
    /// connection yet.
    ///
    /// # Errors
    /// When an address cannot be read.
    pub fn connect(servers: &str) -> Result<Client, Error> {
        Ok(Client::new(Config::new(servers)?))
    }

    /// A client with other settings.
    #[must_use]
    pub fn new(config: Config) -> Client {
        Client::builder(config).build()
    }

    /// A client whose connections may be made in another way.
    #[must_use]
    pub fn builder(config: Config) -> Builder {
        let connect = Arc::new(Sockets);
        Builder { config, connect }
    }

    operations!([async][.await]);

    /// As [`get_many`](Self::get_many), with a result for each key: a server that fails takes only its own
    /// keys with it.
    pub async fn get_many_each<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
    ) -> Vec<Result<Option<Value>, Error>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let mut results: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
        let mut open: Vec<usize> = (0..keys.len()).collect();
        for attempt in 1..=ATTEMPTS {
            self.get_many_once(&keys, &open, &mut results).await;
            open.retain(|&index| results[index].as_ref().is_err_and(may_repeat));
            if attempt == ATTEMPTS || open.is_empty() {
                break;
            }
        }
        results
    }

    /// Sends the operations of a batch to their servers and waits for all results.
    pub async fn run(&self, batch: Batch) -> Results {
        let now = self.fleet.now();
        let servers = &*now;
        let deadline = servers.deadline();
        let batch = Arc::new(batch);
        let mut results: Vec<Option<Result<Answered, Error>>> = Vec::new();
        results.resize_with(batch.len(), || None);
        let mut shares: Vec<(Vec<usize>, Admission)> = Vec::new();
        shares.resize_with(servers.list.len(), || (Vec::new(), Admission::Live));
        for (index, result) in results.iter_mut().enumerate() {
            match servers.admit(batch.key(index)) {
                Ok((server, admission)) => {
                    shares[server].0.push(index);
                    if admission == Admission::Trial {
                        shares[server].1 = admission;
                    }
                }
                Err(error) => *result = Some(Err(error)),
            }
        }
        let mut asked = Vec::new();
        for (server, (indexes, admission)) in shares.into_iter().enumerate() {
            if indexes.is_empty() {
                continue;
            }
            // One connection keeps the order of operations on one key.
            let queue = servers.queue(server, admission);
            for indexes in batch.groups(&indexes, MULTI_KEYS) {
                let (caller, answer) = oneshot::channel();
                let command = Command::Several {
                    batch: Arc::clone(&batch),
                    indexes: indexes.clone(),
                    caller,
                };
                let sent = servers.send(server, &queue, command, deadline).await;
                asked.push((server, indexes, sent.map(|()| answer)));
            }
        }
        for (server, indexes, sent) in asked {
            let (answers, is_sent) = match sent {
                Ok(answer) => {
                    let waited = servers.wait(server, Effect::Unknown, answer, deadline);
                    (waited.await, true)
                }
                Err(error) => (Err(error), false),
            };
            match answers {
                Ok(answers) => {
                    for (&index, answer) in indexes.iter().zip(answers) {
                        let effect = batch.request(index).effect();
                        results[index] = Some(match answer {
                            Ok(reply) => Ok(servers.answered(server, effect, reply)),
                            Err(lost) => Err(servers.lost(server, lost)),
                        });
                    }
                }
                Err(error) => {
                    for &index in &indexes {
                        // What was not sent is known for all; else it depends on the request.
                        let error = match (&error, is_sent) {
                            (Error::OutcomeUnknown { cause, .. }, true) => {
                                servers.error(server, batch.request(index).effect(), cause.clone())
                            }
                            _ => error.clone(),
                        };
                        results[index] = Some(Err(error));
                    }
                }
            }
        }
        let missing = |result: Option<_>| result.unwrap_or(Err(RequestError::Full.into()));
        Results::new(results.into_iter().map(missing).collect())
    }

    /// Makes all items of all servers expire, now or after a duration in whole seconds.
    ///
    /// # Errors
    /// The first error of any server; the others are flushed all the same.
    pub async fn flush_all(&self, delay: Duration) -> Result<(), Error> {
        let seconds = u32::try_from(delay.as_secs()).unwrap_or(u32::MAX);
        let results = self.on_each(Request::flush_all(seconds)).await;
        results.into_iter().try_for_each(|(_, result)| result)
    }

    /// The version of each server, by its address.
    pub async fn version(&self) -> EachServer<String> {
        self.on_each(Request::version()).await
    }

    /// The statistics of each server, by its address, as `stats` with this argument tells them; an empty
    /// one asks for the general ones.
    pub async fn stats(&self, what: &str) -> EachServer<Statistics> {
        self.on_each(Request::stats(what.as_bytes())).await
    }

    /// Asks every server, whether it is ejected or not.
    async fn on_each<T: Outcome>(&self, request: Request<'_>) -> EachServer<T> {
        let servers = self.fleet.now();
        let mut each = Vec::with_capacity(servers.list.len());
        for (index, server) in servers.list.iter().enumerate() {
            let admission = match server.health.is_live() {
                true => Admission::Live,
                false => Admission::Trial,
            };
            let answered = servers.attempt(index, admission, &request).await;
            each.push((
                server.name.to_string(),
                answered.and_then(Answered::outcome),
            ));
        }
        each
    }

    /// Sends a request to the server of its key.
    async fn call<T: Outcome>(&self, request: Request<'_>) -> Result<T, Error> {
        let mut attempt = 1;
        loop {
            let servers = self.fleet.now();
            let (server, admission) = servers.admit(request.key())?;
            match servers.attempt(server, admission, &request).await {
                Err(error) if attempt < ATTEMPTS && may_repeat(&error) => attempt += 1,
                answered => return answered?.outcome(),
            }
        }
    }

    /// Asks for the keys that `open` names.
    async fn get_many_once(
        &self,
        keys: &[&[u8]],
        open: &[usize],
        results: &mut [Result<Option<Value>, Error>],
    ) {
        let now = self.fleet.now();
        let servers = &*now;
        let deadline = servers.deadline();
        let mut shares: Vec<(Vec<usize>, Admission)> = Vec::new();
        shares.resize_with(servers.list.len(), || (Vec::new(), Admission::Live));
        for &index in open {
            if let Err(error) = key::form(keys[index], servers.config.limits.binary_keys) {
                results[index] = Err(error.into());
                continue;
            }
            match servers.admit(keys[index]) {
                Ok((server, admission)) => {
                    shares[server].0.push(index);
                    if admission == Admission::Trial {
                        shares[server].1 = admission;
                    }
                }
                Err(error) => results[index] = Err(error),
            }
        }
        let mut asked = Vec::new();
        for (server, (indexes, admission)) in shares.iter().enumerate() {
            if indexes.is_empty() {
                continue;
            }
            let queue = servers.queue(server, *admission);
            for group in indexes.chunks(MULTI_KEYS) {
                let keys = group.iter().map(|&index| Box::from(keys[index])).collect();
                let (caller, answer) = oneshot::channel();
                let command = Command::Many { keys, caller };
                let sent = servers.send(server, &queue, command, deadline).await;
                asked.push((server, group, sent.map(|()| answer)));
            }
        }
        for (server, group, sent) in asked {
            let answers: Result<Vec<Option<Reply>>, Error> = match sent {
                Ok(answer) => servers.wait(server, Effect::Reads, answer, deadline).await,
                Err(error) => Err(error),
            };
            match answers {
                Ok(answers) => {
                    for (&index, reply) in group.iter().zip(answers) {
                        results[index] = match reply {
                            Some(reply) => servers.answered(server, Effect::Reads, reply).outcome(),
                            None => Ok(None),
                        };
                    }
                }
                Err(error) => {
                    for &index in group {
                        results[index] = Err(error.clone());
                    }
                }
            }
        }
    }
}
