//! What an end of the control channel may do while it is handled.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::mailbox::{Mailbox, QueueLink};
use super::news::{News, Report};

/// What an end needs while it is handled.
pub(super) struct Look<'c> {
    pub(super) set: &'c OwnedFd,
    pub(super) mailboxes: &'c [Arc<Mailbox>],
    pub(super) report: &'c Report,
    pub(super) told: &'c mut Option<News>,
}

impl Look<'_> {
    /// Reports input on a channel under `key`; false if that is not possible.
    pub(super) fn watch(&mut self, channel: impl AsFd, key: u64) -> bool {
        watch(self.set, channel, key).is_ok()
    }

    /// Gives each queue its link. Queues for which there is none lose theirs.
    pub(super) fn link(&mut self, links: Vec<QueueLink>) {
        let links = links.into_iter().map(Some);
        let links = links.chain(std::iter::repeat_with(|| None));
        for (mailbox, link) in self.mailboxes.iter().zip(links) {
            mailbox.post(link);
        }
    }

    /// Reports what has happened.
    pub(super) fn tell(&mut self, news: News) {
        if self.told.as_ref() != Some(&news) {
            (self.report)(&news);
            *self.told = Some(news);
        }
    }
}

/// Reports input on a descriptor under `key`.
///
/// # Errors
/// If the kernel cannot wait for it.
pub(super) fn watch(set: &OwnedFd, what: impl AsFd, key: u64) -> io::Result<()> {
    Ok(epoll::add(
        set,
        what,
        EventData::new_u64(key),
        EventFlags::IN,
    )?)
}
