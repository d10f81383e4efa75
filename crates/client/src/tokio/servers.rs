//! The servers of a client: which one is asked, and the connections to it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::tokio::sync::{mpsc, oneshot};
use ::tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::batch::Answered;
use crate::config::Config;
use crate::discovery::Listed;
use crate::error::{Cause, Error};
use crate::health::{Admission, Health};
use crate::observer::{Event, Observer};
use crate::selection::Selection;
use crate::tokio::connection::serve;
use crate::tokio::lease::{Asked, SharedSlot};
use crate::tokio::line::{Answer, Command, IN_FLIGHT, Lost, Watch};
use crate::tokio::transport::Connect;
use crate::wire::{Effect, Reply, Request};

/// Connections to one server, unless the settings say another number.
const CONNECTIONS: usize = 2;

/// The servers of a client.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) config: Arc<Config>,
    selection: Arc<Selection>,
    pub(super) list: Vec<Arc<Server>>,
    connect: Arc<dyn Connect>,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: Arc<str>,
    address: Address,
    pub(super) health: Arc<Health>,
    /// Why the connection that was opened last has failed, for callers who come too late to be told by it.
    failure: Arc<Mutex<Option<Cause>>>,
    /// Its connections, opened when they are needed.
    queues: Vec<Mutex<Option<Arc<Queue>>>>,
    /// Which connection the next request takes.
    next: AtomicUsize,
}

/// The way to a connection.
#[derive(Debug)]
pub(super) struct Queue {
    commands: mpsc::Sender<Command>,
    /// The connection itself, while nothing is under way on it.
    slot: SharedSlot,
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

impl Servers {
    pub(super) fn new(config: Config, connect: Arc<dyn Connect>) -> Servers {
        let server = |(address, _): &(Address, u32)| Server::new(address, &config);
        Servers {
            selection: Arc::new(Selection::new(&config)),
            list: config.servers.iter().map(server).collect(),
            connect,
            config: Arc::new(config),
        }
    }

