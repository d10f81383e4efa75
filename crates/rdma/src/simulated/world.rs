//! All nodes, their connections, and what is about to happen.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::fabric::{Completion, Fabric, PeerId, Refused, Remote, Span, Work};

use super::faults::{Dice, Faults};
use super::link::{End, Link, Posted};
use super::node::{Grant, Node, NodeId, Region, Window};
use super::profiles::Profile;

/// Works that a connection's end can have posted.
const POSTED_MAX: usize = 256;

/// How long a message waits that finds no receive buffer (InfiniBand: the receiver-not-ready timer), picoseconds.
const NOT_READY_PS: u64 = 10_000_000;

/// How long it takes until a broken connection is noticed at the other end, in latencies.
const BREAK_LATENCIES: u64 = 4;

/// What the other side may do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Nothing.
    None,
    /// Read it.
    Read,
    /// Read it and write to it.
    Write,
}

/// What has become of a message that has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrived {
    Dealt,
    /// There was no buffer for it.
    NotReady,
}

/// A fabric in virtual time. See the module.
pub struct World {
    profile: Profile,
    faults: Faults,
    dice: Dice,
    now: u64,
    nodes: Vec<Node>,
    links: Vec<Link>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    payloads: Vec<Option<Vec<u8>>>,
    number: u64,
    receiver_not_ready: u64,
    refused_access: u64,
    spared: Option<NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A card can send what was posted.
    Transmit { link: usize, end: End, number: u64 },
    /// It has come to the other end.
    Arrive {
        link: usize,
        end: End,
        number: u64,
        payload: usize,
        is_again: bool,
    },
    /// A read has come to the other end's card.
    Serve { link: usize, end: End, number: u64 },
    /// Its bytes have come back.
    Served {
        link: usize,
        end: End,
        number: u64,
        payload: usize,
    },
    /// The card knows that it is done.
    Acknowledge { link: usize, end: End, number: u64 },
    /// An end learns that its connection is broken.
    Break { link: usize, end: End },
    /// A node looks at its completions.
    Wake { node: usize },
}

impl World {
    /// A fabric of a kind, with faults from a seed.
    pub fn new(profile: Profile, faults: Faults, seed: u64) -> World {
        World {
            profile,
            faults,
            dice: Dice::new(seed),
            now: 0,
            nodes: Vec::new(),
            links: Vec::new(),
            events: BinaryHeap::new(),
            payloads: Vec::new(),
            number: 0,
            receiver_not_ready: 0,
            refused_access: 0,
            spared: None,
        }
    }

    /// Adds a node.
    pub fn add_node(&mut self) -> NodeId {
        self.nodes.push(Node::new());
        NodeId(self.nodes.len() - 1)
    }

    /// Gives a node memory; returns all of it, and the key and the address by which the other side reaches it.
    pub fn add_region(&mut self, node: NodeId, len: usize, rights: Rights) -> (Span, Remote) {
        let key = 0x9e37_79b9_7f4a_7c15 ^ self.dice.below(u64::MAX);
        let window = Window {
            key,
            may_write: rights == Rights::Write,
        };
        let regions = &mut self.nodes[node.0].regions;
        regions.push(Region {
            bytes: vec![0; len],
            window: (rights != Rights::None).then_some(window),
        });
        let span = Span {
            region: u32::try_from(regions.len() - 1).expect("few regions"),
            offset: 0,
            len,
        };
        (span, Remote { key, address: 0 })
    }

    /// Takes the other side's rights to a region back.
    pub fn revoke(&mut self, node: NodeId, region: u32) {
        self.nodes[node.0].regions[region as usize].window = None;
    }

    /// Gives a node receive buffers: memory that is cut into frames.
    pub fn add_frames(&mut self, node: NodeId, memory: Span, frame_len: usize) {
        let node = &mut self.nodes[node.0];
        node.frame_len = frame_len;
        let count = memory.len / frame_len;
        node.frames
            .extend((0..count).map(|nth| memory.part(nth * frame_len, frame_len)));
    }

    /// Rights to write that a node has granted and not taken back.
    pub fn grants(&self, node: NodeId) -> usize {
        self.nodes[node.0].grants.len()
    }

    /// Receive buffers of a node that are ready.
    pub fn frames_ready(&self, node: NodeId) -> usize {
        self.nodes[node.0].frames.len()
    }

