//! The superblock: what a process has to know to take over the memory of the one before it.
//!
//! It is the arena's first page. Its first line says how the arena is laid out, and never changes;
//! the others hold what changes seldom. See `store/takeover.rs`.

use super::doubled::Twin;
use super::mapping::shared;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};
use std::ops::Range;

/// "coua" and a number that no text has.
const MAGIC: u64 = u64::from_le_bytes(*b"coua\x00\xff\x0a\x1a");

/// The version of everything that lies in the arena: this line, the page table, the index, the items.
/// It rises with every change of any of them, and a file of another version is not taken over.
pub(crate) const LAYOUT_VERSION: u32 = 3;

/// The version of the hash of keys. It rises whenever a key hashes differently under the same seed.
pub(crate) const HASH_VERSION: u32 = 1;

/// How the arena is laid out, and what its contents mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Bytes of the arena.
    pub(crate) len: u64,
    /// Bytes of a page.
    pub(crate) page_len: u32,
    /// Pages, those of the tables included.
    pub(crate) pages: u32,
    /// The most workers that there is room for.
    pub(crate) workers: u32,
    /// Hash bits that the directory begins with, and all that it may use.
    pub(crate) directory_bits: [u8; 2],
}

/// Why a superblock is not one of ours, or of an arena that cannot be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// All zeros, as in a file that was just made.
    Empty,
    /// Something else's.
    Foreign,
    /// Another version's.
    Version(u32),
    /// Its check is wrong.
    Damaged,
}

/// What the process that has the arena is doing with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Use {
    /// It is being set up; nothing in it counts yet.
    None = 0,
    /// A process works in it, or died in it.
    Running = 1,
    /// It was left in order.
    Clean = 2,
}

shared! {
    /// See the module.
    #[repr(C, align(4096))]
    #[derive(Default)]
    pub(crate) struct Superblock {
        identity: IdentityLine,
        pub(crate) state: StateLine,
        pub(crate) sequences: SequenceLine,
        pub(crate) flash: FlashLine,
        losses: LossRecord,
    }
}

shared! {
    #[repr(C, align(64))]
    #[derive(Default)]
    pub(crate) struct IdentityLine {
        magic: AtomicU64,
        version: AtomicU32,
        hash_version: AtomicU32,
        len: AtomicU64,
        page_len: AtomicU32,
        pages: AtomicU32,
        workers: AtomicU32,
        directory_bits: AtomicU32,
        /// The seed of the hash of keys.
        seed: AtomicU64,
        /// The second in which the store was made; access times count from here.
        made: AtomicU32,
        /// Of all that stands before it in the line.
        check: AtomicU32,
    }
}

shared! {
    /// What changes when a process comes or goes, or a client flushes.
    #[repr(C, align(64))]
    #[derive(Default)]
    pub(crate) struct StateLine {
        /// A [`Use`].
        in_use: AtomicU32,
        /// Whether anything has been evicted yet.
        pub(crate) evicting: AtomicU32,
        /// The machine's boot in which it was last in use.
        boot: AtomicU64,
        /// The file's number in its file system, so that a copy is not taken for it.
        file: AtomicU64,
        /// As in [`crate::segment::Log`]: written before that, so that no flush is lost.
        pub(crate) flushed_below: AtomicU64,
        /// The second at which a flush is due; 0 for none.
        pub(crate) flush_due: AtomicU32,
        /// The time, as a worker has told it last.
        pub(crate) now: AtomicU32,
    }
}

shared! {
    /// What every opening of a segment changes.
    #[repr(C, align(64))]
    #[derive(Default)]
    pub(crate) struct SequenceLine {
        /// The next sequence number: of a segment, a flush, a tag's generation, or CASs that are
        /// written out.
        pub(crate) next: AtomicU64,
        /// Segments opened so far.
        pub(crate) opened: AtomicU64,
    }
}

shared! {
    /// What slots on flash rely on.
    #[repr(C, align(64))]
    #[derive(Default)]
    pub(crate) struct FlashLine {
        /// The volume that they name places of; 0 for none.
        pub(crate) volume: AtomicU64,
        /// A flush has killed what lies in fillings with a lower sequence number.
        pub(crate) killed_below: AtomicU64,
    }
}

