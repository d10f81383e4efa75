//! What is known of one request.

use crate::fabric::{Remote, Span};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Free,
    /// Its reply is awaited.
    Waiting,
    /// As `Waiting`, but nobody asks for the reply any more.
    GivenUp,
    /// Its reply is there.
    Answered,
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) generation: u8,
    pub(super) state: State,
    /// Frames that it has sent.
    pub(super) frames: usize,
    pub(super) area: Option<Span>,
    /// Where its value is copied to, how long it is, how much was copied and how much the next copy is.
    pub(super) source: Option<Span>,
    pub(super) value_len: usize,
    pub(super) fed: usize,
    pub(super) step: usize,
    /// What the server has said of the rest of the value, and from where on that is.
    pub(super) granted: Option<Vec<(Remote, usize)>>,
    pub(super) rest_from: usize,
    /// How much of the value was written, and writes under way.
    pub(super) written: usize,
    pub(super) writes: usize,
    /// Frames that are kept for saying how much is ready.
    pub(super) spare_frames: Vec<Span>,
    /// Writes that the network was told to expect.
    pub(super) parts_promised: usize,
    /// It is free when they are done.
    pub(super) is_leaving: bool,
    /// Bit by bit, which parts have come.
    pub(super) seen: Vec<u64>,
    pub(super) parts_seen: usize,
    /// Parts from the first on that have come without a gap.
    pub(super) parts_in_order: usize,
    /// Parts of the whole reply, once the last has come, and its length.
    pub(super) whole: Option<(usize, usize)>,
}

impl Slot {
    /// Notes that a part has come. False if it had come before.
    pub(super) fn see(&mut self, part: usize) -> bool {
        let (word, bit) = (part / 64, 1 << (part % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        self.parts_seen += usize::from(is_new);
        is_new
    }

    /// Counts on over the parts that have come without a gap. True if there are more than before.
    pub(super) fn advance(&mut self) -> bool {
        let before = self.parts_in_order;
        let has = |part: usize| {
            self.seen
                .get(part / 64)
                .is_some_and(|word| word >> (part % 64) & 1 == 1)
        };
        while has(self.parts_in_order) {
            self.parts_in_order += 1;
        }
        self.parts_in_order > before
    }

    pub(super) fn forget_parts(&mut self) {
        self.seen.clear();
        self.parts_seen = 0;
        self.parts_in_order = 0;
        self.whole = None;
    }
}