    /// Connects two nodes; both know the connection by the same number.
    pub fn connect(&mut self, one: NodeId, other: NodeId) -> PeerId {
        self.links.push(Link::new([one, other]));
        PeerId(u32::try_from(self.links.len() - 1).expect("few connections"))
    }

    /// The time, in picoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// When a node's processor is done with what it has begun.
    pub fn clock(&self, node: NodeId) -> u64 {
        self.nodes[node.0].clock.max(self.now)
    }

    /// How often a message found no receive buffer. A frame waits then; a write breaks its connection.
    pub fn receiver_not_ready(&self) -> u64 {
        self.receiver_not_ready
    }

    /// Reads and writes that the memory's owner had not permitted, each of which has broken a connection.
    pub fn refused_access(&self) -> u64 {
        self.refused_access
    }

    /// Ends a node as if its machine had lost power.
    pub fn kill(&mut self, node: NodeId) {
        self.nodes[node.0].is_dead = true;
        self.nodes[node.0].completions.clear();
        for link in 0..self.links.len() {
            if self.links[link].nodes.contains(&node) {
                self.break_link(link);
            }
        }
    }

    /// Keeps a node from dying by a fault.
    pub fn spare(&mut self, node: NodeId) {
        self.spared = Some(node);
    }

    /// Whether a node has died.
    pub fn is_dead(&self, node: NodeId) -> bool {
        self.nodes[node.0].is_dead
    }

    /// Has a node run at once, or when it is no longer busy.
    pub fn wake(&mut self, node: NodeId) {
        let at = self.clock(node);
        self.schedule(at, Event::Wake { node: node.0 });
    }

    /// Has a node run after some picoseconds.
    pub fn wake_after(&mut self, node: NodeId, after_ps: u64) {
        let at = self.clock(node) + after_ps;
        self.schedule(at, Event::Wake { node: node.0 });
    }

    /// Takes back what a look at a completion has cost a node's processor.
    pub(super) fn rewind(&mut self, node: NodeId, clock: u64) {
        self.nodes[node.0].clock = clock;
    }