impl Superblock {
    /// The layout, the seed and the second in which the store was made.
    pub(crate) fn read(&self) -> Result<(Identity, u64, u32), Unreadable> {
        let line = &self.identity;
        let magic = line.magic.load(Ordering::Relaxed);
        if magic != MAGIC {
            return Err(match magic {
                0 => Unreadable::Empty,
                _ => Unreadable::Foreign,
            });
        }
        let version = line.version.load(Ordering::Relaxed);
        if version != LAYOUT_VERSION || line.hash_version.load(Ordering::Relaxed) != HASH_VERSION {
            return Err(Unreadable::Version(version));
        }
        if line.check.load(Ordering::Relaxed) != line.check_of() {
            return Err(Unreadable::Damaged);
        }
        let [_, _, base, all] = line.directory_bits.load(Ordering::Relaxed).to_be_bytes();
        let identity = Identity {
            len: line.len.load(Ordering::Relaxed),
            page_len: line.page_len.load(Ordering::Relaxed),
            pages: line.pages.load(Ordering::Relaxed),
            workers: line.workers.load(Ordering::Relaxed),
            directory_bits: [base, all],
        };
        let seed = line.seed.load(Ordering::Relaxed);
        Ok((identity, seed, line.made.load(Ordering::Relaxed)))
    }

    /// What the last process did with the arena.
    pub(crate) fn in_use(&self) -> Use {
        match self.state.in_use.load(Ordering::Acquire) {
            1 => Use::Running,
            2 => Use::Clean,
            _ => Use::None,
        }
    }

    /// The boot and the file that the arena was last used in.
    pub(crate) fn whereabouts(&self) -> (u64, u64) {
        (
            self.state.boot.load(Ordering::Relaxed),
            self.state.file.load(Ordering::Relaxed),
        )
    }
}

