//! One thread's network.

#![allow(unsafe_code, reason = "names memory to the network")]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::rc::Rc;

use super::Error;
use super::bindings::{
    FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND, FI_TRANSMIT, FI_WRITE, FidCq,
    FidDomain, FidEq, FidFabric, FidPep,
};
use super::library::OwnedInfo;
use super::memory::{Bytes, Memory};
use super::objects::{Endpoint, Object, Registration, Way};
use super::works::{Works, frame_context};
use crate::fabric::{Completion, Fabric, PeerId, Remote, Span};
use crate::limits::FRAME_LEN;

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
pub struct Request(pub(super) OwnedInfo);

pub(super) struct Region {
    pub(super) memory: Rc<Memory>,
    registration: Option<Registration>,
}

#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) generation: u32,
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
    pub(super) fn take_back(&mut self, state: FrameState) {
        self.generation = (self.generation + 1) & 0x7fff_ffff;
        self.state = state;
    }
}

pub(super) struct Peer {
    pub(super) endpoint: Endpoint,
    pub(super) is_connected: bool,
    pub(super) is_closing: bool,
}

/// One thread's network: a device, and connections over it.
pub struct Driver {
    // Dropped in this order: what was opened last first.
    pub(super) peers: Vec<Option<Peer>>,
    pub(super) regions: Vec<Region>,
    pub(super) listener: Option<Object<FidPep>>,
    pub(super) completions: Object<FidCq>,
    pub(super) events: Object<FidEq>,
    domain: Object<FidDomain>,
    fabric: Object<FidFabric>,
    pub(super) way: Way,
    setup: Setup,
    descriptors: [RawFd; 2],
    pub(super) works: Works,
    pub(super) frames: Vec<Frame>,
    /// Frames that belong to nobody.
    pub(super) free_frames: Vec<usize>,
    pub(super) free_peers: Vec<u32>,
    /// Those of connections whose ends were told in the last poll.
    pub(super) left_peers: Vec<u32>,
    pub(super) closing: VecDeque<u32>,
    /// Completions whose peers cannot be told.
    pub(super) strays: u64,
}

/// The region that frames lie in.
pub(super) const FRAMES: u32 = 0;

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