    /// Goes on to the next moment at which a node has something to do, and says which. `None` when nothing is left to
    /// happen.
    pub fn step(&mut self) -> Option<NodeId> {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            self.now = self.now.max(at);
            if let Some(node) = self.happen(event) {
                return Some(node);
            }
        }
        None
    }

    /// What a node sees of the fabric.
    pub fn fabric(&mut self, node: NodeId) -> NodeFabric<'_> {
        let clock = self.clock(node);
        self.nodes[node.0].clock = clock;
        NodeFabric { world: self, node }
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    fn happen(&mut self, event: Event) -> Option<NodeId> {
        match event {
            Event::Transmit { link, end, number } => self.transmit(link, end, number),
            Event::Arrive {
                link,
                end,
                number,
                payload,
                is_again,
            } => {
                let not_before = self.links[link].not_ready_until[1 - end];
                if not_before > self.now {
                    // What waits for a receive buffer is not overtaken.
                    self.schedule(not_before, event);
                    return None;
                }
                let bytes = self.payloads[payload].take().unwrap_or_default();
                if self.arrive(link, end, number, &bytes, is_again) == Arrived::NotReady {
                    self.payloads[payload] = Some(bytes);
                    self.receiver_not_ready += 1;
                    let at = self.now + NOT_READY_PS;
                    self.links[link].not_ready_until[1 - end] = at;
                    self.schedule(at, event);
                }
            }
            Event::Serve { link, end, number } => self.serve(link, end, number),
            Event::Served {
                link,
                end,
                number,
                payload,
            } => {
                let bytes = self.payloads[payload].take().unwrap_or_default();
                let link = &mut self.links[link];
                if let Some(posted) = link.take(end, number) {
                    let node = link.nodes[end];
                    if let Work::Read { into, .. } = posted.work {
                        self.nodes[node.0].bytes_mut(into).copy_from_slice(&bytes);
                    }
                    self.complete(
                        node,
                        Completion::Done {
                            token: posted.token,
                        },
                    );
                }
            }
            Event::Acknowledge { link, end, number } => {
                let link = &mut self.links[link];
                if let Some(posted) = link.take(end, number) {
                    let node = link.nodes[end];
                    self.complete(
                        node,
                        Completion::Done {
                            token: posted.token,
                        },
                    );
                }
            }
            Event::Break { link, end } => self.end_link(link, end),
            Event::Wake { node } => return self.run(node),
        }
        None
    }

    /// A node that is woken runs, unless it is busy or has nothing to look at.
    fn run(&mut self, node: usize) -> Option<NodeId> {
        let busy_until = self.nodes[node].clock;
        if self.nodes[node].is_dead {
            return None;
        }
        if busy_until > self.now {
            self.schedule(busy_until, Event::Wake { node });
            return None;
        }
        self.nodes[node].is_woken = false;
        Some(NodeId(node))
    }

    fn complete(&mut self, node: NodeId, completion: Completion) {
        let now = self.now;
        let node_state = &mut self.nodes[node.0];
        if node_state.is_dead {
            return;
        }
        node_state.completions.push_back((now, completion));
        if !std::mem::replace(&mut node_state.is_woken, true) {
            self.schedule(now, Event::Wake { node: node.0 });
        }
    }

    fn posted(&self, link: usize, end: End, number: u64) -> Option<Posted> {
        let mut posted = self.links[link].posted[end].iter();
        posted.find(|posted| posted.number == number).copied()
    }

    /// Keeps bytes that are on the way.
    fn keep(&mut self, bytes: Vec<u8>) -> usize {
        self.payloads.push(Some(bytes));
        self.payloads.len() - 1
    }

    fn transmit(&mut self, link: usize, end: End, number: u64) {
        let Some(posted) = self.posted(link, end, number) else {
            return;
        };
        if self.links[link].is_broken {
            return;
        }
        let node = self.links[link].nodes[end];
        let free = self.nodes[node.0].card_free;
        if free > self.now {
            return self.schedule(free, Event::Transmit { link, end, number });
        }
        let bytes: Vec<u8> = match posted.work {
            Work::Send { from } | Work::Write { from, .. } => {
                let parts = from.parts().iter();
                parts
                    .flat_map(|part| self.nodes[node.0].bytes(*part).to_vec())
                    .collect()
            }
            Work::Read { .. } => Vec::new(),
        };
        let wire = bytes.len() as u64 * self.profile.byte_ps;
        self.nodes[node.0].card_free = self.now + wire.max(self.profile.gap_ps);
        let at = self.arrival(link, 1 - end, wire);
        if self.dice.one_in(self.faults.breaks) {
            // Half of them arrive, and only their acknowledgment is lost.
            if self.dice.one_in(2) && !matches!(posted.work, Work::Read { .. }) {
                let payload = self.keep(bytes);
                let is_again = true;
                self.schedule(
                    at,
                    Event::Arrive {
                        link,
                        end,
                        number,
                        payload,
                        is_again,
                    },
                );
            }
            return self.schedule_break(link, at + 1);
        }
        if self.spared != Some(node) && self.dice.one_in(self.faults.dies) {
            return self.kill(node);
        }
        if let Work::Read { .. } = posted.work {
            return self.schedule(at, Event::Serve { link, end, number });
        }
        let is_twice =
            matches!(posted.work, Work::Write { .. }) && self.dice.one_in(self.faults.twice);
        if is_twice {
            let payload = self.keep(bytes.clone());
            let is_again = true;
            self.schedule(
                at,
                Event::Arrive {
                    link,
                    end,
                    number,
                    payload,
                    is_again,
                },
            );
        }
        let payload = self.keep(bytes);
        self.schedule(
            at,
            Event::Arrive {
                link,
                end,
                number,
                payload,
                is_again: false,
            },
        );
    }

    /// When something that is sent now to an end is there.
    fn arrival(&mut self, link: usize, to: End, wire: u64) -> u64 {
        let latency = self.profile.latency_ps;
        let mut at = self.now + wire + latency;
        if self.dice.one_in(self.faults.late) {
            at += self.dice.below(20 * latency);
        }
        if self.profile.is_unordered {
            return at + self.dice.below(latency / 4);
        }
        let last = &mut self.links[link].arrives_last[to];
        *last = at.max(*last + 1);
        *last
    }

    fn arrive(
        &mut self,
        link: usize,
        end: End,
        number: u64,
        bytes: &[u8],
        is_again: bool,
    ) -> Arrived {
        let Some(posted) = self.posted(link, end, number) else {
            return Arrived::Dealt;
        };
        let to = 1 - end;
        let node = self.links[link].nodes[to];
        // What was sent before a connection broke arrives, unless this end has been told.
        if self.links[link].is_closed[to] || self.nodes[node.0].is_dead {
            return Arrived::Dealt;
        }
        let peer = PeerId(u32::try_from(link).expect("few connections"));
        match posted.work {
            Work::Send { .. } => {
                let frame_len = self.nodes[node.0].frame_len;
                if bytes.len() > frame_len {
                    return self.refuse(link);
                }
                let Some(frame) = self.nodes[node.0].frames.pop() else {
                    return Arrived::NotReady;
                };
                let frame = frame.part(0, bytes.len());
                self.nodes[node.0].bytes_mut(frame).copy_from_slice(bytes);
                self.complete(node, Completion::Frame { peer, frame });
            }
            Work::Write {
                to: remote,
                immediate,
                ..
            } => {
                let node_state = &self.nodes[node.0];
                let granted = node_state.granted(peer, remote.key, remote.address, bytes.len());
                let window = granted
                    .or_else(|| node_state.window(remote.key, remote.address, bytes.len(), true));
                let Some(window) = window else {
                    self.refused_access += 1;
                    return self.refuse(link);
                };
                if immediate.is_some() && self.links[link].writes_expected[to] == 0 {
                    self.receiver_not_ready += 1;
                    return self.refuse(link);
                }
                self.nodes[node.0].bytes_mut(window).copy_from_slice(bytes);
                if let Some(immediate) = immediate {
                    self.links[link].writes_expected[to] -= 1;
                    let len = bytes.len();
                    self.complete(
                        node,
                        Completion::Written {
                            peer,
                            immediate,
                            len,
                        },
                    );
                }
            }
            Work::Read { .. } => {}
        }
        if !is_again {
            let at = self.now + self.profile.latency_ps;
            self.schedule(at, Event::Acknowledge { link, end, number });
        }
        Arrived::Dealt
    }

    fn refuse(&mut self, link: usize) -> Arrived {
        self.break_link(link);
        Arrived::Dealt
    }

    fn serve(&mut self, link: usize, end: End, number: u64) {
        let Some(posted) = self.posted(link, end, number) else {
            return;
        };
        let node = self.links[link].nodes[1 - end];
        let Work::Read { into, from } = posted.work else {
            return;
        };
        if self.links[link].is_broken || self.nodes[node.0].is_dead {
            return;
        }
        let free = self.nodes[node.0].card_free;
        if free > self.now {
            return self.schedule(free, Event::Serve { link, end, number });
        }
        let Some(window) = self.nodes[node.0].window(from.key, from.address, into.len, false)
        else {
            self.refused_access += 1;
            return self.break_link(link);
        };
        let bytes = self.nodes[node.0].bytes(window).to_vec();
        let wire = bytes.len() as u64 * self.profile.byte_ps;
        self.nodes[node.0].card_free = self.now + wire.max(self.profile.gap_ps);
        // What the card needs to begin an answer is latency: it begins others meanwhile.
        let at = self.arrival(link, end, wire + self.profile.read_ps);
        let payload = self.keep(bytes);
        self.schedule(
            at,
            Event::Served {
                link,
                end,
                number,
                payload,
            },
        );
    }

    fn schedule_break(&mut self, link: usize, at: u64) {
        self.links[link].is_broken = true;
        for end in 0..2 {
            self.schedule(
                at + BREAK_LATENCIES * self.profile.latency_ps,
                Event::Break { link, end },
            );
        }
    }

    fn break_link(&mut self, link: usize) {
        if !self.links[link].is_broken {
            self.schedule_break(link, self.now);
        }
    }

    /// An end gets its work back and learns that the connection has ended.
    fn end_link(&mut self, link: usize, end: End) {
        if std::mem::replace(&mut self.links[link].is_closed[end], true) {
            return;
        }
        let node = self.links[link].nodes[end];
        for posted in std::mem::take(&mut self.links[link].posted[end]) {
            self.complete(
                node,
                Completion::Failed {
                    token: posted.token,
                },
            );
        }
        let peer = PeerId(u32::try_from(link).expect("few connections"));
        self.complete(node, Completion::Closed { peer });
    }
}

