//! The superblock: what a process has to know to take over the memory of the one before it.
//!
//! It is the arena's first page. Its first line says how the arena is laid out, and never changes;
//! the others hold what changes seldom. See `store/takeover.rs`.

use super::mapping::shared;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};

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
    /// Writes what never changes. The arena counts as set up once it is [`Use::Running`].
    pub(crate) fn format(&self, identity: &Identity, seed: u64, made: u32) {
        let line = &self.identity;
        let [base, all] = identity.directory_bits.map(u32::from);
        line.magic.store(MAGIC, Ordering::Relaxed);
        line.version.store(LAYOUT_VERSION, Ordering::Relaxed);
        line.hash_version.store(HASH_VERSION, Ordering::Relaxed);
        line.len.store(identity.len, Ordering::Relaxed);
        line.page_len.store(identity.page_len, Ordering::Relaxed);
        line.pages.store(identity.pages, Ordering::Relaxed);
        line.workers.store(identity.workers, Ordering::Relaxed);
        line.directory_bits
            .store(base << 8 | all, Ordering::Relaxed);
        line.seed.store(seed, Ordering::Relaxed);
        line.made.store(made, Ordering::Relaxed);
        line.check.store(line.check_of(), Ordering::Relaxed);
        self.sequences.next.store(1, Ordering::Relaxed);
        self.sequences.opened.store(1, Ordering::Relaxed);
    }

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

    pub(crate) fn set_use(&self, in_use: Use) {
        self.state.in_use.store(in_use as u32, Ordering::Release);
    }

    /// The boot and the file that the arena was last used in.
    pub(crate) fn whereabouts(&self) -> (u64, u64) {
        (
            self.state.boot.load(Ordering::Relaxed),
            self.state.file.load(Ordering::Relaxed),
        )
    }

    pub(crate) fn set_whereabouts(&self, (boot, file): (u64, u64)) {
        self.state.boot.store(boot, Ordering::Relaxed);
        self.state.file.store(file, Ordering::Relaxed);
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
