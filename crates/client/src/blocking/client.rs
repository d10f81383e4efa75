//! Servers, and operations on them.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Answered, Batch, Results, outcome};
use crate::blocking::fetch::Fetch;
use crate::blocking::follow::{Follower, follow};
use crate::blocking::run::Running;
use crate::blocking::servers::Servers;
use crate::blocking::transport::{Connect, Sockets};
use crate::config::Config;
use crate::discovery::Discovery;
use crate::error::Error;
use crate::expiry::Expiry;
use crate::fleet::Fleet;
use crate::health::Admission;
use crate::operations::operations;
use crate::outcome::{EachServer, Outcome, Statistics, StoreOutcome, Value};
use crate::selection::{ATTEMPTS, may_repeat};
use crate::wire::{ItemReply, Meta, Request, RequestError, StoreMode};

/// A client of one or more servers. Clones share connections, and threads share a client.
///
/// ```no_run
/// use coua_client::{Client, Expiry};
/// use std::time::Duration;
///
/// let cache = Client::connect("10.0.0.1:11211,10.0.0.2:11211")?;
/// cache.set("greeting", "hello", Duration::from_secs(60))?;
/// if let Some(value) = cache.get("greeting")? {
///     assert_eq!(value.bytes, b"hello");
/// }
/// # Ok::<(), coua_client::Error>(())
/// ```
///
/// # Failures
/// An operation that fails before all of it was sent, and one that only reads, is tried once more,
/// perhaps on another server; nothing else is ever sent twice. A timeout is not tried again. A server that
/// fails several times in a row is ejected: its keys go elsewhere ([`Failover`](crate::Failover)), and after a while one
/// request tries it again.
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
        let servers = Servers::new(self.config, self.connect);
        Client {
            fleet: Arc::new(Fleet::Fixed(servers)),
            _follower: None,
        }
    }

    /// A client of the servers that those in the settings tell of, which are asked now and later by a thread.
    ///
    /// # Errors
    /// When nobody tells; [`Error::Discovery`] when what is told is no list of servers.
    pub fn discover(self, discovery: Discovery) -> Result<Client, Error> {
        let sources = Servers::new(self.config, self.connect);
        let (fleet, follower) = follow(sources, discovery)?;
        Ok(Client {
            fleet,
            _follower: Some(follower),
        })
    }
}

impl Client {
    /// A client with the default settings, of servers in a list that commas separate. It opens no
    /// connection yet; [`Client::version`] finds out whether all servers are there.
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

    operations!([][]);

    /// As [`get_many`](Self::get_many), with a result for each key: a server that fails takes only its own
    /// keys with it.
    pub fn get_many_each<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Value>, Error>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let mut results: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
        let mut open: Vec<usize> = (0..keys.len()).collect();
        for attempt in 1..=ATTEMPTS {
            let again = self.get_many_once(&keys, &open, &mut results);
            if attempt == ATTEMPTS || again.is_empty() {
                break;
            }
            open = again;
        }
        results
    }

    /// Sends the operations of a batch to their servers and waits for all results.
    pub fn run(&self, batch: Batch) -> Results {
        let servers = self.fleet.now();
        let mut results: Vec<Option<Result<Answered, Error>>> = Vec::new();
        results.resize_with(batch.len(), || None);
        let mut shares: Vec<Vec<usize>> = vec![Vec::new(); servers.list.len()];
        let mut trials = vec![Admission::Live; shares.len()];
        for (index, result) in results.iter_mut().enumerate() {
            match servers.admit(batch.key(index)) {
                Ok((server, admission)) => {
                    shares[server].push(index);
                    if admission == Admission::Trial {
                        trials[server] = admission;
                    }
                }
                Err(error) => *result = Some(Err(error)),
            }
        }
        let shares = shares.into_iter().zip(trials).enumerate();
        let shares = shares.filter(|(_, (indexes, _))| !indexes.is_empty());
        let mut running: Vec<Running<'_>> = shares
            .filter_map(|(server, (indexes, admission))| {
                Running::begin(&servers, server, admission, indexes, &batch, &mut results)
            })
            .collect();
        for share in &mut running {
            share.finish(&batch, &mut results);
        }
        drop(running);
        let missing = |result: Option<_>| result.unwrap_or(Err(RequestError::Full.into()));
        Results::new(results.into_iter().map(missing).collect())
    }

    /// Makes all items of all servers expire, now or after a duration in whole seconds.
    ///
    /// # Errors
    /// The first error of any server; the others are flushed all the same.
    pub fn flush_all(&self, delay: Duration) -> Result<(), Error> {
        let seconds = u32::try_from(delay.as_secs()).unwrap_or(u32::MAX);
        let results = self.on_each(&Request::flush_all(seconds));
        results.into_iter().try_for_each(|(_, result)| result)
    }

    /// The version of each server, by its address.
    pub fn version(&self) -> EachServer<String> {
        self.on_each(&Request::version())
    }

    /// The statistics of each server, by its address, as `stats` with this argument tells them; an empty
    /// one asks for the general ones.
    pub fn stats(&self, what: &str) -> EachServer<Statistics> {
        self.on_each(&Request::stats(what.as_bytes()))
    }

    /// Asks every server, whether it is ejected or not.
    fn on_each<T: Outcome>(&self, request: &Request<'_>) -> EachServer<T> {
        let servers = self.fleet.now();
        let each = servers.list.iter().map(|server| {
            let admission = match server.health.is_live() {
                true => Admission::Live,
                false => Admission::Trial,
            };
            let answered = servers.attempt(server, admission, request);
            (
                server.name.to_string(),
                answered.and_then(|reply| outcome(reply, &server.name, request.effect())),
            )
        });
        each.collect()
    }

    /// Sends a request to the server of its key.
    fn call<T: Outcome>(&self, request: Request<'_>) -> Result<T, Error> {
        let mut attempt = 1;
        loop {
            let servers = self.fleet.now();
            let (server, admission) = servers.admit(request.key())?;
            let server = &servers.list[server];
            let answered = servers.attempt(server, admission, &request);
            match answered {
                Err(error) if attempt < ATTEMPTS && may_repeat(&error) => attempt += 1,
                answered => return outcome(answered?, &server.name, request.effect()),
            }
        }
    }

    /// Asks for the keys that `open` names, and says which may be asked for again.
    fn get_many_once(
        &self,
        keys: &[&[u8]],
        open: &[usize],
        results: &mut [Result<Option<Value>, Error>],
    ) -> Vec<usize> {
        let servers = self.fleet.now();
        let mut shares: Vec<(Vec<usize>, Admission)> = Vec::new();
        shares.resize_with(servers.list.len(), || (Vec::new(), Admission::Live));
        for &index in open {
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
        let shares = shares.into_iter().enumerate();
        let shares = shares.filter(|(_, (indexes, _))| !indexes.is_empty());
        let mut fetches: Vec<Fetch<'_>> = shares
            .filter_map(|(server, (indexes, admission))| {
                Fetch::begin(&servers, server, admission, indexes, keys, results)
            })
            .collect();
        for fetch in &mut fetches {
            fetch.finish(keys, results);
        }
        drop(fetches);
        let again = open.iter().copied();
        let again = again.filter(|&index| results[index].as_ref().is_err_and(may_repeat));
        again.collect()
    }
}
