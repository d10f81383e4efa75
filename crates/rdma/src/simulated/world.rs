//! All nodes, their connections, and what is about to happen.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::fabric::{Completion, PeerId, Remote, Span, Work};

use super::faults::{Dice, Faults};
use super::link::{End, Link};
use super::node::{Node, NodeId, Region, Window};
use super::profiles::Profile;

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
pub(super) enum Arrived {
    Dealt,
    /// There was no buffer for it.
    NotReady,
}

/// A fabric in virtual time. See the module.
pub struct World {
    pub(super) profile: Profile,
    pub(super) faults: Faults,
    pub(super) dice: Dice,
    pub(super) now: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) links: Vec<Link>,
    pub(super) events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pub(super) payloads: Vec<Option<Vec<u8>>>,
    pub(super) number: u64,
    pub(super) receiver_not_ready: u64,
    pub(super) refused_access: u64,
    pub(super) spared: Option<NodeId>,
    pub(super) grants_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A card can send what was posted.
    Transmit { link: usize, end: End, number: u64 },
    /// It has come to the other end.
    Arrive {
        link: usize,
        end: End,
        number: u64,
        payload: usize,
        is_acknowledged: bool,
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
            grants_max: usize::MAX,
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

    /// Lets a node grant so many rights at a time.
    pub fn set_grants_max(&mut self, grants: usize) {
        self.grants_max = grants;
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

    pub(super) fn schedule(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    pub(super) fn happen(&mut self, event: Event) -> Option<NodeId> {
        match event {
            Event::Transmit { link, end, number } => self.transmit(link, end, number),
            Event::Arrive {
                link,
                end,
                number,
                payload,
                is_acknowledged,
            } => {
                let not_before = self.links[link].not_ready_until[1 - end];
                if not_before > self.now {
                    // What waits for a receive buffer is not overtaken.
                    self.schedule(not_before, event);
                    return None;
                }
                let bytes = self.payloads[payload].take().unwrap_or_default();
                if self.arrive(link, end, number, &bytes, is_acknowledged) == Arrived::NotReady {
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
    pub(super) fn run(&mut self, node: usize) -> Option<NodeId> {
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

    pub(super) fn complete(&mut self, node: NodeId, completion: Completion) {
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

    pub(super) fn schedule_break(&mut self, link: usize, at: u64) {
        self.links[link].is_broken = true;
        for end in 0..2 {
            self.schedule(
                at + BREAK_LATENCIES * self.profile.latency_ps,
                Event::Break { link, end },
            );
        }
    }

    pub(super) fn break_link(&mut self, link: usize) {
        if !self.links[link].is_broken {
            self.schedule_break(link, self.now);
        }
    }

    /// An end gets its work back and learns that the connection has ended.
    pub(super) fn end_link(&mut self, link: usize, end: End) {
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
