//! Tables that are kept twice. Zeros in them would have wrong places read and written; so when the
//! machine loses a page of one copy, the handler writes it anew from the other one, before the
//! instruction goes on that met it ([`super::keeper`]).
//!
//! # Concurrency
//! Readers know the first copy alone. What the handler takes from the second one is what the first one
//! held, at any moment:
//!
//! - A word that one thread at a time stores is stored to the second copy first. If it is restored
//!   between the two stores, the new value is seen a moment early, which the same thread is about
//!   to do anyway; and the store that met the lost page is done again.
//! - A word that several threads change by read-modify-write is changed in the first copy, and then the
//!   second one [follows](Twin::follow) until both are equal. A change that met the lost page is made
//!   to what was restored. If another thread meets it between the two steps, the change is undone. So who
//!   makes one asks afterwards whether anything was lost meanwhile: a change that may be made twice is made again
//!   ([`Twin::repeat`]); sequence numbers are skipped by the handler. The count of losses moves before a restored word can
//!   be read.
//! - Holds of a segment are counted in both copies: up in the second one first, down in the first one first. So what
//!   is restored never counts fewer than there are. Where it may count more, they are not trusted any more
//!   (`page_table.rs`).

use super::mapping::{Mapping, Shared, Slice};
use super::seen::events_seen;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::ops::Deref;
use std::sync::Arc;

/// A view of a part of the arena that has a copy elsewhere in it.
pub(crate) struct Doubled<T: Shared> {
    first: Slice<T>,
    second: Slice<T>,
}

impl<T: Shared> Clone for Doubled<T> {
    fn clone(&self) -> Doubled<T> {
        Doubled {
            first: self.first.clone(),
            second: self.second.clone(),
        }
    }
}

#[cfg(not(loom))]
impl<T: Shared> Doubled<T> {
    /// `len` values from byte `offset` on, and their copies from byte `copy` on.
    pub(crate) fn new(
        mapping: &Arc<Mapping>,
        (offset, copy): (usize, usize),
        len: usize,
    ) -> Doubled<T> {
        Doubled {
            first: Slice::new(mapping, offset, len),
            second: Slice::new(mapping, copy, len),
        }
    }
}

/// loom knows no errors, so it has no copies.
#[cfg(loom)]
impl<T: Shared + Default> Doubled<T> {
    pub(crate) fn new(mapping: &Arc<Mapping>, at: (usize, usize), len: usize) -> Doubled<T> {
        Doubled {
            first: Slice::new(mapping, at.0, len),
            second: Slice::new(mapping, at.1, 0),
        }
    }
}

impl<T: Shared> Doubled<T> {
    pub(crate) fn len(&self) -> usize {
        self.first.len()
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        self.first.mapping()
    }

    /// Value number `at`.
    #[inline]
    pub(crate) fn at(&self, at: usize) -> Twin<'_, T> {
        Twin {
            own: &self.first[at],
            second: (!cfg!(loom)).then_some((&self.second, at)),
        }
    }
}

/// A value and its copy. It is read as the value.
pub(crate) struct Twin<'t, T: Shared> {
    own: &'t T,
    second: Option<(&'t Slice<T>, usize)>,
}

impl<T: Shared> Clone for Twin<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Shared> Copy for Twin<'_, T> {}

impl<T: Shared> Deref for Twin<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.own
    }
}

impl<'t, T: Shared> Twin<'t, T> {
    /// A value without a copy.
    #[cfg(test)]
    pub(crate) fn alone(own: &'t T) -> Twin<'t, T> {
        Twin { own, second: None }
    }

    /// The value, for as long as the table.
    #[inline]
    pub(crate) fn own(self) -> &'t T {
        self.own
    }

    /// Its copy.
    #[inline]
    pub(crate) fn copy(self) -> Option<&'t T> {
        let (second, at) = self.second?;
        Some(&second[at])
    }

    /// Stores to a word that one thread at a time changes.
    #[inline]
    pub(crate) fn store<W: Word>(
        self,
        word: impl for<'a> Fn(&'a T) -> &'a W,
        value: W::Value,
        order: Ordering,
    ) {
        if let Some(copy) = self.copy() {
            word(copy).put(value, Ordering::Release);
        }
        word(self.own).put(value, order);
        // A thread that follows an earlier change may just have undone the copy's.
        self.follow(word);
    }

    /// Makes a change that may be made more than once, until nothing was lost between it and the copy's: so
    /// that it is not undone.
    #[inline]
    pub(crate) fn repeat<W: Word>(
        self,
        word: impl for<'a> Fn(&'a T) -> &'a W,
        change: impl Fn(&W),
    ) {
        loop {
            let seen = events_seen();
            change(word(self.own));
            self.follow(&word);
            if events_seen() == seen {
                return;
            }
        }
    }

    /// Has the copy of a word follow, which threads change at the same time. To be called after each
    /// change.
    #[inline]
    pub(crate) fn follow<W: Word>(self, word: impl for<'a> Fn(&'a T) -> &'a W) {
        let Some(copy) = self.copy() else { return };
        let (own, copy) = (word(self.own), word(copy));
        loop {
            // The copy first: a change by another thread in between lets the exchange fail.
            let was = copy.take();
            let is = own.take();
            if was == is || copy.exchange(was, is) && own.take() == is {
                return;
            }
        }
    }
}

/// An atomic of either size.
pub(crate) trait Word {
    /// What it holds.
    type Value: Copy + PartialEq;
    /// Loads it, with Acquire.
    fn take(&self) -> Self::Value;
    /// Stores it.
    fn put(&self, value: Self::Value, order: Ordering);
    /// Exchanges it, if it is `was`; whether it was.
    fn exchange(&self, was: Self::Value, is: Self::Value) -> bool;
}

macro_rules! word {
    ($atomic:ty, $value:ty) => {
        impl Word for $atomic {
            type Value = $value;

            #[inline]
            fn take(&self) -> $value {
                self.load(Ordering::Acquire)
            }

            #[inline]
            fn put(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }

            #[inline]
            fn exchange(&self, was: $value, is: $value) -> bool {
                self.compare_exchange(was, is, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok()
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);
