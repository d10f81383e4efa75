//! The server's end of the control channel: clients connect, describe their memory and rings, and
//! leave.
//!
//! ```text
//! server  hello          ack           ack             ack            connected
//! client          init ──┴── region … ─┴─ ring, ring … ┴── connect ───┘
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Role;
use super::channel::{Channel, ChannelRead};
use super::look::Look;
use super::mailbox::{Event, QueueLink};
use super::message::{AddRing, Hello, Init, Message, SECRET_LEN};
use super::news::News;
use super::options::Options;
use super::receive::Consumer;
use super::region::{MEMORY_MAX, Memory, REGIONS_MAX, Region};
use super::ring::{LOG2_LEN_MAX, Ring};
use super::transmit::Producer;

/// The most clients at a time, including the one that is linked.
const GUESTS_MAX: usize = 4;

/// The most messages of one client that are read at a time.
const MESSAGES_MAX: usize = 64;

/// What clients must ask for.
pub(super) struct Server {
    listener: OwnedFd,
    path: PathBuf,
    id: u32,
    secret: [u8; SECRET_LEN],
    queues: usize,
    guests: Vec<Guest>,
    next_key: u64,
}

/// A client, and what it has described so far.
struct Guest {
    key: u64,
    channel: Channel,
    name: String,
    stage: Stage,
    regions: Vec<Region>,
    memory_len: u64,
    to_server: Vec<Option<(AddRing, Event)>>,
    to_client: Vec<Option<(AddRing, Event)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Greeted,
    Telling,
    Connected,
}

/// What follows from a message.
enum MessageOutcome {
    Answer(Message),
    Links(Vec<QueueLink>),
    Gone(String),
}

impl Server {
    /// The key of the listening socket among those of clients.
    pub(super) const LISTENER: u64 = 0;

    pub(super) fn new(listener: OwnedFd, options: &Options) -> Server {
        Server {
            listener,
            path: options.socket.clone(),
            id: options.id,
            secret: options.secret_bytes(),
            queues: options.queues,
            guests: Vec::new(),
            next_key: Server::LISTENER + 1,
        }
    }

    /// Becomes readable when a client connects.
    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Accepts the clients that wait.
    pub(super) fn accept(&mut self, look: &mut Look<'_>) {
        while let Some(channel) = Channel::accept(&self.listener) {
            if self.guests.len() >= GUESTS_MAX {
                // The one that has been silent for longest is the first to go.
                let silent = self.guests.iter().position(|guest| !guest.is_connected());
                match silent {
                    Some(at) => drop(self.guests.remove(at)),
                    None => continue,
                }
            }
            let hello = Message::Hello(Hello {
                name: "coua".to_owned(),
                is_known_version: true,
                region_max: number(REGIONS_MAX - 1),
                to_client_max: number(self.queues - 1),
                to_server_max: number(self.queues - 1),
                log2_len_max: LOG2_LEN_MAX,
            });
            let key = self.next_key;
            if channel.send(&hello, None).is_err() || !look.watch(&channel, key) {
                continue;
            }
            self.next_key += 1;
            self.guests.push(Guest::new(key, channel, self.queues));
        }
    }

    /// Reads and handles a client's messages.
    pub(super) fn hear(&mut self, key: u64, look: &mut Look<'_>) {
        for _ in 0..MESSAGES_MAX {
            let Some(at) = self.guests.iter().position(|guest| guest.key == key) else {
                return;
            };
            let heeded = match self.guests[at].channel.receive() {
                ChannelRead::Nothing => return,
                ChannelRead::Message(message, descriptor) => self.heed(at, message, descriptor),
                ChannelRead::Nonsense => Err("not a message"),
                ChannelRead::End => Ok(MessageOutcome::Gone("it has ended".to_owned())),
            };
            match heeded {
                Ok(MessageOutcome::Answer(answer)) => {
                    if self.guests[at].channel.send(&answer, None).is_err() {
                        self.end(at, "it does not listen", look);
                    }
                }
                Ok(MessageOutcome::Links(links)) => self.connect(at, links, look),
                Ok(MessageOutcome::Gone(why)) => self.end(at, &why, look),
                Err(why) => self.turn_out(at, why, look),
            }
        }
    }

    /// Ends the connection with a client whose rings cannot be used.
    pub(super) fn break_off(&mut self, why: &'static str, look: &mut Look<'_>) {
        if let Some(at) = self.guests.iter().position(Guest::is_connected) {
            self.turn_out(at, why, look);
        }
    }