/// What a node sees of the fabric, while it runs.
pub struct NodeFabric<'w> {
    world: &'w mut World,
    node: NodeId,
}

impl NodeFabric<'_> {
    /// The next completion that has come by now.
    pub fn poll(&mut self) -> Option<Completion> {
        let node = &mut self.world.nodes[self.node.0];
        let &(at, completion) = node.completions.front()?;
        if at > node.clock {
            return None;
        }
        node.completions.pop_front();
        node.clock += self.world.profile.poll_ps;
        Some(completion)
    }

    /// Lets the processor work for some picoseconds.
    pub fn work(&mut self, ps: u64) {
        self.world.nodes[self.node.0].clock += ps;
    }

    /// Has the node run again as soon as it is done with what it does now.
    pub fn come_back(&mut self) {
        let at = self.clock();
        let node = self.node.0;
        self.world.schedule(at, Event::Wake { node });
    }

    /// The last completion was looked at while there was nothing else to do: it has cost nothing.
    pub fn uncount_poll(&mut self) {
        let node = &mut self.world.nodes[self.node.0];
        node.clock = (node.clock - self.world.profile.poll_ps).max(self.world.now);
    }

    /// Lets the processor copy some bytes.
    pub fn charge_copy(&mut self, len: usize) {
        let profile = &self.world.profile;
        if len > 0 {
            self.work(profile.copy_start_ps + len as u64 * profile.copy_ps);
        }
    }

    /// The processor's time.
    pub fn clock(&self) -> u64 {
        self.world.nodes[self.node.0].clock
    }

    /// Writes bytes without a cost, for what a test prepares.
    pub fn prepare(&mut self, span: Span, bytes: &[u8]) {
        self.world.nodes[self.node.0]
            .bytes_mut(span)
            .copy_from_slice(bytes);
    }
}

