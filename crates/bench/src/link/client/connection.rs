//! One client's connection, as far as TCP goes.

use coua_tcp::seq::SeqNumber;

use super::dialogue::Progress;

/// Bytes that a connection may ever have under way: more than any window that a server offers.
const CONGESTION_MAX: u32 = 1 << 24;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing was sent.
    New,
    /// A SYN was.
    Opening,
    /// It can be used.
    Open,
}

/// A connection with at most one batch of requests under way.
///
/// # Invariants
/// - `acknowledged <= next <= end`, where the batch's bytes end.
/// - `congestion` is a whole segment or more.
/// - `told <= theirs`: what of the server's bytes was acknowledged, and what has come.
/// - `answered <= asked`; without a batch both are 0.
///
/// One cache line, since with many connections fetching it is what a request costs.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Connection {
    /// When the batch was due, in nanoseconds: what latency counts from.
    pub(super) due_at: u64,
    /// When something was last sent that wants an acknowledgment.
    pub(super) sent_at: u64,
    /// When the first byte came that is not acknowledged.
    pub(super) heard_at: u64,
    pub(super) acknowledged: SeqNumber,
    pub(super) next: SeqNumber,
    pub(super) end: SeqNumber,
    pub(super) theirs: SeqNumber,
    pub(super) told: SeqNumber,
    /// What the server's clock said last.
    pub(super) echo: u32,
    /// Bytes that the server takes from `acknowledged` on.
    pub(super) window: u32,
    /// Bytes that may be under way for the link's sake.
    pub(super) congestion: u32,
    pub(super) progress: Progress,
    pub(super) asked: u8,
    pub(super) answered: u8,
    pub(super) stage: Stage,
    /// Timeouts in a row.
    pub(super) timeouts: u8,
}

const _: () = assert!(size_of::<Connection>() == 64);

impl Connection {
    /// None yet, whose numbers and replies will begin there, and of which so many bytes may be under way
    /// at first.
    pub(super) fn new(first: SeqNumber, beginning: Progress, congestion: u32) -> Connection {
        Connection {
            due_at: 0,
            sent_at: 0,
            heard_at: 0,
            acknowledged: first,
            next: first,
            end: first,
            theirs: SeqNumber(0),
            told: SeqNumber(0),
            echo: 0,
            window: 0,
            congestion,
            progress: beginning,
            asked: 0,
            answered: 0,
            stage: Stage::New,
            timeouts: 0,
        }
    }

    /// Bytes of the batch that may be sent now.
    #[inline]
    pub(super) fn sendable(&self) -> u32 {
        let edge = self.acknowledged + self.window.min(self.congestion);
        edge.min(self.end).since(self.next)
    }

    /// Whether all was answered and acknowledged.
    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.answered == self.asked && self.acknowledged == self.end
    }

    /// Takes in an acknowledgment and the window, in bytes, that comes with it.
    #[inline]
    pub(super) fn acknowledge(&mut self, ack: SeqNumber, window: u32) {
        if ack < self.acknowledged || ack > self.end {
            return;
        }
        if ack > self.acknowledged {
            self.timeouts = 0;
            let grown = self.congestion + ack.since(self.acknowledged);
            self.congestion = grown.min(CONGESTION_MAX);
        }
        self.acknowledged = ack;
        // After a timeout it may be of what was sent before that.
        self.next = self.next.max(ack);
        self.window = window;
    }
}
