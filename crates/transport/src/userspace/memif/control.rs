//! Looking after the control channel: one queue's worker does it, now and then.
//!
//! All that can happen makes one descriptor readable, an epoll set, which is in the set that the
//! worker sleeps on. So nothing takes a thread or a clock, and a turn costs no system call.

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

/// Descriptors that a look takes at most.
const EVENTS_MAX: usize = 8;

/// Why a connection is ended whose indices are out of range.
const LIE: &str = "an index of a ring is out of range";

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
