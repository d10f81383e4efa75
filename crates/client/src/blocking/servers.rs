//! The servers of a client: which one is asked, connections to it, one request.

use std::sync::Arc;

use crate::address::Address;
use crate::blocking::connection::{Connection, Deadline};
use crate::blocking::pool::{Lease, Pool};
use crate::blocking::transport::Connect;
use crate::config::Config;
use crate::discovery::Listed;
use crate::error::{Cause, Error};
use crate::health::{Admission, Health};
use crate::observer::Event;
use crate::selection::Selection;
use crate::wire::request::Request;
use crate::wire::{Completion, Conversation, Effect, Reply};

/// Connections to one server, unless the settings say another number.
const CONNECTIONS: usize = 16;

/// The servers of a client.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) config: Config,
    selection: Selection,
    pub(super) list: Vec<Arc<Server>>,
    pub(super) connect: Arc<dyn Connect>,
}

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: Arc<str>,
    address: Address,
    pool: Pool,
    pub(super) health: Health,
}

impl Server {
    fn new(address: &Address, config: &Config) -> Arc<Server> {
        Arc::new(Server {
            name: address.to_string().into(),
            address: address.clone(),
            pool: Pool::new(config.connections_per_server.unwrap_or(CONNECTIONS)),
            health: Health::default(),
        })
    }
}

impl Servers {
    pub(super) fn new(config: Config, connect: Arc<dyn Connect>) -> Servers {
        let server = |(address, _): &(Address, u32)| Server::new(address, &config);
        Servers {
            selection: Selection::new(&config),
            list: config.servers.iter().map(server).collect(),
            connect,
            config,
        }
    }

    /// The servers of a list, of which those that are here already keep their connections and their health.
    pub(super) fn with(&self, listed: &Listed) -> Servers {
        let config = listed.settings(&self.config);
        let server = |(address, _): &(Address, u32)| {
            let known = self.list.iter().find(|known| known.address == *address);
            known.map_or_else(|| Server::new(address, &config), Arc::clone)
        };
        Servers {
            selection: self.selection.with(&config),
            list: config.servers.iter().map(server).collect(),
            connect: Arc::clone(&self.connect),
            config,
        }
    }

    /// The server that is asked for a key now.
    pub(super) fn admit(&self, key: &[u8]) -> Result<(usize, Admission), Error> {
        let admitted = self
            .selection
            .admit(key, |server| &self.list[server].health);
        admitted.map_err(|ejected| {
            let name = &self.list[ejected.home].name;
            Error::of(name, Effect::NotSent, Cause::Ejected)
        })
    }

    pub(super) fn lend<'s>(
        &self,
        server: &'s Server,
        deadline: &mut Deadline,
    ) -> Result<Lease<'s>, Cause> {
        let observer = &self.config.observer;
        let open = || {
            let connection = Connection::open(&*self.connect, &server.address, &self.config)?;
            observer.tell(&server.name, || Event::Connected);
            Ok(connection)
        };
        let lost = || observer.tell(&server.name, || Event::Lost(Cause::Closed));
        server.pool.lend(deadline, open, lost)
    }

    /// Takes down that a server has answered.
    #[inline]
    pub(super) fn answered(&self, server: &Server) {
        if server.health.answered() {
            self.config.observer.tell(&server.name, || Event::Returned);
        }
    }

    /// Takes down that a server has failed.
    pub(super) fn failed(&self, server: &Server, admission: Admission, cause: &Cause) {
        // Many threads of one's own are no fault of the server's.
        let observer = &self.config.observer;
        observer.tell_failure(&server.name, cause);
        if !matches!(cause, Cause::Busy(_)) && self.selection.failed(&server.health, admission) {
            observer.tell(&server.name, || Event::Ejected);
        }
        if matches!(cause, Cause::Closed | Cause::Io(..) | Cause::Connect(..)) {
            server.pool.give_up();
        }
    }

    pub(super) fn attempt(
        &self,
        server: &Server,
        admission: Admission,
        request: &Request<'_>,
    ) -> Result<Reply, Error> {
        let mut deadline = Deadline::after(self.config.operation_timeout);
        let mut lease = self.lend(server, &mut deadline).map_err(|cause| {
            self.failed(server, admission, &cause);
            Error::of(&server.name, Effect::NotSent, cause)
        })?;
        let mut pushed = None;
        let mut reply = None;
        let feed = &mut |conversation: &mut Conversation| {
            pushed.get_or_insert_with(|| conversation.push(request));
        };
        let driven = lease.drive(&mut deadline, feed, &mut |completion: Completion| {
            reply = Some(completion.reply);
        });
        if let Some(Err(error)) = pushed {
            return Err(error.into());
        }
        // The answer may be whole although the connection failed behind it.
        let failure = match (reply, driven) {
            (Some(reply), _) => {
                self.answered(server);
                return Ok(reply);
            }
            (None, Err(cause)) => cause,
            (None, Ok(())) => Cause::Closed,
        };
        let abandoned = lease.conversation.abandon();
        let effect = abandoned
            .first()
            .map_or(request.effect(), |lost| lost.effect);
        self.failed(server, admission, &failure);
        Err(Error::of(&server.name, effect, failure))
    }
}
