//! What has happened: completions, events of connections, and their ends.

use super::bindings::{CqDataEntry, FI_REMOTE_CQ_DATA};
use super::driver::{Driver, DriverEvent, FRAMES, FrameState, Peer, Request};
use super::queues::{Taken, Told};
use super::works::Named;
use crate::fabric::{Completion, Fabric, PeerId, Span};
use crate::limits::FRAME_LEN;

/// Completions that are taken out at a time.
const ENTRIES: usize = 64;

impl Driver {
    /// Finds out what has happened.
    ///
    /// The caller has dealt with all that the last call has told.
    pub fn poll(&mut self, events: &mut Vec<DriverEvent>) {
        self.free_peers.append(&mut self.left_peers);
        self.take_completions(events);
        self.take_events(events);
        while let Some(peer) = self.closing.pop_front() {
            self.close(peer, events);
        }
    }

    fn take_completions(&mut self, events: &mut Vec<DriverEvent>) {
        let nothing = CqDataEntry {
            op_context: std::ptr::null_mut(),
            flags: 0,
            len: 0,
            buf: std::ptr::null_mut(),
            data: 0,
        };
        let mut room = [nothing; ENTRIES];
        loop {
            match self.completions.take(&mut room) {
                Taken::Entries(count) => {
                    for entry in &room[..count] {
                        self.take_entry(entry, events);
                    }
                    if count < ENTRIES {
                        return;
                    }
                }
                Taken::Failed(context) => self.take_failure(context, events),
                Taken::Nothing => return,
            }
        }
    }

    fn named(&self, context: u64) -> Named {
        let generation = |number: usize| self.frames.get(number).map(|frame| frame.generation);
        self.works.named(context, generation)
    }

    fn take_entry(&mut self, entry: &CqDataEntry, events: &mut Vec<DriverEvent>) {
        let is_word = entry.flags & FI_REMOTE_CQ_DATA != 0;
        let immediate = u32::try_from(entry.data & 0xffff_ffff).expect("32 bits");
        let len = match self.way.words_are_wide() {
            true => usize::try_from(entry.data >> 32).expect("32 bits"),
            false => entry.len,
        };
        let completion = match self.named(entry.op_context as u64) {
            // Of these, the context may be nothing at all.
            Named::Word | Named::Nothing if is_word => match self.only_peer() {
                Some(peer) => Completion::Written {
                    peer,
                    immediate,
                    len,
                },
                None => {
                    self.strays += 1;
                    return;
                }
            },
            Named::Work(at) => match self.works.remove(at) {
                Some(work) => Completion::Done { token: work.token },
                None => return,
            },
            Named::Frame(number) => {
                let frame = &mut self.frames[number];
                let Some(peer) = frame.owner.map(PeerId) else {
                    return;
                };
                frame.take_back(match is_word {
                    true => FrameState::Idle,
                    false => FrameState::Lent,
                });
                if is_word {
                    self.post_frame(number);
                    Completion::Written {
                        peer,
                        immediate,
                        len,
                    }
                } else {
                    let frame = Span {
                        region: FRAMES,
                        offset: number * FRAME_LEN,
                        len: entry.len.min(FRAME_LEN),
                    };
                    Completion::Frame { peer, frame }
                }
            }
            Named::Word | Named::Nothing => {
                self.strays += 1;
                return;
            }
        };
        events.push(DriverEvent::Completion(completion));
    }

    /// The one connection of a client.
    fn only_peer(&self) -> Option<PeerId> {
        match &self.peers[..] {
            [Some(_)] if self.listener.is_none() => Some(PeerId(0)),
            _ => None,
        }
    }

    fn take_failure(&mut self, context: u64, events: &mut Vec<DriverEvent>) {
        match self.named(context) {
            Named::Work(at) => {
                let Some(work) = self.works.remove(at) else {
                    return;
                };
                let token = work.token;
                events.push(DriverEvent::Completion(Completion::Failed { token }));
                self.disconnect(PeerId(work.peer));
            }
            Named::Frame(number) => {
                let frame = &mut self.frames[number];
                frame.take_back(FrameState::Idle);
                let owner = frame.owner;
                // It goes back with the others when the connection is closed.
                if let Some(owner) = owner {
                    self.disconnect(PeerId(owner));
                }
            }
            Named::Word => {
                if let Some(peer) = self.only_peer() {
                    self.disconnect(peer);
                }
            }
            Named::Nothing => self.strays += 1,
        }
    }

    fn take_events(&mut self, events: &mut Vec<DriverEvent>) {
        loop {
            let (name, is_there) = match self.events.take() {
                Told::Asked(info, data) => {
                    let request = Request(info);
                    events.push(DriverEvent::Asked { request, data });
                    continue;
                }
                Told::Connected(name) => (name, true),
                Told::Ended(name) => (name, false),
                Told::Nothing => return,
            };
            let has_it = |peer: &Option<Peer>| {
                peer.as_ref()
                    .is_some_and(|peer| peer.endpoint.object.name() == name)
            };
            let Some(number) = self.peers.iter().position(has_it) else {
                continue;
            };
            let peer = PeerId(u32::try_from(number).expect("few connections"));
            if !is_there {
                self.disconnect(peer);
            } else if let Some(connected) = &mut self.peers[number] {
                connected.is_connected = true;
                if self.listener.is_none() {
                    events.push(DriverEvent::Connected { peer });
                }
            }
        }
    }

    /// Closes a connection: all its work comes back, and then its end is told.
    fn close(&mut self, number: u32, events: &mut Vec<DriverEvent>) {
        let Some(peer) = self.peers[number as usize].take() else {
            return;
        };
        if peer.is_connected {
            peer.endpoint.shut_down();
        }
        drop(peer);
        // What had been done already is told as done.
        self.take_completions(events);
        for at in self.works.of(number) {
            if let Some(work) = self.works.remove(at) {
                let token = work.token;
                events.push(DriverEvent::Completion(Completion::Failed { token }));
            }
        }
        for at in 0..self.frames.len() {
            let frame = &mut self.frames[at];
            if frame.owner != Some(number) {
                continue;
            }
            frame.owner = None;
            // Those that the protocol still has come back from there.
            if frame.state != FrameState::Lent {
                frame.take_back(FrameState::Idle);
                self.free_frames.push(at);
            }
        }
        self.left_peers.push(number);
        let peer = PeerId(number);
        events.push(DriverEvent::Completion(Completion::Closed { peer }));
    }
}
