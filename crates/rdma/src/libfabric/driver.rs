//! One thread's network.

#![allow(unsafe_code, reason = "names memory to the network")]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::rc::Rc;

use super::Error;
use super::bindings::{
    CqDataEntry, FI_READ, FI_RECV, FI_REMOTE_CQ_DATA, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND,
    FI_TRANSMIT, FI_WRITE, FidCq, FidDomain, FidEq, FidFabric, FidPep,
};
use super::library::OwnedInfo;
use super::memory::{Bytes, Memory};
use super::objects::{Endpoint, Object, Registration, Taken, Told, Way};
use super::works::{Named, Works, frame_context};
use crate::fabric::{Completion, Fabric, PeerId, Remote, Span};
use crate::limits::FRAME_LEN;

/// Completions that are taken out at a time.
const ENTRIES: usize = 64;

/// What a driver needs to know.
#[derive(Clone, Debug)]
pub struct Setup {
    /// libfabric's name of the provider: `tcp`, `verbs`.
    pub provider: String,
    /// Where to listen, or whom to reach.
    pub address: SocketAddr,
    /// Buffers for receiving that each connection has; 0 for a client, which receives no frames.
    pub credits: usize,
    /// Connections at most.
    pub peers_max: usize,
}

/// What the other side may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Nothing.
    None,
    /// Read and write it, if it knows the key.
    ReadAndWrite,
}

/// What has happened.
pub enum DriverEvent {
    /// A client asks for a connection: [`Driver::accept`] or [`Driver::reject`] answers.
    Asked {
        /// Its request.
        request: Request,
        /// What it says.
        data: Vec<u8>,
    },
    /// A connection that this side asked for is there.
    Connected {
        /// Which.
        peer: PeerId,
    },
    /// For the protocol.
    Completion(Completion),
}

/// A client's request for a connection.
pub struct Request(OwnedInfo);

pub(super) struct Region {
    pub(super) memory: Rc<Memory>,
    registration: Option<Registration>,
}

#[derive(Clone, Copy)]
pub(super) struct Frame {
    generation: u32,
    /// Whose it is.
    pub(super) owner: Option<u32>,
    pub(super) state: FrameState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameState {
    /// Nobody has it.
    Idle,
    /// The network has it.
    Posted,
    /// The protocol has it.
    Lent,
}

impl Frame {
    /// It has come back from the network; later reports of that are not believed.
    fn take_back(&mut self, state: FrameState) {
        self.generation = (self.generation + 1) & 0x7fff_ffff;
        self.state = state;
    }
}

pub(super) struct Peer {
    pub(super) endpoint: Endpoint,
    is_connected: bool,
    pub(super) is_closing: bool,
}

/// One thread's network: a device, and connections over it.
pub struct Driver {
    // Dropped in this order: what was opened last first.
    pub(super) peers: Vec<Option<Peer>>,
    pub(super) regions: Vec<Region>,
    listener: Option<Object<FidPep>>,
    completions: Object<FidCq>,
    events: Object<FidEq>,
    domain: Object<FidDomain>,
    fabric: Object<FidFabric>,
    pub(super) way: Way,
    setup: Setup,
    descriptors: [RawFd; 2],
    pub(super) works: Works,
    pub(super) frames: Vec<Frame>,
    /// Frames that belong to nobody.
    pub(super) free_frames: Vec<usize>,
    free_peers: Vec<u32>,
    /// Those of connections whose ends were told in the last poll.
    left_peers: Vec<u32>,
    pub(super) closing: VecDeque<u32>,
    /// Completions whose peers cannot be told.
    strays: u64,
}

/// The region that frames lie in.
const FRAMES: u32 = 0;

impl Driver {
    /// Listens for clients.
    ///
    /// # Errors
    /// If libfabric or a device is missing, or the address cannot be listened at.
    pub fn listen(setup: Setup) -> Result<Driver, Error> {
        let mut driver = Driver::open(setup, true)?;
        let listener = driver.fabric.listener(&driver.way)?;
        listener.bind(&driver.events, 0)?;
        listener.listen()?;
        driver.listener = Some(listener);
        Ok(driver)
    }

