//! Lengths and numbers that both sides agree on, and what follows from what was measured.

/// Bytes of a frame, header included: a value of 4 KiB with its command fits.
pub const FRAME_LEN: usize = 4096 + 512;

/// What a reply can have copied at most. A server copies short values only: to keep one in its place until the network
/// has read it costs less than to copy some hundred bytes ([`Limits::copy_max`]).
pub const REPLY_COPY_MAX: usize = 1024 + 512;

/// What a server tells a client that asks for RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Frames that a client may have under way: those of requests that are not answered yet.
    pub credits: usize,
    /// Values up to this length are copied into their replies.
    pub copy_max: usize,
    /// Bytes of the first parts of a long reply; see [`Limits::part`].
    pub part_len: usize,
    /// Bytes that one read fetches.
    pub read_len: usize,
    /// Reads of one connection that are under way at once.
    pub reads_max: usize,
    /// Writes of one connection that are under way at once.
    pub writes_max: usize,
    /// The longest value.
    pub value_len_max: usize,
    /// The server shows this client where to write long values.
    pub may_write: bool,
    /// Frames come in the order in which they were sent. Where they do not, a request is one frame.
    pub is_ordered: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            credits: 32,
            copy_max: 512,
            part_len: 4 << 10,
            read_len: 16 << 10,
            reads_max: 16,
            writes_max: 64,
            value_len_max: 1 << 20,
            may_write: false,
            is_ordered: true,
        }
    }
}

impl Limits {
    /// Where a part of a reply begins, and how long it is unless it is the last: four parts of [`Limits::part_len`], and
    /// then twice that. Replies are taken out of the network's memory while they still arrive.
    pub fn part(&self, nth: usize) -> (usize, usize) {
        let unit = self.part_len;
        match nth {
            0..4 => (nth * unit, unit),
            _ => (4 * unit + (nth - 4) * 2 * unit, 2 * unit),
        }
    }

    /// Parts of a reply of so many bytes: one at least.
    pub fn parts_of(&self, len: usize) -> usize {
        let unit = self.part_len;
        match len.div_ceil(unit) {
            0..=4 => len.div_ceil(unit).max(1),
            _ => 4 + (len - 4 * unit).div_ceil(2 * unit),
        }
    }

    /// The longest part.
    pub fn part_len_max(&self) -> usize {
        2 * self.part_len
    }
}

/// What was measured when the connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// From a request to its reply, nanoseconds.
    pub round_trip_ns: u64,
    /// Bytes that the network carries in a microsecond.
    pub bytes_per_us: u64,
    /// Bytes that this processor copies in a microsecond.
    pub copied_per_us: u64,
}

impl Measured {
    /// How much of a value's beginning goes out in frames. The first read of the rest takes a round trip, and so does
    /// the server's permission to write it; what fills the network meanwhile costs no time.
    pub fn early_len(&self) -> usize {
        let bytes = self.round_trip_ns.saturating_mul(self.bytes_per_us) / 1000;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// As [`Measured::early_len`], of a value that the server reads while it is copied, at first `step` bytes of it. The
    /// reads are behind the copy, so what comes in frames has to last until the copy is ahead of them.
    pub fn early_len_copied(&self, step: usize) -> usize {
        let copied = self.copied_per_us.max(1);
        let wait_ns = (step as u64).saturating_mul(1000) / copied + self.round_trip_ns;
        let faster = copied.saturating_sub(self.bytes_per_us).max(1);
        let bytes = (wait_ns.saturating_mul(self.bytes_per_us) / 1000).saturating_mul(copied);
        usize::try_from(bytes / faster).unwrap_or(usize::MAX)
    }

    /// After `len` bytes of a value were copied, how many the next copy may be so that the network does not wait for it:
    /// as many more as copies are faster than the network.
    pub fn next_copy(&self, len: usize) -> usize {
        let faster = |len: u64| len.saturating_mul(self.copied_per_us) / self.bytes_per_us.max(1);
        let next = usize::try_from(faster(len as u64)).unwrap_or(usize::MAX);
        next.clamp(len, len.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other() {
        let limits = Limits::default();
        let mut end = 0;
        for nth in 0..100 {
            let (from, len) = limits.part(nth);
            assert_eq!(from, end);
            assert!(len <= limits.part_len_max());
            end = from + len;
            for reply in [from + 1, end - 1, end] {
                assert_eq!(limits.parts_of(reply), nth + 1, "{reply}");
            }
        }
        assert_eq!(limits.parts_of(0), 1);
    }

    #[test]
    fn the_early_part_fills_a_round_trip() {
        let measured = Measured {
            round_trip_ns: 3000,
            bytes_per_us: 6200,
            copied_per_us: 8300,
        };
        assert_eq!(measured.next_copy(16 << 10), 21_933);
        assert_eq!(measured.early_len(), 18_600);
        let absurd = Measured {
            round_trip_ns: u64::MAX,
            bytes_per_us: 2,
            copied_per_us: 1,
        };
        assert_eq!(absurd.next_copy(10), 10);
        assert!(absurd.early_len() > 1 << 50);
    }
}
