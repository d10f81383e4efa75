//! A pair of rings in memory that the device shares.
//!
//! Neither ring can run over, since no more commands are under way than there are entries but one. What the device writes
//! is checked where it is read: an answer is for a command under way, in the right queue.

use std::sync::Arc;

use super::command::SubmissionEntry;
use super::dma::DmaMemory;
use super::hardware::Hardware;
use super::prp::PAGE_LEN;
use super::registers::Capabilities;

/// Words of an entry.
const SUBMISSION_WORDS: usize = 8;
const COMPLETION_WORDS: usize = 2;

/// What a device said that breaks the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation;

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) id: u16,
    /// Without the phase.
    pub(super) status: u16,
    pub(super) result: u32,
}

/// How a pair lies in its memory: submission ring, completion ring, a page for each command's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct PairLayout {
    pub(super) entries: u16,
}

impl PairLayout {
    fn submission_len(self) -> usize {
        (usize::from(self.entries) * SUBMISSION_WORDS * 8).next_multiple_of(PAGE_LEN)
    }

    fn completion_len(self) -> usize {
        (usize::from(self.entries) * COMPLETION_WORDS * 8).next_multiple_of(PAGE_LEN)
    }

    /// Of both rings.
    pub(super) fn len(self) -> usize {
        self.submission_len() + self.completion_len()
    }
}

/// One queue's rings.
pub(super) struct Pair {
    memory: Arc<DmaMemory>,
    layout: PairLayout,
    number: u16,
    doorbells: (usize, usize),
    tail: u16,
    rung_tail: u16,
    head: u16,
    /// The bit that new answers have.
    phase: bool,
    has_taken: bool,
}

impl Pair {
    /// Rings at the beginning of `memory`, which is zeroed.
    pub(super) fn new(
        memory: Arc<DmaMemory>,
        layout: PairLayout,
        number: u16,
        capabilities: &Capabilities,
    ) -> Pair {
        let mut pair = Pair {
            memory,
            layout,
            number,
            doorbells: capabilities.doorbells(number),
            tail: 0,
            rung_tail: 0,
            head: 0,
            phase: true,
            has_taken: false,
        };
        pair.reset();
        pair
    }

    /// As at the beginning, while the device does not use it.
    pub(super) fn reset(&mut self) {
        for word in 0..self.layout.len() / 8 {
            self.memory.store(word, 0);
        }
        (self.tail, self.rung_tail, self.head) = (0, 0, 0);
        (self.phase, self.has_taken) = (true, false);
    }

    /// What the device calls the submission ring and the completion ring.
    pub(super) fn addresses(&self) -> (u64, u64) {
        let completion = self.layout.submission_len() / 8;
        (
            self.memory.address_of(0),
            self.memory.address_of(completion),
        )
    }

    /// Writes a command. The device sees it at [`Pair::ring`].
    pub(super) fn push(&mut self, entry: &SubmissionEntry) {
        let first = usize::from(self.tail) * SUBMISSION_WORDS;
        for (word, value) in (first..).zip(entry.words()) {
            self.memory.store(word, value);
        }
        self.tail = self.after(self.tail);
    }

    /// Tells the device of commands that were pushed, and of answers that were taken: one store for each.
    pub(super) fn ring(&mut self, hardware: &dyn Hardware) {
        if self.tail != self.rung_tail {
            self.rung_tail = self.tail;
            hardware.store(self.doorbells.0, u32::from(self.tail));
        }
        if std::mem::take(&mut self.has_taken) {
            hardware.store(self.doorbells.1, u32::from(self.head));
        }
    }

    /// Whether an answer is there.
    pub(super) fn has_answer(&self) -> bool {
        self.answer_word() >> 48 & 1 == u64::from(self.phase)
    }

    /// The next answer, where there is one.
    ///
    /// # Errors
    /// Where it is for another queue, or says that a place of the ring was read that does not exist.
    pub(super) fn next(&mut self) -> Result<Option<Answer>, Violation> {
        let second = self.answer_word();
        let part = |shift: u32| u16::try_from(second >> shift & 0xffff).unwrap_or(u16::MAX);
        if (part(48) & 1 != 0) != self.phase {
            return Ok(None);
        }
        let (submission_head, submission_queue) = (part(0), part(16));
        if submission_queue != self.number || submission_head >= self.layout.entries {
            return Err(Violation);
        }
        let first = self.memory.load(self.answer_at() - 1);
        self.head = self.after(self.head);
        if self.head == 0 {
            self.phase = !self.phase;
        }
        self.has_taken = true;
        Ok(Some(Answer {
            id: part(32),
            status: part(48) >> 1,
            result: u32::try_from(first & 0xffff_ffff).unwrap_or(u32::MAX),
        }))
    }

    fn answer_word(&self) -> u64 {
        self.memory.load(self.answer_at())
    }

    /// The second word of the next answer, which has its phase.
    fn answer_at(&self) -> usize {
        self.layout.submission_len() / 8 + usize::from(self.head) * COMPLETION_WORDS + 1
    }

    fn after(&self, index: u16) -> u16 {
        if index + 1 == self.layout.entries {
            0
        } else {
            index + 1
        }
    }
}
