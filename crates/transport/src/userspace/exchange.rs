//! What one worker's stack learns and the others must know.
//!
//! A card brings an answer to ARP, or an ICMP message, to one of several queues; the connections
//! that wait for it may be another worker's. Each worker has an inbox of bounded length, to which
//! all others send. Who finds one full drops what it would say, as a network may: who needs it asks
//! again.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use coua_tcp::stack::{Notice, Stack};

/// Notices that an inbox holds.
const INBOX_LEN: usize = 256;

/// One worker's end.
pub struct Exchange {
    inbox: Receiver<Notice>,
    others: Vec<SyncSender<Notice>>,
}

impl Exchange {
    /// The ends of so many workers.
    pub fn between(workers: usize) -> Vec<Exchange> {
        let (senders, inboxes): (Vec<_>, Vec<_>) =
            (0..workers).map(|_| sync_channel(INBOX_LEN)).unzip();
        let ends = inboxes.into_iter().enumerate().map(|(own, inbox)| {
            let others = senders.iter().enumerate();
            Exchange {
                inbox,
                others: others
                    .filter(|(worker, _)| *worker != own)
                    .map(|(_, sender)| sender.clone())
                    .collect(),
            }
        });
        ends.collect()
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

    /// Tells the others what the stack has learnt.
    pub(crate) fn collect(&self, stack: &mut Stack) {
        while let Some(notice) = stack.next_notice() {
            for other in &self.others {
                // A full inbox, or one whose worker has ended.
                let _ = other.try_send(notice);
            }
        }
    }
}
