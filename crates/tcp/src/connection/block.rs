//! What a connection remembers: the parts of RFC 9293's transmission control block.

use crate::buffers::{Buffer, BufferId, Buffers, Marks};
use crate::nic::Mac;
use crate::seq::SeqNumber;
use crate::time::Instant;
use crate::wire::ip::ECT_0;

/// What is to be seen to, and what was agreed on.
///
/// In two parts, so that what changes with each segment stands in a byte of its own: whoever reads
/// more bytes than were written a moment ago waits until these have left the processor's store buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct ConnectionFlags {
    moving: u8,
    lasting: u16,
}

impl ConnectionFlags {
    /// The stack lists it among those with something to send.
    pub(crate) const LISTED_TO_EMIT: ConnectionFlags = ConnectionFlags::moving(0);
    /// The stack lists it among those with news for the user.
    pub(crate) const LISTED_READY: ConnectionFlags = ConnectionFlags::moving(1);
    /// An acknowledgment must leave in this turn.
    pub(crate) const ACK_NOW: ConnectionFlags = ConnectionFlags::moving(2);
    /// An acknowledgment may wait for a moment.
    pub(crate) const ACK_LATER: ConnectionFlags = ConnectionFlags::moving(3);
    /// The stack lists its place among those that wait for memory, also where another connection had
    /// the place then.
    pub(crate) const WAITS_FOR_MEMORY: ConnectionFlags = ConnectionFlags::moving(4);

    /// A packet has come that a queue had marked, and the peer has not said that it has heeded that.
    pub(crate) const ECN_ECHO: ConnectionFlags = ConnectionFlags::moving(5);

    /// The peer's FIN has come, and all before it.
    pub(crate) const PEER_ENDED: ConnectionFlags = ConnectionFlags::lasting(0);
    /// The user does not know of it (yet), or is done with it; nobody will read.
    pub(crate) const ORPHAN: ConnectionFlags = ConnectionFlags::lasting(1);
    /// Both sides send timestamps.
    pub(crate) const TIMESTAMPS: ConnectionFlags = ConnectionFlags::lasting(2);
    /// Both sides understand SACK.
    pub(crate) const SACK: ConnectionFlags = ConnectionFlags::lasting(3);
    /// The user waits for room to send.
    pub(crate) const WANTS_ROOM: ConnectionFlags = ConnectionFlags::lasting(4);
    /// The other side opened it.
    pub(crate) const PASSIVE: ConnectionFlags = ConnectionFlags::lasting(5);
    /// Our FIN is in the list of what is to be sent.
    pub(crate) const ENDED: ConnectionFlags = ConnectionFlags::lasting(6);
    /// The least must be sent whatever the congestion window says.
    pub(crate) const MUST_SEND: ConnectionFlags = ConnectionFlags::lasting(7);
    /// A segment without bytes, older than the window, makes the peer answer.
    pub(crate) const PROBE: ConnectionFlags = ConnectionFlags::lasting(8);
    /// It ended with a reset that the peer must be told of.
    pub(crate) const RESET_DUE: ConnectionFlags = ConnectionFlags::lasting(9);
    /// It counts among those that are opened from outside and not established.
    pub(crate) const HALF_OPEN: ConnectionFlags = ConnectionFlags::lasting(10);
    /// It is in the table no more.
    pub(crate) const UNLINKED: ConnectionFlags = ConnectionFlags::lasting(11);
    /// There is no connection in this place: lists may still name it.
    pub(crate) const VACANT: ConnectionFlags = ConnectionFlags::lasting(12);
    /// Only in-order segments come and go: see [`fast_path`](super::fast_path).
    pub(crate) const PREDICTED: ConnectionFlags = ConnectionFlags::lasting(13);

    /// The window was reduced, and the peer is to be told so with the next new data (RFC 3168).
    pub(crate) const CWR_DUE: ConnectionFlags = ConnectionFlags::lasting(14);
    /// Both sides have ECN (RFC 3168).
    pub(crate) const ECN: ConnectionFlags = ConnectionFlags::lasting(15);

    /// The mark that allows queues to mark new data: [`ECT_0`] where both sides have ECN, else 0.
    #[inline]
    pub(super) const fn ect(self) -> u8 {
        (self.lasting >> 14) as u8 & ECT_0
    }

    const fn moving(bit: u32) -> ConnectionFlags {
        let (moving, lasting) = (1 << bit, 0);
        ConnectionFlags { moving, lasting }
    }

    const fn lasting(bit: u32) -> ConnectionFlags {
        let (moving, lasting) = (0, 1 << bit);
        ConnectionFlags { moving, lasting }
    }

    /// Whether any of these is there.
    #[inline]
    pub(crate) const fn has(self, flags: ConnectionFlags) -> bool {
        self.moving & flags.moving != 0 || self.lasting & flags.lasting != 0
    }

