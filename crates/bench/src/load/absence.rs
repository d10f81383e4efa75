//! Which side had no CPU when a reply came late: the load, the server, or the whole machine.
//!
//! Every millisecond the load's event loop reads how long its own thread and those of the server
//! were ready to run but had no core. When a reply takes longer than a limit, it compares these
//! times with those at the request. If neither waited for a core, and this spinning thread still
//! could not read the clock, its core was taken away without the kernel's knowledge.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

use rustix::process::Pid;

use crate::sched::RunDelay;

/// Slow replies, by which side had no CPU for most of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Absences {
    /// The load's thread waited for its core: another thread of this machine ran there.
    pub(crate) load: u64,
    /// The server's threads waited for their cores.
    pub(crate) server: u64,
    /// The load's core was taken away without the kernel's knowledge: by the hypervisor, or for an
    /// interrupt.
    pub(crate) machine: u64,
    /// None of these: the server was busy, or the server's core was taken away.
    pub(crate) other: u64,
}

impl Absences {
    /// Adds what another thread has counted.
    pub(super) fn add(&mut self, other: &Absences) {
        self.load += other.load;
        self.server += other.server;
        self.machine += other.machine;
        self.other += other.other;
    }
}

/// The waiting times at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    at_ns: u64,
    load_ns: u64,
    server_ns: u64,
    /// How long turns have taken too long, as far as is known.
    gaps_ns: u64,
}

/// The looks of one load thread.
#[derive(Debug)]
pub(super) struct Watch {
    load: RunDelay,
    server: Option<RunDelay>,
    looks: VecDeque<Look>,
    turned_at_ns: u64,
    gaps_ns: u64,
    found: Absences,
}

impl Watch {
    /// Nanoseconds between two looks; a look takes some microseconds.
    const EVERY_NS: u64 = 1_000_000;
    /// How many looks are kept: slower replies are compared with the oldest one.
    const LOOKS: usize = 4096;
    /// A turn without sleep that takes longer than this is a gap.
    const GAP_NS: u64 = 100_000;
    /// Replies that take longer than this are examined.
    pub(crate) const SLOW: Duration = Duration::from_micros(500);

    /// Watches the calling thread, and the server if its process is known.
    pub(super) fn new(server: Option<Pid>) -> std::io::Result<Watch> {
        Ok(Watch {
            load: RunDelay::of_this_thread()?,
            server: server.map(RunDelay::of_process).transpose()?,
            looks: VecDeque::with_capacity(Self::LOOKS),
            turned_at_ns: 0,
            gaps_ns: 0,
            found: Absences::default(),
        })
    }

    /// Notes a turn. Its beginning, and how long this thread slept before it, are nanoseconds on
    /// the engine's clock.
    pub(super) fn turn(&mut self, now_ns: u64, slept_ns: u64) {
        let spent_ns = now_ns.saturating_sub(self.turned_at_ns);
        let awake_ns = spent_ns.saturating_sub(slept_ns);
        if self.turned_at_ns > 0 && awake_ns > Self::GAP_NS {
            self.gaps_ns += awake_ns;
        }
        self.turned_at_ns = now_ns;
        let last = self.looks.back().map_or(0, |look| look.at_ns);
        if now_ns - last >= Self::EVERY_NS {
            let look = self.look(now_ns);
            if self.looks.len() == Self::LOOKS {
                self.looks.pop_front();
            }
            self.looks.push_back(look);
        }
    }

    fn look(&self, now_ns: u64) -> Look {
        Look {
            at_ns: now_ns,
            load_ns: self.load.nanoseconds(),
            server_ns: self.server.as_ref().map_or(0, RunDelay::nanoseconds),
            gaps_ns: self.gaps_ns,
        }
    }

    /// Notes slow replies of this turn, of which the slowest took `latency_ns`.
    pub(super) fn slow(&mut self, now_ns: u64, latency_ns: u64, replies: u64) {
        let asked_ns = now_ns.saturating_sub(latency_ns);
        let now = self.look(now_ns);
        // The last look before the request, or the first one that there is.
        let later = self.looks.partition_point(|look| look.at_ns <= asked_ns);
        let then = self.looks.get(later.saturating_sub(1));
        let then = then.copied().unwrap_or(now);
        *self.blame(&then, &now, latency_ns) += replies;
    }

    /// The side that was without a CPU for longest, if for at least half of the time.
    fn blame(&mut self, then: &Look, now: &Look, latency_ns: u64) -> &mut u64 {
        let load = now.load_ns.saturating_sub(then.load_ns);
        let server = now.server_ns.saturating_sub(then.server_ns);
        let gaps = now.gaps_ns.saturating_sub(then.gaps_ns);
        let machine = gaps.saturating_sub(load);
        let most = load.max(server).max(machine);
        let found = &mut self.found;
        match most {
            most if most < latency_ns / 2 => &mut found.other,
            most if most == load => &mut found.load,
            most if most == server => &mut found.server,
            _ => &mut found.machine,
        }
    }

    /// Returns what was counted so far, and resets it.
    pub(super) fn take(&mut self) -> Absences {
        std::mem::take(&mut self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn who_was_away_longest_is_blamed() {
        let mut watch = Watch::new(None).unwrap();
        for (load, server, gaps) in [(3, 1, 3), (0, 3, 0), (0, 0, 3), (1, 0, 1)] {
            let look = |at_ns, load_ns, server_ns, gaps_ns| Look {
                at_ns,
                load_ns,
                server_ns,
                gaps_ns,
            };
            let then = look(MS, 0, 0, 0);
            let now = look(5 * MS, load * MS, server * MS, gaps * MS);
            *watch.blame(&then, &now, 4 * MS) += 1;
        }
        let expected = Absences {
            load: 1,
            server: 1,
            machine: 1,
            other: 1,
        };
        assert_eq!(watch.take(), expected);
        assert_eq!(watch.take(), Absences::default());
    }

    #[test]
    fn a_gap_between_turns_is_the_machines_where_nobody_waited() {
        let mut watch = Watch::new(None).unwrap();
        let begin = 10 * MS;
        watch.turn(begin, 0);
        watch.turn(begin + 20_000, 0);
        // Asleep for a time, and awake without a turn for a longer one.
        watch.turn(begin + 3 * MS, 0);
        watch.turn(begin + 8 * MS, 5 * MS);
        assert_eq!(watch.gaps_ns, 3 * MS - 20_000);
    }
}
