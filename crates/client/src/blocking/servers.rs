//! The servers of a client: which one is asked, connections to it, one request.

use std::sync::Arc;
use std::time::Instant;

use crate::address::Address;
use crate::batch::Answered;
use crate::blocking::connection::{Connection, Deadline};
use crate::blocking::pool::{Lease, Pool};
use crate::blocking::transport::Connect;
use crate::config::{Config, Failover};
use crate::error::{Cause, Error};
use crate::health::{Admission, Ejection, Health};
use crate::route::Router;
use crate::wire::request::Request;
use crate::wire::{Completion, Conversation, Effect};

/// The servers of a client.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) config: Config,
    ejection: Ejection,
    router: Router,
    pub(super) list: Vec<Server>,
    connect: Box<dyn Connect>,
    started: Instant,
}

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: Arc<str>,
    address: Address,
    pool: Pool,
    pub(super) health: Health,
}

impl Servers {
    pub(super) fn new(config: Config, connect: Box<dyn Connect>) -> Servers {
        let server = |(address, _): &(Address, u32)| Server {
            name: address.to_string().into(),
            address: address.clone(),
            pool: Pool::new(config.connections_per_server),
            health: Health::default(),
        };
        Servers {
            ejection: config.ejection(),
            router: Router::new(config.distribution, &config.places()),
            list: config.servers.iter().map(server).collect(),
            connect,
            started: Instant::now(),
            config,
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The server that is asked for a key now.
    pub(super) fn admit(&self, key: &[u8]) -> Result<(usize, Admission), Error> {
        let home = self.router.home(key);
        let server = &self.list[home];
        if server.health.is_live() {
            return Ok((home, Admission::Live));
        }
        if let Some(admission) = server.health.admit(self.now_ms(), &self.ejection) {
            return Ok((home, admission));
        }
        let other = match self.config.failover {
            Failover::FailFast => None,
            Failover::Redistribute => self
                .router
                .among(key, |other| self.list[other].health.is_live()),
        };
        match other {
            Some(other) => Ok((other, Admission::Live)),
            None => Err(Error::of(&server.name, Effect::NotSent, Cause::Ejected)),
        }
    }

    pub(super) fn lend<'s>(
        &self,
        server: &'s Server,
        deadline: &Deadline,
    ) -> Result<Lease<'s>, Cause> {
        let open = || Connection::open(&*self.connect, &server.address, &self.config);
        server.pool.lend(deadline, open)
    }

    /// Takes down that a server has failed.
    pub(super) fn failed(&self, server: &Server, admission: Admission, cause: &Cause) {
        // Many threads of one's own are no fault of the server's.
        if !matches!(cause, Cause::Busy(_)) {
            let chance = fastrand::f64();
            let now_ms = self.now_ms();
            server
                .health
                .failed(admission, now_ms, chance, &self.ejection);
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
    ) -> Result<Answered, Error> {
        let deadline = Deadline::after(self.config.operation_timeout);
        let mut lease = self.lend(server, &deadline).map_err(|cause| {
            self.failed(server, admission, &cause);
            Error::of(&server.name, Effect::NotSent, cause)
        })?;
        let mut pushed = None;
        let mut reply = None;
        let feed = &mut |conversation: &mut Conversation| {
            pushed.get_or_insert_with(|| conversation.push(request));
        };
        let driven = lease.drive(&deadline, feed, &mut |completion: Completion| {
            reply = Some(completion.reply);
        });
        if let Some(Err(error)) = pushed {
            return Err(error.into());
        }
        let effect = match request.reads_only() {
            true => Effect::Reads,
            false => Effect::Unknown,
        };
        // The answer may be whole although the connection failed behind it.
        let failure = match (reply, driven) {
            (Some(reply), _) => {
                server.health.answered();
                let server = Arc::clone(&server.name);
                return Ok(Answered {
                    reply,
                    server,
                    effect,
                });
            }
            (None, Err(cause)) => cause,
            (None, Ok(())) => Cause::Closed,
        };
        let abandoned = lease.conversation.abandon();
        let effect = abandoned.first().map_or(effect, |lost| lost.effect);
        self.failed(server, admission, &failure);
        Err(Error::of(&server.name, effect, failure))
    }
}
