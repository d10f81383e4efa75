//! Keys and their hashes.

use crate::index::slot::Tag;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};

/// A key with its hash, for one or more operations.
#[derive(Clone, Copy)]
pub struct Key<'k> {
    /// The key as the client knows it, 1 to 250 bytes.
    pub bytes: &'k [u8],
    /// Its hash in this store.
    pub hash: KeyHash,
}

/// The hash of a key in one store. It differs from store to store, since each has its own seed.
///
/// ```text
/// 63       48 47        32 31             10 9            0
/// +----------+------------+-----------------+--------------+
/// |   tag    |    base    |     unused      |    bucket    |
/// +----------+------------+-----------------+--------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub(crate) u64);

impl KeyHash {
    #[inline]
    pub(crate) fn tag(self) -> Tag {
        Tag((self.0 >> 48) as u16)
    }

    /// The hash bits that the directory's first levels use.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "16 bits")]
    pub(crate) fn base(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// The bits that choose the first bucket; the caller masks them.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
    pub(crate) fn low(self) -> u32 {
        self.0 as u32
    }
}

/// Hashes keys with a seed that clients cannot know, so that they cannot choose keys that collide.
pub(crate) struct Hasher {
    secrets: RapidSecrets,
}

impl Hasher {
    pub(crate) fn new(seed: u64) -> Hasher {
        Hasher {
            secrets: RapidSecrets::seed(seed),
        }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(rapidhash_v3_nano_inline::<true, false>(key, &self.secrets))
    }
}
