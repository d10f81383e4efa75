//! The table of fillings: which filling of each segment on flash the index believes in. It lies in pages of the
//! arena, so that the next process has it together with the slots.

use crate::memory::{Mapping, PageId, PageState, Purpose, Slice};
use crate::segment::Log;
use crate::sync::{AtomicU64, Ordering};
use std::sync::Arc;

/// See the module.
pub(crate) struct Fillings {
    /// The whole arena, seen as words.
    words: Slice<AtomicU64>,
    pages: Vec<PageId>,
    page_words: usize,
}

impl Fillings {
    /// The table that the previous process has left, of as many segments as there is room for.
    pub(super) fn left_in(log: &Log) -> Fillings {
        let mut pages: Vec<PageId> = (0..log.segment_count())
            .filter(|&page| log.entry(page).state() == PageState::Fillings)
            .collect();
        pages.sort_by_key(|&page| log.entry(page).sequence());
        // Of a table that was half made nothing is believed.
        let is_next = |(nth, &page): (usize, &PageId)| log.entry(page).sequence() == nth as u64;
        if !pages.iter().enumerate().all(is_next) {
            pages.iter().for_each(|&page| free(log, page));
            pages.clear();
        }
        Fillings::of(log.mapping(), pages, log.segment_len())
    }

    fn of(mapping: &Arc<Mapping>, pages: Vec<PageId>, page_len: usize) -> Fillings {
        let len = if cfg!(loom) {
            4
        } else {
            mapping.len() / size_of::<AtomicU64>()
        };
        Fillings {
            words: Slice::new(mapping, 0, len),
            pages,
            page_words: page_len / size_of::<AtomicU64>(),
        }
    }

    /// Makes room for `segments`. `None` if there is no memory; then it is as before.
    pub(super) fn extend(&mut self, log: &Log, segments: usize) -> Option<()> {
        let before = self.pages.len();
        while self.pages.len() * self.page_words < segments {
            let Some(page) = log.pages().take(Purpose::Tags) else {
                self.pages.drain(before..).for_each(|page| free(log, page));
                return None;
            };
            for word in 0..self.page_words {
                self.words[page as usize * self.page_words + word].store(0, Ordering::Relaxed);
            }
            log.entry(page).begin_fillings(self.pages.len());
            self.pages.push(page);
        }
        Some(())
    }

    /// Gives its memory back.
    pub(super) fn free(self, log: &Log) {
        self.pages.into_iter().for_each(|page| free(log, page));
    }

    fn word(&self, segment: u32) -> Option<&AtomicU64> {
        let (nth, word) = (
            segment as usize / self.page_words,
            segment as usize % self.page_words,
        );
        let page = *self.pages.get(nth)?;
        Some(&self.words[page as usize * self.page_words + word])
    }

    /// The filling of a segment that slots may be of; 0 if none.
    pub(super) fn of_segment(&self, segment: u32) -> u64 {
        let word = self.word(segment);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Before slots name places of a filling, or 0 when none does any more.
    pub(crate) fn set(&self, segment: u32, sequence: u64) {
        if let Some(word) = self.word(segment) {
            word.store(sequence, Ordering::Release);
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<u64> {
        let segments = u32::try_from(self.pages.len() * self.page_words).unwrap_or(u32::MAX);
        (0..segments)
            .map(|segment| self.of_segment(segment))
            .collect()
    }

    /// Forgets all of them.
    pub(super) fn clear(&self) {
        let segments = u32::try_from(self.pages.len() * self.page_words).unwrap_or(u32::MAX);
        (0..segments).for_each(|segment| self.set(segment, 0));
    }
}

fn free(log: &Log, page: PageId) {
    log.entry(page).end();
    log.pages().give_back(page);
}
