//! A list of key numbers in order, from the middle of which any can be removed.

/// The neighbours of each key, by key number. Several lists of the same keys may share them if no
/// key is in two lists.
#[derive(Debug)]
pub(crate) struct Links {
    /// Toward the front and toward the back.
    neighbours: Vec<[u32; 2]>,
}

/// The ends of one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    ends: [u32; 2],
    length: usize,
}

const NONE: u32 = u32::MAX;
const FRONT: usize = 0;
const BACK: usize = 1;

impl Links {
    /// Links for the key numbers below `keys`.
    pub(crate) fn new(keys: u32) -> Links {
        Links {
            neighbours: vec![[NONE; 2]; keys as usize],
        }
    }

    fn join(&mut self, queue: &mut Queue, front: u32, back: u32) {
        match front {
            NONE => queue.ends[FRONT] = back,
            front => self.neighbours[front as usize][BACK] = back,
        }
        match back {
            NONE => queue.ends[BACK] = front,
            back => self.neighbours[back as usize][FRONT] = front,
        }
    }
}

impl Queue {
    /// An empty list.
    pub(crate) fn new() -> Queue {
        Queue {
            ends: [NONE; 2],
            length: 0,
        }
    }

    /// How many keys are in it.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Puts a key that is in no list at the back.
    pub(crate) fn push(&mut self, links: &mut Links, key: u32) {
        let last = self.ends[BACK];
        links.join(self, last, key);
        links.join(self, key, NONE);
        self.length += 1;
    }

    /// Removes the key at the front.
    pub(crate) fn pop(&mut self, links: &mut Links) -> Option<u32> {
        let first = self.ends[FRONT];
        (first != NONE).then(|| {
            self.remove(links, first);
            first
        })
    }

    /// Removes a key that is in this list.
    pub(crate) fn remove(&mut self, links: &mut Links, key: u32) {
        let [front, back] = links.neighbours[key as usize];
        links.join(self, front, back);
        self.length -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_leave_from_the_front_and_from_between() {
        let (mut links, mut queue) = (Links::new(5), Queue::new());
        for key in 0..5 {
            queue.push(&mut links, key);
        }
        for key in [2, 0, 4] {
            queue.remove(&mut links, key);
        }
        queue.push(&mut links, 2);
        let rest: Vec<u32> = std::iter::from_fn(|| queue.pop(&mut links)).collect();
        assert_eq!(rest, [1, 3, 2]);
        assert_eq!(queue.len(), 0);
    }
}
