//! Memory for bytes that connections have to keep: incomplete requests, and replies that the socket
//! does not take.
//!
//! A worker's [`Pool`] borrows pages of `-m` from the store. A page is cut into frames of 16 KiB,
//! and a frame is one block, or is cut into blocks of 4 KiB or 512 bytes:
//!
//! ```text
//! page   | frame                        | frame                        | frame …
//! blocks | 16 KiB                       | 4 KiB | 4 KiB | 4 KiB | free | 32 × 512 bytes …
//! ```
//! A connection holds a block only while it has bytes to keep. A frame whose blocks are all free
//! can be cut into any size. A page whose frames are all free goes back to the store, except the
//! first, which is taken at the start: so there is always some memory, even when items fill the
//! rest.
//!
//! # Invariants
//! A [`Block`] comes from one pool and goes back to the same pool, exactly once. (Losing one only
//! wastes memory.)

use std::sync::Arc;

use coua_store::{Page, Store};

/// The sizes of blocks, in bytes: each at most 32 to a frame.
const BLOCK_SIZES: [usize; 3] = [512, 4 << 10, FRAME_SIZE];

/// Bytes of a frame.
const FRAME_SIZE: usize = 16 << 10;

/// The largest block, in bytes.
pub const BLOCK_SIZE_MAX: usize = FRAME_SIZE;

/// Room for bytes in a [`Pool`].
#[derive(Debug)]
pub struct Block {
    frame: u32,
    index: u8,
    class: u8,
}

/// One worker's blocks.
pub struct Pool {
    store: Arc<Store>,
    /// Group `f` lies in page `f / frames_per_page`.
    pages: Vec<Option<Page>>,
    frames: Vec<BlockGroup>,
    frames_per_page: usize,
    free_frames: Vec<u32>,
    /// Frames of a class with free blocks.
    open: [Vec<u32>; BLOCK_SIZES.len()],
    pages_held: usize,
    pages_max: usize,
    blocks_taken: usize,
    /// Losses of memory that were seen when it last looked for its own.
    losses_seen: u64,
}

/// A frame in use, one bit a block.
#[derive(Clone, Copy, Default)]
struct BlockGroup {
    free: u32,
    /// Those of which the machine has lost a part since they were taken.
    lost: u32,
}

impl Pool {
    /// A pool that holds at most `pages_max` of the store's pages, but at least one if the store
    /// has any.
    pub fn new(store: Arc<Store>, pages_max: usize) -> Pool {
        let mut pool = Pool {
            store,
            pages: Vec::new(),
            frames: Vec::new(),
            frames_per_page: 1,
            free_frames: Vec::new(),
            open: Default::default(),
            pages_held: 0,
            pages_max: pages_max.max(1),
            blocks_taken: 0,
            losses_seen: 0,
        };
        pool.losses_seen = pool.store.losses_seen();
        pool.borrow_page();
        pool
    }

    /// A block of at least `len` bytes, or `None` if the memory for connections is used up.
    ///
    /// # Panics
    /// If `len` is above [`BLOCK_SIZE_MAX`].
    pub fn take(&mut self, len: usize) -> Option<Block> {
        let class = BLOCK_SIZES
            .iter()
            .position(|&size| size >= len)
            .expect("a block's length");
        let number = match self.open[class].last() {
            Some(&number) => number,
            None => self.open_frame(class)?,
        };
        let frame = &mut self.frames[number as usize];
        let index = frame.free.trailing_zeros();
        frame.free &= frame.free - 1;
        frame.lost &= !(1 << index);
        if frame.free == 0 {
            self.open[class].pop();
        }
        self.blocks_taken += 1;
        #[expect(clippy::cast_possible_truncation, reason = "32 blocks, three classes")]
        let (index, class) = (index as u8, class as u8);
        Some(Block {
            frame: number,
            index,
            class,
        })
    }

    /// Takes a block back.
    pub fn give_back(&mut self, block: Block) {
        let class = usize::from(block.class);
        let frame = &mut self.frames[block.frame as usize];
        let was_full = frame.free == 0;
        frame.free |= 1 << block.index;
        let is_unused = frame.free == all_blocks(class);
        self.blocks_taken -= 1;
        if is_unused {
            if !was_full {
                self.open[class].retain(|&open| open != block.frame);
            }
            self.free_frames.push(block.frame);
            self.give_page_back(block.frame as usize / self.frames_per_page);
        } else if was_full {
            self.open[class].push(block.frame);
        }
    }

    /// A block's bytes.
    pub fn bytes(&self, block: &Block) -> &[u8] {
        let (page, at, size) = self.place(block);
        &self.pages[page].as_ref().expect("the block's page")[at..][..size]
    }

    /// A block's bytes, to be written.
    pub fn bytes_mut(&mut self, block: &Block) -> &mut [u8] {
        let (page, at, size) = self.place(block);
        &mut self.pages[page].as_mut().expect("the block's page")[at..][..size]
    }

    /// Whether the machine has lost a part of a block since it was taken. To be asked after bytes of
    /// it were copied, and before the copy is used.
    #[inline]
    pub fn is_lost(&mut self, block: &Block) -> bool {
        if self.store.losses_seen() != self.losses_seen {
            self.note_losses();
        }
        self.frames[block.frame as usize].lost >> block.index & 1 != 0
    }

