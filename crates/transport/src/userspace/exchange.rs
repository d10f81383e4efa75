//! What one worker's stack learns and the others must know.
//!
//! A card brings an answer to ARP, or an ICMP message, to one of several queues; the connections
//! that wait for it may be another worker's. Each worker has an inbox of bounded length, to which
//! all others send. Who finds one full drops what it would say, as a network may: who needs it asks
//! again.
//!
//! A segment for a connection that a stack does not have goes to the next worker, in a circle, until
//! one has it: see [`Stack::next_stray`]. What finds an inbox full is lost, and sent again by the peer.
//!
//! # Concurrency
//! A bell wakes the worker to whom something was sent. It is rung behind what it tells of, and waited
//! for by its edge: a bell that rings between a worker's last look and its sleep ends the sleep, and
//! nobody has to silence it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use coua_tcp::stack::{Notice, Stack, Stray};
use coua_tcp::time::Instant;

use crate::kernel::eventfd;

/// Notices that an inbox holds.
const INBOX_LEN: usize = 256;

/// Segments that an inbox holds: as many as a card brings in a turn, so that a worker spends no more on
/// others' segments than on its own.
const STRAYS_LEN: usize = 64;

/// One worker's end.
pub struct Exchange {
    inbox: Receiver<Notice>,
    strays: Receiver<Stray>,
    /// Readable since something was last sent here; none where the process has no descriptor left, so
    /// that it is found with the next turn.
    bell: Option<Arc<OwnedFd>>,
    /// The next worker first.
    others: Vec<Other>,
}

/// The way to another worker.
#[derive(Clone)]
struct Other {
    inbox: SyncSender<Notice>,
    strays: SyncSender<Stray>,
    bell: Option<Arc<OwnedFd>>,
}

impl Other {
    fn ring(&self) {
        if let Some(bell) = &self.bell {
            eventfd::set(bell);
        }
    }
}

impl Exchange {
    /// The ends of so many workers.
    pub fn between(workers: usize) -> Vec<Exchange> {
        let (all, inboxes): (Vec<Other>, Vec<_>) = (0..workers)
            .map(|_| {
                let (notices, inbox) = sync_channel(INBOX_LEN);
                let (passed, strays) = sync_channel(STRAYS_LEN);
                let bell = (workers > 1).then(eventfd::new).and_then(Result::ok);
                let other = Other {
                    inbox: notices,
                    strays: passed,
                    bell: bell.map(Arc::new),
                };
                (other, (inbox, strays))
            })
            .unzip();
        let ends = inboxes
            .into_iter()
            .enumerate()
            .map(|(own, (inbox, strays))| {
                let others = (own + 1..workers).chain(0..own);
                Exchange {
                    inbox,
                    strays,
                    bell: all[own].bell.clone(),
                    others: others.map(|other| all[other].clone()).collect(),
                }
            });
        ends.collect()
    }

    /// Tells the stack how many others there are, before its first turn.
    pub(crate) fn join(&self, stack: &mut Stack) {
        // With more, a segment is reset before all have been asked.
        stack.set_others(u8::try_from(self.others.len()).unwrap_or(u8::MAX));
    }

    /// What becomes readable when another worker has sent something: each time anew.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(|bell| bell.as_fd())
    }

    /// Hands the stack the segments that others have passed on, before it begins a turn. True where
    /// there were any.
    pub(crate) fn deliver_strays(&self, stack: &mut Stack, now: Instant) -> bool {
        let strays = self.strays.try_iter().take(STRAYS_LEN);
        strays.map(|stray| stack.take_stray(now, &stray)).count() > 0
    }

    /// Tells the stack what others have learnt.
    pub(crate) fn deliver(&self, stack: &mut Stack) {
        if self.others.is_empty() {
            return;
        }
        // No more than were there: others may go on sending.
        for notice in self.inbox.try_iter().take(INBOX_LEN) {
            stack.take_notice(notice);
        }
    }

    /// Tells the others what the stack has learnt, and passes on what it has no connection for.
    pub(crate) fn collect(&self, stack: &mut Stack) {
        let Some(next) = self.others.first() else {
            while stack.next_notice().is_some() {}
            return;
        };
        let mut has_news = false;
        while let Some(notice) = stack.next_notice() {
            for other in &self.others {
                // A full inbox, or one whose worker has ended.
                let _ = other.inbox.try_send(notice);
            }
            has_news = true;
        }
        let mut has_strays = false;
        while let Some(stray) = stack.next_stray() {
            let _ = next.strays.try_send(stray);
            has_strays = true;
        }
        match (has_news, has_strays) {
            (true, _) => self.others.iter().for_each(Other::ring),
            (false, true) => next.ring(),
            (false, false) => {}
        }
    }
}
