//! Keys and their hashes.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};

/// A key with its hash, for one or more operations.
#[derive(Clone, Copy)]
pub struct Key<'k> {
    /// The key as the client knows it, 1 to 250 bytes.
    pub bytes: &'k [u8],
    /// Its hash in this store.
    pub hash: KeyHash,
}

/// The part of a key's hash that a slot keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u16);

/// The hash of a key in one store. Each store has its own seed, so its hashes differ from another
/// store's.
///
/// ```text
/// 63       48 47        32 31             10 9            0
/// +----------+------------+-----------------+--------------+
/// |   tag    |    base    |   beside tag    |    bucket    |
/// +----------+------------+-----------------+--------------+
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

    /// Bits that neither place nor tag have, for slots that have room for more than a tag.
    pub(crate) fn beside_tag(self) -> u64 {
        self.0 >> 10 & ((1 << 22) - 1)
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
    /// An odd factor for the length of keys that are hashed as [`words`].
    length_factor: u64,
}

impl Hasher {
    pub(crate) fn new(seed: u64) -> Hasher {
        let secrets = RapidSecrets::seed(seed);
        let length_factor = rapidhash_v3_nano_inline::<true, false>(b"length", &secrets) | 1;
        Hasher {
            secrets,
            length_factor,
        }
    }

    /// Keys of usual lengths take one path, since a branch that goes by a length that differs from
    /// key to key costs as much as the hash.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let Some(mut words) = words(key) else {
            return self.hash_unusual(key);
        };
        // Keys of different lengths may have the same words.
        words[2] ^= (key.len() as u64).wrapping_mul(self.length_factor);
        let mut block = [0; 32];
        for (bytes, word) in block.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        KeyHash(rapidhash_v3_nano_inline::<true, false>(
            &block,
            &self.secrets,
        ))
    }

    /// As [`Hasher::hash`], for keys that are shorter or longer than most.
    #[inline(never)]
    fn hash_unusual(&self, key: &[u8]) -> KeyHash {
        KeyHash(rapidhash_v3_nano_inline::<true, false>(key, &self.secrets))
    }
}

/// Four overlapping words that together cover the whole key, if it has 8 to 32 bytes.
#[inline(always)]
fn words(key: &[u8]) -> Option<[u64; 4]> {
    let length = key.len();
    if !(8..=32).contains(&length) {
        return None;
    }
    let last = length - 8;
    Some([
        word(key, 0),
        word(key, last.min(8)),
        word(key, last.saturating_sub(8)),
        word(key, last),
    ])
}

#[inline(always)]
fn word(key: &[u8], at: usize) -> u64 {
    let bytes = key[at..].first_chunk().expect("eight bytes are left");
    u64::from_ne_bytes(*bytes)
}

/// Whether two keys of one length are equal. Keys are short, so a call to compare them would cost
/// more than the comparison.
#[inline(always)]
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    debug_assert_eq!(a.len(), b.len());
    match (words(a), words(b)) {
        // Word by word: as a loop it may become a call, with all eight words in memory.
        (Some([a, b, c, d]), Some([e, f, g, h])) => (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h) == 0,
        _ => is_same_unusual(a, b),
    }
}

/// As [`is_same`], for keys that are shorter or longer than most.
#[inline(never)]
fn is_same_unusual(a: &[u8], b: &[u8]) -> bool {
    let (whole_a, whole_b) = (a.chunks_exact(8), b.chunks_exact(8));
    let (rest_a, rest_b) = (whole_a.remainder(), whole_b.remainder());
    whole_a.zip(whole_b).all(|(a, b)| a == b) && rest_a.iter().zip(rest_b).all(|(a, b)| a == b)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Keys of every length whose bytes are all alike, and those with one bit changed somewhere.
    /// Under Miri of the lengths at which another path begins.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let is_tried = |length: &usize| !cfg!(miri) || [1, 7, 8, 9, 32, 33, 41].contains(length);
        for length in (1..=70).filter(is_tried) {
            let plain = vec![b'a'; length];
            for at in 0..length {
                let mut changed = plain.clone();
                changed[at] ^= 1;
                keys.push(changed);
            }
            keys.push(plain);
        }
        keys
    }

    #[test]
    fn every_byte_and_the_length_count() {
        let hasher = Hasher::new(7);
        let keys = keys();
        let hashes: std::collections::HashSet<u64> =
            keys.iter().map(|key| hasher.hash(key).0).collect();
        assert_eq!(hashes.len(), keys.len());
    }

    #[test]
    fn keys_are_the_same_when_all_bytes_are() {
        let keys = keys();
        for a in &keys {
            for b in keys.iter().filter(|b| b.len() == a.len()) {
                assert_eq!(is_same(a, b), a == b);
            }
        }
    }

    #[test]
    fn words_cover_keys_of_usual_lengths() {
        assert!(words(b"1234567").is_none());
        assert!(words(&[b'k'; 33]).is_none());
        let bytes: Vec<u8> = (0..32).collect();
        for length in 8..=32 {
            let words = words(&bytes[..length]).unwrap();
            let mut seen: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, bytes[..length]);
        }
    }
}
