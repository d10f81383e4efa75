//! RDMA: clients whose requests and values come by a network that reads and writes memory itself (`--rdma`).
//!
//! A client has an ordinary connection, asks there to be taken on, and proves itself by a token ([`coua_rdma::Offer`]).
//! Both connections are the same worker's. A request is served like a datagram: it has a session that ends with it. One
//! whose value comes apart from it has a session whose stream is the value, once all of that is there. So there is one
//! parser and one executor for all.
//!
//! # Invariants
//! - What clients may do here is what they may do on their ordinary connection, and it ends with that.
//! - Memory is of fixed size, whatever clients ask for: buffers for as many clients as were allowed, and the staging
//!   memory, in which values arrive and long replies are gathered. Who finds no room there gets an error.
//! - Requests of one client may be answered in another order.

mod arena;
mod incoming;
mod replies;
mod report;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use coua_rdma::libfabric::{Driver, DriverEvent, Error, Rights, Setup};
use coua_rdma::{
    Limits, Offer, PeerId, REPLY_COPY_MAX, RequestId, Server, ServerEvent, Span, Staged, Staging,
    TOKEN_LEN,
};
use coua_store::{Pinned, Store};
use coua_transport::PeerAddress;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::connections::ConnectionInfo;
use crate::flags::RdmaSettings;
use crate::message::Message;
use crate::permissions::{Permissions, User};
use crate::session::{Session, SessionId};

pub use incoming::Next;
pub use replies::Ending;

/// How long a token is good for.
const TOKEN_MS_MAX: u64 = 10_000;

/// Bytes of each worker's staging memory.
const STAGING_LEN: usize = 8 << 20;

/// The longest value that comes by RDMA: several find room in the staging memory at once.
const VALUE_LEN_MAX: usize = 1 << 20;

/// Why there is no RDMA.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "--rdma {address},provider={provider}: {why}; give another address or provider, or leave --rdma out"
)]
pub struct RdmaError {
    address: SocketAddr,
    provider: String,
    why: Error,
}

