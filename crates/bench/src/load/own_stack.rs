//! Connections over coua's own TCP stack: a stack and a queue of a card for each load thread.
//!
//! All stacks have the same addresses, and they share the ports as they go. The card, or the other
//! end of the link, decides which queue gets the segments of a connection. If it is another
//! thread's queue, that thread's stack tells ours; this thread does not try that port again, but
//! others may. So other threads make no connection slower. Ports from which datagrams are sent are
//! shared in the same way ([`super::own_datagrams`]).
//!
//! # Concurrency
//! While connections are being opened, all threads keep turning until the last one is open: an
//! answer may come to any of them.

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
    /// The next hop, if the kernel is the one that resolves its MAC address.
    neighbour: Option<(IpAddr, Mac)>,
    /// Ports that connections may be opened from.
    ports: RangeInclusive<u16>,
    opening: Arc<Opening>,
}

/// What the threads share while they open connections.
struct Opening {
    threads: usize,
    /// By port: whether it is taken, or about to be.
    taken: Box<[AtomicBool]>,
    /// Threads whose connections are all open.
    done: AtomicUsize,
    has_failed: AtomicBool,
}

/// Most bytes of memory that a stack uses for data that waits.
const MEMORY: usize = 256 << 20;

/// Most connections that a thread is opening at a time.
const OPENING_MAX: usize = 256;

/// The token for the stack's listeners; it has none.
const NOBODY: Token = Token(NO_LINK);

/// Most ports tried in one search for a free one.
const PORTS_TRIED: usize = 1 << 16;

/// The longest turn while connections are opened.
const TURN: Duration = Duration::from_millis(1);

impl OwnStack {
    /// Opens a queue of the card for each thread, in the network namespace of the calling thread.
    /// The threads together will have `connections` connections to `to`.
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

    /// Opens `connections` connections, and waits until the other threads have opened theirs.
    pub(super) fn connect(
        self,
        to: SocketAddr,
        connections: usize,
    ) -> Result<(Poller, Vec<Stream>), Error> {
        let opening = self.opening.clone();
        opening.note(self.connect_all(to, connections))
    }

    /// As [`connect`](Self::connect), for datagrams: each connection is a port that they are sent
    /// from. Returns the thread's datagrams, and the server as each of the ports sees it.
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
    /// When the server was last heard from.
    heard_at: Instant,
    /// Whether all of this thread's connections are open.
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

    /// Ends a turn. `is_heard`: the server was heard in it; `open`: how many of this thread's
    /// connections are open; `are_all`: these are all.
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
    /// Tells the other threads if this one has failed.
    fn note<T>(&self, opened: Result<T, Error>) -> Result<T, Error> {
        if opened.is_err() {
            self.has_failed.store(true, Relaxed);
        }
        opened
    }

    /// The error of a thread that gets no answer and has `connections` open connections.
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

/// The ports that connections are opened from. With AF_XDP the kernel uses the same address, so
/// these are above the ports that it gives to others, unless `net.ipv4.ip_local_port_range` says
/// otherwise.
fn ports(driver: &Driver) -> RangeInclusive<u16> {
    match driver {
        Driver::Xdp(_) => 61_000..=65_535,
        _ => 1024..=65_535,
    }
}

/// How the kernel reaches an address by this interface.
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

/// Makes the stack take the kernel's route. None if no local address is known.
fn route(net: &mut Net, to: IpAddr, hop: &Hop) -> Option<()> {
    if net.addresses.is_empty() {
        // If the other end is a neighbour, so is every address; if not, none is.
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
