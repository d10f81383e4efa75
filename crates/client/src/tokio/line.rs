//! A connection that is open: who waits on it, and what it sends and receives.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use ::tokio::sync::{mpsc, oneshot};
use ::tokio::time::{Instant, Sleep, sleep_until};

use crate::batch::Batch;
use crate::error::Cause;
use crate::tokio::transport::Transport;
use crate::wire::{Completion, Conversation, Effect, Reply, Request, RequestError, Ticket};

/// Requests in flight on a connection, and as many again in its queue.
pub(super) const IN_FLIGHT: usize = 1024;

/// No further request is taken while this many bytes wait to be sent.
const OUTPUT_LEN_MAX: usize = 256 << 10;

/// What a connection is asked.
#[derive(Debug)]
pub(super) enum Command {
    /// One request.
    One {
        request: Box<Request<'static>>,
        caller: oneshot::Sender<Answer>,
    },
    /// Some requests of a batch, one behind the other.
    Several {
        batch: Arc<Batch>,
        indexes: Vec<usize>,
        caller: oneshot::Sender<SeveralAnswer>,
    },
    /// The values of some keys, all of which can be sent.
    Many {
        keys: Vec<Box<[u8]>>,
        caller: oneshot::Sender<ManyAnswer>,
    },
}

/// The answer to one request.
pub(super) type Answer = Result<Reply, Lost>;

/// For each request what became of it.
pub(super) type SeveralAnswer = Result<Vec<Answer>, Lost>;

/// For each key the answer, or `None` for a miss.
pub(super) type ManyAnswer = Result<Vec<Option<Reply>>, Lost>;

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(super) enum Lost {
    /// The request cannot be sent.
    Request(RequestError),
    /// The connection failed.
    Connection(Effect, Cause),
}

/// Whoever wants to know how the connection does.
pub(super) trait Watch: Send + 'static {
    /// The connection is open.
    fn opened(&self);
    /// Answers have come.
    fn answered(&self);
    /// The server has closed the connection while nothing was asked.
    fn closed(&self, cause: &Cause);
    /// The connection has failed; told once, before the callers are.
    fn failed(&self, cause: &Cause);
}

/// A connection that is open.
pub(super) struct Line {
    transport: Box<dyn Transport>,
    pub(super) conversation: Conversation,
    /// Why it has come to its end, where somebody else than its task has found out.
    pub(super) failure: Option<Cause>,
    /// What was written has left a transport that keeps bytes back.
    pub(super) is_flushed: bool,
    /// Who waits for answers, oldest first.
    waiting: VecDeque<Waiting>,
    /// How long the server may send nothing while something is asked.
    patience: Duration,
    /// Since when it has sent nothing, or is asked.
    silent_since: Instant,
    /// Not before this is over can it have been silent for too long.
    timer: Pin<Box<Sleep>>,
}

/// Why a line is not driven further by its task.
pub(super) enum Pause {
    /// Nothing is under way.
    Idle,
    /// Nobody can ask any more, and all is answered.
    Over,
}

/// How the taking of commands ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taking {
    /// The queue is empty; whoever puts something there wakes the task.
    All,
    /// There is no room for more.
    Full,
    /// Nobody can ask any more.
    Closed,
}

/// A caller, and what it has so far.
enum Waiting {
    One(Ticket, oneshot::Sender<Answer>),
    Several(Several),
    Many(Many),
}

struct Several {
    /// `None` while the answer is awaited; they come in this order.
    answers: Vec<Option<Answer>>,
    /// All in front of it are there.
    next: usize,
    caller: oneshot::Sender<SeveralAnswer>,
}

impl Several {
    /// Takes the answer to the oldest request without one. True when it was the last.
    fn answer(&mut self, answer: Answer) -> bool {
        self.skip();
        if let Some(place) = self.answers.get_mut(self.next) {
            *place = Some(answer);
        }
        self.skip();
        self.next == self.answers.len()
    }

    fn skip(&mut self) {
        while matches!(self.answers.get(self.next), Some(Some(_))) {
            self.next += 1;
        }
    }

    fn finish(self) {
        let answers = self.answers.into_iter().flatten().collect();
        drop(self.caller.send(Ok(answers)));
    }
}

struct Many {
    first: Ticket,
    /// The ticket behind the last key's: with it all keys are answered.
    last: Ticket,
    answers: Vec<Option<Reply>>,
    caller: oneshot::Sender<ManyAnswer>,
}

impl Line {
    pub(super) fn new(
        transport: Box<dyn Transport>,
        conversation: Conversation,
        patience: Duration,
    ) -> Line {
        Line {
            transport,
            conversation,
            failure: None,
            is_flushed: true,
            waiting: VecDeque::new(),
            patience,
            silent_since: Instant::now(),
            timer: Box::pin(sleep_until(Instant::now())),
        }
    }

