//! Replies that the kernel has not taken yet.

use std::collections::VecDeque;
use std::io::IoSlice;

use coua_memory_errors::check;
use coua_store::Pinned;
use coua_transport::{Sent, Stream};

use crate::buffers::{BLOCK_SIZE_MAX, Block, Pool};

/// How many pieces of a value one system call sends.
const PIECES_PER_SEND: usize = 64;

/// Bytes in blocks, then perhaps a pinned value and what follows it.
///
/// Nothing is executed for a connection whose queue is not empty, so it holds the replies of one
/// flush at most: what the output buffer held, and one value.
#[derive(Default)]
pub struct ReplyQueue {
    blocks: VecDeque<Piece>,
    value: Option<PinnedValue>,
}

struct Piece {
    block: Block,
    start: usize,
    end: usize,
}

struct PinnedValue {
    pinned: Pinned,
    /// What follows the value.
    tail: &'static [u8],
    /// Bytes of value and tail that have been sent.
    sent: usize,
}

/// There was no memory for the replies; they are lost, and the connection must be closed.
#[derive(Debug)]
pub struct NoMemory;

/// What sending from the queue came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// The queue is empty.
    All,
    /// The kernel takes no more at the moment.
    Blocked,
    /// The connection is broken.
    Broken,
    /// The machine has lost a part of what was sent or is still to be sent.
    Lost,
}

impl ReplyQueue {
    /// Whether everything has been sent.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.value.is_none()
    }

    /// Keeps a copy of `bytes`.
    ///
    /// # Errors
    /// [`NoMemory`] where the pool has no block left; a part may have been kept.
    pub fn push(&mut self, pool: &mut Pool, mut bytes: &[u8]) -> Result<(), NoMemory> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_SIZE_MAX));
            let block = pool.take(now.len()).ok_or(NoMemory)?;
            pool.bytes_mut(&block)[..now.len()].copy_from_slice(now);
            self.blocks.push_back(Piece {
                block,
                start: 0,
                end: now.len(),
            });
            bytes = later;
        }
        Ok(())
    }

    /// Keeps a value in its place in the store, and the `tail` behind it; `sent` bytes of both
    /// have gone out already.
    pub fn push_value(&mut self, pinned: Pinned, tail: &'static [u8], sent: usize) {
        debug_assert!(self.value.is_none());
        self.value = Some(PinnedValue { pinned, tail, sent });
    }

    /// Sends what the kernel takes; `bytes_sent` counts it.
    pub fn drain(&mut self, pool: &mut Pool, stream: &Stream, bytes_sent: &mut u64) -> Drained {
        while let Some(piece) = self.blocks.front_mut() {
            let Some(sent) = send_block(pool, piece, stream) else {
                return Drained::Lost;
            };
            match sent {
                Sent::Bytes(count) => {
                    *bytes_sent += count as u64;
                    piece.start += count;
                }
                Sent::Full => return Drained::Blocked,
                Sent::Broken => return Drained::Broken,
            }
            if piece.start == piece.end
                && let Some(piece) = self.blocks.pop_front()
            {
                pool.give_back(piece.block);
            }
        }
        if let Some(value) = &mut self.value {
            if value.pinned.is_doubtful() {
                return Drained::Lost;
            }
            // The last bytes leave when it is known that nothing before them was lost.
            let body_len = value.pinned.value_len().saturating_sub(1);
            let start = value.sent;
            let body = up_to(value.pinned.chunks(), body_len);
            let mut drained = send_pieces(stream, body, body_len, &mut value.sent);
            if drained == Drained::All && !value.pinned.is_doubtful() {
                let last = value.pinned.chunks().last();
                let last = last.and_then(<[u8]>::last_chunk::<1>);
                let last = last.map_or([0], |last| *last);
                if value.pinned.is_doubtful() {
                    return Drained::Lost;
                }
                let last = &last[..value.pinned.value_len() - body_len];
                let mut sent = value.sent - body_len;
                let len = last.len() + value.tail.len();
                // The longest tail has seven bytes.
                let mut end = [0; 8];
                end[..last.len()].copy_from_slice(last);
                end[last.len()..len].copy_from_slice(value.tail);
                while drained == Drained::All && sent < len {
                    match stream.send(&end[sent..len]) {
                        Sent::Bytes(count) => sent += count,
                        Sent::Full => drained = Drained::Blocked,
                        Sent::Broken => drained = Drained::Broken,
                    }
                }
                value.sent = body_len + sent;
            }
            *bytes_sent += (value.sent - start) as u64;
            if drained == Drained::Broken {
                value.pinned.chunks().for_each(|chunk| {
                    let _ = check(chunk);
                });
            }
            if value.pinned.is_doubtful() {
                return Drained::Lost;
            }
            if drained != Drained::All {
                return drained;
            }
            self.value = None;
        }
        Drained::All
    }

    /// Gives all memory back; what has not been sent is lost.
    pub fn clear(&mut self, pool: &mut Pool) {
        for piece in self.blocks.drain(..) {
            pool.give_back(piece.block);
        }
        self.value = None;
    }
}

