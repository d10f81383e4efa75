//! Servers, and operations on them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::tokio::sync::{mpsc, oneshot};
use ::tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::batch::{Answered, Batch, Results};
use crate::config::Config;
use crate::discovery::{Discovery, Listed};
use crate::error::{Cause, Error};
use crate::expiry::Expiry;
use crate::fleet::Fleet;
use crate::health::{Admission, Health};
use crate::key;
use crate::operations::operations;
use crate::outcome::{EachServer, Outcome, Statistics, StoreOutcome, Value};
use crate::selection::{ATTEMPTS, Selection, may_repeat};
use crate::tokio::connection::{Answer, Command, IN_FLIGHT, Lost, Watch, serve};
use crate::tokio::follow::{Follower, follow};
use crate::tokio::transport::{Connect, Sockets};
use crate::wire::{Effect, ItemReply, Meta, Reply, Request, RequestError, StoreMode};

/// Connections to one server, unless the settings say another number.
const CONNECTIONS: usize = 2;

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
    fleet: Arc<Fleet<Inner>>,
    /// Whoever keeps the servers up to date.
    _follower: Option<Follower>,
}

/// The servers of a client.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) config: Arc<Config>,
    selection: Arc<Selection>,
    servers: Vec<Arc<Server>>,
    connect: Arc<dyn Connect>,
}

#[derive(Debug)]
struct Server {
    name: Arc<str>,
    address: Address,
    health: Arc<Health>,
    /// Why the connection that was opened last has failed, for callers who come too late to be told by it.
    failure: Arc<Mutex<Option<Cause>>>,
    /// Its connections, opened when they are needed.
    queues: Vec<Mutex<Option<mpsc::Sender<Command>>>>,
    /// Which connection the next request takes.
    next: AtomicUsize,
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
            fleet: Arc::new(Fleet::Fixed(Inner::new(self.config, self.connect))),
            _follower: None,
        }
    }

    /// A client of the servers that those in the settings tell of, which are asked now and later by a task.
    ///
    /// # Errors
    /// When nobody tells; [`Error::Discovery`] when what is told is no list of servers.
    pub async fn discover(self, discovery: Discovery) -> Result<Client, Error> {
        let sources = Inner::new(self.config, self.connect);
        let (fleet, follower) = follow(sources, discovery).await?;
        Ok(Client {
            fleet,
            _follower: Some(follower),
        })
    }
}