    /// A client's side, which has no connection yet.
    ///
    /// # Errors
    /// If libfabric or a device is missing.
    pub fn client(setup: Setup) -> Result<Driver, Error> {
        Driver::open(setup, false)
    }

    fn open(setup: Setup, listens: bool) -> Result<Driver, Error> {
        let way = Way::find(&setup.provider, setup.address, listens)?;
        let fabric = Object::<FidFabric>::open(&way)?;
        let domain = fabric.domain(&way)?;
        let events = fabric.events()?;
        let frames = setup.credits * setup.peers_max;
        // A connection has as many writes and reads under way as the protocol's limits say.
        let completions = domain.completions(2 * frames + 160 * setup.peers_max)?;
        let descriptors = [completions.descriptor()?, events.descriptor()?];
        let frame = Frame {
            generation: 0,
            owner: None,
            state: FrameState::Idle,
        };
        let mut driver = Driver {
            peers: Vec::new(),
            regions: Vec::new(),
            listener: None,
            completions,
            events,
            domain,
            fabric,
            way,
            setup,
            descriptors,
            works: Works::default(),
            frames: vec![frame; frames],
            free_frames: (0..frames).rev().collect(),
            free_peers: Vec::new(),
            left_peers: Vec::new(),
            closing: VecDeque::new(),
            strays: 0,
        };
        driver.add_memory((frames * FRAME_LEN).max(1), Rights::None)?;
        Ok(driver)
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If it does not, or libfabric cannot say.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        match &self.listener {
            Some(listener) => listener.address(),
            None => Ok(self.setup.address),
        }
    }

