//! A connection and the conversation on it.

use std::io;
use std::mem;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::blocking::transport::{Connect, Transport};
use crate::config::{Config, DialectChoice};
use crate::error::Cause;
use crate::handshake::{begin, dialect_of, first_dialect, logged_in};
use crate::wire::request::Request;
use crate::wire::{Completion, Conversation};

/// After how long without use a connection is looked at before it is used again: the server may have
/// closed it.
const FRESH: Duration = Duration::from_millis(250);

/// Requests are encoded as the connection takes them; this many bytes ahead.
pub(super) const OUTPUT_LEN_MAX: usize = 64 << 10;

/// A connection and the conversation on it.
#[derive(Debug)]
pub(super) struct Connection {
    transport: Box<dyn Transport>,
    pub(super) conversation: Conversation,
    used: Instant,
    /// It must not be used again, though everything was answered.
    is_broken: bool,
}

/// How long an operation may go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    begun: Instant,
    /// The whole duration, for the error too.
    pub(super) timeout: Duration,
    /// Nothing has waited yet, so that the whole duration is left. It spares the clock.
    pub(super) is_fresh: bool,
}

impl Deadline {
    pub(super) fn after(timeout: Duration) -> Deadline {
        Deadline {
            begun: Instant::now(),
            timeout,
            is_fresh: true,
        }
    }

    /// What is left, or the error that nothing is. Whoever asks is about to wait.
    pub(super) fn rest(&mut self) -> Result<Duration, Cause> {
        if mem::replace(&mut self.is_fresh, false) && !self.timeout.is_zero() {
            return Ok(self.timeout);
        }
        match self.timeout.saturating_sub(self.begun.elapsed()) {
            Duration::ZERO => Err(Cause::Timeout(self.timeout)),
            rest => Ok(rest),
        }
    }

    fn cause(&self, error: &io::Error) -> Cause {
        match error.kind() {
            io::ErrorKind::TimedOut => Cause::Timeout(self.timeout),
            _ => Cause::io(error),
        }
    }
}

impl Connection {
    /// Opens a connection and finds out which dialect the server has.
    pub(super) fn open(
        connect: &dyn Connect,
        address: &Address,
        config: &Config,
    ) -> Result<Connection, Cause> {
        let mut deadline = Deadline::after(config.opening_limit());
        let transport = connect.connect(address, config.connect_timeout);
        let mut connection = Connection {
            transport: transport.map_err(|error| Cause::connect(&error))?,
            conversation: begin(config),
            used: Instant::now(),
            is_broken: false,
        };
        deadline.is_fresh = false;
        if config.login.is_some() {
            let mut answer = None;
            let sink = &mut |completion: Completion| answer = Some(completion.reply);
            let driven = connection.drive(&mut deadline, &mut |_| {}, sink);
            // Behind an answer that refuses the login there is nothing more.
            match answer {
                Some(answer) => logged_in(Some(answer))?,
                None => driven?,
            }
        }
        connection
            .conversation
            .set_dialect(first_dialect(config.dialect));
        if config.dialect == DialectChoice::Ask {
            connection.ask(&mut deadline)?;
        }
        Ok(connection)
    }

    /// Asks whether the server has the meta commands.
    fn ask(&mut self, deadline: &mut Deadline) -> Result<(), Cause> {
        let mut answer = None;
        let mut asked = false;
        let feed = &mut |conversation: &mut Conversation| {
            if !mem::replace(&mut asked, true) {
                let _ = conversation.push(&Request::noop());
            }
        };
        self.drive(deadline, feed, &mut |completion| {
            answer = Some(completion.reply);
        })?;
        self.conversation.set_dialect(dialect_of(answer)?);
        Ok(())
    }

    /// Sends what `feed` pushes, as long as it pushes, and hands each answer to `sink`, until none is
    /// pending. `feed` is called whenever there is room for more.
    pub(super) fn drive(
        &mut self,
        deadline: &mut Deadline,
        feed: &mut dyn FnMut(&mut Conversation),
        sink: &mut dyn FnMut(Completion),
    ) -> Result<(), Cause> {
        loop {
            let is_blocked = !self.send(feed)?;
            while let Some(completion) = self.conversation.poll()? {
                sink(completion);
            }
            if self.conversation.pending() == 0 && self.conversation.output().is_empty() {
                feed(&mut self.conversation);
                if self.conversation.pending() == 0 {
                    break;
                }
                continue;
            }
            let mut rest = deadline.rest()?;
            if is_blocked {
                let waited = self.transport.wait(rest);
                waited.map_err(|error| deadline.cause(&error))?;
                rest = Duration::ZERO;
            }
            match self.transport.receive(self.conversation.space(), rest) {
                Ok(0) => return Err(Cause::Closed),
                Ok(received) => self.conversation.received(received),
                Err(error) if is_blocked && error.kind() == io::ErrorKind::TimedOut => {}
                Err(error) => return Err(deadline.cause(&error)),
            }
        }
        // Somewhat early, which costs no more than a look at the connection.
        self.used = deadline.begun;
        self.is_broken |= self.transport.all_answered().is_err();
        Ok(())
    }

    /// Sends what `feed` pushes until it pushes nothing more. False when the connection takes no more now.
    pub(super) fn send(&mut self, feed: &mut dyn FnMut(&mut Conversation)) -> Result<bool, Cause> {
        loop {
            if self.conversation.output().len() < OUTPUT_LEN_MAX {
                feed(&mut self.conversation);
            }
            if self.conversation.output().is_empty() {
                return Ok(true);
            }
            match self.transport.send(self.conversation.output()) {
                Ok(sent) => self.conversation.sent(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Cause::io(&error)),
            }
        }
    }

    /// Whether the connection can be used for the request that `deadline` is of.
    pub(super) fn is_usable(&mut self, deadline: &Deadline) -> bool {
        if !self.conversation.is_idle() || self.is_broken {
            return false;
        }
        if deadline.begun.saturating_duration_since(self.used) < FRESH {
            return true;
        }
        // Bytes or an end that nobody has asked for.
        let seen = self.transport.receive(&mut [0], Duration::ZERO);
        seen.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
    }
}
