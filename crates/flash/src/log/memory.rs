//! One worker's memory for reads and for segments on their way to a device.

use crate::buffer::{Buffer, Pool};

use super::layout::RECORD_LEN_MAX;
use super::volume::Volume;

/// Memory for reads and writes of one worker.
pub struct WorkerMemory {
    /// Pools for reads, shortest buffers first, and how many buffers each has.
    reads: Vec<(Pool, usize)>,
    /// Buffers as long as a segment.
    pub(super) segments: Vec<Buffer>,
    /// A device has it pinned for good: buffers of which pages were lost and replaced are not used again.
    pub(super) is_pinned: bool,
}

/// What lies around a record of so many bytes: it may begin and end within sectors.
const fn span_max(record_len: usize) -> usize {
    record_len + 2 * 4096
}

impl WorkerMemory {
    /// Buffers of reads: for most items, for long ones, for the longest.
    const READ_LENS: [usize; 3] = [span_max(4096), span_max(32768), span_max(RECORD_LEN_MAX)];

    /// Cuts memory up: `segments` of a volume's length first, the rest for reads.
    ///
    /// # Panics
    /// Where there is not enough for the segments and one read of the longest record, or it does not begin at a page.
    pub fn carve(mut memory: Buffer, volume: &Volume, segments: usize) -> WorkerMemory {
        assert!(
            memory.as_ptr().addr().is_multiple_of(4096),
            "memory of whole pages"
        );
        let segments = (0..segments).map(|_| {
            let rest = memory.split_off(volume.segment_len());
            std::mem::replace(&mut memory, rest)
        });
        let segments = segments.collect();
        let [short, middle, long] = WorkerMemory::READ_LENS;
        assert!(memory.len() >= long, "memory for the longest read");
        // The longest may be used for any read.
        let for_long = (memory.len() / 4).max(long) / long * long;
        let for_middle = (memory.len() - for_long) / 3 / middle * middle;
        let rest = memory.split_off(for_long);
        let mut reads = vec![Pool::carve(std::mem::replace(&mut memory, rest), long)];
        let rest = memory.split_off(for_middle);
        reads.insert(0, Pool::carve(std::mem::replace(&mut memory, rest), middle));
        reads.insert(0, Pool::carve(memory, short));
        let with_count = |pool: Pool| {
            let count = pool.available();
            (pool, count)
        };
        WorkerMemory {
            reads: reads.into_iter().map(with_count).collect(),
            segments,
            is_pinned: false,
        }
    }

    /// A buffer of so many bytes or more. Shorter reads leave half of the longer buffers to the reads that need them: else
    /// what is read ahead, and not used yet, could keep those from ever going on.
    pub(super) fn take(&mut self, len: usize) -> Option<Buffer> {
        let fitting = self.reads.iter_mut();
        let mut fitting = fitting.filter(|(pool, _)| pool.buffer_len() >= len);
        let (own, _) = fitting.next()?;
        own.take().or_else(|| {
            let mut ample = fitting.filter(|(pool, count)| pool.available() > count / 2);
            ample.find_map(|(pool, _)| pool.take())
        })
    }

    /// Takes one back.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        let len = buffer.len();
        let mut pools = self.reads.iter_mut().map(|(pool, _)| pool);
        if let Some(pool) = pools.find(|pool| pool.buffer_len() == len) {
            match self.is_pinned && buffer.has_replaced_pages() {
                true => pool.set_aside(buffer),
                false => pool.give_back(buffer),
            }
        }
    }

    /// Takes the memory of a segment back.
    pub(super) fn give_back_segment(&mut self, buffer: Buffer) {
        if !self.is_pinned || !buffer.has_replaced_pages() {
            self.segments.push(buffer);
        }
    }

    /// Whether there are buffers of so many bytes or more, lent ones too.
    pub(super) fn has(&self, len: usize) -> bool {
        let mut fitting = (self.reads.iter()).filter(|(pool, _)| pool.buffer_len() >= len);
        fitting.any(|(pool, _)| pool.left() > 0)
    }

    /// How many reads can be under way at most.
    pub(super) fn reads(&self) -> usize {
        self.reads.iter().map(|(pool, _)| pool.available()).sum()
    }
}
