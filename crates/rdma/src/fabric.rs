//! The seam between the protocol and a network that reads and writes memory: libfabric, or a fabric in virtual time.

/// A piece of this side's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which of the fabric's regions.
    pub region: u32,
    /// Bytes from its beginning.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

impl Span {
    /// The part of it from `from` on, of `len` bytes.
    ///
    /// # Panics
    /// If it does not have so many.
    pub fn part(self, from: usize, len: usize) -> Span {
        assert!(from + len <= self.len, "{from} + {len} in {self:?}");
        Span {
            offset: self.offset + from,
            len,
            ..self
        }
    }
}

/// A piece of the other side's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its key: who knows it may use the memory.
    pub key: u64,
    /// Where, as the other side counts.
    pub address: u64,
}

/// Pieces that one write gathers, at most. Every provider takes as many.
pub const PARTS_MAX: usize = 4;

/// Where the bytes of a write come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    parts: [Span; PARTS_MAX],
    count: usize,
}

impl Gather {
    const NOTHING: Span = Span {
        region: 0,
        offset: 0,
        len: 0,
    };

    /// Nothing yet.
    pub fn new() -> Gather {
        Gather {
            parts: [Gather::NOTHING; PARTS_MAX],
            count: 0,
        }
    }

    /// One piece.
    pub fn of(part: Span) -> Gather {
        let mut gather = Gather::new();
        gather.push(part);
        gather
    }

    /// Adds a piece behind the others. False if there are [`PARTS_MAX`].
    pub fn push(&mut self, part: Span) -> bool {
        let has_room = self.count < PARTS_MAX;
        if has_room && part.len > 0 {
            self.parts[self.count] = part;
            self.count += 1;
        }
        has_room
    }

    /// The pieces, in order.
    pub fn parts(&self) -> &[Span] {
        &self.parts[..self.count]
    }

    /// Bytes of all of them.
    pub fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Gather {
    fn default() -> Gather {
        Gather::new()
    }
}

/// One end's number for a connection. The fabric does not use a number again before it has reported
/// [`Completion::Closed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u32);

/// What the network is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Sends a frame into one of the other side's receive buffers.
    Send {
        /// The frame.
        from: Gather,
    },
    /// Writes into the other side's memory.
    Write {
        /// What.
        from: Gather,
        /// Where.
        to: Remote,
        /// What the other side is told when all is there; `None` to tell it nothing.
        immediate: Option<u32>,
    },
    /// Reads the other side's memory, of which that side notices nothing.
    Read {
        /// Where to.
        into: Span,
        /// What.
        from: Remote,
    },
}

/// Why work was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue is full: again after the next poll.
    Full,
    /// The connection has ended.
    Gone,
}

/// What has happened. All that was posted for a peer comes back as [`Completion::Done`] or [`Completion::Failed`], once;
/// after its [`Completion::Closed`] nothing follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Work is done: its memory is this side's again.
    Done {
        /// The token that it was posted with.
        token: u64,
    },
    /// Work was not done, or only in part: its memory is this side's again. The connection is broken.
    Failed {
        /// The token that it was posted with.
        token: u64,
    },
    /// A frame has come. The buffer is this side's until [`Fabric::give_frame`].
    Frame {
        /// From whom.
        peer: PeerId,
        /// Where, with the length of what has come.
        frame: Span,
    },
    /// The other side has written into this side's memory.
    Written {
        /// Who.
        peer: PeerId,
        /// What it says.
        immediate: u32,
        /// How many bytes.
        len: usize,
    },
    /// The connection has ended, and so has all its work.
    Closed {
        /// Whose.
        peer: PeerId,
    },
}

/// One worker's network.
pub trait Fabric {
    /// The bytes of a span. No work may be under way that writes there.
    fn bytes(&self, span: Span) -> &[u8];

    /// Copies bytes to the beginning of a span. No work may be under way that uses it.
    fn copy_in(&mut self, span: Span, bytes: &[u8]);

    /// Begins work. Its memory is the network's until its completion.
    ///
    /// # Errors
    /// [`Refused`], and nothing has begun.
    fn post(&mut self, peer: PeerId, work: &Work, token: u64) -> Result<(), Refused>;

    /// Makes the buffer in which a part of a frame lies ready for another frame.
    fn give_frame(&mut self, frame: Span);

    /// Makes room for so many more writes with immediate that a peer will do.
    fn expect_writes(&mut self, peer: PeerId, count: usize);

    /// Lets a peer write to a span, until that is taken back. `None` if there is no key left.
    fn grant(&mut self, peer: PeerId, span: Span) -> Option<Remote>;

    /// Takes a right back: nothing is written there from now on.
    fn revoke(&mut self, granted: Remote);

    /// Ends a connection. Its work comes back, then [`Completion::Closed`].
    fn disconnect(&mut self, peer: PeerId);
}
