//! What all connections of a stack have in common.

use super::block::Fresh;
use super::template::Skeletons;
use crate::buffers::Buffers;
use crate::config::Config;
use crate::counters::Counters;
use crate::nic::Features;
use crate::secrets::Secrets;
use crate::seq::SeqNumber;
use crate::time::Instant;

/// What all connections of a stack have in common.
pub(crate) struct Shared {
    pub(crate) now: Instant,
    pub(crate) config: Config,
    /// The shortest retransmission timeout, of the settings, in microseconds.
    pub(crate) rto_min_us: u64,
    /// Bytes that one connection may have waiting to be read, by the memory that there was when the
    /// turn began.
    pub(crate) receive_share: u32,
    pub(crate) features: Features,
    pub(crate) skeletons: Skeletons,
    pub(crate) buffers: Buffers,
    pub(crate) counters: Counters,
    pub(crate) secrets: Secrets,
    /// What lies in the frames of this burst.
    pub(crate) fresh: Vec<Fresh>,
    /// How many more answers may be sent to what may be an attack.
    pub(crate) challenges: Challenges,
    /// The last number of a connection in TIME-WAIT that makes room for one of the same four-tuple,
    /// whose numbers must be later (RFC 9293, section 3.10.7.4).
    pub(crate) predecessor: Option<SeqNumber>,
}

/// Challenges (RFC 5961, section 7), resets and echoes that a stack sends in a second.
const CHALLENGES_A_SECOND: u32 = 1000;

/// Those that are left of a second.
pub(crate) struct Challenges {
    left: u32,
    second: u64,
}

impl Challenges {
    /// All of the second that has begun.
    pub(crate) fn at(now: Instant) -> Challenges {
        Challenges {
            left: CHALLENGES_A_SECOND,
            second: now.micros() / 1_000_000,
        }
    }
}

impl Shared {
    /// Gives each connection a part of the room that there is for what is received: an eighth.
    pub(crate) fn share_room(&mut self) {
        self.receive_share = u32::try_from(self.buffers.room() / 8).unwrap_or(u32::MAX);
    }

    /// Whether another answer to what may be an attack may be sent.
    pub(crate) fn may_challenge(&mut self) -> bool {
        let full = Challenges::at(self.now);
        if self.challenges.second != full.second {
            self.challenges = full;
        }
        let may = self.challenges.left > 0;
        self.challenges.left = self.challenges.left.saturating_sub(1);
        may
    }
}