    fn heed(
        &mut self,
        at: usize,
        message: Message,
        descriptor: Option<OwnedFd>,
    ) -> Result<MessageOutcome, &'static str> {
        let is_taken = self
            .guests
            .iter()
            .any(|guest| guest.stage != Stage::Greeted);
        let (id, secret) = (self.id, &self.secret);
        let guest = &mut self.guests[at];
        match (guest.stage, message) {
            (_, Message::Disconnect(why)) => return Ok(MessageOutcome::Gone(why)),
            (Stage::Greeted, Message::Init(_)) if is_taken => return Err("already connected"),
            (Stage::Greeted, Message::Init(init)) => guest.init(init, id, secret)?,
            (Stage::Telling, Message::AddRegion { number, len }) => {
                guest.add_region(number, len, descriptor)?;
            }
            (Stage::Telling, Message::AddRing(ring)) => guest.add_ring(ring, descriptor)?,
            (Stage::Telling, Message::Connect) => return Ok(MessageOutcome::Links(guest.links()?)),
            _ => return Err("unexpected message"),
        }
        Ok(MessageOutcome::Answer(Message::Acknowledge))
    }

    fn connect(&mut self, at: usize, links: Vec<QueueLink>, look: &mut Look<'_>) {
        let guest = &mut self.guests[at];
        if guest.channel.send(&Message::Connected, None).is_err() {
            return self.end(at, "it does not listen", look);
        }
        guest.stage = Stage::Connected;
        let (peer, queues) = (guest.name.clone(), links.len());
        look.link(links);
        look.tell(News::Connected { peer, queues });
    }

    /// Tells a client why it has to go.
    fn turn_out(&mut self, at: usize, why: &'static str, look: &mut Look<'_>) {
        let farewell = Message::Disconnect(why.to_owned());
        // It may already be gone.
        let _ = self.guests[at].channel.send(&farewell, None);
        if !self.guests[at].is_connected() {
            look.tell(News::Refused {
                why: why.to_owned(),
            });
        }
        self.end(at, why, look);
    }

    fn end(&mut self, at: usize, why: &str, look: &mut Look<'_>) {
        let guest = self.guests.remove(at);
        if guest.is_connected() {
            look.link(Vec::new());
            look.tell(News::Left {
                why: why.to_owned(),
            });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes a socket that nobody listens on any more. It fails only if another process was quicker,
/// or if the socket belongs to another user.
fn remove(path: &Path) {
    let _ = rustix::fs::unlink(path);
}

impl Guest {
    fn new(key: u64, channel: Channel, queues: usize) -> Guest {
        let none = || (0..queues).map(|_| None).collect();
        Guest {
            key,
            channel,
            name: String::new(),
            stage: Stage::Greeted,
            regions: Vec::new(),
            memory_len: 0,
            to_server: none(),
            to_client: none(),
        }
    }

    fn is_connected(&self) -> bool {
        self.stage == Stage::Connected
    }

    fn init(&mut self, init: Init, id: u32, secret: &[u8; SECRET_LEN]) -> Result<(), &'static str> {
        if !init.is_known_version {
            return Err("only memif 2.0 is spoken here");
        }
        if !init.is_ethernet {
            return Err("only Ethernet frames are taken here");
        }
        if init.id != id {
            return Err("no interface of this id");
        }
        if *secret != [0; SECRET_LEN] && !is_same(secret, &init.secret) {
            return Err("wrong secret");
        }
        self.name = init.name;
        self.stage = Stage::Telling;
        Ok(())
    }

    fn add_region(
        &mut self,
        number: u16,
        len: u64,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), &'static str> {
        let file = descriptor.ok_or("a region without its descriptor")?;
        if usize::from(number) != self.regions.len() || self.regions.len() == REGIONS_MAX {
            return Err("regions count from 0 to 15");
        }
        let region = Region::of_peer(&file, len, MEMORY_MAX - self.memory_len);
        self.regions.push(region.map_err(|unfit| unfit.reason())?);
        self.memory_len += len;
        Ok(())
    }

    fn add_ring(&mut self, ring: AddRing, descriptor: Option<OwnedFd>) -> Result<(), &'static str> {
        let descriptor = descriptor.ok_or("a ring without its event")?;
        let event = Event::of_peer(descriptor).ok_or("the event of a ring is no eventfd")?;
        let rings = match ring.to_server {
            true => &mut self.to_server,
            false => &mut self.to_client,
        };
        let place = rings.get_mut(usize::from(ring.number));
        let place = place.ok_or("more rings than hello has allowed")?;
        match place.replace((ring, event)) {
            None => Ok(()),
            Some(_) => Err("a ring twice"),
        }
    }

    /// What the queues get: as many links as there are rings for both directions.
    fn links(&mut self) -> Result<Vec<QueueLink>, &'static str> {
        let memory = Arc::new(Memory::new(std::mem::take(&mut self.regions)));
        let mut links = Vec::new();
        for (to_server, to_client) in self.to_server.iter_mut().zip(&mut self.to_client) {
            let (Some(to_server), Some(to_client)) = (to_server.take(), to_client.take()) else {
                break;
            };
            let [(received, arrival), (sent, departure)] = [to_server, to_client];
            links.push(QueueLink {
                consumer: Consumer::new(ring(&memory, received)?, None),
                producer: Producer::new(ring(&memory, sent)?, None),
                arrival,
                departure,
            });
        }
        match links.is_empty() {
            true => Err("no ring of either direction"),
            false => Ok(links),
        }
    }
}

fn ring(memory: &Arc<Memory>, told: AddRing) -> Result<Ring, &'static str> {
    let AddRing {
        region,
        offset,
        log2_len,
        ..
    } = told;
    let ring = Ring::new(memory, region, offset, log2_len, Role::Server);
    let ring = ring.ok_or("a ring is not inside of its region")?;
    match ring.is_one() {
        true => Ok(ring),
        false => Err("a ring does not begin with the cookie"),
    }
}

/// Compares in a time that does not depend on how much is equal.
fn is_same(ours: &[u8; SECRET_LEN], theirs: &[u8; SECRET_LEN]) -> bool {
    let pairs = ours.iter().zip(theirs);
    pairs.fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

fn number(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
