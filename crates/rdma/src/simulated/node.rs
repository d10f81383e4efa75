//! One machine: memory, a processor's clock, a card.

use std::collections::VecDeque;

use crate::fabric::{Completion, PeerId, Span};

/// Names a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(super) usize);

/// What the other side may do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) key: u64,
    pub(super) may_write: bool,
}

pub(super) struct Region {
    pub(super) bytes: Vec<u8>,
    pub(super) window: Option<Window>,
}

/// A right of one peer to write to a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) key: u64,
    pub(super) peer: PeerId,
    pub(super) span: Span,
}

pub(super) struct Node {
    pub(super) regions: Vec<Region>,
    pub(super) grants: Vec<Grant>,
    /// Until when its processor is busy.
    pub(super) clock: u64,
    /// Until when its card is.
    pub(super) card_free: u64,
    pub(super) completions: VecDeque<(u64, Completion)>,
    /// Receive buffers that are ready.
    pub(super) frames: Vec<Span>,
    /// The length of each of them.
    pub(super) frame_len: usize,
    pub(super) is_dead: bool,
    /// It is going to look at its completions.
    pub(super) is_woken: bool,
}

impl Node {
    pub(super) fn new() -> Node {
        Node {
            regions: Vec::new(),
            grants: Vec::new(),
            clock: 0,
            card_free: 0,
            completions: VecDeque::new(),
            frames: Vec::new(),
            frame_len: 0,
            is_dead: false,
            is_woken: false,
        }
    }

    pub(super) fn bytes(&self, span: Span) -> &[u8] {
        &self.regions[span.region as usize].bytes[span.offset..span.offset + span.len]
    }

    pub(super) fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        &mut self.regions[span.region as usize].bytes[span.offset..span.offset + span.len]
    }

    /// The memory that was granted to a peer by a key, if so many bytes from an address on lie in it.
    pub(super) fn granted(&self, peer: PeerId, key: u64, address: u64, len: usize) -> Option<Span> {
        let is_it = |grant: &&Grant| grant.key == key && grant.peer == peer;
        let span = self.grants.iter().find(is_it)?.span;
        let offset = usize::try_from(address).ok()?;
        let end = offset.checked_add(len)?;
        (end <= span.len).then(|| span.part(offset, len))
    }

    /// The memory that a key and an address name, if so many bytes of it may be used.
    pub(super) fn window(&self, key: u64, address: u64, len: usize, writes: bool) -> Option<Span> {
        let is_it = |region: &Region| {
            region
                .window
                .is_some_and(|window| window.key == key && (window.may_write || !writes))
        };
        let region = self.regions.iter().position(is_it)?;
        let offset = usize::try_from(address).ok()?;
        let end = offset.checked_add(len)?;
        (end <= self.regions[region].bytes.len()).then_some(Span {
            region: u32::try_from(region).ok()?,
            offset,
            len,
        })
    }
}
