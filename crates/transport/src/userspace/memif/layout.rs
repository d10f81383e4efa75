//! The memory that a client makes for a connection.
//!
//! ```text
//! region 0   │ rings to the server │ rings to the client │ buffers of each ring, in this order │
//! buffer     │ 2048 bytes, or a multiple of it that holds a frame │ a line's length unused │
//! ```
//! If buffers were a power of two apart, their first lines would all compete for two sets of the
//! cache.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Role;
use super::region::{LINE_LEN, MEMORY_MAX, Memory, Region};
use super::ring::{Ring, bytes};
use super::transmit::Buffers;

/// The length of a buffer is a multiple of this, in bytes.
const BUFFER_UNIT: usize = 2048;

/// Where everything is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Rings for each direction.
    pub(super) queues: usize,
    /// The binary logarithm of the entries of each.
    pub(super) log2_len: u8,
    buffer_len: usize,
}

impl Layout {
    /// For frames of at most `frame_len` bytes; `None` if that is more than a connection may have.
    pub(super) fn new(queues: usize, log2_len: u8, frame_len: usize) -> Option<Layout> {
        let layout = Layout {
            queues,
            log2_len,
            buffer_len: frame_len.next_multiple_of(BUFFER_UNIT),
        };
        (layout.len() as u64 <= MEMORY_MAX).then_some(layout)
    }

    /// Makes the memory, with all rings empty.
    pub(super) fn create(&self) -> io::Result<(Arc<Memory>, OwnedFd)> {
        let (region, file) = Region::create(self.len())?;
        let memory = Arc::new(Memory::new(vec![region]));
        for to_server in [true, false] {
            for queue in 0..self.queues {
                let ring = self.ring(&memory, to_server, queue);
                ring.initialise();
                let buffers = self.buffers(to_server, queue);
                for number in 0..ring.len() {
                    ring.write(number, false, 0, buffers.len);
                    ring.write_offset(number, buffers.start + u32::from(number) * buffers.stride);
                }
            }
        }
        Ok((memory, file))
    }

    /// Bytes of the whole memory.
    pub(super) fn len(&self) -> usize {
        2 * self.queues * (self.ring_len() + self.buffers_len())
    }

    /// Where a ring begins.
    pub(super) fn offset(&self, to_server: bool, queue: usize) -> u32 {
        short(self.place(to_server, queue) * self.ring_len())
    }

    /// A ring in the memory.
    pub(super) fn ring(&self, memory: &Arc<Memory>, to_server: bool, queue: usize) -> Ring {
        let offset = self.offset(to_server, queue);
        Ring::new(memory, 0, offset, self.log2_len, Role::Client).expect("made for it")
    }

    /// The buffers of a ring.
    pub(super) fn buffers(&self, to_server: bool, queue: usize) -> Buffers {
        let before = 2 * self.queues * self.ring_len();
        Buffers {
            start: short(before + self.place(to_server, queue) * self.buffers_len()),
            stride: short(self.stride()),
            len: short(self.buffer_len),
        }
    }

    fn place(&self, to_server: bool, queue: usize) -> usize {
        match to_server {
            true => queue,
            false => self.queues + queue,
        }
    }

    fn ring_len(&self) -> usize {
        bytes(1 << self.log2_len)
    }

    fn buffers_len(&self) -> usize {
        self.stride() << self.log2_len
    }

    fn stride(&self) -> usize {
        self.buffer_len + LINE_LEN
    }
}

fn short(number: usize) -> u32 {
    u32::try_from(number).expect("below MEMORY_MAX")
}
