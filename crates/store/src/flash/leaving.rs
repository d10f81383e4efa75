//! Items on their way to flash: copied into a segment there, and in memory until that is written. What becomes of
//! their slots then is the cleaner's business (`clean/leave.rs`).
//!
//! ```text
//!  memory segment ── cleaner copies ──▶ open filling ── full ──▶ being written ── written ──▶ settled
//!      │ its slots name memory                                                     slots change, one by one
//!      └───────────────────────── leaving: neither retired nor picked again ───────────────▶ retired
//! ```

use crate::index::slot::Location;
use crate::key::KeyHash;
use crate::memory::PageId;
use crate::segment::Hold;
use crate::sync::Ordering;
use crate::worker_store::WorkerStore;
use coua_flash::log::{Event, Volume, WorkerVolume, WrittenSegment};
use std::collections::VecDeque;

use super::FlashRead;
use crate::store::tier::{rules, slot_of};

/// A worker's part of the tier.
pub(crate) struct WorkerFlash {
    pub(crate) volume: WorkerVolume,
    events: Vec<Event>,
    /// What was copied into fillings that have not ended, the oldest first.
    fillings: VecDeque<Filling>,
    /// Fillings that have ended and whose slots are being changed.
    pub(crate) settling: VecDeque<Settling>,
    /// Segments in memory that are kept until then.
    pub(crate) leaving: Vec<Leaving>,
    pub(crate) spare: Vec<Vec<Copied>>,
    /// What is being copied.
    pub(super) scratch: Vec<u8>,
    /// Values in pieces that were copied into fillings that have not ended.
    pub(super) large: Vec<Large>,
    /// Segments in memory that were counted as coming: what they wait for is being written.
    pub(crate) coming: usize,
    /// The open filling is to be ended, since a flush has killed it: nothing more is copied there.
    pub(super) ends_filling: bool,
}

/// An item that was copied: where it is in memory, and whether its eviction would leave a ghost.
#[derive(Clone, Copy)]
pub(crate) struct Copied(u64);

/// A value in pieces in memory on its way to flash. The cleaner comes to its head and to each of its pieces, and copies
/// all of it the first time.
pub(crate) struct Large {
    pub(super) head: Location,
    /// The first filling that a part of it was copied into, and that of the head.
    pub(super) first: u64,
    pub(super) filling: u64,
    /// Keeps the head where it is, if that lies in another segment than the one that is cleaned: otherwise another
    /// item could lie there when its slot is looked for.
    pub(super) hold: Option<Hold>,
}

struct Filling {
    sequence: u64,
    copies: Vec<Copied>,
}

pub(crate) struct Settling {
    pub(crate) written: WrittenSegment,
    pub(crate) copies: Vec<Copied>,
    pub(crate) is_written: bool,
    /// Whether it has begun; from then on a segment that was written is held.
    pub(crate) has_begun: bool,
    pub(crate) next: usize,
    /// Bytes of the items whose slots were looked at.
    pub(crate) bytes: usize,
}

pub(crate) struct Leaving {
    pub(crate) segment: PageId,
    /// The latest filling that an item of it was copied into.
    pub(crate) until: u64,
}

impl Copied {
    const GHOST: u64 = 1 << 63;
    /// Nothing lies there.
    pub(super) const CANCELLED: Copied = Copied(0);

    pub(super) fn new(location: Location, leave_ghost: bool) -> Copied {
        Copied(location.raw() | if leave_ghost { Copied::GHOST } else { 0 })
    }

    pub(crate) fn location(self) -> Option<Location> {
        (self.0 != 0).then(|| Location::from_raw(self.0))
    }

    pub(crate) fn leaves_ghost(self) -> bool {
        self.0 & Copied::GHOST != 0
    }
}

impl WorkerFlash {
    pub(crate) fn new(volume: WorkerVolume) -> WorkerFlash {
        WorkerFlash {
            volume,
            events: Vec::with_capacity(64),
            fillings: VecDeque::with_capacity(4),
            settling: VecDeque::with_capacity(4),
            leaving: Vec::new(),
            spare: Vec::new(),
            scratch: Vec::new(),
            large: Vec::new(),
            coming: 0,
            ends_filling: false,
        }
    }

    /// Bytes of a segment on flash.
    pub(crate) fn segment_len(&self) -> usize {
        self.volume.volume().segment_len()
    }

    pub(super) fn note(&mut self, sequence: u64, copied: Copied) {
        if self
            .fillings
            .back()
            .is_none_or(|last| last.sequence != sequence)
        {
            let copies = self.spare.pop().unwrap_or_default();
            self.fillings.push_back(Filling { sequence, copies });
        }
        if let Some(last) = self.fillings.back_mut() {
            last.copies.push(copied);
        }
    }

    /// Items of a segment are not leaving after all: it may be emptied in another way.
    pub(crate) fn cancel(&mut self, local: WorkerStore<'_>, segment: PageId) {
        let log = &local.shared.log;
        let fillings = self.fillings.iter_mut().map(|filling| &mut filling.copies);
        let settling = self
            .settling
            .iter_mut()
            .map(|settling| &mut settling.copies);
        for copied in fillings.chain(settling).flatten() {
            if copied
                .location()
                .is_some_and(|at| log.segment_of(at) == segment)
            {
                *copied = Copied::CANCELLED;
            }
        }
    }

