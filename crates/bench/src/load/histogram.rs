//! Histograms of latencies, and the bytes in which an agent sends them.

use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use hdrhistogram::{Counter, Histogram};

/// Longer latencies are not told apart, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// A histogram of latencies in nanoseconds with `digits` significant digits (0 to 5).
pub(super) fn empty<C: Counter>(digits: u8) -> Histogram<C> {
    Histogram::new_with_max(LATENCY_NS_MAX, digits).expect("the bounds are in order")
}

/// A histogram in HdrHistogram's V2 format.
pub(super) fn to_v2<C: Counter>(latency_ns: &Histogram<C>) -> Vec<u8> {
    let mut bytes = Vec::new();
    V2Serializer::new()
        .serialize(latency_ns, &mut bytes)
        .expect("a vector takes all that a histogram holds");
    bytes
}

/// Reads a histogram with the bounds of `empty`. Lengths and bounds in the bytes are not trusted:
/// they are compared with what they must be.
pub(super) fn from_v2<C: Counter>(bytes: &[u8], empty: &Histogram<C>) -> Option<Histogram<C>> {
    /// The header: a cookie, the length of the rest, and bounds and precision.
    const HEADER: usize = 40;
    let empty = to_v2(empty);
    let (header, counts) = bytes.split_at_checked(HEADER)?;
    let length = u32::try_from(counts.len()).ok()?.to_be_bytes();
    let as_expected =
        header[..4] == empty[..4] && header[4..8] == length && header[8..] == empty[8..HEADER];
    let read = |bytes: &mut &[u8]| Deserializer::new().deserialize(bytes).ok();
    as_expected.then(|| read(&mut &*bytes))?
}
