//! A network card whose frames are also written to a file for Wireshark and tcpdump.
//!
//! # Format
//! pcapng, little-endian: a section header, an interface description, and a packet block for each
//! frame. Each block begins with its type, and both begins and ends with its length in bytes.
//!
//! ```text
//! section     0x0a0d0d0a  28  0x1a2b3c4d  version 1.0  section length unknown (-1)          28
//! interface   1           32  Ethernet, 0  no limit 0   option 9 (time unit): 10^-9 s, end   32
//! packet      6          len  interface 0  time (high, low)  captured len  len  frame, to a
//!                             multiple of 4 bytes  option 2 (flags): 1 received, 2 sent, end len
//! ```
//!
//! Frames are written as they were handed to the card. If the card fills in checksums or cuts
//! segments, the file has the frames without checksums and uncut.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use coua_tcp::nic::{Features, Frame, Nic, Offload};

/// At most this many bytes are collected before they are written.
const BUFFER_LEN: usize = 256 << 10;
/// What a packet block holds besides the frame: 28 bytes of numbers, up to 3 of padding, 12 of
/// options, 4 of length.
const BESIDE_FRAME: usize = 28 + 3 + 12 + 4;
const RECEIVED: u32 = 1;
const SENT: u32 = 2;

/// A [`Nic`] around another one. It appends every frame that is received or committed to a file.
///
/// `clock` returns the time in nanoseconds since 1970-01-01 00:00 UTC. It is called once for all
/// frames of a [`Nic::receive`], and for each [`Nic::commit`].
///
/// Frames are collected in 256 KiB of memory. They are written when that is full, when a `receive`
/// finds nothing, and when the card is dropped. Writing blocks until the file has taken them. A
/// longer frame, which no driver has, is left out.
///
/// If writing fails, the trace ends and the traffic goes on; [`Traced::take_error`] returns the
/// error.
pub struct Traced<N, W: Write, C> {
    nic: N,
    clock: C,
    trace: Trace<W>,
}

impl<N: Nic, W: Write, C: FnMut() -> u64> Traced<N, W, C> {
    /// Begins a trace of what goes through `nic`, at the beginning of `file`.
    ///
    /// # Errors
    /// If the file's header cannot be written.
    pub fn new(nic: N, file: W, clock: C) -> io::Result<Traced<N, W, C>> {
        let mut trace = Trace {
            file,
            buffer: Vec::with_capacity(BUFFER_LEN),
            state: State::Running,
        };
        trace.buffer.extend_from_slice(&file_header());
        trace.write_out();
        match trace.take_error() {
            Some(error) => Err(error),
            None => Ok(Traced { nic, clock, trace }),
        }
    }
}

impl<N, W: Write, C> Traced<N, W, C> {
    /// The error that ended the trace, if there was one; returned once.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.trace.take_error()
    }

    /// The card itself.
    pub fn card(&self) -> &N {
        &self.nic
    }

    /// The card itself, for what only that card can do.
    pub fn inner(&mut self) -> &mut N {
        &mut self.nic
    }
}

impl<N: Nic, W: Write, C: FnMut() -> u64> Nic for Traced<N, W, C> {
    fn features(&self) -> Features {
        self.nic.features()
    }

    fn receive(&mut self) -> usize {
        let count = self.nic.receive();
        if count == 0 {
            self.trace.write_out();
        } else if self.trace.is_running() {
            let now_ns = (self.clock)();
            for at in 0..count {
                self.trace
                    .append(RECEIVED, now_ns, self.nic.frame(at).bytes);
            }
        }
        count
    }

    fn frame(&self, at: usize) -> Frame<'_> {
        self.nic.frame(at)
    }

    fn release(&mut self) {
        self.nic.release();
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        self.nic.slot()
    }

    fn commit(&mut self, len: usize, offload: Offload) {
        // The open slot is returned again, with what was written to it.
        if self.trace.is_running()
            && let Some(slot) = self.nic.slot()
        {
            self.trace.append(SENT, (self.clock)(), &slot[..len]);
        }
        self.nic.commit(len, offload);
    }

    fn flush(&mut self) {
        self.nic.flush();
    }
}

impl<N: AsFd, W: Write, C> AsFd for Traced<N, W, C> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.nic.as_fd()
    }
}

/// The file, and the bytes that are not in it yet.
struct Trace<W: Write> {
    file: W,
    buffer: Vec<u8>,
    state: State,
}

enum State {
    Running,
    /// It has ended, and the error has not been returned yet.
    Failed(io::Error),
    Ended,
}

impl<W: Write> Trace<W> {
    fn is_running(&self) -> bool {
        matches!(self.state, State::Running)
    }

    fn take_error(&mut self) -> Option<io::Error> {
        if self.is_running() {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Failed(error) => Some(error),
            State::Running | State::Ended => None,
        }
    }

    fn append(&mut self, direction: u32, now_ns: u64, frame: &[u8]) {
        let block_len_max = frame.len() + BESIDE_FRAME;
        if self.buffer.len() + block_len_max > BUFFER_LEN {
            self.write_out();
        }
        let (Ok(frame_len), true) = (u32::try_from(frame.len()), self.is_running()) else {
            return;
        };
        if block_len_max > BUFFER_LEN {
            return;
        }
        let padding = frame_len.wrapping_neg() % 4;
        let block_len = 28 + frame_len + padding + 12 + 4;
        let time = [(now_ns >> 32) as u32, (now_ns & 0xffff_ffff) as u32];
        self.words(&[6, block_len, 0, time[0], time[1], frame_len, frame_len]);
        self.buffer.extend_from_slice(frame);
        self.buffer.extend_from_slice(&[0; 3][..padding as usize]);
        self.words(&[4 << 16 | 2, direction, 0, block_len]);
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.buffer.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Writes what was collected. After an error nothing more is collected.
    fn write_out(&mut self) {
        if !self.is_running() || self.buffer.is_empty() {
            return;
        }
        if let Err(error) = self.file.write_all(&self.buffer) {
            self.state = State::Failed(error);
        }
        self.buffer.clear();
    }
}

impl<W: Write> Drop for Trace<W> {
    fn drop(&mut self) {
        self.write_out();
    }
}

fn file_header() -> [u8; 60] {
    let words: [u32; 15] = [
        0x0a0d_0d0a,
        28,
        0x1a2b_3c4d,
        1,
        u32::MAX,
        u32::MAX,
        28,
        1,
        32,
        1,
        0,
        1 << 16 | 9,
        9,
        0,
        32,
    ];
    let mut bytes = [0; 60];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests;
