//! The TCP state of one client's connection.

use coua_tcp::seq::SeqNumber;

use super::dialogue::Progress;

/// The most bytes that a connection may have in flight: more than any window that a server offers.
const CONGESTION_MAX: u32 = 1 << 24;

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing has been sent.
    New,
    /// A SYN has been sent.
    Opening,
    /// It can be used.
    Open,
}

/// A connection with at most one batch of requests under way.
///
/// # Invariants
/// - `acknowledged <= next <= end`; the batch's bytes end at `end`.
/// - `congestion` is at least one segment.
/// - `told <= theirs`: the server's bytes that were acknowledged, and those that have arrived.
/// - `answered <= asked`; without a batch both are 0.
///
/// It is one cache line: with many connections, a request costs mostly the fetching of it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Connection {
    /// When the batch was due, in nanoseconds: latency counts from then.
    pub(super) due_at: u64,
    /// When something that needs an acknowledgment was last sent.
    pub(super) sent_at: u64,
    /// When the first byte that has not been acknowledged arrived.
    pub(super) heard_at: u64,
    pub(super) acknowledged: SeqNumber,
    pub(super) next: SeqNumber,
    pub(super) end: SeqNumber,
    pub(super) theirs: SeqNumber,
    pub(super) told: SeqNumber,
    /// The server's clock in its last segment.
    pub(super) echo: u32,
    /// The server's window: bytes it accepts, counted from `acknowledged`.
    pub(super) window: u32,
    /// The congestion window in bytes.
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
    /// A connection that is not open yet. Its sequence numbers begin at `first`, its replies with
    /// `beginning`, and `congestion` is its first congestion window.
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

    /// Whether everything has been answered and acknowledged.
    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.answered == self.asked && self.acknowledged == self.end
    }

    /// Handles an acknowledgment and the window, in bytes, that comes with it.
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
        // After a timeout it may acknowledge what was sent before the timeout.
        self.next = self.next.max(ack);
        self.window = window;
    }
}
