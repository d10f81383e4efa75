//! Consistent hashing with MD5, as libmemcached and spymemcached have it.
//!
//! A server has 40 hashes on the ring, scaled by its weight: MD5 of `HOST-i` for port 11211, of
//! `HOST:PORT-i` for another, for `i` from 0 on. Each gives four points, which are its four little-endian
//! words. A key's place is the first word of its own MD5; it belongs to the next point at or behind it.
//!
//! ```text
//! MD5   ┌─────────┬─────────┬─────────┬─────────┐
//!       │ point 0 │ point 1 │ point 2 │ point 3 │   little-endian u32 each
//!       └─────────┴─────────┴─────────┴─────────┘
//! ```

use md5::{Digest, Md5};

use super::Place;

/// The port that is not part of a server's name on the ring.
const DEFAULT_PORT: u16 = 11211;

/// Points of a server of mean weight.
const POINTS: u16 = 160;

const POINTS_PER_HASH: u16 = 4;

/// Points in rising order, each with its server.
#[derive(Debug)]
pub(super) struct Ring {
    points: Vec<(u32, u32)>,
}

impl Ring {
    /// `exact` gives servers of equal weight all their points, as spymemcached does.
    pub(super) fn new(places: &[Place], exact: bool) -> Self {
        let is_even = places.iter().all(|place| place.weight == places[0].weight);
        let total: u64 = places.iter().map(|place| u64::from(place.weight)).sum();
        let mut points = Vec::new();
        for (server, place) in (0..).zip(places) {
            let hashes = match exact && is_even {
                true => u32::from(POINTS / POINTS_PER_HASH),
                false => hashes(place.weight, total, places.len()),
            };
            for index in 0..hashes {
                let name = match place.port {
                    DEFAULT_PORT => format!("{}-{index}", place.host),
                    port => format!("{}:{port}-{index}", place.host),
                };
                let digest: [u8; 16] = Md5::digest(name).into();
                let words = digest.as_chunks::<4>().0.iter();
                points.extend(words.map(|word| (u32::from_le_bytes(*word), server)));
            }
        }
        // Of equal points, libmemcached finds the first server's, and spymemcached keeps the last's.
        let rank = |server: u32| if exact { u32::MAX - server } else { server };
        points.sort_by_key(|&(point, server)| (point, rank(server)));
        Ring { points }
    }

    pub(super) fn home(&self, key: &[u8]) -> usize {
        let at = self.position(key);
        self.points.get(at).map_or(0, |point| point.1 as usize)
    }

    /// Walks on from the key's place to a point whose server is there. That is where a ring without the
    /// others' points has the key.
    pub(super) fn among(&self, key: &[u8], is_there: impl Fn(usize) -> bool) -> Option<usize> {
        let (before, behind) = self.points.split_at(self.position(key));
        let mut servers = behind.iter().chain(before).map(|point| point.1 as usize);
        servers.find(|&server| is_there(server))
    }

    fn position(&self, key: &[u8]) -> usize {
        let digest: [u8; 16] = Md5::digest(key).into();
        let [a, b, c, d, ..] = digest;
        let hash = u32::from_le_bytes([a, b, c, d]);
        let at = self.points.partition_point(|point| point.0 < hash);
        match at == self.points.len() {
            true => 0,
            false => at,
        }
    }
}

/// Hashes of a server, in the single precision that the libraries compute in.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
#[allow(clippy::cast_sign_loss)] // it is what C does, and no number is negative
fn hashes(weight: u32, total: u64, servers: usize) -> u32 {
    let share = weight as f32 / total as f32;
    let scaled = share * f32::from(POINTS) / f32::from(POINTS_PER_HASH) * servers as f32;
    ((f64::from(scaled) + 0.000_000_000_1) as f32).floor() as u32
}

#[cfg(test)]
mod tests;
