//! libmemcached's default: a hash modulo the number of servers.

/// Which of `servers` has the key.
pub(super) fn index(key: &[u8], servers: usize) -> usize {
    one_at_a_time(key) as usize % servers
}

/// Bob Jenkins's one-at-a-time hash. libmemcached reads the bytes of a key as C's `char`, which is signed
/// on x86.
fn one_at_a_time(key: &[u8]) -> u32 {
    let mut hash = 0u32;
    for &byte in key {
        hash = hash.wrapping_add(i32::from(byte.cast_signed()).cast_unsigned());
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}
