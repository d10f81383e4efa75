//! Copies of a few bytes.

/// Copies `from` to `to`, which has the same length, as `copy_from_slice` does. From 8 to 64 bytes it
/// takes two moves, which may overlap, instead of a call of `memcpy`. Most requests and replies are
/// that short, and the call costs more than the copy.
///
/// # Panics
/// If the lengths differ.
#[inline(always)]
pub fn copy_short(to: &mut [u8], from: &[u8]) {
    match from.len() {
        8..=16 => copy_ends::<8>(to, from),
        17..=32 => copy_ends::<16>(to, from),
        33..=64 => copy_ends::<32>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first `N` and the last `N` bytes of `N` to `2 * N` bytes.
#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "one length");
    let ends = (from.first_chunk::<N>(), from.last_chunk::<N>());
    let (Some(first), Some(last)) = ends else {
        unreachable!("at least {N} bytes");
    };
    let (first, last) = (*first, *last);
    if let Some(place) = to.first_chunk_mut() {
        *place = first;
    }
    if let Some(place) = to.last_chunk_mut() {
        *place = last;
    }
}

#[cfg(test)]
mod tests {
    use super::copy_short;

    #[test]
    fn every_length_is_copied_whole_and_nothing_beside_it() {
        let from: Vec<u8> = (1..=200).collect();
        for len in 0..=from.len() {
            let mut to = vec![0; len + 2];
            copy_short(&mut to[1..=len], &from[..len]);
            assert_eq!(&to[1..=len], &from[..len]);
            assert_eq!((to[0], to[len + 1]), (0, 0));
        }
    }

    #[test]
    #[should_panic(expected = "one length")]
    fn the_lengths_must_be_the_same() {
        copy_short(&mut [0; 9], &[1; 10]);
    }
}
