//! Taking frames out of a ring.

use coua_tcp::nic::BURST_LEN;

use super::frames::Frames;
use super::ring::{Descriptor, Ring};

/// Bytes of an Ethernet header; anything shorter is not a frame.
const FRAME_LEN_MIN: usize = 14;

/// Bytes of each frame that are prefetched before any is copied: a request with its headers.
const AHEAD_LEN: usize = 128;

/// The peer's index is out of range, so its rings cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexOutOfRange;

/// A ring for frames to this side.
pub(super) struct Consumer {
    ring: Ring,
    /// The next entry to read.
    next: u16,
    /// The peer's index when it was last read.
    produced: u16,
    /// The length of each buffer, if the buffers belong to this side and are handed back empty.
    refill: Option<u32>,
    /// The entries of a burst, as they were read.
    burst: [Descriptor; BURST_LEN],
}

/// What was taken out of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Frames that were dropped because their length or place was wrong.
    pub(super) unfit: u64,
}

impl Consumer {
    /// The ring, beginning where it stands. If the buffers belong to this side, `refill` is their
    /// length, and all of them are given to the peer.
    pub(super) fn new(ring: Ring, refill: Option<u32>) -> Consumer {
        let next = ring.own_index().wrapping_sub(ring.lead());
        let next = if refill.is_some() { 0 } else { next };
        if refill.is_some() {
            ring.publish(next.wrapping_add(ring.lead()));
        }
        ring.ask_for_events(false);
        Consumer {
            ring,
            next,
            produced: next,
            refill,
            burst: [Descriptor::default(); BURST_LEN],
        }
    }

    /// Copies frames into `frames`, as many as there are and fit, and hands their entries back.
    ///
    /// It does so in three passes, so that the lines that the other core holds are fetched together
    /// and not one after another: it prefetches the lines of all entries, then those of all frames,
    /// and then copies everything.
    ///
    /// # Errors
    /// If the peer's index is out of range.
    #[inline]
    pub(super) fn receive(&mut self, frames: &mut Frames) -> Result<Taken, IndexOutOfRange> {
        let mut taken = Taken::default();
        let waiting = self.waiting()?;
        if waiting == 0 {
            return Ok(taken);
        }
        let count = usize::from(waiting).min(BURST_LEN);
        self.ask_for_entries(count);
        let memory = self.ring.memory();
        let mut number = self.next;
        for place in &mut self.burst[..count] {
            let entry = self.ring.read(number);
            if let Some(bytes) = memory.span(entry.region, entry.offset, entry.len) {
                bytes.prefetch(AHEAD_LEN);
            }
            *place = entry;
            number = number.wrapping_add(1);
        }
        let Some(count) = self.whole(count) else {
            taken.unfit += 1;
            self.skip(waiting);
            return Ok(taken);
        };
        let mut rest = &self.burst[..count];
        while let Some(last) = rest.iter().position(|entry| !entry.goes_on) {
            let (chain, others) = rest.split_at(last + 1);
            rest = others;
            if !self.copy(chain, frames) {
                taken.unfit += 1;
            }
        }
        self.hand_back(count);
        Ok(taken)
    }

    /// Entries that wait.
    ///
    /// # Errors
    /// Where the peer's index cannot be.
    #[inline]
    fn waiting(&mut self) -> Result<u16, IndexOutOfRange> {
        let waiting = self.produced.wrapping_sub(self.next);
        if usize::from(waiting) >= BURST_LEN {
            return Ok(waiting);
        }
        self.produced = self.ring.others_index();
        let waiting = self.produced.wrapping_sub(self.next);
        match waiting <= self.ring.len() {
            true => Ok(waiting),
            false => Err(IndexOutOfRange),
        }
    }

    /// Whether something waits, as far as is known now.
    pub(super) fn is_waiting(&self) -> bool {
        self.ring.others_index() != self.next
    }

    /// Asks the peer to announce frames by events, or not to.
    pub(super) fn ask_for_events(&self, wanted: bool) {
        self.ring.ask_for_events(wanted);
    }

    /// Prefetches entries; if they will be written again, for writing.
    #[inline]
    fn ask_for_entries(&self, count: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "at most BURST_LEN")]
        let count = count as u16;
        self.ring.prefetch(self.next, count, self.refill.is_some());
        self.ring.prefetch_own_index();
    }

    /// How many of `count` entries belong to frames that end among them; `None` if the first frame
    /// does not.
    #[inline]
    fn whole(&self, count: usize) -> Option<usize> {
        if !self.burst[count - 1].goes_on {
            return Some(count);
        }
        let last = self.burst[..count]
            .iter()
            .rposition(|entry| !entry.goes_on)?;
        Some(last + 1)
    }

    /// Hands the entries of the next frame back unread: its end has not been published, or it is
    /// longer than any frame may be.
    #[cold]
    fn skip(&mut self, waiting: u16) {
        let mut count = 0;
        while count < waiting {
            let entry = self.ring.read(self.next.wrapping_add(count));
            count += 1;
            if !entry.goes_on {
                break;
            }
        }
        self.hand_back(usize::from(count));
    }

    /// Copies one frame; false if it is malformed or not where its entries say.
    #[inline]
    fn copy(&self, chain: &[Descriptor], frames: &mut Frames) -> bool {
        let memory = self.ring.memory();
        let room = frames.room();
        let mut len = 0;
        for entry in chain {
            let Some(bytes) = memory.span(entry.region, entry.offset, entry.len) else {
                return false;
            };
            if bytes.len() > room.len() - len {
                return false;
            }
            bytes.copy_to(&mut room[len..]);
            len += bytes.len();
        }
        let is_frame = len >= FRAME_LEN_MIN;
        if is_frame {
            frames.push(len);
        }
        is_frame
    }

    /// Hands `count` entries back with one store.
    #[inline]
    fn hand_back(&mut self, count: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "at most a ring's length")]
        let end = self.next.wrapping_add(count as u16);
        if let Some(len) = self.refill {
            let mut number = self.next;
            while number != end {
                self.ring.write(number, false, 0, len);
                number = number.wrapping_add(1);
            }
        }
        self.next = end;
        self.ring.publish(end.wrapping_add(self.ring.lead()));
    }
}
