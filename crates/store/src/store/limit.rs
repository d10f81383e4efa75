//! The limit of memory, which can change while the store serves: memcached's `cache_memlimit`.
//!
//! The arena is laid out for [`Config::memory`](super::Config::memory) and never changes its
//! length. A lower limit withholds pages: the workers empty segments as if new items needed the
//! room, take free pages out of use one at a time, and give their memory back to the system. A
//! higher limit puts them back into use at once, and the thread of [`crate::prefault`] has them
//! supplied with memory again ahead of use.

use super::Store;

/// Why a limit of memory was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitRefused {
    /// The tables, the index, the table of tags and the segments that workers fill need more.
    #[error("at least {least} bytes are needed")]
    TooSmall {
        /// The least number of bytes that would do now.
        least: usize,
    },
    /// The store was made for less.
    #[error("at most {most} bytes were foreseen at the start")]
    TooLarge {
        /// The most that it can be given: [`Config::memory`](super::Config::memory).
        most: usize,
    },
    /// The file system that holds the store has no room for what it has taken back.
    #[error("the file system of the store has room for {has} more bytes only")]
    NoSpace {
        /// Bytes that are available.
        has: u64,
    },
}

impl Store {
    /// Changes how many bytes the store may use. More can be used at once. Less is used as soon as
    /// the workers have emptied enough segments, which takes some turns of theirs; if nothing may
    /// be evicted, only what is free or dead is given back.
    ///
    /// # Errors
    /// [`LimitRefused`] if the store cannot work with so little, or was not made for so much.
    pub fn set_memory_limit(&self, bytes: usize) -> Result<(), LimitRefused> {
        let most = self.memory_most;
        if bytes > most {
            return Err(LimitRefused::TooLarge { most });
        }
        let pages = self.log.pages();
        let page_len = pages.page_len();
        // As at the start: what workers fill and the reserve take at most half of the rest.
        let tables = self.tables_len.div_ceil(page_len) + self.tags.page_count();
        let fixed = tables + pages.shares().index;
        let open = pages.reserve() + 4 * self.workers();
        let least = self.memory_least.max((fixed + 2 * open) * page_len);
        let least = least.max(2 * self.item_size_max);
        if bytes < least {
            return Err(LimitRefused::TooSmall { least });
        }
        let all = self.log.segment_count() as usize;
        // What the heap has for each segment counts as memory too.
        let limit = match bytes >= self.log.mapping().len() {
            true => all,
            false => (bytes.saturating_sub(self.heap_len) / page_len).min(all),
        };
        let more = limit.saturating_sub(pages.limit()) * page_len;
        // A page that a full file system cannot supply would kill the process on first touch.
        if let Some(file) = self.log.mapping().file()
            && let Some(has) = file.room()
            && has < more as u64
        {
            return Err(LimitRefused::NoSpace { has });
        }
        pages.set_limit(limit);
        Ok(())
    }

    /// Bytes that unfinished uploads may hold: an eighth of memory.
    pub(crate) fn upload_bytes_max(&self) -> usize {
        let pages = self.log.pages();
        pages.limit() * pages.page_len() / 8
    }

    /// Segments that may be pinned or held at a time, beside those of an oversized value.
    pub(crate) fn held_max(&self) -> usize {
        (self.log.pages().limit() / 8).max(1)
    }
}