impl Server {
    fn new(address: &Address, config: &Config) -> Arc<Server> {
        let connections = config.connections_per_server.unwrap_or(CONNECTIONS);
        Arc::new(Server {
            name: address.to_string().into(),
            address: address.clone(),
            health: Arc::default(),
            failure: Arc::default(),
            queues: (0..connections).map(|_| Mutex::default()).collect(),
            next: AtomicUsize::new(0),
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
        let inner = &*now;
        let deadline = inner.deadline();
        let batch = Arc::new(batch);
        let mut results: Vec<Option<Result<Answered, Error>>> = Vec::new();
        results.resize_with(batch.len(), || None);
        let mut shares: Vec<(Vec<usize>, Admission)> = Vec::new();
        shares.resize_with(inner.servers.len(), || (Vec::new(), Admission::Live));
        for (index, result) in results.iter_mut().enumerate() {
            match inner.admit(batch.key(index)) {
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
            let queue = inner.queue(server, admission);
            for indexes in batch.groups(&indexes, MULTI_KEYS) {
                let (caller, answer) = oneshot::channel();
                let command = Command::Several {
                    batch: Arc::clone(&batch),
                    indexes: indexes.clone(),
                    caller,
                };
                let sent = inner.send(server, &queue, command, deadline).await;
                asked.push((server, indexes, sent.map(|()| answer)));
            }
        }
        for (server, indexes, sent) in asked {
            let (answers, is_sent) = match sent {
                Ok(answer) => {
                    let waited = inner.wait(server, Effect::Unknown, answer, deadline);
                    (waited.await, true)
                }
                Err(error) => (Err(error), false),
            };
            match answers {
                Ok(answers) => {
                    for (&index, answer) in indexes.iter().zip(answers) {
                        let effect = batch.request(index).effect();
                        results[index] = Some(match answer {
                            Ok(reply) => Ok(inner.answered(server, effect, reply)),
                            Err(lost) => Err(inner.lost(server, lost)),
                        });
                    }
                }
                Err(error) => {
                    for &index in &indexes {
                        // What was not sent is known for all; else it depends on the request.
                        let error = match (&error, is_sent) {
                            (Error::OutcomeUnknown { cause, .. }, true) => {
                                inner.error(server, batch.request(index).effect(), cause.clone())
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
        let request = Arc::new(request.into_owned());
        let inner = self.fleet.now();
        let mut each = Vec::with_capacity(inner.servers.len());
        for (index, server) in inner.servers.iter().enumerate() {
            let admission = match server.health.is_live() {
                true => Admission::Live,
                false => Admission::Trial,
            };
            let answered = inner.attempt(index, admission, &request).await;
            each.push((
                server.name.to_string(),
                answered.and_then(Answered::outcome),
            ));
        }
        each
    }

    /// Sends a request to the server of its key.
    async fn call<T: Outcome>(&self, request: Request<'_>) -> Result<T, Error> {
        let request = Arc::new(request.into_owned());
        let mut attempt = 1;
        loop {
            let inner = self.fleet.now();
            let (server, admission) = inner.admit(request.key())?;
            match inner.attempt(server, admission, &request).await {
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
        let inner = &*now;
        let deadline = inner.deadline();
        let mut shares: Vec<(Vec<usize>, Admission)> = Vec::new();
        shares.resize_with(inner.servers.len(), || (Vec::new(), Admission::Live));
        for &index in open {
            if let Err(error) = key::form(keys[index], inner.config.limits.binary_keys) {
                results[index] = Err(error.into());
                continue;
            }
            match inner.admit(keys[index]) {
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
            let queue = inner.queue(server, *admission);
            for group in indexes.chunks(MULTI_KEYS) {
                let keys = group.iter().map(|&index| Box::from(keys[index])).collect();
                let (caller, answer) = oneshot::channel();
                let command = Command::Many { keys, caller };
                let sent = inner.send(server, &queue, command, deadline).await;
                asked.push((server, group, sent.map(|()| answer)));
            }
        }
        for (server, group, sent) in asked {
            let answers: Result<Vec<Option<Reply>>, Error> = match sent {
                Ok(answer) => inner.wait(server, Effect::Reads, answer, deadline).await,
                Err(error) => Err(error),
            };
            match answers {
                Ok(answers) => {
                    for (&index, reply) in group.iter().zip(answers) {
                        results[index] = match reply {
                            Some(reply) => inner.answered(server, Effect::Reads, reply).outcome(),
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

impl Inner {
    pub(super) fn new(config: Config, connect: Arc<dyn Connect>) -> Inner {
        let server = |(address, _): &(Address, u32)| Server::new(address, &config);
        Inner {
            selection: Arc::new(Selection::new(&config)),
            servers: config.servers.iter().map(server).collect(),
            connect,
            config: Arc::new(config),
        }
    }

    /// The servers of a list: those that are in `known` already keep their connections and their health.
    pub(super) fn of(listed: &Listed, known: &Inner) -> Inner {
        let config = listed.settings(&known.config);
        let server = |(address, _): &(Address, u32)| {
            let known = known.servers.iter().find(|known| known.address == *address);
            known.map_or_else(|| Server::new(address, &config), Arc::clone)
        };
        Inner {
            selection: Arc::new(known.selection.with(&config)),
            servers: config.servers.iter().map(server).collect(),
            connect: Arc::clone(&known.connect),
            config: Arc::new(config),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    pub(super) fn name(&self, server: usize) -> &Arc<str> {
        &self.servers[server].name
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.operation_timeout
    }

    /// The server that is asked for a key now.
    fn admit(&self, key: &[u8]) -> Result<(usize, Admission), Error> {
        let admitted = self
            .selection
            .admit(key, |server| &self.servers[server].health);
        admitted.map_err(|ejected| self.error(ejected.home, Effect::NotSent, Cause::Ejected))
    }

    fn error(&self, server: usize, effect: Effect, cause: Cause) -> Error {
        Error::of(&self.servers[server].name, effect, cause)
    }

    fn answered(&self, server: usize, effect: Effect, reply: Reply) -> Answered {
        let server = Arc::clone(&self.servers[server].name);
        Answered {
            reply,
            server,
            effect,
        }
    }

    /// A connection's queue. The task of a connection that is not there, or has failed, begins.
    fn queue(&self, server: usize, admission: Admission) -> mpsc::Sender<Command> {
        let server = &self.servers[server];
        let at = server.next.fetch_add(1, Ordering::Relaxed) % server.queues.len();
        let mut queue = locked(&server.queues[at]);
        if let Some(queue) = queue.as_ref().filter(|queue| !queue.is_closed()) {
            return queue.clone();
        }
        let (sender, commands) = mpsc::channel(IN_FLIGHT);
        *locked(&server.failure) = None;
        let watch = ServerWatch {
            health: Arc::clone(&server.health),
            failure: Arc::clone(&server.failure),
            selection: Arc::clone(&self.selection),
            admission,
        };
        ::tokio::spawn(serve(
            Arc::clone(&self.connect),
            server.address.clone(),
            Arc::clone(&self.config),
            commands,
            watch,
        ));
        *queue = Some(sender.clone());
        sender
    }

    pub(super) async fn attempt(
        &self,
        server: usize,
        admission: Admission,
        request: &Arc<Request<'static>>,
    ) -> Result<Answered, Error> {
        let deadline = self.deadline();
        let effect = request.effect();
        let queue = self.queue(server, admission);
        let answer = self.send_one(server, &queue, request, deadline).await?;
        let reply = self.wait(server, effect, answer, deadline).await?;
        Ok(self.answered(server, effect, reply))
    }

    async fn send_one(
        &self,
        server: usize,
        queue: &mpsc::Sender<Command>,
        request: &Arc<Request<'static>>,
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Answer>, Error> {
        let (caller, answer) = oneshot::channel();
        let request = Arc::clone(request);
        let command = Command::One { request, caller };
        self.send(server, queue, command, deadline).await?;
        Ok(answer)
    }

    /// Puts a command in a queue, and waits for room there.
    async fn send(
        &self,
        server: usize,
        queue: &mpsc::Sender<Command>,
        command: Command,
        deadline: Instant,
    ) -> Result<(), Error> {
        let command = match queue.try_send(command) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Full(command)) => command,
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(self.closed(server)),
        };
        match timeout_at(deadline, queue.send(command)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.closed(server)),
            Err(_) => {
                let cause = Cause::Busy(self.config.operation_timeout);
                Err(self.error(server, Effect::NotSent, cause))
            }
        }
    }

    fn lost(&self, server: usize, lost: Lost) -> Error {
        match lost {
            Lost::Request(error) => error.into(),
            Lost::Connection(effect, cause) => self.error(server, effect, cause),
        }
    }

    /// A connection was closed before it took a command.
    fn closed(&self, server: usize) -> Error {
        let cause = locked(&self.servers[server].failure).clone();
        self.error(server, Effect::NotSent, cause.unwrap_or(Cause::Closed))
    }

    /// Waits for the answer to a command.
    async fn wait<T>(
        &self,
        server: usize,
        effect: Effect,
        answer: oneshot::Receiver<Result<T, Lost>>,
        deadline: Instant,
    ) -> Result<T, Error> {
        match timeout_at(deadline, answer).await {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(lost))) => Err(self.lost(server, lost)),
            // The runtime has ended the connection's task.
            Ok(Err(_)) => Err(self.error(server, effect, Cause::Closed)),
            Err(_) => {
                let cause = Cause::Timeout(self.config.operation_timeout);
                Err(self.error(server, effect, cause))
            }
        }
    }
}

/// Every state that a panic can leave behind is a valid one.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a server's health by what its connection tells.
struct ServerWatch {
    health: Arc<Health>,
    failure: Arc<Mutex<Option<Cause>>>,
    selection: Arc<Selection>,
    /// How the connection came to be opened.
    admission: Admission,
}

impl Watch for ServerWatch {
    fn answered(&self) {
        self.health.answered();
    }

    fn failed(&self, cause: &Cause) {
        *locked(&self.failure) = Some(cause.clone());
        // A trial is over with the first answer.
        let admission = match self.health.is_live() {
            true => Admission::Live,
            false => self.admission,
        };
        self.selection.failed(&self.health, admission);
    }
}