    /// Notes which blocks were lost since it last looked.
    #[cold]
    fn note_losses(&mut self) {
        let since = std::mem::replace(&mut self.losses_seen, self.store.losses_seen());
        for (number, page) in self.pages.iter().enumerate() {
            let Some(page) = page else { continue };
            let lost = self.store.lost_of(page, since);
            for at in 0..self.frames_per_page {
                let frame = at * FRAME_SIZE..(at + 1) * FRAME_SIZE;
                let is_lost = |lost: &std::ops::Range<usize>| {
                    lost.start < frame.end && frame.start < lost.end
                };
                if lost.iter().any(is_lost) {
                    // A page of the system's is a quarter of a frame: whose blocks exactly it were
                    // does not matter enough.
                    self.frames[number * self.frames_per_page + at].lost = u32::MAX;
                }
            }
        }
    }

    /// How many blocks are in use.
    pub fn blocks_taken(&self) -> usize {
        self.blocks_taken
    }

    fn place(&self, block: &Block) -> (usize, usize, usize) {
        let frame = block.frame as usize;
        let (page, in_page) = (frame / self.frames_per_page, frame % self.frames_per_page);
        let size = BLOCK_SIZES[usize::from(block.class)];
        (
            page,
            in_page * FRAME_SIZE + usize::from(block.index) * size,
            size,
        )
    }

    fn open_frame(&mut self, class: usize) -> Option<u32> {
        if self.free_frames.is_empty() {
            self.borrow_page();
        }
        let number = self.free_frames.pop()?;
        self.frames[number as usize] = BlockGroup {
            free: all_blocks(class),
            lost: 0,
        };
        self.open[class].push(number);
        Some(number)
    }

    fn borrow_page(&mut self) {
        if self.pages_held >= self.pages_max {
            return;
        }
        let Some(page) = self.store.lend_page() else {
            return;
        };
        self.frames_per_page = (page.len() / FRAME_SIZE).max(1);
        let place = self
            .pages
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.pages.len());
        if place == self.pages.len() {
            self.pages.push(None);
            self.frames.resize(
                self.pages.len() * self.frames_per_page,
                BlockGroup::default(),
            );
        }
        self.pages[place] = Some(page);
        self.pages_held += 1;
        let first = place * self.frames_per_page;
        let numbers = (first..first + self.frames_per_page).rev();
        self.free_frames
            .extend(numbers.filter_map(|frame| u32::try_from(frame).ok()));
    }

    /// Gives a page back if none of its frames is in use and it is not the last.
    fn give_page_back(&mut self, page: usize) {
        let is_in_page = |frame: u32| frame as usize / self.frames_per_page == page;
        // Few pages come back at a time, and only this many frames can be free beside theirs.
        let free = self
            .free_frames
            .iter()
            .filter(|&&frame| is_in_page(frame))
            .count();
        if free == self.frames_per_page && self.pages_held > 1 {
            let frames_per_page = self.frames_per_page;
            self.free_frames
                .retain(|&frame| frame as usize / frames_per_page != page);
            self.pages[page] = None;
            self.pages_held -= 1;
        }
    }
}

/// The bits of a frame of a class whose blocks are all free.
fn all_blocks(class: usize) -> u32 {
    u32::MAX >> (32 - FRAME_SIZE / BLOCK_SIZES[class])
}

const _: () = assert!(FRAME_SIZE / BLOCK_SIZES[0] == 32);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coua_store::{Config, Store, UnixSeconds};

    use super::{BLOCK_SIZE_MAX, Pool};

    fn pool(pages_max: usize) -> Pool {
        let config = Config {
            memory: 32 << 20,
            ..Config::default()
        };
        let store = Store::new(config, UnixSeconds(1)).expect("a store");
        Pool::new(Arc::clone(&store), pages_max)
    }

    #[test]
    fn blocks_do_not_overlap() {
        let mut pool = pool(4);
        let lens = [
            1,
            512,
            513,
            4096,
            4097,
            BLOCK_SIZE_MAX,
            3,
            700,
            12,
            5000,
            512,
        ];
        let mut blocks = Vec::new();
        for (number, &len) in (1_u8..).zip(&lens) {
            let block = pool.take(len).expect("a block");
            assert!(pool.bytes(&block).len() >= len);
            pool.bytes_mut(&block).fill(number);
            blocks.push((number, block));
        }
        for (number, block) in &blocks {
            assert!(pool.bytes(block).iter().all(|byte| byte == number));
        }
        assert_eq!(pool.blocks_taken(), lens.len());
        blocks
            .into_iter()
            .for_each(|(_, block)| pool.give_back(block));
        assert_eq!(pool.blocks_taken(), 0);
    }

    #[test]
    fn all_but_one_page_go_back_and_serve_any_size() {
        let mut pool = pool(3);
        for len in [512, BLOCK_SIZE_MAX, 4096, 512] {
            let mut blocks = Vec::new();
            while let Some(block) = pool.take(len) {
                blocks.push(block);
            }
            assert_eq!(pool.pages_held, 3, "length {len}");
            let page_len = pool.frames_per_page * BLOCK_SIZE_MAX;
            assert_eq!(blocks.len(), 3 * page_len / len, "length {len}");
            blocks.into_iter().for_each(|block| pool.give_back(block));
            assert_eq!((pool.pages_held, pool.blocks_taken()), (1, 0));
        }
        assert_eq!(
            pool.store.stats().memory_lent,
            (pool.frames_per_page * BLOCK_SIZE_MAX) as u64
        );
    }
}