    /// The oldest filling whose slots still have to be changed.
    pub(crate) fn oldest(&self) -> Option<u64> {
        let settling = self
            .settling
            .iter()
            .map(|settling| settling.written.sequence);
        let fillings = self.fillings.iter().map(|filling| filling.sequence);
        settling.chain(fillings).min()
    }

    /// Has the open filling written. False if that has to wait for others.
    pub(crate) fn seal(&mut self) -> bool {
        self.volume.seal()
    }

    /// The open filling ends as soon as it can.
    pub(crate) fn end_filling(&mut self) {
        self.ends_filling = !self.seal();
    }

    /// Takes what has happened. Reads go to `reads`, the rest waits for the end of the turn.
    pub(crate) fn poll(
        &mut self,
        local: &crate::counters::Counters,
        now_ns: u64,
        reads: &mut Vec<FlashRead>,
    ) {
        self.volume.poll(now_ns, &mut self.events);
        for event in self.events.drain(..) {
            let (written, is_written) = match event {
                Event::Read { token, result } => {
                    match result {
                        Err(coua_flash::log::NoRecord::Damaged) => local.flash_damaged.add(1),
                        Err(coua_flash::log::NoRecord::Failed(_)) => local.flash_failed.add(1),
                        Ok(_) => {}
                    }
                    reads.push(FlashRead { token, result });
                    continue;
                }
                Event::Written(written) => {
                    local.flash_segments_written.add(1);
                    (written, true)
                }
                Event::Lost(written, _) => {
                    local.flash_segments_lost.add(1);
                    (written, false)
                }
            };
            let is_it = |filling: &Filling| filling.sequence == written.sequence;
            let copies = self.fillings.iter().position(is_it);
            let copies = copies.and_then(|at| self.fillings.remove(at));
            self.settling.push_back(Settling {
                written,
                copies: copies.map(|filling| filling.copies).unwrap_or_default(),
                is_written,
                has_begun: false,
                next: 0,
                bytes: 0,
            });
        }
        if self.ends_filling {
            self.end_filling();
        }
    }

    /// Segments in memory that wait for the open filling, which nobody writes yet.
    pub(crate) fn waiting(&self) -> usize {
        let Some(open) = self.volume.open_filling() else {
            return 0;
        };
        let waiting = self.leaving.iter().filter(|it| it.until >= open);
        waiting.count()
    }

    /// Whether slots wait to be changed.
    pub(crate) fn has_settling(&self) -> bool {
        self.settling.iter().any(|settling| self.is_ready(settling))
    }

    /// The next filling whose slots can be changed.
    pub(crate) fn take_settling(&mut self) -> Option<Settling> {
        let ready = self.settling.iter().position(|it| self.is_ready(it))?;
        self.settling.remove(ready)
    }

    /// Whether the pieces of the heads in a filling have been written too: those of earlier fillings are not, while these are.
    fn is_ready(&self, settling: &Settling) -> bool {
        let sequence = settling.written.sequence;
        let mut heads = self.large.iter().filter(|it| it.filling == sequence);
        !heads.any(|head| {
            let mut fillings = self.fillings.iter();
            fillings.any(|it| it.sequence >= head.first && it.sequence < sequence)
        })
    }
}

impl Settling {
    /// Holds the segment, and says in the table that it is believed in. What a flush has killed meanwhile counts as
    /// not written.
    pub(crate) fn begin(&mut self, local: WorkerStore<'_>, volume: &Volume) {
        self.has_begun = true;
        let Some(flash) = local.shared.flash.get() else {
            return;
        };
        let WrittenSegment {
            segment, sequence, ..
        } = self.written;
        self.is_written = self.is_written
            && !local.shared.log.is_killed_on_flash(sequence)
            && volume.hold_filling(segment, sequence);
        if self.is_written {
            flash.fillings.set(segment, sequence);
        }
        if volume.room() <= rules::free_segments(volume.segments()) {
            flash.wanted.wake();
        }
    }

    /// All slots are changed. If the segment was dropped meanwhile, the sweep may have passed by some of them.
    pub(crate) fn end(&self, local: WorkerStore<'_>, volume: &Volume) {
        if !self.is_written {
            return;
        }
        if !volume.is_sealed_still(self.written.segment) {
            for (hash, place) in self.written.records(volume) {
                let hash = KeyHash(hash);
                let slot = slot_of(volume, hash, place);
                while local.find_on_flash(hash, slot).is_some() {
                    local.drop_on_flash(hash, slot);
                }
            }
        }
        volume.let_go(self.written.segment);
        if let Some(flash) = local.shared.flash.get() {
            flash.recalls.note_written(self.bytes);
            flash.recalls.note_room(volume);
        }
    }
}

impl crate::segment::Log {
    /// The number of segments changes that become free when what is being written to flash is there.
    pub(crate) fn change_coming(&self, from: usize, to: usize) {
        if from != to {
            self.leaving()
                .fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
        }
    }

    /// Segments that become free when what is being written to flash is there.
    pub(crate) fn leaving_count(&self) -> usize {
        self.leaving().load(Ordering::Relaxed)
    }
}
