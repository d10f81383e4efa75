//! How a connection begins: what both sides offer in their SYNs (RFC 9293, section 3.5).

use super::block::{
    ANSWER_EVERY_MS, ConnectionFlags, NO_FRESH, Path, Phase, Receiving, Recovery, Sending, Timers,
    Waiting,
};
use super::path_mtu::MtuSearch;
use super::template::Template;
use super::{Connection, MSS_MIN, OutOfOrder, Shared, State, default_mss};
use crate::buffers::{BufferId, Marks};
use crate::config::Config;
use crate::congestion::Congestion;
use crate::rtt::Rtt;
use crate::seq::SeqNumber;
use crate::table::Hash;
use crate::time::Instant;
use crate::wire::four_tuple::FourTuple;

/// What the peer's SYN offers for the whole connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) mss: u16,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
    pub(crate) timestamp: Option<u32>,
    pub(crate) ecn: bool,
}

impl Connection {
    /// A connection before its first segment.
    pub(crate) fn new(tuple: FourTuple, hash: Hash, path: Path, shared: &Shared) -> Connection {
        let is_v4 = tuple.remote.is_v4();
        let mut iss = shared.secrets.initial_sequence(&tuple, shared.now);
        if let Some(last) = shared.predecessor {
            iss = iss.max(last + 1);
        }
        let mss = default_mss(is_v4);
        Connection {
            tuple,
            tag: Connection::NO_TAG,
            hash,
            generation: 0,
            state: State::Closed,
            flags: ConnectionFlags::default(),
            failure: None,
            path,
            send: Sending {
                una: iss,
                nxt: iss,
                end: iss,
                window: 0,
                window_max: 0,
                wl1: SeqNumber(0),
                wl2: SeqNumber(0),
                head: BufferId::NONE,
                tail: BufferId::NONE,
                unsent: BufferId::NONE,
                peer_mss: mss,
                mss,
                pieces: 0,
                shift: 0,
                last_at: shared.now,
            },
            receive: Receiving {
                nxt: SeqNumber(0),
                edge: SeqNumber(0),
                stash: BufferId::NONE,
                stash_tail: BufferId::NONE,
                fresh: NO_FRESH,
                fresh_tail: NO_FRESH,
                unread: 0,
                unacknowledged: 0,
                acked: SeqNumber(0),
                shift: 0,
                ts_recent: 0,
                is_vouched: false,
                ts_recent_at: shared.now,
                last_at: shared.now,
            },
            recovery: Recovery {
                pipe: 0,
                sacked: 0,
                sacked_segments: 0,
                lost: 0,
                phase: Phase::Open,
                until: iss,
                stuck_since: Instant::NEVER,
                rack_sent_at: Instant::from_micros(0),
                rack_end: iss,
                rack_rtt: 0,
                fack: iss,
                reorders: false,
                reorder_quarters: 1,
                reorder_persists: 0,
                has_dsack: false,
                dsack_round: iss,
                probe: None,
                duplicates: 0,
                sacked_from: iss,
                sacked_last: BufferId::NONE,
            },
            congestion: Congestion::new(shared.config.algorithm, u32::from(mss)),
            rtt: Rtt::new(),
            timers: Timers {
                send_at: Instant::NEVER,
                waiting: Waiting::None,
                ack_at: Instant::NEVER,
                state_at: Instant::NEVER,
                probes: 0,
                answered_ms: shared.now.wrapping_millis().wrapping_sub(ANSWER_EVERY_MS),
                set_to: Instant::NEVER,
            },
            ts_offset: shared.secrets.timestamp_offset(&tuple),
            template: Template::NONE,
            out_of_order: OutOfOrder::NOTHING,
            mtu_search: MtuSearch::NONE,
        }
    }

    /// Starts an active open: a SYN is to be sent.
    pub(crate) fn open(&mut self, shared: &mut Shared) -> bool {
        self.state = State::SynSent;
        // Offered; the peer's SYN decides.
        if shared.config.timestamps {
            self.flags.set(ConnectionFlags::TIMESTAMPS);
        }
        if shared.config.sack {
            self.flags.set(ConnectionFlags::SACK);
        }
        self.settle_mss();
        self.receive.shift = own_shift(&shared.config);
        self.timers.state_at = shared.now + shared.config.user_timeout;
        self.enqueue_mark(shared, Marks::SYN)
    }

    /// Starts a passive open, for a SYN with the sequence number `irs`.
    pub(crate) fn accept(&mut self, shared: &mut Shared, irs: SeqNumber, offer: Offer) -> bool {
        self.state = State::SynReceived;
        self.flags.set(ConnectionFlags::PASSIVE);
        self.flags.set(ConnectionFlags::ORPHAN);
        self.agree(shared, irs, offer);
        self.enqueue_mark(shared, Marks::SYN)
    }

    /// Resumes a handshake from a cookie: a SYN with the sequence number `irs` was answered with
    /// `iss`.
    pub(crate) fn resume(
        &mut self,
        shared: &Shared,
        (irs, iss): (SeqNumber, SeqNumber),
        offer: Offer,
    ) {
        self.state = State::SynReceived;
        self.flags.set(ConnectionFlags::PASSIVE);
        self.flags.set(ConnectionFlags::ORPHAN);
        self.agree(shared, irs, offer);
        (self.send.una, self.send.nxt, self.send.end) = (iss, iss + 1, iss + 1);
        let recovery = &mut self.recovery;
        (recovery.fack, recovery.rack_end, recovery.until) = (iss, iss, iss);
        // The window that the SYN-ACK with the cookie offered.
        self.receive.edge = self.receive.nxt + u32::from(first_window(&shared.config));
    }

    /// Negotiates the options from what the peer's SYN offers.
    pub(super) fn agree(&mut self, shared: &Shared, irs: SeqNumber, offer: Offer) {
        let receive = &mut self.receive;
        receive.nxt = irs + 1;
        receive.edge = receive.nxt;
        receive.acked = receive.nxt;
        self.send.wl1 = irs;
        self.send.peer_mss = offer.mss.max(MSS_MIN);
        // Window scaling is used if both sides offer it; a shift above 14 counts as 14 (RFC 7323,
        // section 2.3).
        match offer.window_scale {
            Some(shift) => {
                self.send.shift = shift.min(14);
                receive.shift = own_shift(&shared.config);
            }
            None => (self.send.shift, receive.shift) = (0, 0),
        }
        match offer.timestamp {
            Some(value) if shared.config.timestamps => {
                (receive.ts_recent, receive.ts_recent_at) = (value, shared.now);
                self.flags.set(ConnectionFlags::TIMESTAMPS);
            }
            _ => self.flags.clear(ConnectionFlags::TIMESTAMPS),
        }
        match offer.sack && shared.config.sack {
            true => self.flags.set(ConnectionFlags::SACK),
            false => self.flags.clear(ConnectionFlags::SACK),
        }
        match offer.ecn && shared.config.ecn {
            true => self.flags.set(ConnectionFlags::ECN),
            false => self.flags.clear(ConnectionFlags::ECN),
        }
        self.settle_mss();
        self.congestion = Congestion::new(shared.config.algorithm, u32::from(self.mss()));
    }
}

/// The shift of our windows: as large as the largest window needs.
pub(crate) fn own_shift(config: &Config) -> u8 {
    let fits = |shift: &u8| u64::from(config.receive_len_max) <= 65_535 << shift;
    (0..14).find(fits).unwrap_or(14)
}

/// The window that a SYN offers, which is never scaled.
pub(crate) fn first_window(config: &Config) -> u16 {
    u16::try_from(config.receive_len_max).unwrap_or(u16::MAX)
}
