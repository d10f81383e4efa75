//! Looking after the control channel: one queue's worker does it, now and then.
//!
//! All that can happen makes one descriptor readable, an epoll set, which is in the set that the
//! worker sleeps on. So nothing takes a thread or a clock, and a turn costs no system call.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::client::Client;
use super::mailbox::{Link, Mailbox};
use super::server::Server;

/// Descriptors that a look takes at most.
const EVENTS_MAX: usize = 8;

/// Why a connection is ended whose indices are out of range.
const LIE: &str = "an index of a ring is out of range";

/// What happens to a link, for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// There is no server, and the client goes on looking for one.
    Waiting {
        /// What the system said.
        why: String,
    },
    /// A peer is there.
    Connected {
        /// What it calls itself.
        peer: String,
        /// Queues that have rings; the others idle.
        queues: usize,
    },
    /// It is no longer.
    Left {
        /// In its own words, where it said some.
        why: String,
    },
    /// A peer was refused, or has refused this end.
    Refused {
        /// By this end, or in the peer's words.
        why: String,
    },
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::Waiting { why } => write!(f, "no server yet ({why}); tries again every second"),
            News::Connected { peer, queues } => write!(f, "connected to {peer}, queues: {queues}"),
            News::Left { why } => write!(f, "the peer has left: {why}"),
            News::Refused { why } => write!(f, "no connection: {why}"),
        }
    }
}

/// Hears the news of a link. The same is not told twice in a row.
pub type Report = Box<dyn Fn(&News) + Send>;

/// The end of the channel, and for whom it is looked after.
pub(super) struct Control {
    set: OwnedFd,
    end: End,
    mailboxes: Vec<Arc<Mailbox>>,
    report: Report,
    told: Option<News>,
}

/// Which end it is.
pub(super) enum End {
    Server(Server),
    Client(Client),
}

impl Control {
    /// Looks after an end.
    ///
    /// # Errors
    /// Where the system has no epoll set.
    pub(super) fn new(
        end: End,
        mailboxes: Vec<Arc<Mailbox>>,
        report: Report,
    ) -> io::Result<Control> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        match &end {
            End::Server(server) => watch(&set, server.listener(), Server::LISTENER)?,
            // Each time that it goes off counts, and nobody reads it.
            End::Client(client) => epoll::add(
                &set,
                client.timer(),
                EventData::new_u64(Client::TIMER),
                EventFlags::IN | EventFlags::ET,
            )?,
        }
        Ok(Control {
            set,
            end,
            mailboxes,
            report,
            told: None,
        })
    }

    /// Does what there is to do.
    pub(super) fn look(&mut self) {
        let Control {
            set,
            end,
            mailboxes,
            report,
            told,
        } = self;
        let mut look = Look {
            set,
            mailboxes,
            report,
            told,
        };
        let is_broken = look.mailboxes.iter().fold(false, |is_broken, mailbox| {
            mailbox.take_complaint() | is_broken
        });
        if is_broken {
            match end {
                End::Server(server) => server.break_off(LIE, &mut look),
                End::Client(client) => client.break_off(LIE, &mut look),
            }
        }
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        for key in ready(set, &mut room) {
            match end {
                End::Server(server) if key == Server::LISTENER => server.accept(&mut look),
                End::Server(server) => server.hear(key, &mut look),
                End::Client(client) if key == Client::TIMER => client.tick(&mut look),
                End::Client(client) => client.hear(&mut look),
            }
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// What an end needs while it is looked after.
pub(super) struct Look<'c> {
    set: &'c OwnedFd,
    mailboxes: &'c [Arc<Mailbox>],
    report: &'c Report,
    told: &'c mut Option<News>,
}

impl Look<'_> {
    /// Has what comes on a channel told under `key`; whether that can be.
    pub(super) fn watch(&mut self, channel: impl AsFd, key: u64) -> bool {
        watch(self.set, channel, key).is_ok()
    }

    /// Gives each queue its link, and none to those beyond.
    pub(super) fn link(&mut self, links: Vec<Link>) {
        let links = links.into_iter().map(Some);
        let links = links.chain(std::iter::repeat_with(|| None));
        for (mailbox, link) in self.mailboxes.iter().zip(links) {
            mailbox.post(link);
        }
    }

    /// Tells what has happened.
    pub(super) fn tell(&mut self, news: News) {
        if self.told.as_ref() != Some(&news) {
            (self.report)(&news);
            *self.told = Some(news);
        }
    }
}

fn watch(set: &OwnedFd, what: impl AsFd, key: u64) -> io::Result<()> {
    Ok(epoll::add(
        set,
        what,
        EventData::new_u64(key),
        EventFlags::IN,
    )?)
}

/// The keys of what is ready in a set, at this moment.
pub(super) fn ready<'r>(
    set: &OwnedFd,
    room: &'r mut [MaybeUninit<epoll::Event>],
) -> impl Iterator<Item = u64> + use<'r> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let ready = match epoll::wait(set, room, Some(&now)) {
        Ok((ready, _)) => &*ready,
        // A signal; what is ready stays so.
        Err(_) => &[],
    };
    ready.iter().map(|event| {
        let data = event.data;
        data.u64()
    })
}
