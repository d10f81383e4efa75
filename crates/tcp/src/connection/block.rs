//! What a connection remembers: the parts of RFC 9293's transmission control block.

use crate::buffers::{Buffer, BufferId, Buffers, Marks};
use crate::nic::Mac;
use crate::seq::SeqNumber;
use crate::time::Instant;
use crate::wire::ip::ECT_0;

/// What is due, and what was negotiated.
///
/// In two parts, so that the flags that change with each segment have a byte of their own: a load
/// that is wider than a recent store cannot be forwarded from the processor's store buffer and
/// stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct ConnectionFlags {
    moving: u8,
    lasting: u16,
}

impl ConnectionFlags {
    /// The stack's list of connections with something to send names it.
    pub(crate) const LISTED_TO_EMIT: ConnectionFlags = ConnectionFlags::moving(0);
    /// The stack's list of ready connections names it.
    pub(crate) const LISTED_READY: ConnectionFlags = ConnectionFlags::moving(1);
    /// An acknowledgment must be sent in this turn.
    pub(crate) const ACK_NOW: ConnectionFlags = ConnectionFlags::moving(2);
    /// An acknowledgment is due but may be delayed.
    pub(crate) const ACK_LATER: ConnectionFlags = ConnectionFlags::moving(3);
    /// The stack's list of those that wait for memory names its place, perhaps on behalf of an
    /// earlier connection in the place.
    pub(crate) const WAITS_FOR_MEMORY: ConnectionFlags = ConnectionFlags::moving(4);

    /// A packet with a CE mark has arrived, and the peer has not confirmed by CWR that it has
    /// reduced its window.
    pub(crate) const ECN_ECHO: ConnectionFlags = ConnectionFlags::moving(5);

    /// The peer's FIN and everything before it have arrived.
    pub(crate) const PEER_ENDED: ConnectionFlags = ConnectionFlags::lasting(0);
    /// It has no user (yet, or any more); nobody will read.
    pub(crate) const ORPHAN: ConnectionFlags = ConnectionFlags::lasting(1);
    /// Both sides send timestamps.
    pub(crate) const TIMESTAMPS: ConnectionFlags = ConnectionFlags::lasting(2);
    /// Both sides understand SACK.
    pub(crate) const SACK: ConnectionFlags = ConnectionFlags::lasting(3);
    /// The user waits for room to send.
    pub(crate) const WANTS_ROOM: ConnectionFlags = ConnectionFlags::lasting(4);
    /// The peer opened it.
    pub(crate) const PASSIVE: ConnectionFlags = ConnectionFlags::lasting(5);
    /// Our FIN has been appended to the list of buffers.
    pub(crate) const ENDED: ConnectionFlags = ConnectionFlags::lasting(6);
    /// One segment must be sent whatever the congestion window says.
    pub(crate) const MUST_SEND: ConnectionFlags = ConnectionFlags::lasting(7);
    /// A probe is due: an empty segment with an old sequence number, which the peer must answer.
    pub(crate) const PROBE: ConnectionFlags = ConnectionFlags::lasting(8);
    /// It was aborted, and a reset must be sent to the peer.
    pub(crate) const RESET_DUE: ConnectionFlags = ConnectionFlags::lasting(9);
    /// It was opened by the peer, is not established, and counts in `half_open`.
    pub(crate) const HALF_OPEN: ConnectionFlags = ConnectionFlags::lasting(10);
    /// It is no longer in the table.
    pub(crate) const UNLINKED: ConnectionFlags = ConnectionFlags::lasting(11);
    /// There is no connection in this place, though lists may still name it.
    pub(crate) const VACANT: ConnectionFlags = ConnectionFlags::lasting(12);
    /// Only in-order segments come and go: see [`fast_path`](super::fast_path).
    pub(crate) const PREDICTED: ConnectionFlags = ConnectionFlags::lasting(13);

