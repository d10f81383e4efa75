//! What the protocol asks of the network.

#![allow(unsafe_code, reason = "names memory to the network")]

use super::bindings::{FI_EAGAIN, RmaIov};
use super::driver::{Driver, FrameState, desc};
use super::objects::{Access, Pieces};
use super::works::{self, word_context};
use crate::fabric::{Fabric, Gather, PARTS_MAX, PeerId, Refused, Remote, Span, Work};
use crate::limits::FRAME_LEN;

impl Driver {
    fn push(&self, pieces: &mut Pieces<PARTS_MAX>, span: Span) {
        let region = &self.regions[span.region as usize];
        pieces.push(
            region.memory.at(span.offset, span.len),
            span.len,
            desc(region),
        );
    }

    fn pieces(&self, gather: &Gather) -> Pieces<PARTS_MAX> {
        let mut pieces = Pieces::new();
        for part in gather.parts() {
            self.push(&mut pieces, *part);
        }
        pieces
    }

    fn post_work(&self, peer: PeerId, work: &Work, context: u64) -> Option<isize> {
        let peer = self.peer(peer).filter(|peer| !peer.is_closing)?;
        let remote = |to: Remote, len| RmaIov {
            addr: to.address,
            len,
            key: to.key,
        };
        Some(match work {
            Work::Send { from } => {
                let mut pieces = self.pieces(from);
                // SAFETY: regions' memory goes after the endpoint; the protocol leaves it alone until the completion.
                unsafe { peer.endpoint.send(&mut pieces, context) }
            }
            Work::Write {
                from,
                to,
                immediate,
            } => {
                let mut pieces = self.pieces(from);
                let len = match self.way.words_are_wide() {
                    true => (from.len() as u64) << 32,
                    false => 0,
                };
                let word = immediate.map(|word| u64::from(word) | len);
                let (to, how) = (remote(*to, from.len()), Access::Write(word));
                // SAFETY: as above.
                unsafe { peer.endpoint.access(&mut pieces, to, how, context) }
            }
            Work::Read { into, from } => {
                let mut pieces = Pieces::new();
                self.push(&mut pieces, *into);
                // SAFETY: as above.
                unsafe {
                    peer.endpoint.access(
                        &mut pieces,
                        remote(*from, into.len),
                        Access::Read,
                        context,
                    )
                }
            }
        })
    }
}

impl Fabric for Driver {
    fn bytes(&self, span: Span) -> &[u8] {
        self.regions[span.region as usize]
            .memory
            .bytes(span.offset, span.len)
    }

    fn copy_in(&mut self, span: Span, bytes: &[u8]) {
        let part = span.part(0, bytes.len());
        self.regions[part.region as usize]
            .memory
            .copy_in(part.offset, bytes);
    }

    fn post(&mut self, peer: PeerId, work: &Work, token: u64) -> Result<(), Refused> {
        let noted = works::Work {
            peer: peer.0,
            token,
        };
        let (at, context) = self.works.insert(noted);
        match self.post_work(peer, work, context) {
            Some(0) => return Ok(()),
            Some(returned) if returned == -FI_EAGAIN => {
                self.works.remove(at);
                return Err(Refused::Full);
            }
            Some(_) | None => {}
        }
        self.works.remove(at);
        self.disconnect(peer);
        Err(Refused::Gone)
    }

    fn give_frame(&mut self, frame: Span) {
        let number = frame.offset / FRAME_LEN;
        debug_assert!(self.frames[number].state == FrameState::Lent);
        self.frames[number].state = FrameState::Idle;
        match self.frames[number].owner {
            Some(_) => self.post_frame(number),
            None => self.free_frames.push(number),
        }
    }

    fn expect_writes(&mut self, peer: PeerId, count: usize) {
        if !self.way.words_need_buffers() {
            return;
        }
        let Some(to) = self.peer(peer).filter(|peer| !peer.is_closing) else {
            return;
        };
        for _ in 0..count {
            // SAFETY: there is no memory.
            let returned = unsafe {
                to.endpoint
                    .receive(None, std::ptr::null_mut(), word_context())
            };
            if returned != 0 {
                return self.disconnect(peer);
            }
        }
    }

    fn grant(&mut self, _: PeerId, _: Span) -> Option<Remote> {
        // Nobody may write to this side's memory.
        None
    }

    fn revoke(&mut self, _: Remote) {}

    fn disconnect(&mut self, peer: PeerId) {
        if let Some(closing) = self.peers.get_mut(peer.0 as usize).and_then(Option::as_mut)
            && !std::mem::replace(&mut closing.is_closing, true)
        {
            self.closing.push_back(peer.0);
        }
    }
}
