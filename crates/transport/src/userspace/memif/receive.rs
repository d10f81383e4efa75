//! Taking frames out of a ring.

use coua_tcp::nic::BURST_LEN;

use super::frames::Frames;
use super::ring::{Descriptor, Ring};

/// The Ethernet header: what is shorter is no frame.
const FRAME_LEN_MIN: usize = 14;

/// Bytes of each frame that are asked for before any is copied: a request with its headers.
const AHEAD_LEN: usize = 128;

/// The peer's index is where it cannot be: it is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexOutOfRange;

/// A ring whose frames are for this side.
pub(super) struct Consumer {
    ring: Ring,
    /// The next entry to read.
    next: u16,
    /// The peer's index as last seen.
    produced: u16,
    /// Bytes of each buffer, where they are this side's and are handed back empty.
    refill: Option<u32>,
    /// What the entries of a burst said.
    burst: [Descriptor; BURST_LEN],
}

/// What came of a look at a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Frames that were dropped: of a wrong length, or at a wrong place.
    pub(super) unfit: u64,
}

impl Consumer {
    /// The ring, from where it stands on. Where the buffers are this side's, `refill` says how long they
    /// are, and all are given to the peer.
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

    /// Copies frames into `frames`, as many as there are and have room, and hands their entries back.
    ///
    /// Three passes, so that what the other core holds comes over at once and not one by one: the
    /// lines of all entries are asked for, then those of all frames, then all is copied.
    ///
    /// # Errors
    /// Where the peer's index cannot be.
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

    /// Has the peer tell of frames by events, or not.
    pub(super) fn ask_for_events(&self, wanted: bool) {
        self.ring.ask_for_events(wanted);
    }

    /// Where entries are written again, their lines are asked for so.
    #[inline]
    fn ask_for_entries(&self, count: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "at most BURST_LEN")]
        let count = count as u16;
        self.ring.prefetch(self.next, count, self.refill.is_some());
        self.ring.prefetch_own_index();
    }

    /// How many of `count` entries are of frames that end among them; `None` where the first does not.
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

    /// Hands the entries of the next frame back unseen: its end has not been published, or is further
    /// away than any frame's.
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

    /// Copies one frame; false where it is none, or is not where it says.
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

    /// Hands so many entries back, by one store.
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
