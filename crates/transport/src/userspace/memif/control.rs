//! How the control channel is handled: the worker of one queue does it now and then.
//!
//! All events make one descriptor readable, an epoll set, which is itself in the set that the
//! worker sleeps on. So it needs no thread and no clock, and costs a turn no system call.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::client::Client;
use super::look::{Look, watch};
use super::mailbox::Mailbox;
use super::news::{News, Report};
use super::server::Server;

/// The most descriptors that are handled at a time.
const EVENTS_MAX: usize = 8;

/// Why a connection is ended if an index is out of range.
const LIE: &str = "an index of a ring is out of range";

/// An end of the channel, and the queues that it serves.
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
    /// Handles one end of the channel.
    ///
    /// # Errors
    /// If the system has no epoll set.
    pub(super) fn new(
        end: End,
        mailboxes: Vec<Arc<Mailbox>>,
        report: Report,
    ) -> io::Result<Control> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        match &end {
            End::Server(server) => watch(&set, server.listener(), Server::LISTENER)?,
            // Edge-triggered: each expiry is reported once, and nobody reads the timer.
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

    /// Handles whatever is ready.
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

/// The keys of what is ready in a set now.
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
        // Interrupted by a signal; what is ready stays ready.
        Err(_) => &[],
    };
    ready.iter().map(|event| {
        let data = event.data;
        data.u64()
    })
}