    /// The servers of a list: those that are in `known` already keep their connections and their health.
    pub(super) fn of(listed: &Listed, known: &Servers) -> Servers {
        let config = listed.settings(&known.config);
        let server = |(address, _): &(Address, u32)| {
            let known = known.list.iter().find(|known| known.address == *address);
            known.map_or_else(|| Server::new(address, &config), Arc::clone)
        };
        Servers {
            selection: Arc::new(known.selection.with(&config)),
            list: config.servers.iter().map(server).collect(),
            connect: Arc::clone(&known.connect),
            config: Arc::new(config),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn name(&self, server: usize) -> &Arc<str> {
        &self.list[server].name
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.config.operation_timeout
    }

    /// The server that is asked for a key now.
    pub(super) fn admit(&self, key: &[u8]) -> Result<(usize, Admission), Error> {
        let admitted = self
            .selection
            .admit(key, |server| &self.list[server].health);
        admitted.map_err(|ejected| self.error(ejected.home, Effect::NotSent, Cause::Ejected))
    }

    pub(super) fn error(&self, server: usize, effect: Effect, cause: Cause) -> Error {
        Error::of(&self.list[server].name, effect, cause)
    }

    pub(super) fn answered(&self, server: usize, effect: Effect, reply: Reply) -> Answered {
        let server = Arc::clone(&self.list[server].name);
        Answered {
            reply,
            server,
            effect,
        }
    }

    /// A connection's queue. The task of a connection that is not there, or has failed, begins.
    pub(super) fn queue(&self, server: usize, admission: Admission) -> Arc<Queue> {
        let server = &self.list[server];
        let at = server.next.fetch_add(1, Ordering::Relaxed) % server.queues.len();
        let mut queue = locked(&server.queues[at]);
        if let Some(queue) = queue.as_ref().filter(|queue| !queue.commands.is_closed()) {
            return Arc::clone(queue);
        }
        let (sender, commands) = mpsc::channel(IN_FLIGHT);
        let slot = SharedSlot::default();
        *locked(&server.failure) = None;
        let watch = ServerWatch {
            health: Arc::clone(&server.health),
            failure: Arc::clone(&server.failure),
            selection: Arc::clone(&self.selection),
            server: Arc::clone(&server.name),
            observer: self.config.observer.clone(),
            admission,
        };
        ::tokio::spawn(serve(
            Arc::clone(&self.connect),
            server.address.clone(),
            Arc::clone(&self.config),
            commands,
            Arc::clone(&slot),
            watch,
        ));
        let commands = sender;
        let opened = Arc::new(Queue { commands, slot });
        *queue = Some(Arc::clone(&opened));
        opened
    }

    pub(super) async fn attempt(
        &self,
        server: usize,
        admission: Admission,
        request: &Request<'_>,
    ) -> Result<Answered, Error> {
        let effect = request.effect();
        let queue = self.queue(server, admission);
        if let Some(lease) = queue.slot.lend() {
            match lease.ask(request).await {
                Asked::Answer(reply) => {
                    self.has_answered(server);
                    return Ok(self.answered(server, effect, reply));
                }
                Asked::Refused(error) => return Err(error.into()),
                Asked::Handed(answer, asked_at) => {
                    let deadline = asked_at + self.config.operation_timeout;
                    let reply = self.wait(server, effect, answer, deadline).await?;
                    return Ok(self.answered(server, effect, reply));
                }
                Asked::Unusable => {}
            }
        }
        let deadline = self.deadline();
        let answer = self.send_one(server, &queue, request, deadline).await?;
        let reply = self.wait(server, effect, answer, deadline).await?;
        Ok(self.answered(server, effect, reply))
    }

    /// Takes down that a server has answered a caller.
    fn has_answered(&self, server: usize) {
        let server = &self.list[server];
        if server.health.answered() {
            let observer = &self.config.observer;
            observer.tell(&server.name, || Event::Returned);
        }
    }

    async fn send_one(
        &self,
        server: usize,
        queue: &Queue,
        request: &Request<'_>,
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Answer>, Error> {
        let (caller, answer) = oneshot::channel();
        let request = Box::new(request.clone().into_owned());
        let command = Command::One { request, caller };
        self.send(server, queue, command, deadline).await?;
        Ok(answer)
    }

    /// Puts a command in a queue, and waits for room there.
    pub(super) async fn send(
        &self,
        server: usize,
        queue: &Queue,
        command: Command,
        deadline: Instant,
    ) -> Result<(), Error> {
        let command = match queue.commands.try_send(command) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Full(command)) => command,
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(self.closed(server)),
        };
        match timeout_at(deadline, queue.commands.send(command)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.closed(server)),
            Err(_) => {
                let cause = Cause::Busy(self.config.operation_timeout);
                Err(self.error(server, Effect::NotSent, cause))
            }
        }
    }

    pub(super) fn lost(&self, server: usize, lost: Lost) -> Error {
        match lost {
            Lost::Request(error) => error.into(),
            Lost::Connection(effect, cause) => self.error(server, effect, cause),
        }
    }

    /// A connection was closed before it took a command.
    fn closed(&self, server: usize) -> Error {
        let cause = locked(&self.list[server].failure).clone();
        self.error(server, Effect::NotSent, cause.unwrap_or(Cause::Closed))
    }

    /// Waits for the answer to a command.
    pub(super) async fn wait<T>(
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
    server: Arc<str>,
    observer: Observer,
    /// How the connection came to be opened.
    admission: Admission,
}

impl Watch for ServerWatch {
    fn opened(&self) {
        self.observer.tell(&self.server, || Event::Connected);
    }

    fn answered(&self) {
        if self.health.answered() {
            self.observer.tell(&self.server, || Event::Returned);
        }
    }

    fn closed(&self, cause: &Cause) {
        self.observer.tell_failure(&self.server, cause);
    }

    fn failed(&self, cause: &Cause) {
        *locked(&self.failure) = Some(cause.clone());
        // A trial is over with the first answer.
        let admission = match self.health.is_live() {
            true => Admission::Live,
            false => self.admission,
        };
        self.observer.tell_failure(&self.server, cause);
        if self.selection.failed(&self.health, admission) {
            self.observer.tell(&self.server, || Event::Ejected);
        }
    }
}
