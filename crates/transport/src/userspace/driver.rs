//! A stack and its card, driven by a [`Poller`](crate::Poller).
//!
//! Its connections are [`Stream`](crate::Stream)s like those of the kernel's TCP. A worker's turn
//! is a turn of the stack: [`Poller::wait`](crate::Poller::wait) begins it, and
//! [`Poller::end_turn`](crate::Poller::end_turn) ends it.
//!
//! # Concurrency
//! A driver, its poller and its streams stay on the thread that made them.

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant as Moment};

use coua_tcp::config::Config;
use coua_tcp::counters::Counters;
use coua_tcp::nic::{Mac, Nic};
use coua_tcp::stack::{ConnectError, ConnectionId, Notice, Overrides, Stack};
use coua_tcp::time::Instant;

use super::{Card, Exchange};
use crate::huge_pages;
use crate::readiness::{Readiness, Token};

/// How long a worker keeps polling after the last frame before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// The longest sleep of a worker whose card cannot wake it.
const NAP: Duration = Duration::from_micros(50);

/// Turns in a row with frames in which the worker does not poll its kernel sockets: a fraction of a
/// millisecond.
const TURNS_WITHOUT_SOCKETS: u8 = 15;

/// How a worker waits for frames when there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Polling {
    /// Polls for a while, then sleeps until the card has received something.
    #[default]
    Adaptive,
    /// Polls all the time.
    Busy,
}

/// What a driver is made of.
pub struct StackSetup {
    /// The card.
    pub card: Card,
    /// The stack's settings.
    pub config: Config,
    /// The ports on which connections are accepted.
    pub ports: Vec<u16>,
    /// The port on which datagrams are received, if there is one.
    pub datagram_port: Option<u16>,
    /// How it waits for frames.
    pub polling: Polling,
    /// Passes on what its stack learns and the other workers must know.
    pub exchange: Exchange,
}

/// A stack and its card.
pub(crate) struct StackDriver {
    pub(super) stack: Stack,
    pub(super) card: Card,
    /// The beginning of the stack's time.
    started: Moment,
    /// When a frame last arrived.
    busy_at: Moment,
    /// When the turn began, and whether it found nothing.
    turn_at: Moment,
    is_turn_idle: bool,
    turns: Turns,
    /// When it last fell asleep, and how long it has slept in all.
    asleep_since: Moment,
    slept: Duration,
    /// Turns since the kernel sockets were last polled.
    turns_without_sockets: u8,
    polling: Polling,
    exchange: Exchange,
    listener: Option<Token>,
    takes_datagrams: bool,
    datagrams: Option<Token>,
    /// Connections that have just been registered: their readiness is reported once more.
    news: Vec<Readiness>,
    is_in_turn: bool,
}

/// What a stack and the worker that drives it have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackDriverCounters {
    /// The stack.
    pub stack: Counters,
    /// The worker's turns.
    pub turns: Turns,
}

/// Turns of a worker on a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// All turns.
    pub all: u64,
    /// Those that found no frame.
    pub idle: u64,
    /// The time that those took, sleep included.
    pub idle_time: Duration,
    /// The time that the others took: the load that clients put on the worker.
    pub busy_time: Duration,
}

/// A driver that its poller and its streams share.
pub(crate) type SharedStackDriver = Rc<RefCell<StackDriver>>;

impl StackDriver {
    pub(crate) fn new(setup: StackSetup) -> SharedStackDriver {
        let started = Moment::now();
        let mut stack = Stack::new(setup.config, setup.card.features(), Instant::default());
        for table in stack.tables() {
            huge_pages::ask_for(table);
        }
        setup.exchange.join(&mut stack);
        for port in setup.ports {
            stack.listen(port);
        }
        if let Some(port) = setup.datagram_port {
            stack.listen_for_datagrams(port);
        }
        Rc::new(RefCell::new(StackDriver {
            stack,
            card: setup.card,
            started,
            busy_at: started,
            turn_at: started,
            is_turn_idle: false,
            turns: Turns::default(),
            asleep_since: started,
            slept: Duration::ZERO,
            turns_without_sockets: 0,
            polling: setup.polling,
            exchange: setup.exchange,
            listener: None,
            takes_datagrams: setup.datagram_port.is_some(),
            datagrams: None,
            news: Vec::new(),
            is_in_turn: false,
        }))
    }

    /// Reports connections to accept under `token`.
    pub(crate) fn listen(&mut self, token: Token) {
        self.listener = Some(token);
    }

    /// Answers no more openings.
    pub(crate) fn ignore_openings(&mut self) {
        self.stack.ignore_openings();
    }

    /// Whether connections that nobody has any more still send what they were given.
    pub(crate) fn has_sending_orphans(&self) -> bool {
        self.stack.has_sending_orphans()
    }

    /// Whether it receives datagrams on some port.
    pub(crate) fn takes_datagrams(&self) -> bool {
        self.takes_datagrams
    }

    /// Reports datagrams under `token`, in each turn in which some arrive.
    pub(crate) fn report_datagrams(&mut self, token: Token) {
        self.datagrams = Some(token);
    }

    /// Reports the readiness of a connection under `token`.
    pub(crate) fn register(&mut self, id: ConnectionId, token: Token) {
        self.stack.set_tag(id, token.0);
        // The stack may have reported its end already, and will not report it again.
        let stands = self.stack.readiness(id);
        self.news.push(Readiness {
            token,
            readable: true,
            writable: true,
            end_of_stream: stands.is_none_or(|news| news.ended || news.failure.is_some()),
        });
    }

