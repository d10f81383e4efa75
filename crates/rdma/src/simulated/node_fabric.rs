//! What a node sees of the fabric.

use crate::fabric::{Completion, Fabric, PeerId, Refused, Remote, Span, Work};

use super::link::Posted;
use super::node::{Grant, NodeId};
use super::world::{Event, World};

/// Works that a connection's end can have posted.
const POSTED_MAX: usize = 256;

/// What a node sees of the fabric, while it runs.
pub struct NodeFabric<'w> {
    world: &'w mut World,
    node: NodeId,
}

impl World {
    /// What a node sees of the fabric.
    pub fn fabric(&mut self, node: NodeId) -> NodeFabric<'_> {
        let clock = self.clock(node);
        self.nodes[node.0].clock = clock;
        NodeFabric { world: self, node }
    }
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
        if self.world.grants(self.node) >= self.world.grants_max {
            return None;
        }
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
