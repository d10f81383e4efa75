//! What becomes of a message: sent by a card, on its way, in the other node's memory.

use crate::fabric::{Completion, PeerId, Work};

use super::link::{End, Posted};
use super::world::{Arrived, Event, World};

impl World {
    pub(super) fn transmit(&mut self, link: usize, end: End, number: u64) {
        let Some(posted) = self.posted(link, end, number) else {
            return;
        };
        if self.links[link].is_broken {
            return;
        }
        let node = self.links[link].nodes[end];
        let free = self.nodes[node.0].card_free;
        if free > self.now {
            return self.schedule(free, Event::Transmit { link, end, number });
        }
        let bytes: Vec<u8> = match posted.work {
            Work::Send { from } | Work::Write { from, .. } => {
                let parts = from.parts().iter();
                parts
                    .flat_map(|part| self.nodes[node.0].bytes(*part).to_vec())
                    .collect()
            }
            Work::Read { .. } => Vec::new(),
        };
        let wire = bytes.len() as u64 * self.profile.byte_ps;
        self.nodes[node.0].card_free = self.now + wire.max(self.profile.gap_ps);
        let at = self.arrival(link, 1 - end, wire);
        if self.dice.one_in(self.faults.breaks) {
            // Half of them arrive, and only their acknowledgment is lost.
            if self.dice.one_in(2) && !matches!(posted.work, Work::Read { .. }) {
                self.send(at, (link, end, number), bytes, false);
            }
            return self.schedule_break(link, at + 1);
        }
        if self.spared != Some(node) && self.dice.one_in(self.faults.dies) {
            return self.kill(node);
        }
        if let Work::Read { .. } = posted.work {
            return self.schedule(at, Event::Serve { link, end, number });
        }
        let is_twice =
            matches!(posted.work, Work::Write { .. }) && self.dice.one_in(self.faults.twice);
        if is_twice {
            self.send(at, (link, end, number), bytes.clone(), false);
        }
        self.send(at, (link, end, number), bytes, true);
    }

    /// Has what an end has posted under a number arrive.
    fn send(
        &mut self,
        at: u64,
        (link, end, number): (usize, End, u64),
        bytes: Vec<u8>,
        is_acknowledged: bool,
    ) {
        let payload = self.keep(bytes);
        let arrive = Event::Arrive {
            link,
            end,
            number,
            payload,
            is_acknowledged,
        };
        self.schedule(at, arrive);
    }

    /// When something that is sent now to an end is there.
    pub(super) fn arrival(&mut self, link: usize, to: End, wire: u64) -> u64 {
        let latency = self.profile.latency_ps;
        let mut at = self.now + wire + latency;
        if self.dice.one_in(self.faults.late) {
            at += self.dice.below(20 * latency);
        }
        if self.profile.is_unordered {
            return at + self.dice.below(latency / 4);
        }
        let last = &mut self.links[link].arrives_last[to];
        *last = at.max(*last + 1);
        *last
    }

    pub(super) fn arrive(
        &mut self,
        link: usize,
        end: End,
        number: u64,
        bytes: &[u8],
        is_acknowledged: bool,
    ) -> Arrived {
        let Some(posted) = self.posted(link, end, number) else {
            return Arrived::Dealt;
        };
        let to = 1 - end;
        let node = self.links[link].nodes[to];
        // What was sent before a connection broke arrives, unless this end has been told.
        if self.links[link].is_closed[to] || self.nodes[node.0].is_dead {
            return Arrived::Dealt;
        }
        let peer = PeerId(u32::try_from(link).expect("few connections"));
        match posted.work {
            Work::Send { .. } => {
                let frame_len = self.nodes[node.0].frame_len;
                if bytes.len() > frame_len {
                    return self.refuse(link);
                }
                let Some(frame) = self.nodes[node.0].frames.pop() else {
                    return Arrived::NotReady;
                };
                let frame = frame.part(0, bytes.len());
                self.nodes[node.0].bytes_mut(frame).copy_from_slice(bytes);
                self.complete(node, Completion::Frame { peer, frame });
            }
            Work::Write {
                to: remote,
                immediate,
                ..
            } => {
                let node_state = &self.nodes[node.0];
                let granted = node_state.granted(peer, remote.key, remote.address, bytes.len());
                let window = granted
                    .or_else(|| node_state.window(remote.key, remote.address, bytes.len(), true));
                let Some(window) = window else {
                    self.refused_access += 1;
                    return self.refuse(link);
                };
                if immediate.is_some() && self.links[link].writes_expected[to] == 0 {
                    self.receiver_not_ready += 1;
                    return self.refuse(link);
                }
                self.nodes[node.0].bytes_mut(window).copy_from_slice(bytes);
                if let Some(immediate) = immediate {
                    self.links[link].writes_expected[to] -= 1;
                    let len = bytes.len();
                    self.complete(
                        node,
                        Completion::Written {
                            peer,
                            immediate,
                            len,
                        },
                    );
                }
            }
            Work::Read { .. } => {}
        }
        if is_acknowledged {
            let at = self.now + self.profile.latency_ps;
            self.schedule(at, Event::Acknowledge { link, end, number });
        }
        Arrived::Dealt
    }

    pub(super) fn refuse(&mut self, link: usize) -> Arrived {
        self.break_link(link);
        Arrived::Dealt
    }

    pub(super) fn serve(&mut self, link: usize, end: End, number: u64) {
        let Some(posted) = self.posted(link, end, number) else {
            return;
        };
        let node = self.links[link].nodes[1 - end];
        let Work::Read { into, from } = posted.work else {
            return;
        };
        if self.links[link].is_broken || self.nodes[node.0].is_dead {
            return;
        }
        let free = self.nodes[node.0].card_free;
        if free > self.now {
            return self.schedule(free, Event::Serve { link, end, number });
        }
        let Some(window) = self.nodes[node.0].window(from.key, from.address, into.len, false)
        else {
            self.refused_access += 1;
            return self.break_link(link);
        };
        let bytes = self.nodes[node.0].bytes(window).to_vec();
        let wire = bytes.len() as u64 * self.profile.byte_ps;
        self.nodes[node.0].card_free = self.now + wire.max(self.profile.gap_ps);
        // What the card needs to begin an answer is latency: it begins others meanwhile.
        let at = self.arrival(link, end, wire + self.profile.read_ps);
        let payload = self.keep(bytes);
        self.schedule(
            at,
            Event::Served {
                link,
                end,
                number,
                payload,
            },
        );
    }

    pub(super) fn posted(&self, link: usize, end: End, number: u64) -> Option<Posted> {
        let mut posted = self.links[link].posted[end].iter();
        posted.find(|posted| posted.number == number).copied()
    }

    /// Keeps bytes that are on the way.
    pub(super) fn keep(&mut self, bytes: Vec<u8>) -> usize {
        self.payloads.push(Some(bytes));
        self.payloads.len() - 1
    }
}
