//! Displacement: making room in a key's buckets by moving other slots to their other bucket.
//!
//! The search is breadth-first over at most [`SEARCH_MAX`] buckets and holds no lock, so its result
//! is only a plan. The plan is carried out from its free end, each step under its two buckets'
//! locks, and abandoned if something has changed.

use super::bucket::SLOTS;
use super::locked::unlock_both;
use super::slot::Slot;
use super::{BucketNumber, Entry, Index, alternate, first};
use crate::key::KeyHash;
use coua_cpu::prefetch;

/// Buckets that a search looks at. Deep enough to fill sub-tables to 98 %.
const SEARCH_MAX: usize = if cfg!(loom) { 8 } else { 128 };

const NO_PARENT: u16 = u16::MAX;

/// The result of the search for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// A slot became free, or something changed meanwhile: try again.
    Perhaps,
    /// There is no path: the sub-table has to split, or an item has to be given up.
    None,
}

#[derive(Clone, Copy)]
struct Node {
    bucket: BucketNumber,
    parent: u16,
    /// The slot of the parent bucket that would move here.
    slot: u8,
}

impl Index {
    /// Tries to free a slot in the buckets of `hash`. The search needs a stack frame of several
    /// pages, which callers should not pay for when there is room.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(&self, hash: KeyHash) -> Room {
        let entry = self.directory.entry(hash);
        let i = first(hash);
        let root = |bucket| Node {
            bucket,
            parent: NO_PARENT,
            slot: 0,
        };
        let mut nodes = [root(i); SEARCH_MAX];
        nodes[1] = root(alternate(i, hash.tag()));
        let Some(end) = self.search(entry, &mut nodes) else {
            return Room::None;
        };
        let mut at = end;
        while nodes[at].parent != NO_PARENT {
            let parent = usize::from(nodes[at].parent);
            if !self.displace(hash, entry, nodes[parent].bucket, nodes[at]) {
                break;
            }
            at = parent;
        }
        Room::Perhaps
    }

    /// The first node, closest to the roots, whose bucket has a vacant slot.
    fn search(&self, entry: Entry, nodes: &mut [Node; SEARCH_MAX]) -> Option<usize> {
        let (mut head, mut tail) = (0, 2);
        while head < tail {
            let number = nodes[head].bucket;
            let bucket = self.bucket(entry.table(), number);
            for at in 0..SLOTS {
                let slot = bucket.peek(at);
                if slot.is_vacant() {
                    return Some(head);
                }
                if tail < SEARCH_MAX && !self.awaits_child(entry, slot) {
                    let target = alternate(number, slot.tag());
                    prefetch(self.bucket(entry.table(), target));
                    #[expect(clippy::cast_possible_truncation, reason = "below SEARCH_MAX")]
                    let node = Node {
                        bucket: target,
                        parent: head as u16,
                        slot: at as u8,
                    };
                    nodes[tail] = node;
                    tail += 1;
                }
            }
            head += 1;
        }
        None
    }

    /// Moves the slot `to.slot` of bucket `from` to bucket `to.bucket`, if the move is still valid.
    /// False if it is not.
    fn displace(&self, hash: KeyHash, entry: Entry, from: BucketNumber, to: Node) -> bool {
        let [source, destination] = self.lock_both(entry.table(), from, to.bucket);
        let done = self.directory.entry(hash) == entry && {
            self.fill_both(hash, entry, from, to.bucket);
            let at = usize::from(to.slot);
            let slot = source.peek(at);
            let moves = slot.is_taken()
                && !self.awaits_child(entry, slot)
                && from != to.bucket
                && alternate(from, slot.tag()) == to.bucket;
            match destination.vacant_slot() {
                Some(free) if moves => {
                    // A lookup must see the slot at its destination, or the incremented count,
                    // before it can see the slot gone from its source.
                    destination.put(free, slot);
                    destination.count_move();
                    source.put(at, Slot::EMPTY);
                    true
                }
                _ => slot.is_vacant(),
            }
        };
        unlock_both([source, destination]);
        done
    }
}