/// What must not be lost.
impl Twin<'_, Superblock> {
    /// Writes what never changes. The arena counts as set up once it is [`Use::Running`].
    pub(crate) fn format(self, identity: &Identity, seed: u64, made: u32) {
        let relaxed = Ordering::Relaxed;
        let [base, all] = identity.directory_bits.map(u32::from);
        self.store(|block| &block.identity.magic, MAGIC, relaxed);
        self.store(|block| &block.identity.version, LAYOUT_VERSION, relaxed);
        self.store(|block| &block.identity.hash_version, HASH_VERSION, relaxed);
        self.store(|block| &block.identity.len, identity.len, relaxed);
        self.store(|block| &block.identity.page_len, identity.page_len, relaxed);
        self.store(|block| &block.identity.pages, identity.pages, relaxed);
        self.store(|block| &block.identity.workers, identity.workers, relaxed);
        let bits = base << 8 | all;
        self.store(|block| &block.identity.directory_bits, bits, relaxed);
        self.store(|block| &block.identity.seed, seed, relaxed);
        self.store(|block| &block.identity.made, made, relaxed);
        let check = self.identity.check_of();
        self.store(|block| &block.identity.check, check, relaxed);
        self.store(|block| &block.sequences.next, 1, relaxed);
        self.store(|block| &block.sequences.opened, 1, relaxed);
    }

    pub(crate) fn set_use(self, in_use: Use) {
        self.store(
            |block| &block.state.in_use,
            in_use as u32,
            Ordering::Release,
        );
    }

    pub(crate) fn set_whereabouts(self, (boot, file): (u64, u64)) {
        self.store(|block| &block.state.boot, boot, Ordering::Relaxed);
        self.store(|block| &block.state.file, file, Ordering::Relaxed);
    }

    /// Notes the volume that slots name places of.
    pub(crate) fn set_volume(self, id: u64) {
        self.store(|block| &block.flash.volume, id, Ordering::Release);
    }

    /// Kills what lies in fillings on flash with a lower sequence number.
    pub(crate) fn raise_killed_on_flash(self, below: u64) {
        self.repeat(
            |block| &block.flash.killed_below,
            |killed| {
                killed.fetch_max(below, Ordering::AcqRel);
            },
        );
    }

    /// Sets the time that segments record.
    pub(crate) fn set_now(self, second: u32) {
        self.store(|block| &block.state.now, second, Ordering::Relaxed);
    }

    pub(crate) fn set_evicting(self) {
        self.store(|block| &block.state.evicting, 1, Ordering::Relaxed);
    }

    pub(crate) fn set_flush_due(self, second: u32) {
        self.store(|block| &block.state.flush_due, second, Ordering::Relaxed);
    }

    pub(crate) fn raise_flushed_below(self, below: u64) {
        self.repeat(
            |block| &block.state.flushed_below,
            |flushed| {
                flushed.fetch_max(below, Ordering::Release);
            },
        );
    }

    /// The flush at `below` is over, if no other came.
    pub(crate) fn end_flush(self, below: u64) {
        let mark = &self.state.flushed_below;
        let _ = mark.compare_exchange(below, 0, Ordering::Relaxed, Ordering::Relaxed);
        self.follow(|block| &block.state.flushed_below);
    }

    /// Draws a sequence number, which nobody else gets.
    pub(crate) fn draw(self) -> u64 {
        let drawn = self.sequences.next.fetch_add(1, Ordering::AcqRel);
        self.follow(|block| &block.sequences.next);
        drawn
    }

    /// As [`Twin::draw`], but only if the next number is still `next`; otherwise what it is.
    pub(crate) fn draw_if(self, next: u64) -> Result<(), u64> {
        let number = &self.sequences.next;
        number.compare_exchange_weak(next, next + 1, Ordering::AcqRel, Ordering::Relaxed)?;
        self.follow(|block| &block.sequences.next);
        Ok(())
    }

    /// Counts an opened segment.
    pub(crate) fn count_opened(self) {
        self.sequences.opened.fetch_add(1, Ordering::Relaxed);
        self.follow(|block| &block.sequences.opened);
    }

    /// Every loss on record was seen to.
    pub(crate) fn forget_losses(self) {
        for at in 0..LOSSES_RECORDED {
            if self.losses.word(at).load(Ordering::Relaxed) != 0 {
                self.store(|block| block.losses.word(at), 0, Ordering::Relaxed);
            }
        }
        self.store(|block| &block.losses.overflowed, 0, Ordering::Relaxed);
    }

    /// A recorded loss was seen to.
    #[cfg(not(loom))]
    pub(crate) fn forget_loss(self, lost: &Range<usize>) {
        let word = LossRecord::word_of(lost);
        let is_it = |&at: &usize| self.losses.word(at).load(Ordering::Relaxed) == word;
        if let Some(at) = (0..LOSSES_RECORDED).find(is_it) {
            self.store(|block| block.losses.word(at), 0, Ordering::Relaxed);
        }
    }
}

shared! {
    /// Ranges of the arena that turned to zeros and that nobody has seen to yet. The handler writes them
    /// down before it puts the zeros there; a process that takes over reads them.
    #[repr(C, align(64))]
    #[derive(Default)]
    pub(crate) struct LossRecord {
        /// Zero, or a 4 KiB page's number and, in the upper 24 bits, how many such pages.
        words: [[AtomicU64; 16]; 16],
        /// Whether there were more.
        overflowed: AtomicU32,
    }
}

/// Losses that there is room for.
const LOSSES_RECORDED: usize = 256;

/// The unit of a recorded loss.
const RECORD_UNIT: usize = 4096;

impl LossRecord {
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words[at / 16][at % 16]
    }

    fn word_of(lost: &Range<usize>) -> u64 {
        let units = (lost.end - lost.start).div_ceil(RECORD_UNIT) as u64;
        units << 40 | (lost.start / RECORD_UNIT) as u64
    }

    /// Writes a loss down. One thread at a time does. It is called in a signal handler: it loads and
    /// stores.
    #[cfg(not(any(miri, loom)))]
    pub(crate) fn note(&self, lost: &Range<usize>) {
        let is_free = |&at: &usize| self.word(at).load(Ordering::Relaxed) == 0;
        match (0..LOSSES_RECORDED).find(is_free) {
            Some(at) => self.word(at).store(Self::word_of(lost), Ordering::Release),
            None => self.overflowed.store(1, Ordering::Release),
        }
    }

    /// What is on record; `None` if there was more.
    pub(crate) fn read(&self) -> Option<Vec<Range<usize>>> {
        let words = (0..LOSSES_RECORDED).map(|at| self.word(at).load(Ordering::Acquire));
        let range = |word: u64| {
            let (first, units) = ((word & ((1 << 40) - 1)) as usize, (word >> 40) as usize);
            first * RECORD_UNIT..(first + units) * RECORD_UNIT
        };
        let is_whole = self.overflowed.load(Ordering::Acquire) == 0;
        is_whole.then(|| words.filter(|&word| word != 0).map(range).collect())
    }
}

