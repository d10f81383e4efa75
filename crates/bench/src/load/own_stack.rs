//! Connections over coua's own TCP stack: a stack and a queue of a card for each load thread.
//!
//! All stacks have the same addresses, and they share out the ports as they go. To whose queue the
//! segments of a connection come the card decides, or the other end; where they come to another
//! thread's, its stack tells ours, and the port is tried no more by this thread, but may be by
//! others. So no connection is slower for the others' being there. Ports from which datagrams are sent
//! are shared out likewise ([`super::own_datagrams`]).
//!
//! # Concurrency
//! While connections are being opened all threads go on turning until the last one is open: an
//! answer may come to any.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use coua::flags::{Driver, Net};
use coua::server::userspace::{StackSizes, open_stacks, traced};
use coua_transport::userspace::af_xdp::Interface;
use coua_transport::userspace::neighbours::{Answer, Hop, Neighbours};
use coua_transport::userspace::{Mac, Network, StackSetup};
use coua_transport::{Events, Poller, Sender, Stream, Token};

use super::error::Error;
use super::link::NO_LINK;
use super::own_datagrams::{OwnDatagrams, Ports};

/// One thread's stack, before any of its connections is open.
pub(super) struct OwnStack {
    setup: StackSetup,
    /// Whom frames go to, where the kernel keeps the answers to that question.
    neighbour: Option<(IpAddr, Mac)>,
    /// Where connections may come from.
    ports: RangeInclusive<u16>,
    opening: Arc<Opening>,
}

/// What the threads tell one another while they open connections.
struct Opening {
    threads: usize,
    /// By port: taken, or about to be.
    taken: Box<[AtomicBool]>,
    /// Threads whose connections are all open.
    done: AtomicUsize,
    has_failed: AtomicBool,
}

/// Bytes that a stack takes for what waits, at most.
const MEMORY: usize = 256 << 20;

/// Connections that a thread is opening at a time.
const OPENING_MAX: usize = 256;

/// The token for the stack's listeners, of which it has none.
const NOBODY: Token = Token(NO_LINK);

/// Ports tried in a turn in search of a free one.
const PORTS_TRIED: usize = 1 << 16;

/// A turn while connections are opened takes as long at most.
const TURN: Duration = Duration::from_millis(1);

impl OwnStack {
    /// Opens a queue of the card for each thread, for so many connections to `to` in all, in the
    /// network namespace of the calling thread.
    pub(super) fn open_all(
        net: &Net,
        to: SocketAddr,
        threads: usize,
        connections: usize,
    ) -> Result<Vec<OwnStack>, Error> {
        let failed = |why: String| Error::Net(why.into());
        let ports = ports(&net.driver);
        if connections > ports.len() {
            return Err(failed(format!(
                "--connections {connections}: from one address there are {} to a server",
                ports.len()
            )));
        }
        let mut net = net.clone();
        let mut neighbour = None;
        if let Driver::Xdp(device) = &net.driver.clone() {
            let hop = hop(device, net.gateways.first().copied().unwrap_or(to.ip()))
                .map_err(|why| failed(format!("--net xdp:{device}: {why}")))?;
            neighbour = Some((hop.next, hop.mac));
            route(&mut net, to.ip(), &hop)
                .ok_or_else(|| failed(format!("--net xdp:{device}: give --address")))?;
        }
        let sizes = StackSizes {
            connections: connections.div_ceil(threads) + OPENING_MAX,
            memory: MEMORY,
        };
        let setups = open_stacks(&net, threads, &sizes, Some(ports.clone()))
            .map_err(|error| failed(error.to_string()))?;
        let opening = Arc::new(Opening {
            threads,
            taken: (0..=u16::MAX).map(|_| AtomicBool::new(false)).collect(),
            done: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
        });
        let stacks = setups.into_iter().enumerate().map(|(thread, setup)| {
            let setup = match &net.trace {
                Some(file) => traced(setup, &trace_path(file.clone(), thread, threads))
                    .map_err(|error| failed(error.to_string()))?,
                None => setup,
            };
            Ok(OwnStack {
                setup,
                neighbour,
                ports: ports.clone(),
                opening: opening.clone(),
            })
        });
        stacks.collect()
    }

