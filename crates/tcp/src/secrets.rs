//! Values that an outsider must not be able to guess: initial sequence numbers, timestamp offsets,
//! ports and SYN cookies.
//!
//! A SYN cookie (RFC 4987, section 3.6) is an initial sequence number that encodes what the SYN
//! asked for. The client's acknowledgment returns it, so no state need be kept:
//!
//! ```text
//! 31        27 26      24 23                            0
//! minute      MSS        keyed hash of the four-tuple, the peer's number and the minute
//! ```
//! The other options of the SYN are encoded in the timestamp that is returned with it:
//!
//! ```text
//! 31                               6      5 4          0
//! clock, in 64 ms                    SACK   window scale, or 31 for none
//! ```
//! Each minute has its own hash key, so a cookie, and anything that is learnt about a key, is valid
//! for two minutes at most.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::seq::SeqNumber;
use crate::time::Instant;
use crate::wire::four_tuple::FourTuple;

/// The values of MSS that a cookie can encode.
const MSS: [u16; 8] = [536, 1024, 1220, 1300, 1360, 1440, 1460, 8940];

/// No window scale in a cookie's timestamp.
const NO_SCALE: u32 = 31;

/// Seconds of a "minute" of the cookies.
const MINUTE: u64 = 64;

/// Derives all of them from one secret.
pub(crate) struct Secrets {
    keys: [(u64, u64); 2],
}

/// What a cookie encodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    /// The peer's MSS, rounded down to one of [`MSS`].
    pub(crate) mss: u16,
}

impl Secrets {
    pub(crate) fn new(secret: &[u8; 32]) -> Secrets {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| secret[at + byte]));
        Secrets {
            keys: [(word(0), word(8)), (word(16), word(24))],
        }
    }

    /// The key of the table of connections.
    pub(crate) fn table_key(&self) -> [u64; 4] {
        std::array::from_fn(|number| {
            let mut hasher = self.hasher(0, b"table");
            hasher.write_usize(number);
            // Odd, so that multiplication by it loses no bit.
            hasher.finish() | 1
        })
    }

    /// The first sequence number of a connection: RFC 6528, section 3, with its clock of 4 µs.
    #[expect(clippy::cast_possible_truncation, reason = "the clock wraps around")]
    pub(crate) fn initial_sequence(&self, tuple: &FourTuple, now: Instant) -> SeqNumber {
        let offset = self.of_tuple(0, b"sequence", tuple).finish() as u32;
        SeqNumber(offset) + (now.micros() / 4) as u32
    }

    /// The offset of a connection's timestamps from our clock (RFC 7323, section 7.1).
    #[expect(clippy::cast_possible_truncation, reason = "half of it is enough")]
    pub(crate) fn timestamp_offset(&self, tuple: &FourTuple) -> u32 {
        self.of_tuple(0, b"timestamps", tuple).finish() as u32
    }

    /// Where the search for a free port begins (RFC 6056, section 3.3.3).
    pub(crate) fn port_offset(&self, tuple: &FourTuple) -> u64 {
        let tuple = FourTuple {
            local_port: 0,
            ..*tuple
        };
        self.of_tuple(0, b"port", &tuple).finish()
    }

    /// A pseudo-random number for each second and each `what`.
    pub(crate) fn drawn(&self, second: u64, what: u128) -> u64 {
        let mut hasher = self.hasher(0, b"drawn");
        hasher.write_u64(second);
        hasher.write_u128(what);
        hasher.finish()
    }

    /// The cookie for a SYN with the sequence number `irs`.
    pub(crate) fn cookie(
        &self,
        tuple: &FourTuple,
        irs: SeqNumber,
        mss: u16,
        now: Instant,
    ) -> SeqNumber {
        let index = MSS.iter().rposition(|&known| known <= mss).unwrap_or(0);
        let index = u32::try_from(index).expect("one of eight");
        let minute = minute(now);
        let head = (u32::try_from(minute & 31).expect("below 32") << 3) | index;
        SeqNumber((head << 24) | self.cookie_hash(tuple, irs, minute, index))
    }

    /// What a cookie encodes, if it is valid and not too old.
    pub(crate) fn open_cookie(
        &self,
        tuple: &FourTuple,
        irs: SeqNumber,
        cookie: SeqNumber,
        now: Instant,
    ) -> Option<Cookie> {
        let index = (cookie.0 >> 24) & 7;
        let told = u64::from(cookie.0 >> 27);
        let this = minute(now);
        let minute = [Some(this), this.checked_sub(1)]
            .into_iter()
            .flatten()
            .find(|minute| minute & 31 == told)?;
        let hash = self.cookie_hash(tuple, irs, minute, index);
        (cookie.0 & 0xff_ffff == hash).then(|| Cookie {
            mss: MSS[index as usize],
        })
    }

    #[expect(clippy::cast_possible_truncation, reason = "24 bits are wanted")]
    fn cookie_hash(&self, tuple: &FourTuple, irs: SeqNumber, minute: u64, index: u32) -> u32 {
        let (first, second) = self.cookie_key(minute);
        let mut hasher = SipHasher13::new_with_keys(first, second);
        write_tuple(&mut hasher, tuple);
        hasher.write_u32(irs.0);
        hasher.write_u32(index);
        hasher.finish() as u32 & 0xff_ffff
    }

    /// The key of a minute's cookies.
    fn cookie_key(&self, minute: u64) -> (u64, u64) {
        let half = |number: u8| {
            let mut hasher = self.hasher(1, b"cookies");
            hasher.write_u64(minute);
            hasher.write_u8(number);
            hasher.finish()
        };
        (half(0), half(1))
    }

    fn of_tuple(&self, key: usize, what: &[u8], tuple: &FourTuple) -> SipHasher13 {
        let mut hasher = self.hasher(key, what);
        write_tuple(&mut hasher, tuple);
        hasher
    }

    fn hasher(&self, key: usize, what: &[u8]) -> SipHasher13 {
        let (first, second) = self.keys[key];
        let mut hasher = SipHasher13::new_with_keys(first, second);
        hasher.write(what);
        hasher
    }
}