impl Superblock {
    /// Losses that nobody has seen to.
    pub(crate) fn losses(&self) -> &LossRecord {
        &self.losses
    }

    /// Goes on with sequence numbers that nobody has drawn, though the copy that this block was restored
    /// from may not have followed the last ones.
    #[cfg(not(any(miri, loom)))]
    pub(crate) fn skip_sequences(&self) {
        const SKIPPED: u64 = 1 << 16;
        self.sequences.next.fetch_add(SKIPPED, Ordering::Relaxed);
    }
}

impl SequenceLine {
    /// The next sequence number.
    pub(crate) fn next_now(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}

impl IdentityLine {
    #[expect(clippy::cast_possible_truncation, reason = "half of a hash is a check")]
    fn check_of(&self) -> u32 {
        let words = [
            self.magic.load(Ordering::Relaxed),
            u64::from(self.version.load(Ordering::Relaxed)),
            u64::from(self.hash_version.load(Ordering::Relaxed)),
            self.len.load(Ordering::Relaxed),
            u64::from(self.page_len.load(Ordering::Relaxed)),
            u64::from(self.pages.load(Ordering::Relaxed)),
            u64::from(self.workers.load(Ordering::Relaxed)),
            u64::from(self.directory_bits.load(Ordering::Relaxed)),
            self.seed.load(Ordering::Relaxed),
            u64::from(self.made.load(Ordering::Relaxed)),
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        rapidhash_v3_nano_inline::<true, false>(&bytes, &RapidSecrets::seed(MAGIC)) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity {
        len: 64 << 20,
        page_len: 64 << 10,
        pages: 1024,
        workers: 4,
        directory_bits: [4, 11],
    };

    #[test]
    fn what_was_formatted_is_read() {
        let block = Superblock::default();
        let block = Twin::alone(&block);
        assert_eq!(block.read(), Err(Unreadable::Empty));
        block.format(&IDENTITY, 77, 1000);
        assert_eq!(block.read(), Ok((IDENTITY, 77, 1000)));
        assert_eq!(block.in_use(), Use::None);
        block.set_use(Use::Clean);
        assert_eq!(block.in_use(), Use::Clean);
    }

    #[test]
    fn what_is_not_ours_is_told_apart() {
        let block = Superblock::default();
        let block = Twin::alone(&block);
        block.format(&IDENTITY, 77, 1000);
        block.identity.pages.store(1025, Ordering::Relaxed);
        assert_eq!(block.read(), Err(Unreadable::Damaged));
        block
            .identity
            .version
            .store(LAYOUT_VERSION + 1, Ordering::Relaxed);
        assert_eq!(block.read(), Err(Unreadable::Version(LAYOUT_VERSION + 1)));
        block.identity.magic.store(MAGIC + 1, Ordering::Relaxed);
        assert_eq!(block.read(), Err(Unreadable::Foreign));
    }

    /// Others read what this process has written: nothing may lie where it does not say.
    #[test]
    fn lines_lie_where_they_lay_in_version_3() {
        assert_eq!(LAYOUT_VERSION, 3, "another version may lie otherwise");
        assert_eq!(size_of::<Superblock>(), 4096);
        assert_eq!(std::mem::offset_of!(Superblock, identity), 0);
        assert_eq!(std::mem::offset_of!(Superblock, state), 64);
        assert_eq!(std::mem::offset_of!(Superblock, sequences), 128);
        assert_eq!(std::mem::offset_of!(Superblock, flash), 192);
        assert_eq!(std::mem::offset_of!(IdentityLine, version), 8);
        assert_eq!(std::mem::offset_of!(IdentityLine, seed), 40);
        assert_eq!(std::mem::offset_of!(IdentityLine, check), 52);
        assert_eq!(size_of::<IdentityLine>(), 64);
    }
}
