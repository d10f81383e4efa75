//! A connection on which nothing is under way, lent to one caller.
//!
//! Handing a request to the connection's task and its answer back costs more than the request itself. A caller who finds
//! the connection idle takes it, sends and receives for itself, and puts it back. As soon as another caller comes, or
//! the first one goes away, the task has it again, with what is under way.
//!
//! ```text
//!            nothing is under way            a caller takes it
//!   ┌──────┐ ────────────────────▶ ┌──────┐ ─────────────────▶ ┌──────┐
//!   │ task │                       │ slot │ ◀───────────────── │ lent │
//!   └──────┘ ◀──────────────────── └──────┘   it is answered   └──┬───┘
//!       ▲      there is a command                                 │
//!       └─────────────────────────────────────────────────────────┘
//!         another caller waits, the caller has gone, or it failed
//! ```

use std::future::poll_fn;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ::tokio::sync::oneshot;
use ::tokio::time::Instant;

use crate::error::Cause;
use crate::tokio::line::{Answer, Line};
use crate::wire::{ProtocolError, Reply, Request, RequestError, Ticket};

/// Where a connection lies while its task does not need it.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    line: Option<Box<Line>>,
    /// The task waits for the line.
    is_wanted: bool,
    /// The line was put back with something for the task to do.
    needs_task: bool,
    task: Option<Waker>,
    borrower: Option<Waker>,
}

/// A line on loan. When dropped it goes back, to the task if something is under way.
pub(super) struct Lease<'s> {
    slot: &'s Slot,
    /// Taken when it goes back.
    line: Option<Box<Line>>,
    /// Of the request, once it is taken.
    ticket: Option<Ticket>,
    asked_at: Option<Instant>,
}

/// What came of asking.
pub(super) enum Asked {
    /// The answer.
    Answer(Reply),
    /// The request cannot be sent.
    Refused(RequestError),
    /// The task has the line, and the answer comes from it; asked at this moment.
    Handed(oneshot::Receiver<Answer>, Instant),
    /// Nothing was sent: the line is of no use any more.
    Unusable,
}

impl Slot {
    /// Lends the line, if it is there.
    pub(super) fn lend(&self) -> Option<Lease<'_>> {
        let mut state = self.lock();
        let line = state.line.take_if(|line| line.is_idle())?;
        drop(state);
        Some(Lease {
            slot: self,
            line: Some(line),
            ticket: None,
            asked_at: None,
        })
    }

    /// Puts the line there for callers, on which nothing is under way.
    pub(super) fn park(&self, line: Box<Line>) {
        let mut state = self.lock();
        state.line = Some(line);
        state.is_wanted = false;
    }

    /// Ready when the line was put back with something to do, or has come to its end where it lies.
    pub(super) fn poll_need(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if mem::replace(&mut state.needs_task, false) {
            return Poll::Ready(());
        }
        if let Some(line) = &mut state.line
            && line.poll_unasked(cx).is_ready()
        {
            return Poll::Ready(());
        }
        state.task = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The line, as soon as it is back.
    pub(super) async fn take(&self) -> Box<Line> {
        poll_fn(|cx| {
            let mut state = self.lock();
            if let Some(line) = state.line.take() {
                (state.is_wanted, state.needs_task) = (false, false);
                return Poll::Ready(line);
            }
            state.is_wanted = true;
            state.task = Some(cx.waker().clone());
            let borrower = state.borrower.take();
            drop(state);
            if let Some(borrower) = borrower {
                borrower.wake();
            }
            Poll::Pending
        })
        .await
    }

    /// Every state that a panic can leave behind is a valid one.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease<'_> {
    /// Sends a request and waits for its answer.
    pub(super) async fn ask(mut self, request: &Request<'_>) -> Asked {
        poll_fn(|cx| self.poll(cx, request)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>, request: &Request<'_>) -> Poll<Asked> {
        let Some(line) = &mut self.line else {
            return Poll::Ready(Asked::Unusable);
        };
        let polled = if self.ticket.is_some() {
            line.poll_answer(cx)
        } else {
            // The server may have closed the connection while it lay there. Whatever comes from here on wakes us.
            if line.poll_unasked(cx).is_ready() {
                return Poll::Ready(Asked::Unusable);
            }
            match line.begin(request) {
                Ok((ticket, now)) => (self.ticket, self.asked_at) = (Some(ticket), Some(now)),
                Err(error) => return Poll::Ready(Asked::Refused(error)),
            }
            line.poll_rest(cx).map_ok(|never| match never {})
        };
        match polled {
            Poll::Ready(Ok(reply)) => {
                self.ticket = None;
                return Poll::Ready(Asked::Answer(reply));
            }
            Poll::Ready(Err(cause)) => line.failure = Some(cause),
            Poll::Pending => {
                let mut state = self.slot.lock();
                if !state.is_wanted {
                    let waker = cx.waker();
                    match &mut state.borrower {
                        Some(borrower) if borrower.will_wake(waker) => {}
                        borrower => *borrower = Some(waker.clone()),
                    }
                    return Poll::Pending;
                }
            }
        }
        let (caller, answer) = oneshot::channel();
        let asked_at = self.asked_at.unwrap_or_else(Instant::now);
        self.give_back(caller);
        Poll::Ready(Asked::Handed(answer, asked_at))
    }

    /// The task has the line again, and the caller its answer from it.
    fn give_back(&mut self, caller: oneshot::Sender<Answer>) {
        let Some(mut line) = self.line.take() else {
            return;
        };
        if let Some(ticket) = self.ticket.take() {
            line.await_answer(ticket, caller);
        }
        let is_idle = line.is_idle();
        let mut state = self.slot.lock();
        state.line = Some(line);
        if is_idle && !state.is_wanted {
            return;
        }
        state.needs_task = true;
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // Nobody listens: the answer is read and thrown away.
        if self.line.is_some() {
            let (nobody, _) = oneshot::channel();
            self.give_back(nobody);
        }
    }
}

/// A shared slot.
pub(super) type SharedSlot = Arc<Slot>;

impl Line {
    /// Nothing is under way, and nothing has gone wrong.
    pub(super) fn is_idle(&self) -> bool {
        self.failure.is_none()
            && self.is_flushed
            && self.conversation.is_idle()
            && self.conversation.output().is_empty()
    }

    /// Ready when something came that nobody has asked for: an end, most likely. What it was is kept.
    fn poll_unasked(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let cause = match self.poll_receive(cx) {
            Ok(false) => return Poll::Pending,
            Ok(true) => Cause::Protocol(ProtocolError::Unsolicited),
            Err(cause) => cause,
        };
        self.failure = Some(cause);
        Poll::Ready(())
    }
}
