//! A stream of requests; its keys are numbered without gaps.

use std::collections::HashMap;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Its number, below [`Stream::keys`].
    pub(crate) key: u32,
    /// Whether the key is overwritten; if not, it is asked for, and stored if it is missing.
    pub(crate) set: bool,
}

/// Requests in the order of time.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// The name that users read.
    pub(crate) name: String,
    /// All requests.
    pub(crate) requests: Vec<Request>,
    /// Distinct keys: the footprint.
    pub(crate) keys: u32,
    /// Requests at the beginning whose misses do not count.
    pub(crate) warm_up: usize,
}

impl Stream {
    /// Numbers the keys in the order in which they first come; there may be 2^32 − 1 of them.
    pub(crate) fn new(
        name: impl Into<String>,
        requests: impl IntoIterator<Item = (u64, bool)>,
        warm_up: usize,
    ) -> Stream {
        let mut numbers = HashMap::new();
        let requests = requests.into_iter().map(|(key, set)| {
            let next = u32::try_from(numbers.len()).expect("fewer than 2^32 distinct keys");
            Request {
                key: *numbers.entry(key).or_insert(next),
                set,
            }
        });
        let requests = requests.collect();
        let keys = u32::try_from(numbers.len()).expect("fewer than 2^32 distinct keys");
        Stream {
            name: name.into(),
            requests,
            keys,
            warm_up,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_numbered_as_they_come() {
        let stream = Stream::new("s", [(9, false), (7, true), (9, true)], 0);
        let keys: Vec<u32> = stream.requests.iter().map(|request| request.key).collect();
        assert_eq!((keys.as_slice(), stream.keys), (&[0, 1, 0][..], 2));
        assert!(stream.requests[1].set);
    }
}