fn write_tuple(hasher: &mut SipHasher13, tuple: &FourTuple) {
    hasher.write_u128(tuple.local.bits());
    hasher.write_u128(tuple.remote.bits());
    hasher.write_u16(tuple.local_port);
    hasher.write_u16(tuple.remote_port);
}

fn minute(now: Instant) -> u64 {
    now.micros() / 1_000_000 / MINUTE
}

/// A timestamp that encodes what a SYN offered.
pub(crate) fn cookie_timestamp(now: Instant, window_scale: Option<u8>, sack: bool) -> u32 {
    let scale = window_scale.map_or(NO_SCALE, |scale| u32::from(scale.min(14)));
    let told = u32::from(sack) << 5 | scale;
    let clock = now.wrapping_millis();
    let value = clock & !63 | told;
    // It must not be ahead of the clock, which later timestamps show (RFC 7323, section 5.4).
    if clock & 63 < told {
        value.wrapping_sub(64)
    } else {
        value
    }
}

/// What a returned timestamp encodes: window scale and SACK.
pub(crate) fn open_cookie_timestamp(echo: u32) -> (Option<u8>, bool) {
    let scale = echo & 31;
    let scale = u8::try_from(scale).ok().filter(|&scale| scale <= 14);
    (scale, echo >> 5 & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Address;

    fn tuple(port: u16) -> FourTuple {
        FourTuple {
            local: Address::v4([192, 0, 2, 1]),
            remote: Address::v4([192, 0, 2, 2]),
            local_port: 11211,
            remote_port: port,
        }
    }

    const fn seconds(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn sequence_numbers_grow_with_time_and_differ_between_connections() {
        let secrets = Secrets::new(&[7; 32]);
        let first = secrets.initial_sequence(&tuple(1), seconds(1));
        assert_eq!(
            secrets.initial_sequence(&tuple(1), seconds(2)),
            first + 250_000
        );
        assert_ne!(secrets.initial_sequence(&tuple(2), seconds(1)), first);
        let others = Secrets::new(&[8; 32]);
        assert_ne!(others.initial_sequence(&tuple(1), seconds(1)), first);
    }

    #[test]
    fn cookies_tell_the_mss_for_two_minutes() {
        let secrets = Secrets::new(&[7; 32]);
        let irs = SeqNumber(99);
        for (mss, told) in [
            (1, 536),
            (536, 536),
            (1459, 1440),
            (1460, 1460),
            (65535, 8940),
        ] {
            for start in [0, 100, 64 * 31, 64 * 32 * 5] {
                let cookie = secrets.cookie(&tuple(1), irs, mss, seconds(start));
                let open = |at| secrets.open_cookie(&tuple(1), irs, cookie, seconds(at));
                assert_eq!(open(start), Some(Cookie { mss: told }));
                assert_eq!(open(start + 64), Some(Cookie { mss: told }));
                assert_eq!(open(start + 128), None);
                assert_eq!(open(start + 64 * 32), None);
            }
        }
    }

    #[test]
    fn each_minute_has_another_key() {
        let secrets = Secrets::new(&[7; 32]);
        let mut keys: Vec<_> = (0..100).map(|minute| secrets.cookie_key(minute)).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 100);
        assert!(keys.iter().all(|(first, second)| first != second));
    }

    #[test]
    fn a_cookie_is_good_for_one_connection() {
        let secrets = Secrets::new(&[7; 32]);
        let cookie = secrets.cookie(&tuple(1), SeqNumber(5), 1460, seconds(1));
        let open = |tuple, irs, cookie| secrets.open_cookie(&tuple, irs, cookie, seconds(1));
        assert!(open(tuple(1), SeqNumber(5), cookie).is_some());
        assert!(open(tuple(2), SeqNumber(5), cookie).is_none());
        assert!(open(tuple(1), SeqNumber(6), cookie).is_none());
        for bit in 0..32 {
            let other = SeqNumber(cookie.0 ^ 1 << bit);
            assert!(open(tuple(1), SeqNumber(5), other).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn timestamps_tell_the_other_options() {
        for scale in [None, Some(0), Some(7), Some(14)] {
            for sack in [false, true] {
                let told = cookie_timestamp(seconds(12_345), scale, sack);
                assert_eq!(open_cookie_timestamp(told), (scale, sack));
            }
        }
    }
}
