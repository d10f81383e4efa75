//! What a simulated network has done.

/// What happened in one direction of a cable.
///
/// `sent + duplicated + garbage` is `arrived + lost + down + too_long + queue_full` and what is
/// under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CableCounters {
    /// Frames handed to it.
    pub sent: u64,
    /// Frames that came out.
    pub arrived: u64,
    /// Frames lost by chance; frames of ARP that were damaged, too.
    pub lost: u64,
    /// Frames sent while it was down.
    pub down: u64,
    /// Frames longer than it takes.
    pub too_long: u64,
    /// Frames that found the queue full.
    pub queue_full: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Frames put off, copies among them.
    pub reordered: u64,
    /// Frames with bits changed.
    pub corrupted: u64,
    /// Frames cut short.
    pub truncated: u64,
    /// Frames of random bytes added.
    pub garbage: u64,
    /// Times that it went down by chance.
    pub outages: u64,
}

/// What happened to a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardCounters {
    /// Frames taken over by `receive`.
    pub received: u64,
    /// Frames that came while it had as many as it can keep.
    pub overrun: u64,
    /// Frames committed and flushed.
    pub sent: u64,
    /// Calls of `slot` that gave nothing.
    pub refused: u64,
}

/// What a switch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchCounters {
    /// Frames sent on to the one port that the receiver is known to be at.
    pub forwarded: u64,
    /// Frames sent to all other ports: to groups, and to receivers not known.
    pub flooded: u64,
    /// Frames whose receiver is at the port that they came from.
    pub filtered: u64,
}
