//! A memcached-compatible server as the cache: the stream is replayed over its socket, in order, on
//! one connection.
//!
//! Small values go in windows: behind each get goes a store that only takes effect if the key is
//! missing. The server then does the same as in lock step, but nobody waits for each reply; a store
//! that does nothing leaves the order of eviction as it was. Large values go in lock step, and are
//! only sent on a miss.

use std::sync::Arc;

use super::Misses;
use super::stream::{Request, Stream};
use crate::client::{Client, Error};
use crate::workload::{KeyFormat, Values};

/// One connection, and the format of keys and values.
#[derive(Debug)]
pub(crate) struct Memcached {
    client: Client,
    keys: KeyFormat,
    values: Arc<Values>,
    line: Vec<u8>,
}

impl Memcached {
    /// Bytes of requests in flight: less than any socket's buffer, so that neither side waits for
    /// the other to read.
    const WINDOW: usize = 48 << 10;
    /// Values above this go in lock step.
    const LOCK_STEP: usize = 16 << 10;

    /// Replays on this connection.
    pub(crate) fn new(client: Client, keys: KeyFormat, values: Arc<Values>) -> Memcached {
        Memcached {
            client,
            keys,
            values,
            line: Vec::new(),
        }
    }

    /// Replays the whole stream.
    pub(crate) fn replay(&mut self, stream: &Stream) -> Result<Misses, Error> {
        let mut misses = Misses::default();
        let one = self.values.size() + 2 * self.keys.size() + 40;
        let window = if self.values.size() > Self::LOCK_STEP {
            1
        } else {
            (Self::WINDOW / one).max(1)
        };
        for (index, requests) in stream.requests.chunks(window).enumerate() {
            let first = index * window;
            let counted = stream.warm_up.saturating_sub(first).min(requests.len());
            if let [request] = requests {
                let hit = self.one(*request)?;
                if counted == 0 && !request.set {
                    misses.count(hit);
                }
            } else {
                self.many(requests, counted, &mut misses)?;
            }
        }
        Ok(misses)
    }

    /// How many items the server holds.
    pub(crate) fn items(&mut self) -> Result<u64, Error> {
        Ok(self.client.stats()?.number("curr_items"))
    }

    fn one(&mut self, request: Request) -> Result<bool, Error> {
        let mut text = Vec::new();
        if !request.set {
            self.append_get(request.key, &mut text);
            self.client.send(&text)?;
            if self.found()? {
                return Ok(true);
            }
            text.clear();
        }
        self.append_store(request, &mut text);
        self.client.send(&text)?;
        self.stored()?;
        Ok(false)
    }

    /// Sends a window and counts its gets from the request with number `counted` on.
    fn many(
        &mut self,
        requests: &[Request],
        counted: usize,
        misses: &mut Misses,
    ) -> Result<(), Error> {
        let mut text = Vec::with_capacity(Self::WINDOW);
        for &request in requests {
            if !request.set {
                self.append_get(request.key, &mut text);
            }
            self.append_store(request, &mut text);
        }
        self.client.send(&text)?;
        for (index, request) in requests.iter().enumerate() {
            if !request.set {
                let hit = self.found()?;
                if index >= counted {
                    misses.count(hit);
                }
            }
            self.stored()?;
        }
        Ok(())
    }

    fn append_get(&self, key: u32, text: &mut Vec<u8>) {
        text.extend_from_slice(b"mg ");
        self.keys.append(key, text);
        text.extend_from_slice(b"\r\n");
    }

    fn append_store(&self, request: Request, text: &mut Vec<u8>) {
        text.extend_from_slice(b"ms ");
        self.keys.append(request.key, text);
        let mode = if request.set { "" } else { " ME" };
        text.extend_from_slice(format!(" {}{mode}\r\n", self.values.size()).as_bytes());
        text.extend_from_slice(self.values.of(request.key));
        text.extend_from_slice(b"\r\n");
    }

    fn found(&mut self) -> Result<bool, Error> {
        self.client.read_line(&mut self.line)?;
        match self.line.as_slice() {
            b"HD" => Ok(true),
            b"EN" => Ok(false),
            line => Err(Error::unexpected(line)),
        }
    }

    fn stored(&mut self) -> Result<(), Error> {
        self.client.read_line(&mut self.line)?;
        match self.line.as_slice() {
            // A value that takes a large part of the memory is refused at times: its key will be
            // missed.
            b"HD" | b"NS" | b"SERVER_ERROR out of memory storing object" => Ok(()),
            line => Err(Error::unexpected(line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    /// Keys 0 to 9 over and over; every third request is a set, and `warm_up` requests are warm-up.
    fn stream(warm_up: usize) -> Stream {
        Stream::new("s", (0..1000).map(|at| (at % 10, at % 3 == 0)), warm_up)
    }

    fn replayed(value_size: usize, warm_up: usize) -> (Misses, u64) {
        let client = Client::connect(&fake::serve()).unwrap();
        let values = Arc::new(Values::new(value_size));
        let mut memcached = Memcached::new(client, KeyFormat::TEN, values);
        let misses = memcached.replay(&stream(warm_up)).unwrap();
        (misses, memcached.items().unwrap())
    }

    #[test]
    fn windows_and_lock_step_see_the_same() {
        // Of the first ten requests, numbers 0, 3, 6 and 9 are sets, the others miss.
        for value_size in [8, Memcached::LOCK_STEP + 1] {
            let (misses, items) = replayed(value_size, 0);
            assert_eq!(
                (misses.gets, misses.misses, items),
                (666, 6, 10),
                "{value_size}"
            );
        }
    }

    #[test]
    fn warm_up_is_not_counted() {
        for value_size in [8, Memcached::LOCK_STEP + 1] {
            let (misses, _) = replayed(value_size, 5);
            assert_eq!((misses.gets, misses.misses), (663, 3), "{value_size}");
        }
    }
}
