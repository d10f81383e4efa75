//! A run: both stacks, the cable, and time.

use coua_tcp::counters::Counters;
use coua_tcp::nic::Mac;
use coua_tcp::simulated::{Card, Faults, Link};
use smoltcp::socket::tcp::State;

use crate::end::{End, Manner};
use crate::ours::Ours;
use crate::theirs::Theirs;

/// The port to which connections are opened.
pub(crate) const PORT: u16 = 11211;

/// Bytes that a connection of ours may have received and not read.
pub(crate) const RECEIVE_LEN_MAX: u32 = 30_000;

/// Bytes of the full segment with the longest headers: IPv6, and timestamps.
pub(crate) const MSS_LEAST: u32 = 1500 - 40 - 20 - 12;

/// Microseconds that a run may take, in its own time.
const TIME_MAX_US: u64 = 1800 * 1_000_000;

/// Turns that a run may take, so that a circle ends.
const TURNS_MAX: u64 = 1_000_000;

/// What is played.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) is_v6: bool,
    /// Ours is the client.
    pub(crate) ours_connects: bool,
    /// smoltcp has timestamps.
    pub(crate) has_timestamps: bool,
    /// Of both directions.
    pub(crate) faults: Faults,
    /// Nothing that theirs sends arrives from then until then, in microseconds.
    pub(crate) cut_us: (u64, u64),
    pub(crate) seed: u64,
    pub(crate) ours: Manner,
    pub(crate) theirs: Manner,
}

/// What was seen in a run that went well.
pub(crate) struct Seen {
    pub(crate) ours: Counters,
    /// The most bytes that ours had received and not read.
    pub(crate) unread_max: u64,
    /// When both had sent and received everything, in microseconds.
    pub(crate) done_us: u64,
}

impl Case {
    /// Over a perfect cable.
    pub(crate) fn new(ours: Manner, theirs: Manner) -> Case {
        let faults = Faults {
            delay_us: 100,
            ..Faults::NONE
        };
        Case {
            is_v6: false,
            ours_connects: false,
            has_timestamps: false,
            faults,
            cut_us: (0, 0),
            seed: 0,
            ours,
            theirs,
        }
    }

    /// Plays it until both have sent and received everything and forgotten each other.
    pub(crate) fn play(&self) -> Result<Seen, String> {
        let cards = [1, 2].map(|host| Card::new(Mac([2, 0, 0, 0, 0, host])));
        let (link, [first, second]) = Link::new(self.seed, cards, self.faults);
        let mut ours = Ours::new(self, first, End::new(0, self.ours, self.theirs.len));
        let mut theirs = Theirs::new(self, second, End::new(1, self.theirs, self.ours.len));
        let address = |host: u8| {
            let address = match self.is_v6 {
                true => format!("[2001:db8::{host}]:{PORT}"),
                false => format!("192.0.2.{host}:{PORT}"),
            };
            address.parse().expect("an address")
        };
        if self.ours_connects {
            theirs.listen();
            ours.connect(address(2));
        } else {
            theirs.connect(address(1));
        }
        let (mut now_us, mut turns, mut done_us) = (0, 0, None);
        loop {
            link.advance_to(now_us);
            let (from_us, until_us) = self.cut_us;
            if (from_us..until_us).contains(&now_us) {
                link.cut(1, until_us);
            }
            let both = ours.turn(now_us).and_then(|()| theirs.turn(now_us));
            both.map_err(|why| trouble(&ours, &theirs, now_us, &why))?;
            if ours.end.is_done() && theirs.end.is_done() {
                done_us = done_us.or(Some(now_us));
            }
            let is_over = ours.stack.connections() == 0 && theirs.state() == State::Closed;
            if is_over && done_us.is_some() {
                break;
            }
            turns += 1;
            if now_us > TIME_MAX_US || turns > TURNS_MAX {
                return Err(trouble(&ours, &theirs, now_us, "it is not over"));
            }
            let next = [
                link.next_event_us(),
                ours.next_us(now_us),
                theirs.next_us(now_us),
            ];
            let Some(next) = next.into_iter().flatten().min() else {
                return Err(trouble(&ours, &theirs, now_us, "nothing happens any more"));
            };
            now_us = next.max(now_us + 1);
        }
        if ours.stack.buffers_in_use() != 0 {
            return Err(trouble(&ours, &theirs, now_us, "buffers are left"));
        }
        Ok(Seen {
            ours: *ours.stack.counters(),
            unread_max: ours.unread_max,
            done_us: done_us.unwrap_or(now_us),
        })
    }
}

fn trouble(ours: &Ours, theirs: &Theirs, now_us: u64, what: &str) -> String {
    format!(
        "{what} after {now_us} µs\nours: {:?}\ntheirs: {:?}: {:?}\n{:#?}",
        ours.end,
        theirs.state(),
        theirs.end,
        ours.stack.counters()
    )
}
