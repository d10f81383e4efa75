//! Memory for what connections cannot get rid of at once: requests that are not whole, replies
//! that the kernel does not take.
//!
//! A worker's [`Pool`] borrows pages of `-m` from the store and cuts each into blocks of one
//! size. A connection holds a block only while it has bytes to keep; a page whose blocks are all
//! free goes back to the store, except for one of each size.
//!
//! # Invariants
//! A [`Block`] comes from one pool and goes back to the same, exactly once. (Losing one wastes
//! memory and nothing else.)

use std::sync::Arc;

use coua_store::{Page, Store};

/// The sizes of blocks, in bytes.
const BLOCK_SIZES: [usize; 3] = [512, 4 << 10, 16 << 10];

/// The largest block, in bytes.
pub const BLOCK_SIZE_MAX: usize = BLOCK_SIZES[BLOCK_SIZES.len() - 1];

/// Room for bytes in a [`Pool`].
#[derive(Debug)]
pub struct Block {
    page: u16,
    index: u16,
    class: u8,
}

/// One worker's blocks.
pub struct Pool {
    store: Arc<Store>,
    pages: Vec<Option<Sheet>>,
    pages_held: usize,
    pages_max: usize,
    blocks_taken: usize,
    /// Pages with free blocks, by class.
    open: [Vec<u16>; BLOCK_SIZES.len()],
}

/// A page and which of its blocks are free.
struct Sheet {
    page: Page,
    class: u8,
    free: Vec<u16>,
    blocks: u16,
}

impl Pool {
    /// A pool that holds at most `pages_max` of the store's pages.
    pub fn new(store: Arc<Store>, pages_max: usize) -> Pool {
        let pages_max = pages_max.clamp(BLOCK_SIZES.len(), usize::from(u16::MAX));
        Pool {
            store,
            pages: Vec::new(),
            pages_held: 0,
            pages_max,
            blocks_taken: 0,
            open: Default::default(),
        }
    }

    /// A block of at least `len` bytes, or `None` where memory for connections is used up.
    ///
    /// # Panics
    /// If `len` is above [`BLOCK_SIZE_MAX`].
    pub fn take(&mut self, len: usize) -> Option<Block> {
        let class = BLOCK_SIZES
            .iter()
            .position(|&size| size >= len)
            .expect("a block's length");
        let page = match self.open[class].last() {
            Some(&page) => page,
            None => self.borrow_page(class)?,
        };
        let sheet = self.pages[usize::from(page)]
            .as_mut()
            .expect("an open page");
        let index = sheet.free.pop().expect("an open page's free block");
        if sheet.free.is_empty() {
            self.open[class].pop();
        }
        self.blocks_taken += 1;
        #[expect(clippy::cast_possible_truncation, reason = "there are three classes")]
        let class = class as u8;
        Some(Block { page, index, class })
    }

    /// Takes a block back.
    pub fn give_back(&mut self, block: Block) {
        let class = usize::from(block.class);
        let sheet = self.pages[usize::from(block.page)]
            .as_mut()
            .expect("the block's page");
        self.blocks_taken -= 1;
        let was_full = sheet.free.is_empty();
        sheet.free.push(block.index);
        let is_unused = sheet.free.len() == usize::from(sheet.blocks);
        if was_full {
            self.open[class].push(block.page);
        }
        if is_unused && self.open[class].len() > 1 {
            self.open[class].retain(|&page| page != block.page);
            self.pages[usize::from(block.page)] = None;
            self.pages_held -= 1;
        }
    }

    /// A block's bytes.
    pub fn bytes(&self, block: &Block) -> &[u8] {
        let sheet = self.pages[usize::from(block.page)]
            .as_ref()
            .expect("the block's page");
        let size = BLOCK_SIZES[usize::from(block.class)];
        &sheet.page[usize::from(block.index) * size..][..size]
    }

    /// A block's bytes, to be written.
    pub fn bytes_mut(&mut self, block: &Block) -> &mut [u8] {
        let sheet = self.pages[usize::from(block.page)]
            .as_mut()
            .expect("the block's page");
        let size = BLOCK_SIZES[usize::from(block.class)];
        &mut sheet.page[usize::from(block.index) * size..][..size]
    }

    /// How many blocks are in use.
    pub fn blocks_taken(&self) -> usize {
        self.blocks_taken
    }

    fn borrow_page(&mut self, class: usize) -> Option<u16> {
        if self.pages_held >= self.pages_max {
            return None;
        }
        let page = Store::lend_page(&self.store)?;
        let count = (page.len() / BLOCK_SIZES[class]).min(usize::from(u16::MAX));
        let blocks = u16::try_from(count).ok().filter(|&count| count > 0)?;
        #[expect(clippy::cast_possible_truncation, reason = "there are three classes")]
        let class_number = class as u8;
        let sheet = Sheet {
            page,
            class: class_number,
            free: (0..blocks).rev().collect(),
            blocks,
        };
        debug_assert_eq!(usize::from(sheet.class), class);
        let place = self
            .pages
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.pages.len());
        if place == self.pages.len() {
            self.pages.push(None);
        }
        self.pages[place] = Some(sheet);
        self.pages_held += 1;
        let number = u16::try_from(place).expect("pages_max fits");
        self.open[class].push(number);
        Some(number)
    }
}
