//! Lists of the pages that nobody uses, by node.

use super::nodes::Spread;
use super::page_table::PageId;
use std::collections::VecDeque;
use std::ops::Range;

/// See the module. The first list of a node has pages with memory.
pub(super) struct Unused {
    nodes: Box<[Lists]>,
    /// Those that are beyond the present limit of memory. The system has their memory back.
    pub(super) withheld: Vec<PageId>,
    /// Pages with memory that are still being supplied with it.
    pub(super) supplied: Range<PageId>,
    /// Whose turn it is to give a page for all nodes.
    turn: usize,
}

/// The free pages of one node.
struct Lists {
    /// Those that have memory, or are being supplied with it. The last one is taken first.
    free: VecDeque<PageId>,
    /// Those that are taken after these: the system has not given their memory yet. The last one is
    /// taken first, and the lowest stands last at the start.
    bare: VecDeque<PageId>,
}

/// A page out of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) page: PageId,
    /// Whether the system has given its memory.
    pub(super) has_memory: bool,
}

impl Unused {
    /// All of these pages, which come in descending order, without memory. The lists never allocate
    /// again.
    pub(super) fn new(spread: &Spread, pages: impl Iterator<Item = PageId>) -> Unused {
        let lists = |node| {
            let most = spread.pages_of(node).len();
            Lists {
                free: VecDeque::with_capacity(most),
                bare: VecDeque::with_capacity(most),
            }
        };
        let most = spread.pages_of(spread.len() - 1).end as usize;
        let mut unused = Unused {
            nodes: (0..spread.len()).map(lists).collect(),
            withheld: Vec::with_capacity(most),
            supplied: 0..0,
            turn: 0,
        };
        for page in pages {
            unused.nodes[spread.node_of(page)].bare.push_back(page);
        }
        unused
    }

    /// Pages that can be taken.
    pub(super) fn count(&self) -> usize {
        self.nodes.iter().map(Lists::count).sum()
    }

    /// Pages of a node that can be taken.
    pub(super) fn count_in(&self, node: usize) -> usize {
        self.nodes[node].count()
    }

    /// Takes a page near to a node, the nearest there is: rather one that has no memory yet than one of
    /// another node.
    pub(super) fn take(&mut self, spread: &Spread, near: usize) -> Option<Taken> {
        if self.nodes.len() == 1 {
            return self.nodes[0].take(&self.supplied);
        }
        let mut order = spread.from(near);
        order.find_map(|node| self.nodes[node].take(&self.supplied))
    }

    /// The node whose turn it is to give a page that all workers use.
    pub(super) fn next_turn(&mut self) -> usize {
        self.turn = (self.turn + 1) % self.nodes.len();
        self.turn
    }

    /// Puts a page back that has memory, to be the next one that is taken.
    pub(super) fn put(&mut self, spread: &Spread, page: PageId) {
        self.nodes[spread.node_of(page)].free.push_back(page);
    }

    /// Puts a page back that has none.
    pub(super) fn put_bare(&mut self, spread: &Spread, page: PageId) {
        self.nodes[spread.node_of(page)].bare.push_back(page);
    }

    /// Withholds all pages without memory, and those that are being supplied: their memory may never come.
    /// Returns how many.
    pub(super) fn withhold_bare(&mut self) -> usize {
        let before = self.withheld.len();
        for Lists { free, bare } in &mut self.nodes {
            self.withheld.extend(bare.drain(..));
            free.retain(|page| {
                let stays = !self.supplied.contains(page);
                if !stays {
                    self.withheld.push(*page);
                }
                stays
            });
        }
        self.withheld.len() - before
    }

    /// A page to be withheld: of the node that has most, and rather one without memory. What was used last
    /// is warm in the caches, and stays.
    pub(super) fn take_coldest(&mut self) -> Option<PageId> {
        let supplied = self.supplied.clone();
        let most = self.nodes.iter_mut().max_by_key(|lists| lists.bare.len())?;
        most.bare.pop_front().or_else(|| {
            let most = self.nodes.iter_mut().max_by_key(|lists| lists.free.len())?;
            let at = most.free.iter().position(|page| !supplied.contains(page))?;
            most.free.remove(at)
        })
    }

    /// Takes so many pages without memory, the highest of the nodes that have most; as many as there are.
    pub(super) fn take_bare(&mut self, count: usize) -> Vec<PageId> {
        let next = || {
            let most = self.nodes.iter_mut().max_by_key(|lists| lists.bare.len())?;
            most.bare.pop_front()
        };
        std::iter::from_fn(next).take(count).collect()
    }

    /// Pages without memory.
    pub(super) fn bare_count(&self) -> usize {
        self.nodes.iter().map(|lists| lists.bare.len()).sum()
    }

    /// Whether a node has less than its share of `ahead` pages with memory, and others to be supplied.
    pub(super) fn runs_short(&self, node: usize, ahead: usize) -> bool {
        let Lists { free, bare } = &self.nodes[node];
        free.len() < ahead.div_ceil(self.nodes.len()) && !bare.is_empty()
    }

    /// Chooses pages to be supplied with memory, at most so many that follow one another, of the node that
    /// has fewest of `ahead`. They can be taken meanwhile.
    pub(super) fn supply_next(&mut self, ahead: usize, most: usize) -> Option<Range<PageId>> {
        self.supplied = 0..0;
        let short = (0..self.nodes.len()).filter(|&node| self.runs_short(node, ahead));
        let node = short.min_by_key(|&node| self.nodes[node].free.len())?;
        let Lists { free, bare } = &mut self.nodes[node];
        self.supplied = runs(bare.iter().rev().copied(), most).next()?;
        for page in self.supplied.clone() {
            bare.pop_back();
            // Those that have memory already are taken first.
            free.push_front(page);
        }
        Some(self.supplied.clone())
    }
}

impl Lists {
    fn count(&self) -> usize {
        self.free.len() + self.bare.len()
    }

    fn take(&mut self, supplied: &Range<PageId>) -> Option<Taken> {
        let taken = |page, has_memory| Taken { page, has_memory };
        match self.free.pop_back() {
            // It may not have been supplied yet.
            Some(page) => Some(taken(page, !supplied.contains(&page))),
            None => self.bare.pop_back().map(|page| taken(page, false)),
        }
    }
}

/// Divides numbers into those that follow one another, `most` at a time.
pub(super) fn runs(
    pages: impl Iterator<Item = PageId>,
    most: usize,
) -> impl Iterator<Item = Range<PageId>> {
    let mut pages = pages.peekable();
    std::iter::from_fn(move || {
        let first = pages.next()?;
        let mut run = first..first + 1;
        while run.len() < most && pages.next_if_eq(&run.end).is_some() {
            run.end += 1;
        }
        Some(run)
    })
}