    /// The window was reduced, and the next new data must carry CWR (RFC 3168).
    pub(crate) const CWR_DUE: ConnectionFlags = ConnectionFlags::lasting(14);
    /// ECN was negotiated (RFC 3168).
    pub(crate) const ECN: ConnectionFlags = ConnectionFlags::lasting(15);

    /// The codepoint for new data that lets queues mark it: [`ECT_0`] if ECN was negotiated, else
    /// 0.
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

    /// Whether any of these is set.
    #[inline]
    pub(crate) const fn has(self, flags: ConnectionFlags) -> bool {
        self.moving & flags.moving != 0 || self.lasting & flags.lasting != 0
    }

    /// Whether exactly `those` of `these` are set.
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

    /// Sets these.
    #[inline]
    pub(crate) fn set(&mut self, flags: ConnectionFlags) {
        self.moving |= flags.moving;
        self.lasting |= flags.lasting;
    }

    /// Clears these.
    #[inline]
    pub(crate) fn clear(&mut self, flags: ConnectionFlags) {
        self.moving &= !flags.moving;
        self.lasting &= !flags.lasting;
    }
}

/// Where frames to the peer go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// The MAC address of the next hop; `None` while it is not known.
    pub(crate) mac: Option<Mac>,
    pub(crate) vlan: u16,
    /// Bytes of the longest packet that the path carries, as far as is known.
    pub(crate) mtu: u16,
}

/// The sending side (RFC 9293, section 3.3.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// The first sequence number that is not acknowledged (SND.UNA).
    pub(crate) una: SeqNumber,
    /// The next sequence number to be sent (SND.NXT).
    pub(crate) nxt: SeqNumber,
    /// The sequence number after the last byte that the user has given.
    pub(crate) end: SeqNumber,
    /// Bytes from `una` on that the peer accepts (SND.WND).
    pub(crate) window: u32,
    /// The largest window that the peer has offered.
    pub(crate) window_max: u32,
    /// The sequence number of the segment of the last window update (RFC 9293's SND.WL1).
    pub(super) wl1: SeqNumber,
    /// Its acknowledgment number (SND.WL2).
    pub(super) wl2: SeqNumber,
    /// The first buffer of all that is not acknowledged, in order.
    pub(crate) head: BufferId,
    pub(super) tail: BufferId,
    /// The first of these that has not been sent.
    pub(crate) unsent: BufferId,
    /// The MSS that the peer has announced.
    pub(super) peer_mss: u16,
    /// Bytes of payload of a full segment.
    pub(super) mss: u16,
    /// The number of buffers that are not acknowledged.
    pub(super) pieces: u16,
    /// The shift of the peer's windows, in bits (RFC 7323).
    pub(super) shift: u8,
    /// When anything was last sent.
    pub(crate) last_at: Instant,
}

/// The receiving side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiving {
    /// The next sequence number expected (RCV.NXT).
    pub(crate) nxt: SeqNumber,
    /// The right edge of the window that was offered.
    pub(crate) edge: SeqNumber,
    /// The first buffer of bytes received in order and not read.
    pub(super) stash: BufferId,
    /// The last one.
    pub(super) stash_tail: BufferId,
    /// The first entry of [`Shared::fresh`](super::Shared) with the bytes that follow the buffers.
    pub(super) fresh: u16,
    /// The last one.
    pub(super) fresh_tail: u16,
    /// Bytes in these buffers and frames together.
    pub(crate) unread: u32,
    /// Bytes since the last acknowledgment.
    pub(super) unacknowledged: u32,
    /// The acknowledgment sent last.
    pub(super) acked: SeqNumber,
    /// The shift of our windows, in bits (RFC 7323).
    pub(super) shift: u8,
    /// The peer's timestamp to echo (RFC 7323, section 4.3), in the peer's ticks.
    pub(super) ts_recent: u32,
    /// When it came.
    pub(super) ts_recent_at: Instant,
    /// When a segment last arrived.
    pub(crate) last_at: Instant,
    /// The segment that is being processed comes from the peer: its numbers fit the window.
    pub(crate) is_vouched: bool,
}