    /// Whether of `these` all are there that are in `those`, and no others.
    #[inline]
    pub(crate) const fn are(self, these: ConnectionFlags, those: ConnectionFlags) -> bool {
        self.moving & these.moving == those.moving && self.lasting & these.lasting == those.lasting
    }

    /// Both together.
    #[inline]
    pub(crate) const fn and(self, flags: ConnectionFlags) -> ConnectionFlags {
        ConnectionFlags {
            moving: self.moving | flags.moving,
            lasting: self.lasting | flags.lasting,
        }
    }

    /// Puts these there.
    #[inline]
    pub(crate) fn set(&mut self, flags: ConnectionFlags) {
        self.moving |= flags.moving;
        self.lasting |= flags.lasting;
    }

    /// Takes these away.
    #[inline]
    pub(crate) fn clear(&mut self, flags: ConnectionFlags) {
        self.moving &= !flags.moving;
        self.lasting &= !flags.lasting;
    }
}

/// Where frames to the peer go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// The next station; none where it is to be asked for.
    pub(crate) mac: Option<Mac>,
    pub(crate) vlan: u16,
    /// Bytes of the longest packet that passes, as far as is known.
    pub(crate) mtu: u16,
}

/// The sending side (RFC 9293, section 3.3.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// The oldest that is not acknowledged.
    pub(crate) una: SeqNumber,
    /// The next to be sent.
    pub(crate) nxt: SeqNumber,
    /// Behind the last that the user has given.
    pub(crate) end: SeqNumber,
    /// Bytes from `una` on that the peer takes.
    pub(crate) window: u32,
    /// The largest window that the peer has offered.
    pub(crate) window_max: u32,
    /// The sequence number of the segment of the last window update (RFC 9293's SND.WL1).
    pub(super) wl1: SeqNumber,
    /// Its acknowledgment number (SND.WL2).
    pub(super) wl2: SeqNumber,
    /// All that is not acknowledged, in order.
    pub(crate) head: BufferId,
    pub(super) tail: BufferId,
    /// The first of these that has not been sent.
    pub(crate) unsent: BufferId,
    /// Bytes of payload that the peer takes in a segment.
    pub(super) peer_mss: u16,
    /// Bytes of payload of a full segment.
    pub(super) mss: u16,
    /// Buffers of all that is not acknowledged.
    pub(super) pieces: u16,
    /// Bits by which the peer's windows are shifted (RFC 7323).
    pub(super) shift: u8,
    /// When anything was last sent.
    pub(crate) last_at: Instant,
}

/// The receiving side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiving {
    /// The next to be received.
    pub(crate) nxt: SeqNumber,
    /// Behind the last that was offered to be taken.
    pub(crate) edge: SeqNumber,
    /// The first buffer of what was received in order and not read.
    pub(super) stash: BufferId,
    /// The last one.
    pub(super) stash_tail: BufferId,
    /// The first frame of this burst with what follows the buffers.
    pub(super) fresh: u16,
    /// The last one.
    pub(super) fresh_tail: u16,
    /// Bytes in these buffers and frames.
    pub(crate) unread: u32,
    /// Bytes since the last acknowledgment.
    pub(super) unacknowledged: u32,
    /// The acknowledgment sent last.
    pub(super) acked: SeqNumber,
    /// Bits by which our windows are shifted (RFC 7323).
    pub(super) shift: u8,
    /// The peer's timestamp to echo (RFC 7323, section 4.3), in the peer's ticks.
    pub(super) ts_recent: u32,
    /// When it came.
    pub(super) ts_recent_at: Instant,
    /// When anything last came.
    pub(crate) last_at: Instant,
    /// The segment under way is the peer's: it is within the window, with the right numbers.
    pub(crate) is_vouched: bool,
}

