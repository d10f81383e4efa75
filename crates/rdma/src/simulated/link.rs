//! A connection of two nodes.

use crate::fabric::Work;

use super::node::NodeId;

/// One end: 0 or 1.
pub(super) type End = usize;

pub(super) struct Link {
    pub(super) nodes: [NodeId; 2],
    pub(super) is_broken: bool,
    /// Writes with immediate that each end has room for.
    pub(super) writes_expected: [usize; 2],
    /// What each end has posted and not got back.
    pub(super) posted: [Vec<Posted>; 2],
    /// Each end was told that it has ended.
    pub(super) is_closed: [bool; 2],
    /// When the last message to each end arrives: later ones come later.
    pub(super) arrives_last: [u64; 2],
    /// A message to each end has found no receive buffer, and is tried again then.
    pub(super) not_ready_until: [u64; 2],
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    /// Different for each.
    pub(super) number: u64,
    pub(super) token: u64,
    pub(super) work: Work,
}

impl Link {
    pub(super) fn new(nodes: [NodeId; 2]) -> Link {
        Link {
            nodes,
            is_broken: false,
            writes_expected: [0; 2],
            posted: [Vec::new(), Vec::new()],
            is_closed: [false; 2],
            arrives_last: [0; 2],
            not_ready_until: [0; 2],
        }
    }

    pub(super) fn end_of(&self, node: NodeId) -> End {
        usize::from(self.nodes[1] == node)
    }

    /// Takes back what was posted under a number.
    pub(super) fn take(&mut self, end: End, number: u64) -> Option<Posted> {
        let at = self.posted[end]
            .iter()
            .position(|posted| posted.number == number)?;
        Some(self.posted[end].swap_remove(at))
    }
}
