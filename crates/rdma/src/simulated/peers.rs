//! The protocols of the two systems that coua is measured against, from their papers, in the same fabric.
//!
//! **OSU** (Jose and others, 2011) is memcached over UCR, a layer of active messages. Messages up to a threshold are
//! copied into buffers at both ends. Of longer ones a header is sent, the receiver reads the rest, and an answer frees
//! the sender's memory. The client is native: what it reads lies where its user wants it.
//!
//! **U2cache** (An and others) has a client in Java, whose heap the network cannot reach. Short SETs are copied and
//! written to a buffer of the server's. A long one asks for an address, writes there, and is acknowledged. Chunks are
//! written while the next are copied. With RME the first chunks go to a buffer that was agreed beforehand, until the
//! address has come. A GET's chunks are written one by one, each followed by a flag.
//!
//! What the papers leave open is chosen in their favour: chunks of the length that gives the shortest time, no wait for
//! a processor, no handshake beside the messages. A server does half of a long SET's work before it knows where the
//! value will lie, and half when it is there, as coua's does here.

use crate::fabric::{Completion, Fabric, Gather, PeerId, Remote, Span, Work};

use super::Faults;
use super::node::NodeId;
use super::profiles::Profile;
use super::world::{Rights, World};

/// The longest message of UCR that is copied.
const OSU_EAGER_MAX: usize = 8 << 10;
/// The longest value that U2cache copies; its paper says between 4 and 16 KB.
const U2_EAGER_MAX: usize = 4 << 10;
/// Lengths of chunks that are tried.
const CHUNKS: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// A command with its key, an answer without a value, an address, a flag.
const SHORT: usize = 64;

/// How U2cache sends long values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum U2 {
    /// The whole at once.
    Whole,
    /// In chunks.
    Chunks,
    /// In chunks, the first before the address is known.
    Rme,
}