/// What keeps memory in its place while the network reads it.
enum Keep {
    Pinned(#[expect(dead_code, reason = "dropped when the network has read it")] Pinned),
    Staged(#[expect(dead_code, reason = "dropped when the network has read it")] Staged),
}

/// A client's ordinary connection, and what it may do.
struct Client {
    session: SessionId,
    connection: Arc<ConnectionInfo>,
    user: Option<Arc<User>>,
    may: Permissions,
    is_restricted: bool,
}

/// A client that was told where to connect to.
struct Expected {
    token: [u8; TOKEN_LEN],
    until_ms: u64,
    client: Client,
}

/// A request that has no session yet.
struct Waiting {
    peer: PeerId,
    request: RequestId,
    what: What,
}

enum What {
    /// It stands in a frame.
    Frame(Span),
    /// It and its value lie in staging memory.
    Staged(Staged),
}

/// One worker's RDMA.
pub struct WorkerRdma {
    // Before the driver: the protocol holds parts of its memory.
    server: Server<Keep>,
    uploads: HashMap<RequestId, Upload>,
    waiting: VecDeque<Waiting>,
    staging: Staging,
    /// The region of the store's memory, and where that begins; `None` where values are copied.
    arena: Option<(u32, usize)>,
    driver: Driver,
    address: SocketAddr,
    provider: String,
    clients: Vec<Option<Client>>,
    expected: Vec<Expected>,
    clients_max: usize,
    /// Messages for reuse.
    #[expect(clippy::vec_box, reason = "the boxes go back and forth unopened")]
    spare: Vec<Box<Message>>,
    driver_events: Vec<DriverEvent>,
    server_events: Vec<ServerEvent>,
    /// Ordinary connections that are to be closed: their clients have misbehaved.
    ended: Vec<SessionId>,
    /// Connections that were refused: no token, or no room.
    refused: u64,
    memory: usize,
    /// Something has happened that was not told to others yet.
    is_untold: bool,
}

/// A value that arrives.
struct Upload {
    peer: PeerId,
    staged: Staged,
    /// Bytes of the command in front of it.
    command_len: usize,
}

/// Where worker number `index` listens, of several: each has a port of its own.
fn address_of(settings: &RdmaSettings, index: usize) -> SocketAddr {
    let mut address = settings.address;
    if address.port() != 0 {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        address.set_port(address.port().saturating_add(index));
    }
    address
}

/// Sees whether all workers will be able to listen, before they start.
///
/// # Errors
/// If libfabric, a device or the address is missing.
pub fn probe(settings: &RdmaSettings, workers: usize) -> Result<(), RdmaError> {
    let open = |index| {
        let address = address_of(settings, index);
        let setup = Setup {
            provider: settings.provider.clone(),
            address,
            credits: 1,
            peers_max: 1,
        };
        Driver::listen(setup).map_err(|why| settings.error(address, why))
    };
    match settings.address.port() {
        0 => open(0).map(drop),
        _ => (0..workers).try_for_each(|index| open(index).map(drop)),
    }
}

impl RdmaSettings {
    fn error(&self, address: SocketAddr, why: Error) -> RdmaError {
        RdmaError {
            address,
            provider: self.provider.clone(),
            why,
        }
    }

    /// Clients of each of so many workers.
    fn clients_of_worker(&self, workers: usize) -> usize {
        self.clients.div_ceil(workers.max(1))
    }

    /// What values and requests may be.
    fn limits(item_size_max: usize) -> Limits {
        Limits {
            value_len_max: VALUE_LEN_MAX.min(item_size_max),
            ..Limits::default()
        }
    }
}

impl WorkerRdma {
    /// Listens for the clients of worker number `index` of `workers`.
    ///
    /// # Errors
    /// If libfabric, a device, the address or memory is missing.
    pub fn new(
        settings: &RdmaSettings,
        (index, workers): (usize, usize),
        item_size_max: usize,
        store: &Arc<Store>,
    ) -> Result<WorkerRdma, RdmaError> {
        let address = address_of(settings, index);
        WorkerRdma::open(settings, address, workers, item_size_max, store)
            .map_err(|why| settings.error(address, why))
    }

    fn open(
        settings: &RdmaSettings,
        address: SocketAddr,
        workers: usize,
        item_size_max: usize,
        store: &Arc<Store>,
    ) -> Result<WorkerRdma, Error> {
        let limits = RdmaSettings::limits(item_size_max);
        let clients_max = settings.clients_of_worker(workers);
        let mut driver = Driver::listen(Setup {
            provider: settings.provider.clone(),
            address,
            credits: limits.credits,
            peers_max: clients_max,
        })?;
        let frames = clients_max * limits.credits;
        let (replies, _) = driver.add_memory(2 * frames * REPLY_COPY_MAX, Rights::None)?;
        let (staging, _) = driver.add_memory(STAGING_LEN, Rights::None)?;
        let arena = arena::add(&mut driver, store)?;
        let replies = (0..2 * frames).map(|nth| replies.part(nth * REPLY_COPY_MAX, REPLY_COPY_MAX));
        Ok(WorkerRdma {
            server: Server::new(limits, frames, replies.collect()),
            uploads: HashMap::new(),
            waiting: VecDeque::with_capacity(frames),
            staging: Staging::new(staging),
            arena,
            address: driver.address()?,
            memory: driver.own_memory(),
            driver,
            provider: settings.provider.clone(),
            clients: (0..clients_max).map(|_| None).collect(),
            expected: Vec::with_capacity(clients_max),
            clients_max,
            spare: Vec::new(),
            driver_events: Vec::new(),
            server_events: Vec::new(),
            ended: Vec::new(),
            refused: 0,
            is_untold: true,
        })
    }

    /// Answers `rdma` on the connection of a session. `None` if there are as many clients as there may be, or this is one
    /// already.
    pub fn offer(&mut self, id: SessionId, session: &Session, now_ms: u64) -> Option<Offer> {
        self.expected
            .retain(|it| it.until_ms > now_ms && it.client.session != id);
        let has_one = self.clients.iter().flatten().any(|it| it.session == id);
        let taken = self.clients.iter().flatten().count() + self.expected.len();
        if has_one || taken >= self.clients_max {
            self.refused += 1;
            return None;
        }
        let mut token = [0; TOKEN_LEN];
        if getrandom(&mut token[..], GetRandomFlags::empty()) != Ok(TOKEN_LEN) {
            return None;
        }
        self.expected.push(Expected {
            token,
            until_ms: now_ms + TOKEN_MS_MAX,
            client: Client {
                session: id,
                connection: Arc::clone(&session.connection),
                user: session.user.clone(),
                may: session.may,
                is_restricted: session.is_restricted,
            },
        });
        let mut address = self.address;
        if address.ip().is_unspecified()
            && let PeerAddress::Tcp4(own) | PeerAddress::Tcp6(own) = &session.connection.local
        {
            address.set_ip(own.ip());
        }
        Some(Offer {
            provider: self.provider.clone(),
            address,
            token,
            limits: *self.server.limits(),
        })
    }

    /// The ordinary connection of a session has ended: so does what it was allowed here.
    pub fn end_session(&mut self, id: SessionId) {
        self.expected.retain(|it| it.client.session != id);
        let of = self
            .clients
            .iter()
            .position(|client| client.as_ref().is_some_and(|client| client.session == id));
        if let Some(peer) = of.and_then(|peer| u32::try_from(peer).ok()) {
            self.server.disconnect(&mut self.driver, PeerId(peer));
        }
    }

    /// The ordinary connection of a session is to end since the server stops: false as long as requests of its client are
    /// under way, else as [`WorkerRdma::end_session`].
    pub fn may_end(&mut self, id: SessionId) -> bool {
        let is_busy = self.clients.iter().enumerate().any(|(peer, client)| {
            client.as_ref().is_some_and(|client| client.session == id)
                && u32::try_from(peer).is_ok_and(|peer| self.server.is_busy(PeerId(peer)))
        });
        if !is_busy {
            self.end_session(id);
        }
        !is_busy
    }

    /// A client has asked for the end of its ordinary connection.
    pub fn end_client_of(&mut self, connection: &Arc<ConnectionInfo>) {
        let is_its = |client: &&Client| Arc::ptr_eq(&client.connection, connection);
        let client = self.clients.iter().flatten().find(is_its);
        self.ended.extend(client.map(|client| client.session));
    }

    /// Descriptors that become readable when there is something to do.
    pub fn descriptors(&self) -> [std::os::fd::BorrowedFd<'_>; 2] {
        self.driver.descriptors()
    }

    /// Ordinary connections that are to be closed.
    pub fn take_ended(&mut self) -> Option<SessionId> {
        self.ended.pop()
    }
}