/// Sends a copy of a block, which nothing takes back: so it is asked before whether the machine has lost
/// the block. `None` if so.
#[inline(never)]
fn send_block(pool: &mut Pool, piece: &Piece, stream: &Stream) -> Option<Sent> {
    let mut room = [0; BLOCK_SIZE_MAX];
    let copy = &mut room[..piece.end - piece.start];
    copy.copy_from_slice(&pool.bytes(&piece.block)[piece.start..piece.end]);
    (!pool.is_lost(&piece.block)).then(|| stream.send(copy))
}

/// The first `len` bytes of `pieces`.
pub fn up_to<'p>(
    pieces: impl Iterator<Item = &'p [u8]> + Clone,
    len: usize,
) -> impl Iterator<Item = &'p [u8]> + Clone {
    pieces.scan(len, |left, piece| {
        let piece = &piece[..piece.len().min(*left)];
        *left -= piece.len();
        Some(piece)
    })
}

/// Sends `pieces`, `len` bytes in all, of which `sent` have gone out already.
pub fn send_pieces<'p>(
    stream: &Stream,
    pieces: impl Iterator<Item = &'p [u8]> + Clone,
    len: usize,
    sent: &mut usize,
) -> Drained {
    while *sent < len {
        let mut slices = [IoSlice::new(&[]); PIECES_PER_SEND];
        let mut count = 0;
        let mut skip = *sent;
        for piece in pieces.clone() {
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            slices[count] = IoSlice::new(&piece[skip..]);
            skip = 0;
            count += 1;
            if count == PIECES_PER_SEND {
                break;
            }
        }
        if count == 0 {
            // A piece that is lost has no length any more.
            return Drained::Lost;
        }
        match stream.send_vectored_more(&slices[..count]) {
            Sent::Bytes(bytes) => *sent += bytes,
            Sent::Full => return Drained::Blocked,
            Sent::Broken => return Drained::Broken,
        }
    }
    Drained::All
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpStream;
    use std::sync::Arc;

    use coua_store::{Access, Config, Expiry, Put, Store, UnixSeconds};
    use coua_transport::{Accepted, Listener, Sent, Stream, TcpOptions};

    use super::{Drained, ReplyQueue};
    use crate::buffers::Pool;

    const NOW: UnixSeconds = UnixSeconds(1_000_000);

    fn pair() -> (Stream, TcpStream) {
        let address = "127.0.0.1:0".parse().expect("an address");
        let listeners = Listener::tcp(address, 1, TcpOptions { backlog: 4 }).expect("a port");
        let peer = TcpStream::connect(listeners[0].address().expect("TCP")).expect("connected");
        loop {
            if let Accepted::Stream(stream) = listeners[0].accept() {
                return (stream, peer);
            }
        }
    }

    #[test]
    fn a_reader_that_comes_late_gets_every_byte_in_order() {
        let store = Store::new(
            Config {
                memory: 32 << 20,
                ..Config::default()
            },
            NOW,
        );
        let store = store.expect("a store");
        let mut pool = Pool::new(Arc::clone(&store), 8);
        let mut worker = store.worker(0);
        let mut burst = worker.burst(NOW);
        let value: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let key = burst.key(b"large");
        let _ = burst.store(&key, &Put::set(0, Expiry::NEVER), &value);
        let item = burst.get(&key, Access::default()).expect("it was stored");
        let pinned = burst.pin(&item).expect("pins are free");

        let (stream, mut peer) = pair();
        let mut before = 0;
        // The kernel may make room once more, when what was sent has reached the other side: on a
        // machine that does much else that takes its time.
        let mut quiet = 0;
        while quiet < 200 {
            match stream.send(&[b'-'; 1 << 16]) {
                Sent::Bytes(count) => (before, quiet) = (before + count, 0),
                _ => quiet += 1,
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let head: Vec<u8> = (0..50_000_u32)
            .map(|i| u8::try_from(i % 251).unwrap_or(0))
            .collect();
        let mut queue = ReplyQueue::default();
        queue.push(&mut pool, &head).expect("blocks");
        queue.push_value(pinned, b"\r\nEND\r\n", 3);
        let mut sent = 0;
        assert_eq!(queue.drain(&mut pool, &stream, &mut sent), Drained::Blocked);
        assert_eq!(sent, 0);

        let expected = [&head[..], &value[3..], b"\r\nEND\r\n"].concat();
        let total = before + expected.len();
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; total];
            peer.read_exact(&mut got).expect("all of it");
            got
        });
        while queue.drain(&mut pool, &stream, &mut sent) == Drained::Blocked {
            std::thread::yield_now();
        }
        assert!(queue.is_empty());
        assert_eq!(sent, expected.len() as u64);
        assert!(reader.join().expect("the reader")[before..] == expected);
        assert_eq!((pool.blocks_taken(), store.stats().memory_held), (0, 0));
    }
}
