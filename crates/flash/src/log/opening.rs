//! A volume's beginning and end: made, continued after a death, found again after a clean stop, closed.
//!
//! # Not here
//! What a loss of power leaves. Records alone cannot say that they are the newest: a key may have been set or deleted in
//! memory since, which nothing on flash tells. A volume that was not closed is found again only by whoever still has the
//! index, and is empty otherwise.

use std::sync::Arc;

use crate::device::{BlockDevice, Command, Identity};

use super::error::VolumeError;
use super::layout::Layout;
use super::memory::WorkerMemory;
use super::scan::scan;
use super::superblock::{
    SUPERBLOCK_LEN, Superblock, TABLE_ENTRY_LEN, TABLE_FROM, read_table, reserved_len, write_table,
};
use super::volume::{SegmentTable, Volume};
use super::waiting::{Clock, Waiting};
use super::worker::WorkerVolume;

/// Starts are counted in 24 bits.
const STARTS_MAX: u32 = 1 << 24;

/// How a volume is laid out. Other options than those that it was made with make it anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Bytes of a segment: whole MiB.
    pub segment_len: usize,
    /// Whether whoever appends also says what is no more, so that [`Volume::recover`] works.
    pub keeps_tombstones: bool,
}

impl VolumeOptions {
    /// For devices of so many bytes together: 1 MiB, and more from 64 GiB on, since each segment is looked at when a
    /// volume is opened after a death.
    pub fn for_len(len: u64) -> VolumeOptions {
        let mib = (len >> 36).next_power_of_two().min(32);
        VolumeOptions {
            segment_len: usize::try_from(mib).unwrap_or(1) << 20,
            keeps_tombstones: false,
        }
    }
}

/// What is known of a volume beforehand.
#[derive(Clone, Copy, Debug)]
pub enum Start<'s> {
    /// Nothing: it is made anew.
    Fresh,
    /// There is an index, of a process that has died or ended, that believes these fillings of the segments:
    /// [`Volume::sequences`], kept where the index is. Power was not lost since.
    Index(&'s [u64]),
    /// It was closed. Who has no index any more finds the items with [`Volume::recover`].
    Closed,
}

/// Why nothing of a volume was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cold {
    /// As asked.
    #[error("it was made anew")]
    Asked,
    /// A device has no superblock that is whole.
    #[error("a device is new, or its superblocks are damaged")]
    NoSuperblock,
    /// The devices are not those that it was made of, or the options are others.
    #[error("its devices or options are others than before")]
    OtherLayout,
    /// It was not closed.
    #[error("it was not closed")]
    NotClosed,
    /// What was written when it was closed is damaged.
    #[error("its table of segments is damaged")]
    TableDamaged,
}

/// A volume that was opened.
pub struct Opened {
    /// It.
    pub volume: Arc<Volume>,
    /// Whether it is the one of before, or why not.
    pub kept: Result<(), Cold>,
    /// Segments in which an index believes and that are not there: their writes were lost or torn. Their slots name no
    /// records, which reads find out; they can be unlinked at once.
    pub lost_segments: usize,
}