    /// Opens so many connections, and waits for those of the other threads.
    pub(super) fn connect(
        self,
        to: SocketAddr,
        connections: usize,
    ) -> Result<(Poller, Vec<Stream>), Error> {
        let opening = self.opening.clone();
        opening.note(self.connect_all(to, connections))
    }

    /// As [`connect`](Self::connect), for connections that are ports from which datagrams are sent:
    /// who takes them all, and the server as each of the ports has heard it.
    pub(super) fn open_ports(
        self,
        to: SocketAddr,
        connections: usize,
    ) -> Result<(Poller, OwnDatagrams, Vec<Sender>), Error> {
        let opening = self.opening.clone();
        opening.note(self.open_all_ports(to, connections))
    }

    fn open_all_ports(
        self,
        to: SocketAddr,
        connections: usize,
    ) -> Result<(Poller, OwnDatagrams, Vec<Sender>), Error> {
        let mut next = self.ports.clone().cycle();
        let mut turns = self.begin()?;
        let opening = turns.opening.clone();
        let mut ports = Ports::new(&turns.poller, to, connections).ok_or(Error::Silent)?;
        while turns.next()? {
            let claim = || {
                let is_free = |port: &u16| !opening.taken[usize::from(*port)].swap(true, Relaxed);
                next.by_ref().take(PORTS_TRIED).find(is_free)
            };
            let release = |port| opening.taken[usize::from(port)].store(false, Relaxed);
            let is_heard = ports.turn(OPENING_MAX, claim, release)?;
            turns.end(is_heard, ports.open_count(), ports.are_open())?;
        }
        let (datagrams, servers) = ports.finish();
        Ok((turns.poller, datagrams, servers))
    }

