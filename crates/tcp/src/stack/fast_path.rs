//! Takes a burst of frames, nearly all of which are in-order segments of open connections.
//!
//! With a hundred thousand connections, most of the time is spent waiting for memory. So each frame
//! is examined some frames before it is processed, and what it needs is prefetched step by step:
//! the cache line of the table, then the connection, then the buffer that it acknowledges.

use coua_cpu::prefetch;

use super::Stack;
use crate::connection::ConnectionFlags;
use crate::nic::{BURST_LEN, Frame, Nic};
use crate::table::Hash;
use crate::wire::predicted::PredictedHeader;

/// Up to this many connections stay in the caches anyway, and nothing is prefetched.
const FEW: usize = 256;

/// How many frames each prefetching step is ahead of the next.
const AHEAD: usize = 6;

/// What is known of a frame before it is processed.
#[derive(Clone, Copy)]
struct FrameHint {
    predicted: PredictedHeader,
    hash: Hash,
    /// The place of the connection that it is probably for.
    guess: Option<u32>,
}

impl Stack {
    /// Processes the frames of a burst in their order.
    pub(super) fn take_burst(&mut self, nic: &impl Nic, count: usize) {
        if self.connections.len() <= FEW {
            for number in 0..count {
                let hint = self.look_at(nic.frame(number));
                self.take_seen(nic, number, hint.as_ref());
            }
            return;
        }
        let mut hints = [const { None }; BURST_LEN];
        for step in 0..count + 3 * AHEAD {
            let of_burst = |behind: usize| step.checked_sub(behind).filter(|at| *at < count);
            if let Some(number) = of_burst(0) {
                let hint = self.look_at(nic.frame(number));
                if let Some(hint) = &hint {
                    prefetch(self.table.home(hint.hash));
                }
                hints[number] = hint;
            }
            if let Some(number) = of_burst(AHEAD)
                && let Some(hint) = &mut hints[number]
            {
                hint.guess = self.prefetch_connection(hint.hash);
            }
            if let Some(number) = of_burst(2 * AHEAD)
                && let Some(hint) = &hints[number]
            {
                self.prefetch_buffer(hint.guess);
            }
            if let Some(number) = of_burst(3 * AHEAD) {
                self.take_seen(nic, number, hints[number].as_ref());
            }
        }
    }

    /// Processes a frame that has been examined.
    #[inline]
    fn take_seen(&mut self, nic: &impl Nic, number: usize, hint: Option<&FrameHint>) {
        let is_taken = hint.is_some_and(|hint| self.try_take_fast(number, hint));
        if !is_taken {
            self.take_frame(nic, number);
        }
    }

    #[inline]
    fn look_at(&self, frame: Frame<'_>) -> Option<FrameHint> {
        let is_verified = frame.is_verified || self.shared.config.trusts_link;
        let predicted = PredictedHeader::at(frame.bytes, self.shared.features.mac, is_verified)?;
        let hash = self.table.hash(&predicted.tuple);
        Some(FrameHint {
            predicted,
            hash,
            guess: None,
        })
    }

    /// Prefetches the connection that a segment is probably for, and returns its place.
    #[inline]
    fn prefetch_connection(&self, hash: Hash) -> Option<u32> {
        let guess = self.table.guess(hash)?;
        self.connections.get(guess as usize)?.prefetch();
        Some(guess)
    }

    /// Prefetches the buffer that a segment probably acknowledges.
    #[inline]
    fn prefetch_buffer(&self, guess: Option<u32>) {
        if let Some(connection) = guess.and_then(|guess| self.connections.get(guess as usize))
            && !connection.send.head.is_none()
        {
            prefetch(&self.shared.buffers[connection.send.head]);
        }
    }

    /// Processes a segment on the fast path. False if it does not qualify; nothing has changed
    /// then.
    #[inline]
    fn try_take_fast(&mut self, number: usize, hint: &FrameHint) -> bool {
        let predicted = &hint.predicted;
        // An earlier frame of the burst may have made the guess wrong.
        let Some(index) = self.find(&predicted.tuple, hint.hash) else {
            return false;
        };
        let connection = &mut self.connections[index as usize];
        let frame = u16::try_from(number).expect("within a burst");
        let had_fresh = connection.has_fresh();
        if connection.flags.has(ConnectionFlags::WANTS_ROOM)
            || !connection.try_arrive_fast(&mut self.shared, frame, predicted)
        {
            return false;
        }
        let counters = &mut self.shared.counters;
        counters.frames_received += 1;
        counters.segments_received += 1;
        if predicted.len > 0 {
            self.list_ready(index);
            if !had_fresh {
                self.fresh.push(index);
            }
        }
        self.list_to_emit(index);
        true
    }
}
