//! One server's part of a batch.

use std::sync::Arc;

use crate::batch::{Answered, Batch};
use crate::blocking::connection::{Deadline, OUTPUT_LEN_MAX};
use crate::blocking::pool::Lease;
use crate::blocking::servers::{Server, Servers};
use crate::error::{Cause, Error};
use crate::health::Admission;
use crate::wire::{Completion, Conversation, Effect, RequestError};

/// One server's part of a batch.
pub(super) struct Running<'c> {
    servers: &'c Servers,
    server: &'c Server,
    admission: Admission,
    deadline: Deadline,
    lease: Lease<'c>,
    /// Which operations it has, in order.
    indexes: Vec<usize>,
    /// How many of them were handed to the conversation or cannot be.
    next: usize,
    /// Those handed over, by their tickets from `first` on.
    sent: Vec<usize>,
    first: Option<u64>,
    failure: Option<Cause>,
}

type BatchResults = [Option<Result<Answered, Error>>];

impl<'c> Running<'c> {
    /// Lends a connection and sends as much as it takes without waiting.
    pub(super) fn begin(
        servers: &'c Servers,
        server: usize,
        admission: Admission,
        indexes: Vec<usize>,
        batch: &Batch,
        results: &mut BatchResults,
    ) -> Option<Running<'c>> {
        let server = &servers.list[server];
        let mut deadline = Deadline::after(servers.config.operation_timeout);
        let lease = match servers.lend(server, &mut deadline) {
            Ok(lease) => lease,
            Err(cause) => {
                servers.failed(server, admission, &cause);
                for index in indexes {
                    let cause = cause.clone();
                    let error = Error::of(&server.name, Effect::NotSent, cause);
                    results[index] = Some(Err(error));
                }
                return None;
            }
        };
        let mut running = Running {
            servers,
            server,
            admission,
            deadline,
            lease,
            indexes,
            next: 0,
            sent: Vec::new(),
            first: None,
            failure: None,
        };
        let failure = {
            let (lease, mut feed) = running.feed(batch, results);
            lease.send(&mut feed).err()
        };
        running.failure = failure;
        Some(running)
    }

    /// What hands operations to the conversation, beside the connection that it is for.
    fn feed<'f>(
        &'f mut self,
        batch: &'f Batch,
        results: &'f mut BatchResults,
    ) -> (&'f mut Lease<'c>, impl FnMut(&mut Conversation) + 'f) {
        let (next, sent, first) = (&mut self.next, &mut self.sent, &mut self.first);
        let indexes = &self.indexes;
        let feed = move |conversation: &mut Conversation| {
            while conversation.output().len() < OUTPUT_LEN_MAX {
                let Some(&index) = indexes.get(*next) else {
                    return;
                };
                match conversation.push(&batch.request(index)) {
                    Ok(ticket) => {
                        first.get_or_insert(ticket);
                        sent.push(index);
                    }
                    // It waits until some are answered.
                    Err(RequestError::Full) => return,
                    Err(error) => results[index] = Some(Err(error.into())),
                }
                *next += 1;
            }
        };
        (&mut self.lease, feed)
    }

    pub(super) fn finish(&mut self, batch: &Batch, results: &mut BatchResults) {
        let mut replies: Vec<Completion> = Vec::new();
        let mut deadline = self.deadline;
        // Other servers were waited for meanwhile.
        deadline.is_fresh = false;
        if self.failure.is_none() {
            let failure = {
                let (lease, mut feed) = self.feed(batch, results);
                let sink = &mut |completion| replies.push(completion);
                lease.drive(&mut deadline, &mut feed, sink).err()
            };
            self.failure = failure;
        }
        let first = self.first.unwrap_or(0);
        let index_of = |sent: &[usize], ticket: u64| {
            let at = usize::try_from(ticket.wrapping_sub(first)).ok()?;
            sent.get(at).copied()
        };
        if !replies.is_empty() {
            self.servers.answered(self.server);
        }
        for completion in replies {
            let Some(index) = index_of(&self.sent, completion.ticket) else {
                continue;
            };
            let effect = batch.request(index).effect();
            let server = Arc::clone(&self.server.name);
            let reply = completion.reply;
            results[index] = Some(Ok(Answered {
                reply,
                server,
                effect,
            }));
        }
        let Some(cause) = self.failure.take() else {
            return;
        };
        self.servers.failed(self.server, self.admission, &cause);
        let name = &self.server.name;
        for lost in self.lease.conversation.abandon() {
            if let Some(index) = index_of(&self.sent, lost.ticket) {
                results[index] = Some(Err(Error::of(name, lost.effect, cause.clone())));
            }
        }
        for &index in &self.indexes[self.next..] {
            results[index] = Some(Err(Error::of(name, Effect::NotSent, cause.clone())));
        }
    }
}