    /// Notes the MAC address of a neighbour that was asked for.
    pub(crate) fn introduce(&mut self, neighbour: IpAddr, mac: Mac) {
        let notice = Notice::Neighbour(neighbour.into(), mac, Overrides(true));
        self.stack.take_notice(notice);
    }

    /// Begins a turn, and reports what has become ready.
    pub(crate) fn begin_turn(&mut self, ready: &mut Vec<Readiness>) {
        if self.is_in_turn {
            self.end_turn();
        }
        self.is_in_turn = true;
        ready.append(&mut self.news);
        let moment = Moment::now();
        let micros = u64::try_from(moment.duration_since(self.started).as_micros());
        let now = Instant::from_micros(micros.unwrap_or(u64::MAX));
        let before = self.stack.counters().frames_received;
        let passed = moment.duration_since(self.turn_at);
        match self.is_turn_idle {
            true => self.turns.idle_time += passed,
            false => self.turns.busy_time += passed,
        }
        self.turn_at = moment;
        let had_strays = self.exchange.deliver_strays(&mut self.stack, now);
        self.card.begin(&mut self.stack, now);
        self.exchange.deliver(&mut self.stack);
        self.exchange.collect(&mut self.stack);
        self.is_turn_idle = self.stack.counters().frames_received == before && !had_strays;
        self.turns.all += 1;
        self.turns.idle += u64::from(self.is_turn_idle);
        if !self.is_turn_idle {
            self.busy_at = moment;
        }
        while let Some((_, news)) = self.stack.next_ready() {
            // A connection that is not registered yet is reported when it is accepted.
            if news.tag != Stack::NO_TAG {
                ready.push(Readiness {
                    token: Token(news.tag),
                    readable: news.readable || news.failure.is_some(),
                    writable: news.writable || news.failure.is_some(),
                    end_of_stream: news.failure.is_some() || news.ended,
                });
            }
        }
        let sources = [
            (self.listener, self.stack.has_accepted()),
            (self.datagrams, self.stack.has_datagrams()),
        ];
        for (token, is_readable) in sources {
            if let Some(token) = token.filter(|_| is_readable) {
                ready.push(Readiness {
                    token,
                    readable: true,
                    writable: false,
                    end_of_stream: false,
                });
            }
        }
    }

    /// Ends a turn: all that is due is sent.
    pub(crate) fn end_turn(&mut self) {
        self.card.end(&mut self.stack);
        self.is_in_turn = false;
    }

    /// Whether to poll the kernel sockets in this turn: always if no frame arrived, and every few
    /// turns while frames keep arriving.
    pub(crate) fn is_time_for_sockets(&mut self) -> bool {
        let is_time = self.is_turn_idle || self.turns_without_sockets == TURNS_WITHOUT_SOCKETS;
        self.turns_without_sockets = match is_time {
            true => 0,
            false => self.turns_without_sockets + 1,
        };
        is_time
    }

    /// How long the worker may sleep, at most `timeout`; zero if it should keep polling.
    pub(crate) fn sleep(&self, timeout: Duration) -> Duration {
        if self.polling == Polling::Busy || self.busy_at.elapsed() < SPIN {
            return Duration::ZERO;
        }
        let timeout = match self.card.descriptor() {
            Some(_) => timeout,
            None => timeout.min(NAP),
        };
        let Some(deadline) = self.stack.deadline() else {
            return timeout;
        };
        let elapsed = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let left = deadline.micros_since(Instant::from_micros(elapsed));
        timeout.min(Duration::from_micros(left))
    }

    /// Prepares the worker for sleep. Some cards do not announce a frame that arrived between the
    /// last poll and this call, so these are polled once more. False if there is something to do: a
    /// turn has begun then, and the worker must not sleep.
    pub(crate) fn fall_asleep(&mut self, ready: &mut Vec<Readiness>) -> bool {
        self.asleep_since = Moment::now();
        if self.card.arm() {
            self.begin_turn(ready);
            if !self.is_turn_idle || !ready.is_empty() {
                self.card.disarm();
                return false;
            }
            self.end_turn();
        }
        true
    }

    /// The worker has woken up.
    pub(crate) fn wake_up(&mut self) {
        self.card.disarm();
        self.slept += self.asleep_since.elapsed();
    }

    /// How long it has slept in all.
    pub(crate) fn slept(&self) -> Duration {
        self.slept
    }

    /// A descriptor that becomes readable each time another worker has sent something.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.exchange.bell()
    }

    /// The card.
    pub(crate) fn card(&self) -> &Card {
        &self.card
    }

    /// The error that ended the writing of frames to a file, if there was one; returned once.
    pub(crate) fn take_trace_error(&mut self) -> Option<io::Error> {
        self.card.take_trace_error()
    }

    /// What it has counted.
    pub(crate) fn counters(&self) -> StackDriverCounters {
        StackDriverCounters {
            stack: *self.stack.counters(),
            turns: self.turns,
        }
    }
}

/// The I/O error for a failed attempt to connect.
pub(crate) fn as_io(error: ConnectError) -> io::Error {
    let kind = match error {
        ConnectError::NoRoute => io::ErrorKind::HostUnreachable,
        ConnectError::Full => io::ErrorKind::OutOfMemory,
        ConnectError::NoPort => io::ErrorKind::AddrInUse,
    };
    io::Error::new(kind, error)
}
