//! Replies that the kernel has not taken yet.

use std::collections::VecDeque;
use std::io::IoSlice;

use coua_store::Pinned;
use coua_transport::sockets::{Sent, Stream};

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
}

impl ReplyQueue {
    /// Whether everything has been sent.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.value.is_none()
    }

    /// Keeps a copy of `bytes`.
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
            match stream.send(&pool.bytes(&piece.block)[piece.start..piece.end]) {
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
            let len = value.pinned.value_len() + value.tail.len();
            let start = value.sent;
            let pieces = value.pinned.chunks().chain(std::iter::once(value.tail));
            let drained = send_pieces(stream, pieces, len, &mut value.sent);
            *bytes_sent += (value.sent - start) as u64;
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
        match stream.send_vectored(&slices[..count]) {
            Sent::Bytes(bytes) => *sent += bytes,
            Sent::Full => return Drained::Blocked,
            Sent::Broken => return Drained::Broken,
        }
    }
    Drained::All
}