impl Volume {
    /// Opens a volume on devices, or makes it. `id` is its identity if it is made: never the same twice, say a random
    /// number. Whatever is found, sequence numbers go on from there, and the devices have it on record that they are in
    /// use before this returns.
    ///
    /// # Errors
    /// Where there is no room, or a device fails. What cannot be kept is no error: see [`Opened::kept`].
    pub fn open(
        devices: &[&dyn BlockDevice],
        options: VolumeOptions,
        start: Start<'_>,
        id: u64,
        clock: Clock<'_>,
    ) -> Result<Opened, VolumeError> {
        if options.segment_len == 0 || !options.segment_len.is_multiple_of(1 << 20) {
            return Err(VolumeError::Layout);
        }
        let identities: Vec<&Identity> = devices.iter().map(|it| it.identity()).collect();
        let layout = Layout::new(options.segment_len, &identities, reserved_len)
            .ok_or(VolumeError::Layout)?;
        let mut ends = Vec::with_capacity(devices.len());
        for device in devices {
            ends.push(Waiting::new(*device)?);
        }

        let found = superblocks(&mut ends, clock);
        let agreed = agreed(&found, &layout, options);
        let kept = match (start, agreed) {
            (Start::Fresh, _) => Err(Cold::Asked),
            (_, Err(cold)) => Err(cold),
            (Start::Closed, Ok(superblock)) if !superblock.is_clean => Err(Cold::NotClosed),
            (_, Ok(superblock)) if superblock.start + 1 >= STARTS_MAX => Err(Cold::Asked),
            (Start::Closed, Ok(superblock)) => {
                let table = table(&mut ends, &layout, &superblock, clock);
                table
                    .map(|table| (superblock, table))
                    .ok_or(Cold::TableDamaged)
            }
            (Start::Index(believed), Ok(superblock)) => {
                let table = scan(&mut ends, &layout, superblock.volume, believed, clock);
                Ok((superblock, table))
            }
        };
        let believed = match start {
            Start::Index(believed) => believed.iter().filter(|&&it| it != 0).count(),
            Start::Fresh | Start::Closed => 0,
        };
        let (volume, generation, kept, lost_segments) = match kept {
            Ok((superblock, table)) => {
                let there = table.iter().filter(|entry| entry.sequence != 0).count();
                let volume = Volume::new(
                    layout,
                    superblock.volume,
                    superblock.start + 1,
                    options.keeps_tombstones,
                    &table,
                    superblock.next_turn,
                );
                (
                    volume,
                    superblock.generation + 1,
                    Ok(()),
                    believed.saturating_sub(there),
                )
            }
            Err(cold) => {
                let newest = found.iter().flatten().map(|it| it.generation).max();
                // The first turn is not 0: no filling has that number.
                let first = u64::from(layout.segments);
                let volume = Volume::new(layout, id, 1, options.keeps_tombstones, &[], first);
                (volume, newest.unwrap_or(0) + 1, Err(cold), believed)
            }
        };
        let superblock = superblock_of(&volume, generation, false, 0);
        write_superblocks(&mut ends, &superblock, clock)?;
        Ok(Opened {
            volume: Arc::new(volume),
            kept,
            lost_segments,
        })
    }

    /// A handle for one worker, with room for `depth` requests on each device.
    ///
    /// # Errors
    /// Where a device gives no queue.
    pub fn worker(
        self: &Arc<Volume>,
        devices: &[&dyn BlockDevice],
        depth: usize,
        memory: WorkerMemory,
    ) -> Result<WorkerVolume, VolumeError> {
        let mut queues = Vec::with_capacity(devices.len());
        for device in devices {
            queues.push(device.queue(depth).map_err(|error| VolumeError::Queue {
                device: device.identity().name.clone(),
                error,
            })?);
        }
        let transfer_lens_max = devices.iter().map(|it| it.identity().transfer_len_max);
        let transfer_lens_max = transfer_lens_max.collect();
        Ok(WorkerVolume::new(
            Arc::clone(self),
            queues,
            transfer_lens_max,
            memory,
        ))
    }

    /// Closes it: everything is made durable, then the table, then the superblocks that say so.
    ///
    /// # Errors
    /// Where workers have it still, or a device fails: then it is not closed.
    pub fn close(
        self: Arc<Volume>,
        devices: &[&dyn BlockDevice],
        clock: Clock<'_>,
    ) -> Result<(), VolumeError> {
        let volume = Arc::into_inner(self).ok_or(VolumeError::InUse)?;
        let mut ends = Vec::with_capacity(devices.len());
        for device in devices {
            ends.push(Waiting::new(*device)?);
        }
        for end in &mut ends {
            end.run(Command::Flush, clock)
                .map_err(|failure| end.error(failure))?;
        }
        let generation = superblocks(&mut ends, clock)
            .iter()
            .flatten()
            .map(|it| it.generation)
            .max();
        let checksum = write_whole_table(&mut ends[0], &volume.table(), clock)?;
        let superblock = superblock_of(&volume, generation.unwrap_or(0) + 1, true, checksum);
        write_superblocks(&mut ends, &superblock, clock)
    }
}

fn superblock_of(
    volume: &Volume,
    generation: u64,
    is_clean: bool,
    table_checksum: u32,
) -> Superblock {
    Superblock {
        volume: volume.id,
        generation,
        segment_len: volume.segment_len() as u64,
        segments: volume.segments(),
        device: 0,
        devices: u32::try_from(volume.layout.sector_lens.len()).unwrap_or(u32::MAX),
        start: volume.start,
        is_clean,
        keeps_tombstones: volume.keeps_tombstones,
        next_turn: volume.next_turn(),
        table_checksum,
    }
}

