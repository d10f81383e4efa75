//! Which of the segments that an index believes in are there: their trailers say.

use crate::device::{Command, Request, Transfer};

use super::layout::Layout;
use super::summary;
use super::volume::SegmentTable;
use super::waiting::{Clock, Waiting};

/// Looks at the trailer of each segment in which an index believes.
pub(super) fn scan(
    ends: &mut [Waiting],
    layout: &Layout,
    volume: u64,
    believed: &[u64],
    clock: Clock<'_>,
) -> Vec<SegmentTable> {
    let mut table = vec![SegmentTable::default(); layout.segments as usize];
    let believed = (0..layout.segments)
        .zip(believed)
        .filter(|(_, sequence)| **sequence != 0);
    let mut wanted: Vec<Vec<(u32, u64)>> = vec![Vec::new(); ends.len()];
    for (segment, &sequence) in believed {
        wanted[layout.place(segment).device].push((segment, sequence));
    }
    for (end, wanted) in ends.iter_mut().zip(wanted) {
        end.scan(layout, volume, &wanted, &mut table, clock);
    }
    table
}

impl Waiting {
    /// Reads the trailers of segments of this device, many at once.
    fn scan(
        &mut self,
        layout: &Layout,
        volume: u64,
        wanted: &[(u32, u64)],
        table: &mut [SegmentTable],
        clock: Clock<'_>,
    ) {
        let len = self.sector_len;
        let mut next = 0;
        while next < wanted.len() || self.queue.in_flight() > 0 {
            while let Some(&(segment, _)) = wanted.get(next)
                && self.queue.room() > 0
                && let Some(buffer) = self.buffers.pop()
            {
                let end = layout.place(segment).from + layout.segment_len as u64;
                let sector = (end - len as u64) / self.sector_len as u64;
                let command = Command::Read(Transfer {
                    sector,
                    len,
                    buffer,
                });
                let token = next as u64;
                next += 1;
                if let Err(rejected) = self.queue.push(Request { token, command }) {
                    self.buffers.extend(rejected.request.command.into_buffer());
                }
            }
            self.queue.submit(clock());
            if self.queue.poll(clock(), &mut self.done) == 0 {
                std::thread::yield_now();
            }
            for done in self.done.drain(..) {
                let bytes = done.buffer.as_deref().map(|bytes| &bytes[..len]);
                let asked = usize::try_from(done.token)
                    .ok()
                    .and_then(|at| wanted.get(at));
                if let (Ok(()), Some(bytes), Some(&(segment, sequence))) =
                    (done.result, bytes, asked)
                    && let Some(trailer) = summary::verified_trailer(bytes, layout.segment_len)
                    && (trailer.volume, trailer.segment) == (volume, segment)
                    && trailer.sequence == sequence
                {
                    table[segment as usize] = SegmentTable {
                        sequence,
                        order_max: trailer.order_max,
                        expiry_max: trailer.expiry_max,
                    };
                }
                self.buffers.extend(done.buffer);
            }
        }
    }
}
