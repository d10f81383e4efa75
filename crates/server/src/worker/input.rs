//! The buffer that a worker receives into.
//!
//! ```text
//! +----------------+-----------+------------------+--------------------------------+
//! | connection A   | B         | C                | free                           |
//! +----------------+-----------+------------------+--------------------------------+
//! 0                                               filled
//! ```
//! Each active connection has one piece: its leftover input, followed by what has just been
//! received. Requests are executed in this buffer. When no connection is active, the buffer is
//! empty again, except for parked pieces, whose connections wait for memory to keep them elsewhere.

use std::collections::VecDeque;

use crate::session::SessionId;

/// Bytes of the buffer.
const INPUT_LEN: usize = 1 << 20;

/// Bytes that one connection has in the buffer at most.
pub(super) const SESSION_INPUT_LEN: usize = 16 << 10;

/// Pieces that are parked at most.
const PARKED_MAX: usize = 4096;

/// Bytes that one datagram takes in the buffer at most, plus one.
const DATAGRAM_INPUT_LEN: usize = 64 << 10;

/// A session's input that has not been executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionInput {
    /// The session whose input it is.
    pub(super) id: SessionId,
    /// Start of the input in the buffer.
    pub(super) start: usize,
    /// End of the input in the buffer (exclusive).
    pub(super) end: usize,
}

impl SessionInput {
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// The buffer, and which session each part of it belongs to.
pub(super) struct Input {
    buffer: Box<[u8]>,
    filled: usize,
    /// Input that is parsed in the next turn; the input that has waited longest comes first.
    pub(super) active: VecDeque<SessionInput>,
    /// Input for a later turn that stays in the buffer because there is no memory to keep it
    /// elsewhere.
    parked: VecDeque<SessionInput>,
}

impl Input {
    /// Bytes of the buffer and of `parked`, the list that may become long.
    pub(super) const MEMORY: usize = INPUT_LEN + PARKED_MAX * size_of::<SessionInput>();

    pub(super) fn new() -> Input {
        let connections = INPUT_LEN / SESSION_INPUT_LEN;
        Input {
            buffer: vec![0; INPUT_LEN].into_boxed_slice(),
            filled: 0,
            active: VecDeque::with_capacity(connections),
            parked: VecDeque::with_capacity(PARKED_MAX),
        }
    }

    /// Whether nothing is waiting to be parsed.
    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// Whether there is room for one connection's input.
    pub(super) fn has_room(&self) -> bool {
        self.filled + SESSION_INPUT_LEN <= INPUT_LEN
    }

    /// Room for one connection's input; `None` until other input has been executed.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        self.buffer
            .get_mut(self.filled..self.filled + SESSION_INPUT_LEN)
    }

    /// Room for one datagram; `None` until other input has been executed.
    pub(super) fn datagram_room(&mut self) -> Option<&mut [u8]> {
        self.buffer
            .get_mut(self.filled..self.filled + DATAGRAM_INPUT_LEN)
    }

    /// Turns bytes `from..len` of the room into the input of a connection or datagram.
    #[inline]
    pub(super) fn occupy(&mut self, id: SessionId, from: usize, len: usize) -> SessionInput {
        let start = self.filled + from;
        self.filled += len;
        SessionInput {
            id,
            start,
            end: self.filled,
        }
    }

    /// All bytes that have been received.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Leaves a piece in the buffer. False if too many pieces are parked.
    pub(super) fn park(&mut self, input: SessionInput) -> bool {
        let has_room = self.parked.len() < PARKED_MAX;
        if has_room {
            self.parked.push_back(input);
        }
        has_room
    }

    /// The piece that has been parked longest.
    pub(super) fn parked(&self) -> Option<SessionInput> {
        self.parked.front().copied()
    }

    /// Removes that piece.
    pub(super) fn unpark(&mut self) {
        self.parked.pop_front();
        self.reuse();
    }

    /// After a batch: if nothing is active or parked, the whole buffer is free again.
    pub(super) fn reuse(&mut self) {
        if self.active.is_empty() && self.parked.is_empty() {
            self.filled = 0;
        }
    }
}