/// Two nodes and what they send.
struct Pair {
    world: World,
    profile: Profile,
    nodes: [NodeId; 2],
    memory: [Span; 2],
    remote: [Remote; 2],
    peer: PeerId,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Pair {
    fn new(profile: Profile) -> Pair {
        let mut world = World::new(profile, Faults::default(), 1);
        let nodes = [world.add_node(), world.add_node()];
        let lent = nodes.map(|node| world.add_region(node, 4 << 20, Rights::Write));
        for node in nodes {
            let (frames, _) = world.add_region(node, 64 * (OSU_EAGER_MAX + 256), Rights::None);
            world.add_frames(node, frames, OSU_EAGER_MAX + 256);
        }
        let peer = world.connect(nodes[0], nodes[1]);
        for node in nodes {
            world.fabric(node).expect_writes(peer, 100_000);
        }
        Pair {
            world,
            profile,
            nodes,
            memory: lent.map(|(span, _)| span),
            remote: lent.map(|(_, remote)| remote),
            peer,
        }
    }

    fn copy(&mut self, node: usize, len: usize) {
        self.world.fabric(self.nodes[node]).charge_copy(len);
    }

    fn work(&mut self, node: usize, ps: u64) {
        self.world.fabric(self.nodes[node]).work(ps);
    }

    fn post(&mut self, node: usize, work: &Work) {
        let token = u64::from(matches!(work, Work::Read { .. }));
        let posted = self
            .world
            .fabric(self.nodes[node])
            .post(self.peer, work, token);
        posted.expect("few messages are under way");
    }

    fn send(&mut self, node: usize, len: usize) {
        let from = self.memory[node].part(0, len);
        let from = Gather::of(from);
        self.post(node, &Work::Send { from });
    }

    fn write(&mut self, node: usize, len: usize) {
        let from = Gather::of(self.memory[node].part(0, len));
        let to = self.remote[1 - node];
        let immediate = Some(0);
        self.post(
            node,
            &Work::Write {
                from,
                to,
                immediate,
            },
        );
    }

    fn read(&mut self, node: usize, len: usize) {
        let into = self.memory[node].part(0, len);
        let from = self.remote[1 - node];
        self.post(node, &Work::Read { into, from });
    }

    /// Waits for the next completion of a node that is wanted. Of the others it costs nothing to speak of: they are
    /// taken when there is nothing else to do.
    fn wait(&mut self, node: usize, wanted: fn(&Completion) -> bool) {
        loop {
            let mut fabric = self.world.fabric(self.nodes[node]);
            let before = fabric.clock();
            match fabric.poll() {
                Some(Completion::Frame { frame, .. }) => {
                    fabric.give_frame(frame);
                    let peer = self.peer;
                    if wanted(&Completion::Frame { peer, frame }) {
                        return;
                    }
                }
                Some(completion) if wanted(&completion) => return,
                Some(_) => self.world.rewind(self.nodes[node], before),
                None => {
                    self.world.step().expect("something is under way");
                }
            }
        }
    }

    fn wait_frame(&mut self, node: usize) {
        self.wait(node, |it| matches!(it, Completion::Frame { .. }));
    }

    fn wait_write(&mut self, node: usize) {
        self.wait(node, |it| matches!(it, Completion::Written { .. }));
    }

    fn wait_read(&mut self, node: usize) {
        self.wait(node, |it| matches!(it, Completion::Done { token: 1 }));
    }

    fn request(&mut self) {
        self.work(SERVER, self.profile.request_ps);
    }

    fn half_a_request(&mut self) {
        self.work(SERVER, self.profile.request_ps / 2);
    }

    /// When the client is done, in picoseconds.
    fn end(mut self) -> u64 {
        self.world.fabric(self.nodes[CLIENT]).clock()
    }
}

/// A GET of so many bytes with OSU's protocol, picoseconds.
pub fn osu_get(profile: Profile, len: usize) -> u64 {
    let mut pair = Pair::new(profile);
    pair.send(CLIENT, SHORT);
    pair.wait_frame(SERVER);
    pair.request();
    if len <= OSU_EAGER_MAX {
        pair.copy(SERVER, len);
        pair.send(SERVER, SHORT + len);
        pair.wait_frame(CLIENT);
        pair.copy(CLIENT, len);
    } else {
        pair.send(SERVER, SHORT);
        pair.wait_frame(CLIENT);
        pair.read(CLIENT, len);
        pair.wait_read(CLIENT);
    }
    pair.end()
}

/// A SET of so many bytes with OSU's protocol, picoseconds.
pub fn osu_set(profile: Profile, len: usize) -> u64 {
    let mut pair = Pair::new(profile);
    if len <= OSU_EAGER_MAX {
        pair.copy(CLIENT, len);
        pair.send(CLIENT, SHORT + len);
        pair.wait_frame(SERVER);
        pair.copy(SERVER, len);
        pair.request();
    } else {
        pair.send(CLIENT, SHORT);
        pair.wait_frame(SERVER);
        pair.half_a_request();
        pair.read(SERVER, len);
        pair.wait_read(SERVER);
        pair.half_a_request();
    }
    pair.send(SERVER, SHORT);
    pair.wait_frame(CLIENT);
    pair.end()
}

/// A GET of so many bytes with U2cache's protocol, picoseconds.
pub fn u2_get(profile: Profile, len: usize, how: U2) -> u64 {
    let with_chunk = |chunk: usize| {
        let mut pair = Pair::new(profile);
        pair.write(CLIENT, SHORT);
        pair.wait_write(SERVER);
        pair.request();
        let chunks = len.div_ceil(chunk);
        for nth in 0..chunks {
            let part = chunk.min(len - nth * chunk);
            pair.write(SERVER, part);
            // The flag.
            pair.write(SERVER, 8);
        }
        for nth in 0..chunks {
            pair.wait_write(CLIENT);
            pair.wait_write(CLIENT);
            pair.copy(CLIENT, chunk.min(len - nth * chunk));
        }
        pair.end()
    };
    best(len, how == U2::Whole, with_chunk)
}

/// A SET of so many bytes with U2cache's protocol, picoseconds.
pub fn u2_set(profile: Profile, len: usize, how: U2) -> u64 {
    if len <= U2_EAGER_MAX {
        let mut pair = Pair::new(profile);
        pair.copy(CLIENT, len);
        pair.write(CLIENT, SHORT + len);
        pair.wait_write(SERVER);
        pair.copy(SERVER, len);
        pair.request();
        pair.write(SERVER, SHORT);
        pair.wait_write(CLIENT);
        return pair.end();
    }
    let with_chunk = |chunk: usize| {
        let mut pair = Pair::new(profile);
        pair.write(CLIENT, SHORT);
        let chunks = len.div_ceil(chunk);
        let part = |nth: usize| chunk.min(len - nth * chunk);
        let mut early = 0;
        if how == U2::Rme {
            // Until the address has come, whose way is as long as that of a short request.
            let answered = 2 * profile.latency_ps + profile.request_ps / 2;
            while early < chunks {
                pair.copy(CLIENT, part(early));
                pair.write(CLIENT, part(early));
                early += 1;
                if pair.world.fabric(pair.nodes[CLIENT]).clock() > answered {
                    break;
                }
            }
        }
        pair.wait_write(SERVER);
        pair.half_a_request();
        pair.write(SERVER, SHORT);
        pair.wait_write(CLIENT);
        if how == U2::Rme {
            // How much was sent.
            pair.write(CLIENT, SHORT);
        }
        for nth in early..chunks {
            pair.copy(CLIENT, part(nth));
            pair.write(CLIENT, part(nth));
        }
        // That all is there.
        pair.write(CLIENT, SHORT);
        for nth in 0..early {
            pair.wait_write(SERVER);
            pair.copy(SERVER, part(nth));
        }
        let rest = chunks - early + 1 + usize::from(how == U2::Rme);
        for _ in 0..rest {
            pair.wait_write(SERVER);
        }
        pair.half_a_request();
        pair.write(SERVER, SHORT);
        pair.wait_write(CLIENT);
        pair.end()
    };
    best(len, how == U2::Whole, with_chunk)
}

/// The shortest time over all lengths of chunks.
fn best(len: usize, is_whole: bool, with_chunk: impl Fn(usize) -> u64) -> u64 {
    if is_whole || len == 0 {
        return with_chunk(len.max(1));
    }
    let times = CHUNKS.into_iter().map(with_chunk);
    times.min().expect("there are chunks")
}

/// A GET of so many bytes over TCP, picoseconds.
pub fn tcp_get(profile: Profile, len: usize) -> u64 {
    let mut pair = Pair::new(profile);
    pair.copy(CLIENT, SHORT);
    pair.write(CLIENT, SHORT);
    pair.wait_write(SERVER);
    pair.copy(SERVER, SHORT);
    pair.request();
    pair.copy(SERVER, len);
    pair.write(SERVER, SHORT + len);
    pair.wait_write(CLIENT);
    pair.copy(CLIENT, len);
    pair.end()
}