/// The newest superblock of each device.
fn superblocks(ends: &mut [Waiting], clock: Clock<'_>) -> Vec<Option<Superblock>> {
    let mut found = Vec::with_capacity(ends.len());
    for end in ends {
        let mut copies = Vec::with_capacity(2);
        for copy in 0..2 {
            let read = end.read(
                copy * SUPERBLOCK_LEN as u64,
                SUPERBLOCK_LEN,
                clock,
                Superblock::read,
            );
            copies.extend(read.ok().flatten());
        }
        found.push(copies.into_iter().max_by_key(|it| it.generation));
    }
    found
}

/// The superblock that all devices have, if it is that of the layout.
fn agreed(
    found: &[Option<Superblock>],
    layout: &Layout,
    options: VolumeOptions,
) -> Result<Superblock, Cold> {
    let first = found.first().copied().flatten().ok_or(Cold::NoSuperblock)?;
    for (device, superblock) in (0..).zip(found) {
        let superblock = superblock.ok_or(Cold::NoSuperblock)?;
        if superblock != (Superblock { device, ..first }) {
            return Err(Cold::OtherLayout);
        }
    }
    let is_same = first.segment_len == layout.segment_len as u64
        && first.segments == layout.segments
        && first.devices as usize == found.len()
        && first.keeps_tombstones == options.keeps_tombstones;
    if is_same {
        Ok(first)
    } else {
        Err(Cold::OtherLayout)
    }
}

/// Writes each device's superblock, and sees that it is there.
fn write_superblocks(
    ends: &mut [Waiting],
    superblock: &Superblock,
    clock: Clock<'_>,
) -> Result<(), VolumeError> {
    let from = superblock.generation % 2 * SUPERBLOCK_LEN as u64;
    for (device, end) in (0..).zip(ends) {
        let superblock = Superblock {
            device,
            ..*superblock
        };
        let written = end
            .write(from, SUPERBLOCK_LEN, clock, |bytes| superblock.write(bytes))
            .and_then(|()| end.run(Command::Flush, clock))
            .and_then(|()| end.read(from, SUPERBLOCK_LEN, clock, Superblock::read));
        match written {
            Err(failure) => return Err(end.error(failure)),
            Ok(read) if read != Some(superblock) => {
                return Err(VolumeError::Forgets {
                    device: end.name.clone(),
                });
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Writes the table in pieces, and gives its checksum.
fn write_whole_table(
    end: &mut Waiting,
    table: &[SegmentTable],
    clock: Clock<'_>,
) -> Result<u32, VolumeError> {
    let mut checksum = 0;
    for (at, entries) in pieces(end, table.len()) {
        let len = piece_len(end, entries.len());
        let mut of_piece = 0;
        let written = end.write(at, len, clock, |bytes| {
            write_table(bytes, &table[entries]);
            of_piece = crc32c::crc32c_append(checksum, bytes);
        });
        written.map_err(|failure| end.error(failure))?;
        checksum = of_piece;
    }
    end.run(Command::Flush, clock)
        .map_err(|failure| end.error(failure))?;
    Ok(checksum)
}

/// The table that a superblock speaks of.
fn table(
    ends: &mut [Waiting],
    layout: &Layout,
    superblock: &Superblock,
    clock: Clock<'_>,
) -> Option<Vec<SegmentTable>> {
    let end = ends.first_mut()?;
    let mut table = Vec::with_capacity(layout.segments as usize);
    let mut checksum = 0;
    for (at, entries) in pieces(end, layout.segments as usize) {
        let len = piece_len(end, entries.len());
        end.read(at, len, clock, |bytes| {
            checksum = crc32c::crc32c_append(checksum, bytes);
            table.extend(read_table(bytes).take(entries.len()));
        })
        .ok()?;
    }
    (checksum == superblock.table_checksum).then_some(table)
}

/// Where each piece of the table lies, and which entries are in it.
fn pieces(
    end: &Waiting,
    entries: usize,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> + use<> {
    // Pieces of whole sectors whatever the entry's length.
    let piece = end.transfer_len_max - end.transfer_len_max % 4096;
    let of_piece = piece / TABLE_ENTRY_LEN;
    (0..entries.div_ceil(of_piece)).map(move |nth| {
        let first = nth * of_piece;
        let at = TABLE_FROM + (nth * piece) as u64;
        (at, first..entries.min(first + of_piece))
    })
}

fn piece_len(end: &Waiting, entries: usize) -> usize {
    (entries * TABLE_ENTRY_LEN).next_multiple_of(end.sector_len)
}
