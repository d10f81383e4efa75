//! Copies items into the open filling: whole, or in pieces where a record does not take them.

use super::leaving::{Copied, Large, WorkerFlash};
use super::pieces::{piece_len, words_of};
use crate::index::slot::Location;
use crate::key::KeyHash;
use crate::memory::Queue;
use crate::segment::item::RawItem;
use crate::segment::layout::mark;
use crate::store::tier::{Attached, Candidate};
use crate::worker_store::WorkerStore;
use coua_flash::log::{Appended, Draft, Volume};

/// An item that the cleaner would evict.
#[derive(Clone, Copy)]
pub(crate) struct Departing<'i> {
    pub(crate) hash: KeyHash,
    /// Where it is, or its head if it is in pieces.
    pub(crate) location: Location,
    pub(crate) item: RawItem<'i>,
    pub(crate) leaves_ghost: bool,
    /// Whether it lies in another segment than the piece that the cleaner has met.
    pub(crate) is_elsewhere: bool,
    pub(crate) now_ms: u64,
}

/// What came of copying an item for flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    /// Its memory is to be kept until this filling has been settled.
    Into(u64),
    /// There will be room for all of its records when something has been written.
    Waits,
    /// It does not go to flash.
    Refused,
}

impl WorkerFlash {
    /// Copies an item for flash. If it `may_wait`, it does so rather than be evicted, while something is being written.
    pub(crate) fn copy(
        &mut self,
        local: WorkerStore<'_>,
        it: &Departing<'_>,
        may_wait: bool,
    ) -> Copying {
        let Some(flash) = local.shared.flash.get() else {
            return Copying::Refused;
        };
        let len = it.item.record_len();
        let is_large = len > flash.volume.item_len_max();
        let (records, record_len) = match is_large {
            true => records_of(flash, it),
            false => (1, len + Volume::RECORD_HEADER_LEN),
        };
        if may_wait && !self.volume.has_room_for(records, record_len) {
            let waits = match is_large {
                true => self.volume.can_hold(records, record_len),
                false => self.volume.is_writing() || self.has_settling(),
            };
            let is_known =
                it.item.is_head() && (self.large.iter()).any(|large| large.head == it.location);
            if waits && !is_known && !self.ends_filling {
                return Copying::Waits;
            }
        }
        let copied = self.copy_now(local, flash, it, len);
        copied.map_or(Copying::Refused, Copying::Into)
    }

    fn copy_now(
        &mut self,
        local: WorkerStore<'_>,
        flash: &Attached,
        it: &Departing<'_>,
        len: usize,
    ) -> Option<u64> {
        let is_head = it.item.is_head();
        if is_head && let Some(large) = self.large.iter().find(|large| large.head == it.location) {
            return Some(large.filling);
        }
        if self.ends_filling {
            return None;
        }
        let log = &local.shared.log;
        let was_read = it.item.access() & mark::FETCHED != 0;
        let candidate = Candidate {
            hash: it.hash,
            len,
            was_read: was_read || log.entry_of(it.location).queue() == Queue::Main,
            now_ms: it.now_ms,
        };
        if !flash.gate.admits(candidate) {
            local.counters().flash_rejected.add(1);
            return None;
        }
        let (first, filling) = match len <= flash.volume.item_len_max() {
            true => {
                let filling = self.copy_whole(local, flash, it, len)?;
                (filling, filling)
            }
            false => self.copy_in_pieces(local, flash, it)?,
        };
        let counters = local.counters();
        counters.flash_appended.add(1);
        counters.flash_bytes_appended.add(len as u64);
        if is_head || first != filling {
            let hold = || local.shared.log.hold(local.guard(), it.location);
            self.large.push(Large {
                head: it.location,
                first,
                filling,
                hold: it.is_elsewhere.then(hold),
            });
        }
        Some(filling)
    }

    /// Copies an item into one record.
    fn copy_whole(
        &mut self,
        local: WorkerStore<'_>,
        flash: &Attached,
        it: &Departing<'_>,
        len: usize,
    ) -> Option<u64> {
        let mut scratch = std::mem::take(&mut self.scratch);
        it.item.begin_record(None, &mut scratch);
        for_each_part(local, it.item, |part| scratch.extend_from_slice(part));
        it.item.end_record(&mut scratch);
        let is_whole = scratch.len() == len && !is_doubtful(local, it);
        let appended = is_whole.then(|| {
            let draft = draft(local, it, &scratch, false);
            self.volume.append(&draft)
        });
        self.scratch = scratch;
        let copied = Copied::new(it.location, it.leaves_ghost);
        let (_, filling) = self.appended(local, flash, appended?, copied)?;
        Some(filling)
    }