    /// Descriptors that become readable when [`Driver::poll`] has something to do, if [`Driver::may_sleep`] has said so.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [
            self.completions.borrow(self.descriptors[0]),
            self.events.borrow(self.descriptors[1]),
        ]
    }

    /// Whether it may be waited for by its descriptors: there is nothing to do now.
    pub fn may_sleep(&self) -> bool {
        self.closing.is_empty() && self.fabric.may_wait(&self.events, &self.completions)
    }

    /// Adds memory of its own, and says how the other side names it.
    ///
    /// # Errors
    /// If it cannot be registered.
    pub fn add_memory(&mut self, len: usize, rights: Rights) -> Result<(Span, Remote), Error> {
        let (mut span, remote) = self.add(Memory::new(len), rights)?;
        span.len = len;
        Ok((span, remote))
    }

    /// Adds memory of somebody else, which the other side may not use.
    ///
    /// # Errors
    /// If it cannot be registered.
    pub fn add_outside(&mut self, memory: Rc<Memory>) -> Result<Span, Error> {
        self.add(memory, Rights::None).map(|(span, _)| span)
    }

    fn add(&mut self, memory: Rc<Memory>, rights: Rights) -> Result<(Span, Remote), Error> {
        let own = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
        let registration = match rights {
            Rights::None if self.way.registers_own() => Some(self.register(&memory, own)?),
            Rights::None => None,
            Rights::ReadAndWrite => {
                Some(self.register(&memory, own | FI_REMOTE_READ | FI_REMOTE_WRITE)?)
            }
        };
        let remote = Remote {
            key: registration.as_ref().map_or(0, Registration::key),
            address: match self.way.has_addresses() {
                true => memory.base().as_ptr() as u64,
                false => 0,
            },
        };
        let region = u32::try_from(self.regions.len()).expect("few regions");
        let len = memory.len();
        self.regions.push(Region {
            memory,
            registration,
        });
        let span = Span {
            region,
            offset: 0,
            len,
        };
        Ok((span, remote))
    }

    fn register(&self, memory: &Memory, access: u64) -> Result<Registration, Error> {
        let key = match self.way.own_key_len() {
            // Who knows the key may use the memory, so nobody is to guess it.
            Some(len) => random() >> (64 - 8 * len.clamp(1, 8)),
            None => 0,
        };
        self.domain.register(memory, access, key)
    }

    /// Whether memory must be registered for this side's own work, so that the network knows it by what it is now.
    pub fn registers_own(&self) -> bool {
        self.way.registers_own()
    }

    /// Bytes of memory of its own.
    pub fn own_memory(&self) -> usize {
        let own = self.regions.iter().filter(|region| region.memory.is_own());
        own.map(|region| region.memory.len()).sum()
    }

    /// Copies bytes from one span to the beginning of another, which lies elsewhere. No work may be under way with either.
    ///
    /// # Panics
    /// If they overlap, or the other is shorter.
    pub fn copy_within(&mut self, from: Span, to: Span) {
        assert!(from.region != to.region, "spans of one region");
        let (from_memory, to_memory) = (
            &self.regions[from.region as usize].memory,
            &self.regions[to.region as usize].memory,
        );
        let to = to.part(0, from.len);
        to_memory.copy_in(to.offset, from_memory.bytes(from.offset, from.len));
    }

    /// Registrations that are open.
    pub fn registrations(&self) -> usize {
        self.regions
            .iter()
            .filter(|region| region.registration.is_some())
            .count()
    }

    /// Work under way.
    pub fn works(&self) -> usize {
        self.works.len()
    }

    /// Connections, those that are being closed included.
    pub fn connections(&self) -> usize {
        self.peers.iter().flatten().count()
    }

    /// Buffers for receiving that belong to nobody.
    pub fn frames_free(&self) -> usize {
        self.free_frames.len()
    }

    /// Completions that belong to no work and no connection.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Bytes of memory of its own, which the network has finished with, as they stay when the driver is gone.
    pub fn bytes_of(&self, span: Span) -> Bytes {
        Bytes::new(Rc::clone(&self.regions[span.region as usize].memory), span)
    }

    /// Where another's memory begins that was added as this region.
    pub fn base(&self, region: u32) -> usize {
        self.regions[region as usize].memory.base().as_ptr() as usize
    }

    /// Asks the other side for a connection; [`DriverEvent::Connected`] or [`Completion::Closed`] follows.
    ///
    /// # Errors
    /// If there is no memory, or no way to the other side.
    pub fn connect(&mut self, data: &[u8]) -> Result<PeerId, Error> {
        let endpoint = self.domain.endpoint(&self.way.info)?;
        self.ready(&endpoint)?;
        endpoint.connect(&self.way.info, data)?;
        Ok(PeerId(self.insert(endpoint)))
    }

    /// Takes a client on.
    ///
    /// # Errors
    /// If there are too many, or the client has gone.
    pub fn accept(&mut self, request: Request) -> Result<PeerId, Error> {
        let credits = self.setup.credits;
        if self.free_frames.len() < credits {
            self.reject(request);
            return Err(Error::Failed {
                doing: "accept a connection",
                why: "all buffers are in use".to_owned(),
            });
        }
        let endpoint = self.domain.endpoint(&request.0)?;
        self.ready(&endpoint)?;
        let peer = self.insert(endpoint);
        for _ in 0..credits {
            let Some(number) = self.free_frames.pop() else {
                break;
            };
            self.frames[number].owner = Some(peer);
            self.post_frame(number);
        }
        let accepted = match self.peer(PeerId(peer)) {
            Some(peer) => peer.endpoint.accept(),
            None => Ok(()),
        };
        if let Err(error) = accepted {
            self.disconnect(PeerId(peer));
            return Err(error);
        }
        Ok(PeerId(peer))
    }

    /// Refuses a client.
    pub fn reject(&mut self, request: Request) {
        if let Some(listener) = &self.listener {
            listener.reject(&request.0);
        }
    }

    fn ready(&self, endpoint: &Endpoint) -> Result<(), Error> {
        endpoint.object.bind(&self.events, 0)?;
        endpoint
            .object
            .bind(&self.completions, FI_TRANSMIT | FI_RECV)?;
        endpoint.object.enable()
    }

    fn insert(&mut self, endpoint: Endpoint) -> u32 {
        let number = self.free_peers.pop().unwrap_or_else(|| {
            self.peers.push(None);
            u32::try_from(self.peers.len() - 1).expect("few connections")
        });
        self.peers[number as usize] = Some(Peer {
            endpoint,
            is_connected: false,
            is_closing: false,
        });
        number
    }

    pub(super) fn peer(&self, peer: PeerId) -> Option<&Peer> {
        self.peers.get(peer.0 as usize)?.as_ref()
    }

    /// Gives a buffer to the network. If that fails, its connection has ended.
    pub(super) fn post_frame(&mut self, number: usize) {
        let frame = self.frames[number];
        let Some(peer) = frame.owner.and_then(|owner| self.peer(PeerId(owner))) else {
            return;
        };
        let region = &self.regions[FRAMES as usize];
        let at = region.memory.at(number * FRAME_LEN, FRAME_LEN);
        let context = frame_context(number, frame.generation);
        // SAFETY: the region's memory goes after the endpoint; a frame is lent to nobody while it is posted.
        let returned = unsafe {
            peer.endpoint
                .receive(Some((at, FRAME_LEN)), desc(region), context)
        };
        let owner = frame.owner;
        if returned == 0 {
            self.frames[number].state = FrameState::Posted;
        }
        if returned != 0
            && let Some(owner) = owner
        {
            self.disconnect(PeerId(owner));
        }
    }

    /// Finds out what has happened.
    ///
    /// The caller has dealt with all that the last call has told.
    pub fn poll(&mut self, events: &mut Vec<DriverEvent>) {
        self.free_peers.append(&mut self.left_peers);
        self.take_completions(events);
        self.take_events(events);
        while let Some(peer) = self.closing.pop_front() {
            self.close(peer, events);
        }
    }

    fn take_completions(&mut self, events: &mut Vec<DriverEvent>) {
        let nothing = CqDataEntry {
            op_context: std::ptr::null_mut(),
            flags: 0,
            len: 0,
            buf: std::ptr::null_mut(),
            data: 0,
        };
        let mut room = [nothing; ENTRIES];
        loop {
            match self.completions.take(&mut room) {
                Taken::Entries(count) => {
                    for entry in &room[..count] {
                        self.take_entry(entry, events);
                    }
                    if count < ENTRIES {
                        return;
                    }
                }
                Taken::Failed(context) => self.take_failure(context, events),
                Taken::Nothing => return,
            }
        }
    }

    fn named(&self, context: u64) -> Named {
        let generation = |number: usize| self.frames.get(number).map(|frame| frame.generation);
        self.works.named(context, generation)
    }

    fn take_entry(&mut self, entry: &CqDataEntry, events: &mut Vec<DriverEvent>) {
        let is_word = entry.flags & FI_REMOTE_CQ_DATA != 0;
        let immediate = u32::try_from(entry.data & 0xffff_ffff).expect("32 bits");
        let len = match self.way.words_are_wide() {
            true => usize::try_from(entry.data >> 32).expect("32 bits"),
            false => entry.len,
        };
        let completion = match self.named(entry.op_context as u64) {
            // Of these, the context may be nothing at all.
            Named::Word | Named::Nothing if is_word => match self.only_peer() {
                Some(peer) => Completion::Written {
                    peer,
                    immediate,
                    len,
                },
                None => {
                    self.strays += 1;
                    return;
                }
            },
            Named::Work(at) => match self.works.remove(at) {
                Some(work) => Completion::Done { token: work.token },
                None => return,
            },
            Named::Frame(number) => {
                let frame = &mut self.frames[number];
                let Some(peer) = frame.owner.map(PeerId) else {
                    return;
                };
                frame.take_back(match is_word {
                    true => FrameState::Idle,
                    false => FrameState::Lent,
                });
                if is_word {
                    self.post_frame(number);
                    Completion::Written {
                        peer,
                        immediate,
                        len,
                    }
                } else {
                    let frame = Span {
                        region: FRAMES,
                        offset: number * FRAME_LEN,
                        len: entry.len.min(FRAME_LEN),
                    };
                    Completion::Frame { peer, frame }
                }
            }
            Named::Word | Named::Nothing => {
                self.strays += 1;
                return;
            }
        };
        events.push(DriverEvent::Completion(completion));
    }

    /// The one connection of a client.
    fn only_peer(&self) -> Option<PeerId> {
        match &self.peers[..] {
            [Some(_)] if self.listener.is_none() => Some(PeerId(0)),
            _ => None,
        }
    }

    fn take_failure(&mut self, context: u64, events: &mut Vec<DriverEvent>) {
        match self.named(context) {
            Named::Work(at) => {
                let Some(work) = self.works.remove(at) else {
                    return;
                };
                let token = work.token;
                events.push(DriverEvent::Completion(Completion::Failed { token }));
                self.disconnect(PeerId(work.peer));
            }
            Named::Frame(number) => {
                let frame = &mut self.frames[number];
                frame.take_back(FrameState::Idle);
                let owner = frame.owner;
                // It goes back with the others when the connection is closed.
                if let Some(owner) = owner {
                    self.disconnect(PeerId(owner));
                }
            }
            Named::Word => {
                if let Some(peer) = self.only_peer() {
                    self.disconnect(peer);
                }
            }
            Named::Nothing => self.strays += 1,
        }
    }

    fn take_events(&mut self, events: &mut Vec<DriverEvent>) {
        loop {
            let (name, is_there) = match self.events.take() {
                Told::Asked(info, data) => {
                    let request = Request(info);
                    events.push(DriverEvent::Asked { request, data });
                    continue;
                }
                Told::Connected(name) => (name, true),
                Told::Ended(name) => (name, false),
                Told::Nothing => return,
            };
            let has_it = |peer: &Option<Peer>| {
                peer.as_ref()
                    .is_some_and(|peer| peer.endpoint.object.name() == name)
            };
            let Some(number) = self.peers.iter().position(has_it) else {
                continue;
            };
            let peer = PeerId(u32::try_from(number).expect("few connections"));
            if !is_there {
                self.disconnect(peer);
            } else if let Some(connected) = &mut self.peers[number] {
                connected.is_connected = true;
                if self.listener.is_none() {
                    events.push(DriverEvent::Connected { peer });
                }
            }
        }
    }

    /// Closes a connection: all its work comes back, and then its end is told.
    fn close(&mut self, number: u32, events: &mut Vec<DriverEvent>) {
        let Some(peer) = self.peers[number as usize].take() else {
            return;
        };
        if peer.is_connected {
            peer.endpoint.shut_down();
        }
        drop(peer);
        // What had been done already is told as done.
        self.take_completions(events);
        for at in self.works.of(number) {
            if let Some(work) = self.works.remove(at) {
                let token = work.token;
                events.push(DriverEvent::Completion(Completion::Failed { token }));
            }
        }
        for at in 0..self.frames.len() {
            let frame = &mut self.frames[at];
            if frame.owner != Some(number) {
                continue;
            }
            frame.owner = None;
            // Those that the protocol still has come back from there.
            if frame.state != FrameState::Lent {
                frame.take_back(FrameState::Idle);
                self.free_frames.push(at);
            }
        }
        self.left_peers.push(number);
        let peer = PeerId(number);
        events.push(DriverEvent::Completion(Completion::Closed { peer }));
    }
}

/// What names registered memory to the network.
pub(super) fn desc(region: &Region) -> *mut std::ffi::c_void {
    region
        .registration
        .as_ref()
        .map_or(std::ptr::null_mut(), Registration::desc)
}

/// A number that nobody can guess.
fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    u64::from_ne_bytes(bytes)
}
