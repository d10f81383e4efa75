//! What a cable does to frames.

/// The behaviour of one direction of a cable. Probabilities are per frame, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// A frame is lost.
    pub loss: f64,
    /// A copy follows a frame, with a delay of its own.
    pub duplication: f64,
    /// A frame is put off, by up to `reordering_us`, and others overtake it.
    pub reordering: f64,
    /// The longest that a frame is put off, in microseconds.
    pub reordering_us: u64,
    /// A frame takes no time, and overtakes those under way.
    pub haste: f64,
    /// A frame arrives with up to 15 bits in a row changed, behind its link header.
    ///
    /// A checksum of IPv4, TCP, UDP or ICMP always notices so short a damage, so that a test may
    /// insist that no wrong byte gets through. ARP has no checksum: such frames are lost instead, as
    /// a card would see to.
    pub corruption: f64,
    /// A frame is cut off somewhere behind its Ethernet header.
    pub truncation: f64,
    /// A frame of random bytes with the same Ethernet header arrives as well.
    pub garbage: f64,
    /// Microseconds from one end to the other.
    pub delay_us: u64,
    /// Up to so many microseconds more, which keep the order.
    pub jitter_us: u64,
    /// Bits a second that the cable takes; 0 where it takes any.
    pub rate: u64,
    /// Bytes that may wait for a cable with a rate; what comes beyond is dropped.
    pub queue_len_max: u64,
    /// Bytes of the longest frame that gets through, its Ethernet header included.
    pub frame_len_max: usize,
    /// The cable goes down with this frame, for up to `outage_us`.
    pub outage: f64,
    /// The longest that it is down, in microseconds.
    pub outage_us: u64,
}

impl Faults {
    /// A perfect cable of no length.
    pub const NONE: Faults = Faults {
        loss: 0.0,
        duplication: 0.0,
        reordering: 0.0,
        reordering_us: 0,
        haste: 0.0,
        corruption: 0.0,
        truncation: 0.0,
        garbage: 0.0,
        delay_us: 0,
        jitter_us: 0,
        rate: 0,
        queue_len_max: u64::MAX,
        frame_len_max: usize::MAX,
        outage: 0.0,
        outage_us: 0,
    };
}