    /// Copies a value into as many records as it needs, and their head behind them. Returns the first and the last
    /// filling that it has come to.
    fn copy_in_pieces(
        &mut self,
        local: WorkerStore<'_>,
        flash: &Attached,
        it: &Departing<'_>,
    ) -> Option<(u64, u64)> {
        let piece_len = piece_len(&flash.volume);
        let pieces = it.item.value_len().div_ceil(piece_len);
        let words = words_of(pieces);
        let head_len = it.item.key_in_record(true).end + 8 * (words + 1 + it.item.tags().count());
        let (records, record_len) = records_of(flash, it);
        if head_len > piece_len || !self.volume.has_room_for(records, record_len) {
            local.counters().flash_refused.add(1);
            return None;
        }
        let mut places = vec![piece_len as u64, 0];
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let mut left = it.item.value_len();
        let mut is_written = true;
        for_each_part(local, it.item, |mut part| {
            while !part.is_empty() && left > 0 && is_written {
                let wanted = piece_len.min(left);
                let count = part.len().min(wanted - scratch.len());
                scratch.extend_from_slice(&part[..count]);
                part = &part[count..];
                if scratch.len() < wanted {
                    continue;
                }
                let appended = self.volume.append(&draft(local, it, &scratch, true));
                match self.appended(local, flash, appended, Copied::CANCELLED) {
                    Some((bits, filling)) => places.extend([bits, filling]),
                    None => is_written = false,
                }
                left -= wanted;
                scratch.clear();
            }
        });
        let is_whole = is_written && places.len() == words && !is_doubtful(local, it);
        let appended = is_whole.then(|| {
            let words = u32::try_from(words).expect("a head is short");
            it.item.begin_record(Some(words), &mut scratch);
            for word in &places {
                scratch.extend_from_slice(&word.to_ne_bytes());
            }
            it.item.end_record(&mut scratch);
            let head = Draft {
                key: it.item.key_in_record(true),
                ..draft(local, it, &scratch, true)
            };
            self.volume.append(&head)
        });
        self.scratch = scratch;
        let copied = Copied::new(it.location, it.leaves_ghost);
        let (_, filling) = self.appended(local, flash, appended?, copied)?;
        Some((places[3], filling))
    }

    /// What came of a record: the bits of its location, and its filling.
    fn appended(
        &mut self,
        local: WorkerStore<'_>,
        flash: &Attached,
        appended: Appended,
        copied: Copied,
    ) -> Option<(u64, u64)> {
        match appended {
            Appended::At { location, sequence } => {
                self.note(sequence, copied);
                return Some((location.to_bits(), sequence));
            }
            Appended::VolumeFull => flash.wanted.wake(),
            Appended::Busy | Appended::TooLong => {}
        }
        local.counters().flash_refused.add(1);
        None
    }

    /// A filling has been settled, or all are given up: its values in pieces are on flash, or in memory for good.
    pub(crate) fn end_large(&mut self, local: WorkerStore<'_>, filling: Option<u64>) {
        let mut at = 0;
        while at < self.large.len() {
            if filling.is_some_and(|filling| self.large[at].filling != filling) {
                at += 1;
                continue;
            }
            if let Some(hold) = self.large.swap_remove(at).hold {
                local.shared.log.release(hold);
            }
        }
    }
}

/// How many records a value in pieces takes, its head among them, and how long they are at most.
fn records_of(flash: &Attached, it: &Departing<'_>) -> (usize, usize) {
    let piece_len = piece_len(&flash.volume);
    let pieces = it.item.value_len().div_ceil(piece_len);
    (pieces + 1, piece_len + Volume::RECORD_HEADER_LEN)
}

/// What is written of an item beside its bytes.
fn draft<'b>(
    local: WorkerStore<'_>,
    it: &Departing<'_>,
    item: &'b [u8],
    is_piece: bool,
) -> Draft<'b> {
    let expiry = match it.item.expiry().second_up() {
        0 => u32::MAX,
        second => second,
    };
    Draft {
        hash: it.hash.0,
        cas: local.cas_at(it.location, it.item),
        expiry,
        item,
        key: match is_piece {
            true => 0..0,
            false => it.item.key_in_record(false),
        },
    }
}

/// Calls `f` with each slice of an item's value.
fn for_each_part(local: WorkerStore<'_>, item: RawItem<'_>, mut f: impl FnMut(&[u8])) {
    if !item.is_head() {
        return f(item.value());
    }
    for (_, piece) in local.pieces(item) {
        f(piece.piece_data());
    }
}

/// Whether a part of the item may be lost. To be asked after all of it was read.
fn is_doubtful(local: WorkerStore<'_>, it: &Departing<'_>) -> bool {
    local.is_unsettled() && local.is_lost(it.location, it.item)
}