    /// Takes, sends and receives what it can. Ready when the connection has failed, or when all is answered.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        commands: &mut mpsc::Receiver<Command>,
        watch: &impl Watch,
    ) -> Poll<Result<Pause, Cause>> {
        // Whether commands may be there that nobody has looked for since this began.
        let (mut has_room, mut taking) = (true, Taking::All);
        loop {
            if mem::replace(&mut has_room, false) {
                taking = self.poll_commands(cx, commands);
                if taking == Taking::Closed && self.conversation.pending() == 0 {
                    return Poll::Ready(Ok(Pause::Over));
                }
            }
            let has_sent = self.poll_send(cx)?;
            let has_received = self.poll_receive(cx)?;
            if has_received {
                self.restart_timer();
                let mut is_answered = false;
                while let Some(completion) = self.conversation.poll()? {
                    // Before the caller knows: it may ask for the next one at once, on another thread.
                    if !mem::replace(&mut is_answered, true) {
                        watch.answered();
                    }
                    self.hand_over(completion);
                }
            }
            // Whoever puts a command into an empty queue wakes the task.
            has_room = match taking {
                Taking::All => false,
                Taking::Full => has_sent || has_received,
                Taking::Closed => has_received && self.conversation.pending() == 0,
            };
            if has_room || has_received {
                continue;
            }
            if taking == Taking::All && self.is_idle() {
                return Poll::Ready(Ok(Pause::Idle));
            }
            return self.poll_timer(cx).map_ok(|never| match never {});
        }
    }

    /// Takes the request of a caller who has the line for itself, and for whom the line has been looked at.
    pub(super) fn begin(
        &mut self,
        request: &Request<'_>,
    ) -> Result<(Ticket, Instant), RequestError> {
        let ticket = self.conversation.push(request)?;
        self.restart_timer();
        Ok((ticket, self.silent_since))
    }

    /// Sends what is left of the only request.
    pub(super) fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Result<Infallible, Cause>> {
        self.poll_send(cx)?;
        self.poll_timer(cx)
    }

    /// The answer to the only request.
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reply, Cause>> {
        if !self.conversation.output().is_empty() || !self.is_flushed {
            self.poll_send(cx)?;
        }
        while self.poll_receive(cx)? {
            if let Some(completion) = self.conversation.poll()? {
                return Poll::Ready(Ok(completion.reply));
            }
            self.restart_timer();
        }
        self.poll_timer(cx).map_ok(|never| match never {})
    }

    /// Whoever asked with this ticket waits for the task's word from now on.
    pub(super) fn await_answer(&mut self, ticket: Ticket, caller: oneshot::Sender<Answer>) {
        self.waiting.push_back(Waiting::One(ticket, caller));
    }

    /// The answer to the only request.
    pub(super) fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reply, Cause>> {
        loop {
            let has_sent = self.poll_send(cx)?;
            let has_received = self.poll_receive(cx)?;
            if let Some(completion) = self.conversation.poll()? {
                return Poll::Ready(Ok(completion.reply));
            }
            if !has_sent && !has_received {
                return Poll::Pending;
            }
        }
    }

    /// Takes commands while there is room.
    fn poll_commands(
        &mut self,
        cx: &mut Context<'_>,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Taking {
        while self.conversation.pending() < IN_FLIGHT
            && self.conversation.output().len() < OUTPUT_LEN_MAX
        {
            match commands.poll_recv(cx) {
                Poll::Ready(Some(command)) => self.take(command),
                Poll::Ready(None) => return Taking::Closed,
                Poll::Pending => return Taking::All,
            }
        }
        Taking::Full
    }

    pub(super) fn take(&mut self, command: Command) {
        let was_idle = self.conversation.pending() == 0;
        match command {
            // Nobody waits for it any more, and it is not sent.
            Command::One { caller, .. } if caller.is_closed() => {}
            Command::Several { caller, .. } if caller.is_closed() => {}
            Command::Many { caller, .. } if caller.is_closed() => {}
            Command::One { request, caller } => match self.conversation.push(&request) {
                Ok(ticket) => self.waiting.push_back(Waiting::One(ticket, caller)),
                Err(error) => drop(caller.send(Err(Lost::Request(error)))),
            },
            Command::Several {
                batch,
                indexes,
                caller,
            } => {
                let push = |&index: &usize| {
                    let pushed = self.conversation.push(&batch.request(index));
                    pushed.err().map(|error| Err(Lost::Request(error)))
                };
                let mut several = Several {
                    answers: indexes.iter().map(push).collect(),
                    next: 0,
                    caller,
                };
                several.skip();
                match several.next == several.answers.len() {
                    true => several.finish(),
                    false => self.waiting.push_back(Waiting::Several(several)),
                }
            }
            Command::Many { keys, caller } => match self
                .conversation
                .push_multi_get(keys.iter().map(|key| &**key), false)
            {
                Ok(first) => {
                    let answers = vec![None; keys.len()];
                    let last = first + keys.len() as u64;
                    let many = Many {
                        first,
                        last,
                        answers,
                        caller,
                    };
                    self.waiting.push_back(Waiting::Many(many));
                }
                Err(error) => drop(caller.send(Err(Lost::Request(error)))),
            },
        }
        if was_idle {
            self.restart_timer();
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<bool, Cause> {
        let mut has_sent = false;
        while !self.conversation.output().is_empty() {
            let output = self.conversation.output();
            match Pin::new(&mut self.transport).poll_write(cx, output) {
                Poll::Ready(Ok(0)) => return Err(Cause::Closed),
                Poll::Ready(Ok(sent)) => self.conversation.sent(sent),
                Poll::Ready(Err(error)) => return Err(Cause::io(&error)),
                Poll::Pending => return Ok(has_sent),
            }
            has_sent = true;
            self.is_flushed = false;
        }
        if !self.is_flushed {
            match Pin::new(&mut self.transport).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.is_flushed = true,
                Poll::Ready(Err(error)) => return Err(Cause::io(&error)),
                Poll::Pending => {}
            }
        }
        Ok(has_sent)
    }

    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Result<bool, Cause> {
        let mut space = ReadBuf::new(self.conversation.space());
        match Pin::new(&mut self.transport).poll_read(cx, &mut space) {
            Poll::Ready(Ok(())) => {
                let received = space.filled().len();
                if received == 0 {
                    return Err(Cause::Closed);
                }
                self.conversation.received(received);
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(Cause::io(&error)),
            Poll::Pending => Ok(false),
        }
    }

    fn restart_timer(&mut self) {
        self.silent_since = Instant::now();
    }

    /// Ready when something is asked and nothing has come for too long. The timer is set anew when it goes off, not
    /// with each answer.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Infallible, Cause>> {
        if self.conversation.pending() == 0 {
            return Poll::Pending;
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let until = self.silent_since + self.patience;
            if Instant::now() >= until {
                return Poll::Ready(Err(Cause::Timeout(self.patience)));
            }
            self.timer.as_mut().reset(until);
        }
    }

    /// Gives an answer to its caller, who may be gone.
    fn hand_over(&mut self, completion: Completion) {
        let Completion { ticket, reply } = completion;
        if let Some(Waiting::Many(many)) = self.waiting.front_mut() {
            let within = usize::try_from(ticket - many.first).unwrap_or(usize::MAX);
            if let Some(answer) = many.answers.get_mut(within) {
                *answer = Some(reply);
                return;
            }
            // The end of a multi-get: what was not answered is a miss, or refused with it.
            if matches!(reply, Reply::Refused(_)) {
                let open = many.answers.iter_mut().filter(|answer| answer.is_none());
                open.for_each(|answer| *answer = Some(reply.clone()));
            }
        }
        if let Some(Waiting::Several(several)) = self.waiting.front_mut() {
            if several.answer(Ok(reply))
                && let Some(Waiting::Several(several)) = self.waiting.pop_front()
            {
                several.finish();
            }
            return;
        }
        match self.waiting.pop_front() {
            Some(Waiting::One(own, caller)) => {
                debug_assert_eq!(own, ticket);
                drop(caller.send(Ok(reply)));
            }
            Some(Waiting::Many(many)) => drop(many.caller.send(Ok(many.answers))),
            Some(Waiting::Several(_)) | None => {}
        }
    }

    /// Tells all callers that their answers will not come.
    pub(super) fn abandon(&mut self, cause: &Cause) {
        let mut lost = self.conversation.abandon().into_iter().peekable();
        for waiting in self.waiting.drain(..) {
            let lost_as = |effect| Lost::Connection(effect, cause.clone());
            let last = match &waiting {
                Waiting::One(ticket, _) => *ticket,
                Waiting::Many(many) => many.last,
                Waiting::Several(_) => 0,
            };
            // Of the parts of a multi-get, what is known of the oldest without an answer holds for all.
            let mut effect = None;
            while let Some(one) = lost.next_if(|one| one.ticket <= last) {
                effect.get_or_insert(one.effect);
            }
            let effect = effect.unwrap_or(Effect::Unknown);
            match waiting {
                Waiting::One(_, caller) => drop(caller.send(Err(lost_as(effect)))),
                Waiting::Many(many) => drop(many.caller.send(Err(lost_as(effect)))),
                Waiting::Several(mut several) => {
                    loop {
                        let effect = lost.next().map_or(Effect::Unknown, |one| one.effect);
                        if several.answer(Err(lost_as(effect))) {
                            break;
                        }
                    }
                    several.finish();
                }
            }
        }
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl Command {
    pub(super) fn lose(self, lost: Lost) {
        match self {
            Command::One { caller, .. } => drop(caller.send(Err(lost))),
            Command::Several { caller, .. } => drop(caller.send(Err(lost))),
            Command::Many { caller, .. } => drop(caller.send(Err(lost))),
        }
    }
}