impl Fabric for NodeFabric<'_> {
    fn bytes(&self, span: Span) -> &[u8] {
        self.world.nodes[self.node.0].bytes(span)
    }

    fn copy_in(&mut self, span: Span, bytes: &[u8]) {
        // Headers are written where they are needed: they cost nothing of note.
        if bytes.len() > 64 {
            self.charge_copy(bytes.len());
        }
        let span = span.part(0, bytes.len());
        self.world.nodes[self.node.0]
            .bytes_mut(span)
            .copy_from_slice(bytes);
    }

    fn post(&mut self, peer: PeerId, work: &Work, token: u64) -> Result<(), Refused> {
        let world = &mut *self.world;
        let number = world.number + 1;
        world.number = number;
        let link = &mut world.links[peer.0 as usize];
        let end = link.end_of(self.node);
        if link.is_closed[end] {
            return Err(Refused::Gone);
        }
        if link.posted[end].len() >= POSTED_MAX {
            return Err(Refused::Full);
        }
        let work = *work;
        link.posted[end].push(Posted {
            number,
            token,
            work,
        });
        let node = &mut world.nodes[self.node.0];
        node.clock += world.profile.post_ps;
        let (at, link) = (node.clock, peer.0 as usize);
        world.schedule(at, Event::Transmit { link, end, number });
        Ok(())
    }

    fn give_frame(&mut self, frame: Span) {
        let node = &mut self.world.nodes[self.node.0];
        let len = node.frame_len;
        let offset = frame.offset - frame.offset % len;
        debug_assert!(
            node.frames
                .iter()
                .all(|it| it.offset != offset || it.region != frame.region)
        );
        node.frames.push(Span {
            offset,
            len,
            ..frame
        });
    }

    fn expect_writes(&mut self, peer: PeerId, count: usize) {
        let link = &mut self.world.links[peer.0 as usize];
        let end = link.end_of(self.node);
        link.writes_expected[end] += count;
    }

    fn grant(&mut self, peer: PeerId, span: Span) -> Option<Remote> {
        let key = self.world.dice.below(u64::MAX);
        let node = &mut self.world.nodes[self.node.0];
        node.grants.push(Grant { key, peer, span });
        Some(Remote { key, address: 0 })
    }

    fn revoke(&mut self, granted: Remote) {
        let node = &mut self.world.nodes[self.node.0];
        node.grants.retain(|grant| grant.key != granted.key);
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.world.break_link(peer.0 as usize);
    }
}
