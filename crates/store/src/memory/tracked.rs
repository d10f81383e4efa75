//! What loom knows of items in segment memory.
//!
//! The words of an item that change are atomics of loom's, which are no plain bytes, so they stand here.
//! And each item has a cell that loom takes for its bytes: it is written when the item is, and read
//! with each read of the item. So a reader that has not seen the item published fails its test, and so
//! does one that still looks at an item whose memory is used again.
#![allow(unsafe_code, reason = "loom's cell stands for segment memory")]

use crate::sync::{AtomicU32, AtomicU64};
use loom::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The items, by their addresses.
#[derive(Default)]
pub(crate) struct Tracked(Mutex<Items>);

#[derive(Default)]
struct Items {
    now: BTreeMap<usize, usize>,
    /// Also those whose memory was used again: references to them may be left.
    all: Vec<Box<TrackedItem>>,
}

pub(crate) struct TrackedItem {
    bytes: UnsafeCell<()>,
    pub(crate) access: AtomicU32,
    pub(crate) expiry: AtomicU64,
    pub(crate) chunks: Box<[AtomicU64]>,
}

impl Tracked {
    /// An item or piece of `len` bytes is written at an address.
    pub(crate) fn write(&self, at: usize, len: usize, words: (u32, u64), chunks: usize) {
        let mut items = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<usize> = items.now.range(at..at + len).map(|(&at, _)| at).collect();
        for at in gone {
            if let Some(number) = items.now.remove(&at) {
                items.all[number].bytes.with_mut(|_| ());
            }
        }
        let number = items.all.len();
        items.all.push(Box::new(TrackedItem {
            bytes: UnsafeCell::new(()),
            access: AtomicU32::new(words.0),
            expiry: AtomicU64::new(words.1),
            chunks: (0..chunks).map(|_| AtomicU64::new(0)).collect(),
        }));
        items.now.insert(at, number);
    }

    /// The item or piece at an address is looked at.
    pub(crate) fn read(&self, at: usize) -> &TrackedItem {
        let items = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = items.now.get(&at).copied();
        let number = number.unwrap_or_else(|| panic!("an item is read whose memory is used again"));
        let item: *const TrackedItem = &raw const *items.all[number];
        drop(items);
        // SAFETY: items are boxed, and none is taken out of `all` while `self` lives.
        let item = unsafe { &*item };
        item.bytes.with(|_| ());
        item
    }
}