/// What is known of losses (RFC 8985, RFC 6675).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    /// Bytes on their way.
    pub(crate) pipe: u32,
    /// Bytes that the peer has beyond gaps.
    pub(super) sacked: u32,
    /// Buffers that hold those bytes.
    pub(super) sacked_segments: u8,
    /// Bytes that are thought lost and were not sent again.
    pub(crate) lost: u32,
    /// What is going on, until `until` is acknowledged.
    pub(super) phase: Phase,
    pub(super) until: SeqNumber,
    /// Since when nothing was acknowledged although something was to be; never where nothing is.
    pub(super) stuck_since: Instant,
    /// When the segment was sent that was sent last of all that are acknowledged (RACK.xmit_ts).
    pub(super) rack_sent_at: Instant,
    /// The end of that segment (RACK.end_seq).
    pub(super) rack_end: SeqNumber,
    /// Microseconds from sending it to its acknowledgment (RACK.rtt).
    pub(super) rack_rtt: u32,
    /// The highest that is acknowledged in any way.
    pub(super) fack: SeqNumber,
    /// Segments come out of order without having been lost.
    pub(super) reorders: bool,
    /// Quarters of the shortest round-trip time that such a segment is waited for.
    pub(super) reorder_quarters: u8,
    /// Recoveries for which that stays so.
    pub(super) reorder_persists: u8,
    /// DSACKs count once a round trip: there was one, and until this is acknowledged none counts.
    pub(super) has_dsack: bool,
    pub(super) dsack_round: SeqNumber,
    /// A tail loss probe is under way: what stood behind it, and whether it was sent before.
    pub(super) probe: Option<(SeqNumber, bool)>,
    /// Acknowledgments in a row that say nothing new, without SACK (RFC 5681).
    pub(super) duplicates: u8,
    /// The last block that was told: where it begins, and its last buffer, or none. All buffers
    /// from the one to the other are marked.
    pub(super) sacked_from: SeqNumber,
    pub(super) sacked_last: BufferId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is missing.
    Open,
    /// Acknowledgments say that something is.
    Recovery,
    /// The retransmission timer expired.
    Loss,
}

/// What the timer for sending waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Nothing.
    None,
    /// An acknowledgment (RFC 6298).
    Acknowledgment,
    /// One that should have come soon (RFC 8985, section 7).
    Tail,
    /// What may have been overtaken (RFC 8985, section 6.2).
    Reordered,
    /// The peer's window (RFC 9293, section 3.8.6.1).
    Window,
}

/// Milliseconds between two answers to segments that do not count (Linux takes as many).
pub(super) const ANSWER_EVERY_MS: u32 = 500;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    /// When the timer for sending expires, and for what.
    pub(super) send_at: Instant,
    pub(super) waiting: Waiting,
    /// When a delayed acknowledgment leaves.
    pub(super) ack_at: Instant,
    /// When the state itself ends (SYN-RECEIVED, FIN-WAIT-2 without a user, TIME-WAIT), or the
    /// peer is asked whether it is still there.
    pub(crate) state_at: Instant,
    /// Keep-alive probes without an answer.
    pub(super) probes: u8,
    /// When a segment that did not count was last answered, in milliseconds of a clock that goes round.
    pub(super) answered_ms: u32,
    /// What the wheel is set to.
    pub(crate) set_to: Instant,
}

/// Bytes of a burst that lie in a frame of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fresh {
    pub(super) frame: u16,
    pub(super) start: u16,
    pub(super) len: u16,
    pub(super) next: u16,
}

pub(super) const NO_FRESH: u16 = u16::MAX;

impl Sending {
    /// Appends a buffer that has not been sent.
    #[inline]
    pub(super) fn push(&mut self, buffers: &mut Buffers, id: BufferId) {
        if self.head.is_none() {
            self.head = id;
        } else {
            buffers[self.tail].next = id;
        }
        if self.unsent.is_none() {
            self.unsent = id;
        }
        self.tail = id;
        self.pieces += 1;
    }

    /// Cuts a buffer behind `len` bytes. False where there is no memory for the rest; nothing has
    /// changed then.
    pub(super) fn cut(&mut self, buffers: &mut Buffers, id: BufferId, len: u32) -> bool {
        let Some(last) = buffers.split(id, len) else {
            return false;
        };
        let mut piece = id;
        while piece != last {
            piece = buffers[piece].next;
            self.pieces += 1;
        }
        if self.tail == id {
            self.tail = last;
        }
        true
    }
}

impl Recovery {
    /// Changes a buffer, and the sums with it.
    #[inline]
    pub(super) fn change(&mut self, buffer: &mut Buffer, change: impl FnOnce(&mut Buffer)) {
        self.forget(buffer);
        change(buffer);
        self.remember(buffer);
    }

    /// Takes a buffer out of the sums.
    #[inline]
    pub(super) fn forget(&mut self, buffer: &Buffer) {
        let len = buffer.seq_len();
        if buffer.is_in_flight() {
            self.pipe -= len;
        } else if buffer.marks.has(Marks::SACKED) {
            self.sacked_segments = self.sacked_segments.saturating_sub(1);
            self.sacked -= len;
        } else if buffer.marks.has(Marks::LOST) {
            self.lost -= len;
        }
    }

    /// Adds it as it is now.
    #[inline]
    fn remember(&mut self, buffer: &Buffer) {
        let len = buffer.seq_len();
        if buffer.is_in_flight() {
            self.pipe += len;
        } else if buffer.marks.has(Marks::SACKED) {
            self.sacked_segments = self.sacked_segments.saturating_add(1);
            self.sacked += len;
        } else if buffer.marks.has(Marks::LOST) {
            self.lost += len;
        }
    }
}