/// What is known of losses (RFC 8985, RFC 6675).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    /// Bytes in flight (RFC 6675's pipe).
    pub(crate) pipe: u32,
    /// Bytes that the peer has acknowledged by SACK.
    pub(super) sacked: u32,
    /// Buffers that hold those bytes.
    pub(super) sacked_segments: u8,
    /// Bytes that are thought lost and were not retransmitted.
    pub(crate) lost: u32,
    /// The phase of loss recovery, and the sequence number whose acknowledgment ends it.
    pub(super) phase: Phase,
    pub(super) until: SeqNumber,
    /// Since when nothing was acknowledged although something is in flight; `NEVER` if nothing is.
    pub(super) stuck_since: Instant,
    /// When the most recently sent of all acknowledged segments was sent (RACK.xmit_ts).
    pub(super) rack_sent_at: Instant,
    /// The end of that segment (RACK.end_seq).
    pub(super) rack_end: SeqNumber,
    /// Microseconds from sending it to its acknowledgment (RACK.rtt).
    pub(super) rack_rtt: u32,
    /// The highest sequence number acknowledged, by ACK or SACK.
    pub(super) fack: SeqNumber,
    /// Reordering has been observed: segments arrived late without having been lost.
    pub(super) reorders: bool,
    /// The reordering window, in quarters of the shortest round-trip time.
    pub(super) reorder_quarters: u8,
    /// Recoveries for which that window is kept.
    pub(super) reorder_persists: u8,
    /// A DSACK counts once a round trip: after one, none counts until `dsack_round` is
    /// acknowledged.
    pub(super) has_dsack: bool,
    pub(super) dsack_round: SeqNumber,
    /// A tail loss probe in flight: TLP.end_seq, and whether it is a retransmission.
    pub(super) probe: Option<(SeqNumber, bool)>,
    /// Duplicate acknowledgments in a row, without SACK (RFC 5681).
    pub(super) duplicates: u8,
    /// The SACK block that was reported last: where it begins, and its last buffer, or none. All
    /// buffers between are marked.
    pub(super) sacked_from: SeqNumber,
    pub(super) sacked_last: BufferId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is missing.
    Open,
    /// Acknowledgments show a loss.
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
    /// The tail loss probe (RFC 8985, section 7).
    Tail,
    /// The end of the reordering window (RFC 8985, section 6.2).
    Reordered,
    /// The peer's window to open (RFC 9293, section 3.8.6.1).
    Window,
}

/// The least milliseconds between two answers to unacceptable segments (the same as in Linux).
pub(super) const ANSWER_EVERY_MS: u32 = 500;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    /// When the timer for sending expires, and what it waits for.
    pub(super) send_at: Instant,
    pub(super) waiting: Waiting,
    /// When a delayed acknowledgment is sent.
    pub(super) ack_at: Instant,
    /// When the state itself ends (SYN-RECEIVED, FIN-WAIT-2 without a user, TIME-WAIT), or the
    /// peer is asked whether it is still there.
    pub(crate) state_at: Instant,
    /// Keep-alive probes without an answer.
    pub(super) probes: u8,
    /// When an unacceptable segment was last answered, on the millisecond clock, which wraps
    /// around.
    pub(super) answered_ms: u32,
    /// The time that the wheel is set to.
    pub(crate) set_to: Instant,
}

/// Unread bytes that still lie in a frame of the burst.
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

    /// Cuts a buffer after `len` bytes. False if there is no memory for the rest; nothing has
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
    /// Changes a buffer, and updates the sums.
    #[inline]
    pub(super) fn change(&mut self, buffer: &mut Buffer, change: impl FnOnce(&mut Buffer)) {
        self.forget(buffer);
        change(buffer);
        self.remember(buffer);
    }

    /// Subtracts a buffer from the sums.
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

    /// Adds a buffer, as it is now, to the sums.
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