    fn connect_all(
        self,
        to: SocketAddr,
        connections: usize,
    ) -> Result<(Poller, Vec<Stream>), Error> {
        let mut turns = self.begin()?;
        let opening = turns.opening.clone();
        let mut streams: Vec<Stream> = Vec::with_capacity(connections);
        // Places among the streams, with their ports.
        let mut pending: Vec<(usize, u16)> = Vec::with_capacity(OPENING_MAX);
        while turns.next()? {
            let mut is_heard = false;
            for (place, port) in std::mem::take(&mut pending) {
                match streams[place].is_open() {
                    Ok(true) => is_heard = true,
                    Ok(false) => pending.push((place, port)),
                    Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                        let (stream, next) = opening.begin(&turns.poller, to)?;
                        streams[place] = stream;
                        opening.taken[usize::from(port)].store(false, Relaxed);
                        pending.push((place, next));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            while pending.len() < OPENING_MAX && streams.len() < connections {
                let (stream, port) = opening.begin(&turns.poller, to)?;
                pending.push((streams.len(), port));
                streams.push(stream);
            }
            turns.end(is_heard, streams.len() - pending.len(), pending.is_empty())?;
        }
        Ok((turns.poller, streams))
    }

    /// Puts the stack under a poller of its own.
    fn begin(self) -> Result<Turns, Error> {
        let mut poller = Poller::new()?;
        poller.host(self.setup, NOBODY)?;
        Ok(Turns {
            poller,
            events: Events::new(),
            neighbour: self.neighbour,
            opening: self.opening,
            heard_at: Instant::now(),
            is_done: false,
        })
    }
}

/// The turns of a thread's stack until the connections of all threads are open.
struct Turns {
    poller: Poller,
    events: Events,
    neighbour: Option<(IpAddr, Mac)>,
    opening: Arc<Opening>,
    /// When something was last heard of the server.
    heard_at: Instant,
    /// This thread has all of its own.
    is_done: bool,
}

impl Turns {
    /// Begins a turn; false once all threads' connections are open.
    fn next(&mut self) -> Result<bool, Error> {
        if self.opening.done.load(Relaxed) >= self.opening.threads {
            return Ok(false);
        }
        drop(self.poller.wait(&mut self.events, TURN, || {})?);
        Ok(true)
    }

    /// Ends a turn, in which the server may have been heard: so many of this thread's are open, and
    /// maybe all.
    fn end(&mut self, is_heard: bool, open: usize, are_all: bool) -> Result<(), Error> {
        if is_heard {
            self.heard_at = Instant::now();
        }
        if let Some((address, mac)) = self.neighbour {
            self.poller.introduce(address, mac);
        }
        if are_all && !self.is_done {
            self.is_done = true;
            self.opening.done.fetch_add(1, Relaxed);
        } else if !self.is_done && self.heard_at.elapsed() > Error::SILENCE {
            return Err(self.opening.silence(open));
        }
        match self.opening.has_failed.load(Relaxed) {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }
}

impl Opening {
    /// Tells the other threads where this one has failed.
    fn note<T>(&self, opened: Result<T, Error>) -> Result<T, Error> {
        if opened.is_err() {
            self.has_failed.store(true, Relaxed);
        }
        opened
    }

    /// The error of a thread that gets no answer and has so many open connections.
    fn silence(&self, connections: usize) -> Error {
        match connections == 0 && self.threads > 1 && self.done.load(Relaxed) > 0 {
            true => Error::Net(
                format!(
                    "--threads {}: one of them gets no answer on its queue; has the link as many at \
                     its other end?",
                    self.threads
                )
                .into(),
            ),
            false => Error::Silent,
        }
    }

    /// Begins to open a connection from a free port.
    fn begin(&self, poller: &Poller, to: SocketAddr) -> io::Result<(Stream, u16)> {
        let mut taken = 0;
        let stream = poller.connect(to, |port| {
            taken = port;
            !self.taken[usize::from(port)].swap(true, Relaxed)
        })?;
        Ok((stream, taken))
    }
}

/// The ports from which connections are opened. Those of AF_XDP are above the ones that the kernel,
/// whose the address is too, gives to others unless `net.ipv4.ip_local_port_range` says otherwise.
fn ports(driver: &Driver) -> RangeInclusive<u16> {
    match driver {
        Driver::Xdp(_) => 61_000..=65_535,
        _ => 1024..=65_535,
    }
}

/// How the kernel would reach an address by this interface.
fn hop(device: &str, to: IpAddr) -> Result<Hop, String> {
    const TRIES: u32 = 300;
    const EVERY: Duration = Duration::from_millis(10);
    let interface = Interface::read(device).map_err(|error| error.to_string())?;
    let mut neighbours = Neighbours::open(interface.index).map_err(|error| error.to_string())?;
    for _ in 0..TRIES {
        match neighbours.find(to).map_err(|error| error.to_string())? {
            Answer::Reachable(hop) => return Ok(hop),
            Answer::Pending => std::thread::sleep(EVERY),
            Answer::Silent => break,
            Answer::Unroutable => return Err(format!("there is no route to {to}")),
            Answer::Elsewhere { .. } => {
                return Err(format!("the route to {to} is by another interface"));
            }
        }
    }
    Err(format!(
        "no host answers for {to} (ARP, or neighbour discovery)"
    ))
}

/// Has the stack go the kernel's way. None where no address is known to come from.
fn route(net: &mut Net, to: IpAddr, hop: &Hop) -> Option<()> {
    if net.addresses.is_empty() {
        // A network that has the other end as a neighbour, or nobody.
        let len = match (hop.next == to, to.is_ipv4()) {
            (true, _) => 0,
            (false, true) => 32,
            (false, false) => 128,
        };
        net.addresses = vec![Network::new(hop.source?, len)?];
        if hop.next != to {
            net.gateways = vec![hop.next];
        }
    }
    Some(())
}

fn trace_path(mut file: PathBuf, thread: usize, threads: usize) -> PathBuf {
    if threads > 1 {
        file.as_mut_os_string().push(format!(".{thread}"));
    }
    file
}
