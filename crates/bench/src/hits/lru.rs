//! Exact LRU (least recently used), by item.

use super::Cache;
use super::queue::{Links, Queue};

/// An LRU cache; the least recently used key is at the front of the queue.
#[derive(Debug)]
pub(crate) struct Lru {
    links: Links,
    queue: Queue,
    held: Vec<bool>,
    capacity: usize,
}

impl Lru {
    /// Holds `capacity` items (one at least) with keys below `keys`.
    pub(crate) fn new(keys: u32, capacity: usize) -> Lru {
        Lru {
            links: Links::new(keys),
            queue: Queue::new(),
            held: vec![false; keys as usize],
            capacity: capacity.max(1),
        }
    }
}

impl Cache for Lru {
    fn get_or_set(&mut self, key: u32) -> bool {
        let hit = self.held[key as usize];
        if hit {
            self.queue.remove(&mut self.links, key);
        } else if self.queue.len() == self.capacity
            && let Some(victim) = self.queue.pop(&mut self.links)
        {
            self.held[victim as usize] = false;
        }
        self.queue.push(&mut self.links, key);
        self.held[key as usize] = true;
        hit
    }

    fn set(&mut self, key: u32) {
        self.get_or_set(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_leaves() {
        let mut lru = Lru::new(4, 2);
        let hits: Vec<bool> = [0, 1, 0, 2, 1, 0]
            .into_iter()
            .map(|key| lru.get_or_set(key))
            .collect();
        // 2 evicts 1, then 1 evicts 0.
        assert_eq!(hits, [false, false, true, false, false, false]);
    }
}
