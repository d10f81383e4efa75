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
    /// Bytes of each part of a long reply.
    pub part_len: usize,
    /// Bytes that one read fetches.
    pub read_len: usize,
    /// Reads of one connection that are under way at once.
    pub reads_max: usize,
    /// Writes of one connection that are under way at once.
    pub writes_max: usize,
    /// The longest value.
    pub value_len_max: usize,
    /// Frames come in the order in which they were sent. Where they do not, a request is one frame.
    pub is_ordered: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            credits: 32,
            copy_max: 512,
            part_len: 8 << 10,
            read_len: 16 << 10,
            reads_max: 16,
            writes_max: 64,
            value_len_max: 1 << 20,
            is_ordered: true,
        }
    }
}

/// What was measured when the connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// From a request to its reply, nanoseconds.
    pub round_trip_ns: u64,
    /// Bytes that the network carries in a microsecond.
    pub bytes_per_us: u64,
}

impl Measured {
    /// How much of a value's beginning goes out in frames. The first read of the rest takes a round trip; what fills
    /// the network meanwhile costs no time.
    pub fn early_len(&self) -> usize {
        let bytes = self.round_trip_ns.saturating_mul(self.bytes_per_us) / 1000;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_early_part_fills_a_round_trip() {
        let measured = Measured {
            round_trip_ns: 3000,
            bytes_per_us: 6200,
        };
        assert_eq!(measured.early_len(), 18_600);
        let absurd = Measured {
            round_trip_ns: u64::MAX,
            bytes_per_us: 2,
        };
        assert!(absurd.early_len() > 1 << 50);
    }
}
