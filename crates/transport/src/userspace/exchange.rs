//! What one worker's stack learns and the other workers must know.
//!
//! A card delivers an answer to ARP, or an ICMP message, to one of several queues. The connections
//! that wait for it may belong to another worker. So each worker has an inbox of bounded length,
//! which all others send to. If an inbox is full, the message is dropped, as a network may do;
//! whoever needs it asks again.
//!
//! A segment for a connection that a stack does not have goes round all workers until one has the
//! connection: see [`Stack::next_stray`]. If an inbox is full, the segment is lost, and the peer
//! sends it again.
//!
//! # Concurrency
//! A bell wakes the worker that something was sent to. The sender rings it after the message is in
//! the inbox, and the worker waits for its edge. So a bell that rings between a worker's last look
//! and its sleep ends the sleep, and nobody has to reset it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use coua_tcp::stack::{Notice, Stack, Stray};
use coua_tcp::time::Instant;

use crate::kernel::eventfd;

/// The most notices that an inbox holds.
const INBOX_LEN: usize = 256;

/// The most segments that an inbox holds: as many as a card delivers in a turn, so that a worker
/// spends no more on others' segments than on its own.
const STRAYS_LEN: usize = 64;

/// One worker's end.
pub struct Exchange {
    inbox: Receiver<Notice>,
    strays: Receiver<Stray>,
    /// Becomes readable when something is sent here. If the process has no descriptor left there is
    /// none, and messages are found in the next turn.
    bell: Option<Arc<OwnedFd>>,
    /// The other workers, beginning with the next one.
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
    /// The ends of `workers` workers.
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

    /// Before the stack's first turn: tells it how many others there are.
    pub(crate) fn join(&self, stack: &mut Stack) {
        // With more workers than that, a segment is reset before all of them have been asked.
        stack.set_others(u8::try_from(self.others.len()).unwrap_or(u8::MAX));
    }

    /// A descriptor that becomes readable each time another worker sends something.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(|bell| bell.as_fd())
    }

    /// Before a turn: hands the stack the segments that others have passed on. Returns whether
    /// there were any.
    pub(crate) fn deliver_strays(&self, stack: &mut Stack, now: Instant) -> bool {
        let strays = self.strays.try_iter().take(STRAYS_LEN);
        strays.map(|stray| stack.take_stray(now, &stray)).count() > 0
    }

    /// Tells the stack what other workers have learnt.
    pub(crate) fn deliver(&self, stack: &mut Stack) {
        if self.others.is_empty() {
            return;
        }
        // No more than an inbox holds: others may go on sending.
        for notice in self.inbox.try_iter().take(INBOX_LEN) {
            stack.take_notice(notice);
        }
    }

    /// Tells the others what the stack has learnt, and passes on the segments that it has no
    /// connection for.
    pub(crate) fn collect(&self, stack: &mut Stack) {
        let Some(next) = self.others.first() else {
            while stack.next_notice().is_some() {}
            return;
        };
        let mut has_news = false;
        while let Some(notice) = stack.next_notice() {
            for other in &self.others {
                // Fails if the inbox is full or its worker has ended.
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
