//! One server's part of a multi-get.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use crate::batch::outcome;
use crate::blocking::connection::{Deadline, OUTPUT_LEN_MAX};
use crate::blocking::pool::Lease;
use crate::blocking::servers::{Server, Servers};
use crate::error::{Cause, Error};
use crate::health::Admission;
use crate::key;
use crate::outcome::Value;
use crate::wire::reply::Reply;
use crate::wire::{Completion, Conversation, Effect, RequestError};

/// Keys of one multi-get. A larger request is several of them, one after another.
const MULTI_KEYS: usize = 256;

/// One server's part of a multi-get.
pub(super) struct Fetch<'c> {
    servers: &'c Servers,
    server: &'c Server,
    admission: Admission,
    deadline: Deadline,
    lease: Lease<'c>,
    /// Which keys it has, in order.
    indexes: Vec<usize>,
    plan: FetchPlan,
    failure: Option<Cause>,
}

/// How keys become tickets.
#[derive(Default)]
struct FetchPlan {
    /// Keys that were handed over.
    next: usize,
    groups: VecDeque<Group>,
    /// Keys that this server cannot be asked for.
    refused: Vec<(usize, RequestError)>,
}

/// Keys that were handed over together.
struct Group {
    /// The first one's ticket; the others' follow it, and one more behind them ends the group.
    first: u64,
    /// The first one's place in the list.
    begin: usize,
    count: usize,
}

type FetchResults = [Result<Option<Value>, Error>];

impl<'c> Fetch<'c> {
    /// Lends a connection and sends as much as it takes without waiting.
    pub(super) fn begin(
        servers: &'c Servers,
        server: usize,
        admission: Admission,
        mut indexes: Vec<usize>,
        keys: &[&[u8]],
        results: &mut FetchResults,
    ) -> Option<Fetch<'c>> {
        let server = &servers.list[server];
        // A key that cannot be sent must not fail the others of its group.
        indexes.retain(|&index| {
            let form = key::form(keys[index], servers.config.limits.binary_keys);
            if let Err(error) = form {
                results[index] = Err(error.into());
            }
            form.is_ok()
        });
        if indexes.is_empty() {
            return None;
        }
        let mut deadline = Deadline::after(servers.config.operation_timeout);
        let lease = match servers.lend(server, &mut deadline) {
            Ok(lease) => lease,
            Err(cause) => {
                servers.failed(server, admission, &cause);
                for index in indexes {
                    results[index] = Err(Error::of(&server.name, Effect::NotSent, cause.clone()));
                }
                return None;
            }
        };
        let mut fetch = Fetch {
            servers,
            server,
            admission,
            deadline,
            lease,
            indexes,
            plan: FetchPlan::default(),
            failure: None,
        };
        let (plan, indexes) = (&mut fetch.plan, &fetch.indexes);
        let sent = fetch
            .lease
            .send(&mut |conversation| plan.feed(indexes, keys, conversation));
        fetch.failure = sent.err();
        Some(fetch)
    }

    pub(super) fn finish(&mut self, keys: &[&[u8]], results: &mut FetchResults) {
        // Other servers were waited for meanwhile.
        self.deadline.is_fresh = false;
        let indexes = &self.indexes;
        let name = &self.server.name;
        // Until a key's answer has come, its result is what a lost connection would make of it.
        let mut is_answered = vec![false; indexes.len()];
        let plan = RefCell::new(&mut self.plan);
        if self.failure.is_none() {
            let feed = &mut |conversation: &mut Conversation| {
                plan.borrow_mut().feed(indexes, keys, conversation);
            };
            let sink = &mut |completion: Completion| {
                let plan = &mut *plan.borrow_mut();
                plan.take(completion, name, indexes, &mut is_answered, results);
            };
            self.failure = self.lease.drive(&mut self.deadline, feed, sink).err();
        }
        if is_answered.contains(&true) {
            self.servers.answered(self.server);
        }
        for (at, error) in self.plan.refused.drain(..) {
            is_answered[at] = true;
            results[indexes[at]] = Err(error.into());
        }
        let Some(cause) = self.failure.take() else {
            return;
        };
        self.servers.failed(self.server, self.admission, &cause);
        self.lease.conversation.abandon();
        for (&index, _) in indexes.iter().zip(&is_answered).filter(|(_, done)| !**done) {
            results[index] = Err(Error::of(name, Effect::Reads, cause.clone()));
        }
    }
}

impl FetchPlan {
    fn feed(&mut self, indexes: &[usize], keys: &[&[u8]], conversation: &mut Conversation) {
        while self.next < indexes.len() && conversation.output().len() < OUTPUT_LEN_MAX {
            let rest = &indexes[self.next..];
            let mut group = &rest[..rest.len().min(MULTI_KEYS)];
            let mut push = |group: &[usize]| {
                conversation.push_multi_get(group.iter().map(|&index| keys[index]), false)
            };
            let mut pushed = push(group);
            if !matches!(pushed, Ok(_) | Err(RequestError::Full)) && group.len() > 1 {
                // One of the keys cannot be sent to this server; the others can.
                group = &group[..1];
                pushed = push(group);
            }
            let first = match pushed {
                Ok(first) => first,
                // There is no room until some are answered.
                Err(RequestError::Full) => return,
                Err(error) => {
                    self.refused.push((self.next, error));
                    self.next += 1;
                    continue;
                }
            };
            let (begin, count) = (self.next, group.len());
            self.next += count;
            self.groups.push_back(Group {
                first,
                begin,
                count,
            });
        }
    }

    fn take(
        &mut self,
        completion: Completion,
        server: &Arc<str>,
        indexes: &[usize],
        is_answered: &mut [bool],
        results: &mut FetchResults,
    ) {
        let Some(group) = self.groups.front() else {
            return;
        };
        let within = usize::try_from(completion.ticket - group.first).unwrap_or(usize::MAX);
        if within < group.count {
            let at = group.begin + within;
            results[indexes[at]] = outcome(completion.reply, server, Effect::Reads);
            is_answered[at] = true;
            return;
        }
        // The end of the group: what was not answered is a miss, or refused with it.
        for at in group.begin..group.begin + group.count {
            if mem::replace(&mut is_answered[at], true) {
                continue;
            }
            results[indexes[at]] = match &completion.reply {
                Reply::Refused(refusal) => Err(Error::Refused {
                    server: Arc::clone(server),
                    refusal: refusal.clone(),
                }),
                _ => Ok(None),
            };
        }
        self.groups.pop_front();
    }
}
