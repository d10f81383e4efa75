//! What all connections of a stack have in common.

use super::block::Fresh;
use super::template::Skeletons;
use crate::buffers::Buffers;
use crate::config::Config;
use crate::counters::Counters;
use crate::limits::{Answer, Limits};
use crate::nic::Features;
use crate::secrets::Secrets;
use crate::seq::SeqNumber;
use crate::time::Instant;
use crate::wire::Address;

/// What all connections of a stack have in common.
pub(crate) struct Shared {
    pub(crate) now: Instant,
    pub(crate) config: Config,
    /// The shortest retransmission timeout of the settings, in microseconds.
    pub(crate) rto_min_us: u64,
    /// The most unread bytes of one connection, by the free memory when the turn began.
    pub(crate) receive_share: u32,
    pub(crate) features: Features,
    pub(crate) skeletons: Skeletons,
    pub(crate) buffers: Buffers,
    pub(crate) counters: Counters,
    pub(crate) secrets: Secrets,
    /// The unread bytes in the frames of this burst.
    pub(crate) fresh: Vec<Fresh>,
    /// How many more answers may be sent to what may be an attack.
    pub(crate) limits: Limits,
    /// The last sequence number of a connection in TIME-WAIT that is being replaced by one with the
    /// same four-tuple, whose sequence numbers must be higher (RFC 9293, section 3.10.7.4).
    pub(crate) predecessor: Option<SeqNumber>,
}

impl Shared {
    /// Sets the share of the room for received bytes that each connection gets: an eighth.
    pub(crate) fn share_room(&mut self) {
        self.receive_share = u32::try_from(self.buffers.room() / 8).unwrap_or(u32::MAX);
    }

    /// Whether another answer of this kind may be sent to `remote`. If so, it is counted.
    pub(crate) fn may_answer(&mut self, answer: Answer, remote: Address) -> bool {
        self.limits.may(&self.secrets, self.now, answer, remote)
    }
}
