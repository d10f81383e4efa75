//! Many operations in one go.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;
use crate::expiry::Expiry;
use crate::outcome::{Outcome, StoreOutcome, Value};
use crate::wire::reply::{ItemReply, Reply};
use crate::wire::request::{Request, Store, StoreMode, Verb};
use crate::wire::{Meta, ProtocolError};
use crate::{Cause, Effect};

/// Operations that are sent together: those of one server in one write, without waiting for answers
/// between them. Each method gives a ticket for the operation's result in [`Results`].
///
/// Operations on one key are executed in the order added. An operation is not tried again: an error says
/// what is known of it.
#[derive(Debug, Default)]
pub struct Batch {
    /// Keys and values of all requests, one behind the other.
    bytes: Vec<u8>,
    requests: Vec<Stored>,
}

/// A request whose key and value are in the bytes of its batch.
#[derive(Debug)]
struct Stored {
    key: Range<usize>,
    value: Range<usize>,
    /// Without its value.
    verb: Verb<'static>,
}

/// Names the result of one operation of a [`Batch`].
#[derive(Debug)]
pub struct BatchTicket<T> {
    index: usize,
    result: PhantomData<fn() -> T>,
}

impl Batch {
    /// No operations.
    #[must_use]
    pub fn new() -> Batch {
        Batch::default()
    }

    /// How many operations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// See [`crate::Client::get`].
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> BatchTicket<Option<Value>> {
        self.push(Request::get(key.as_ref()))
    }

    /// See [`crate::Client::gets`].
    pub fn gets(&mut self, key: impl AsRef<[u8]>) -> BatchTicket<Option<Value>> {
        self.push(Request::gets(key.as_ref()))
    }

    /// See [`crate::Client::get_and_touch`].
    pub fn get_and_touch(
        &mut self,
        key: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> BatchTicket<Option<Value>> {
        self.push(Request::get_and_touch(key.as_ref(), expiry.into()))
    }

    /// See [`crate::Client::set`].
    pub fn set(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> BatchTicket<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.push(Request::store(StoreMode::Set, key, value, 0, expiry.into()))
    }

    /// See [`crate::Client::store`].
    pub fn store(
        &mut self,
        mode: StoreMode,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        client_flags: u32,
        expiry: impl Into<Expiry>,
    ) -> BatchTicket<StoreOutcome> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let expiry = expiry.into();
        self.push(Request::store(mode, key, value, client_flags, expiry))
    }

    /// See [`crate::Client::delete`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> BatchTicket<bool> {
        self.push(Request::delete(key.as_ref()))
    }

    /// See [`crate::Client::touch`].
    pub fn touch(&mut self, key: impl AsRef<[u8]>, expiry: impl Into<Expiry>) -> BatchTicket<bool> {
        self.push(Request::touch(key.as_ref(), expiry.into()))
    }

    /// See [`crate::Client::increment`].
    pub fn increment(&mut self, key: impl AsRef<[u8]>, delta: u64) -> BatchTicket<Option<u64>> {
        self.push(Request::increment(key.as_ref(), delta, None))
    }

    /// See [`crate::Client::decrement`].
    pub fn decrement(&mut self, key: impl AsRef<[u8]>, delta: u64) -> BatchTicket<Option<u64>> {
        self.push(Request::decrement(key.as_ref(), delta, None))
    }

    /// See [`crate::Client::meta`].
    pub fn meta(&mut self, key: impl AsRef<[u8]>, meta: Meta<'_>) -> BatchTicket<ItemReply> {
        self.push(Request::meta(key.as_ref(), meta))
    }

    fn push<T: Outcome>(&mut self, request: Request<'_>) -> BatchTicket<T> {
        let mut take = |bytes: &[u8]| {
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(bytes);
            begin..self.bytes.len()
        };
        let key = take(&request.key);
        let (value, verb) = match request.verb {
            Verb::Store(store) => {
                let value = take(&store.value);
                (
                    value,
                    Verb::Store(Store {
                        value: Cow::default(),
                        ..store
                    }),
                )
            }
            verb => (0..0, verb.into_owned()),
        };
        self.requests.push(Stored { key, value, verb });
        BatchTicket {
            index: self.requests.len() - 1,
            result: PhantomData,
        }
    }

    /// Requests that are handed over together: up to `count_max`, and so many bytes that they take their share
    /// of a connection's bounds and no more.
    #[cfg(feature = "tokio")]
    pub(crate) fn groups(&self, indexes: &[usize], count_max: usize) -> Vec<Vec<usize>> {
        /// But for a single request with more.
        const LEN_MAX: usize = 256 << 10;
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut len = 0;
        for &index in indexes {
            let stored = &self.requests[index];
            let own = stored.key.len() + stored.value.len();
            len += own;
            match groups.last_mut() {
                Some(group) if group.len() < count_max && len <= LEN_MAX => group.push(index),
                _ => {
                    len = own;
                    groups.push(vec![index]);
                }
            }
        }
        groups
    }

    /// The key of a request, by its index.
    pub(crate) fn key(&self, index: usize) -> &[u8] {
        &self.bytes[self.requests[index].key.clone()]
    }

    /// A request, by its index.
    pub(crate) fn request(&self, index: usize) -> Request<'_> {
        let stored = &self.requests[index];
        let verb = match &stored.verb {
            Verb::Store(store) => Verb::Store(Store {
                value: Cow::Borrowed(&self.bytes[stored.value.clone()]),
                ..*store
            }),
            verb => verb.clone(),
        };
        let key = Cow::Borrowed(&self.bytes[stored.key.clone()]);
        Request { key, verb }
    }
}

/// The results of a [`Batch`].
#[derive(Debug)]
pub struct Results {
    results: Vec<Option<Result<Answered, Error>>>,
}

/// An answer, and who gave it.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) reply: Reply,
    pub(crate) server: Arc<str>,
    pub(crate) effect: Effect,
}

impl Answered {
    /// The result of the operation that was asked for.
    pub(crate) fn outcome<T: Outcome>(self) -> Result<T, Error> {
        outcome(self.reply, &self.server, self.effect)
    }
}

/// The result of an operation that `server` has answered.
#[inline]
pub(crate) fn outcome<T: Outcome>(
    reply: Reply,
    server: &Arc<str>,
    effect: Effect,
) -> Result<T, Error> {
    if let Reply::Refused(refusal) = reply {
        let server = Arc::clone(server);
        return Err(Error::Refused { server, refusal });
    }
    let misplaced = Cause::Protocol(ProtocolError::Misplaced);
    T::from_reply(reply).ok_or_else(|| Error::of(server, effect, misplaced))
}

impl Results {
    pub(crate) fn new(results: Vec<Result<Answered, Error>>) -> Results {
        Results {
            results: results.into_iter().map(Some).collect(),
        }
    }

    /// Takes an operation's result out.
    ///
    /// # Errors
    /// What the operation came to, if it has no result.
    ///
    /// # Panics
    /// When the ticket is another batch's.
    pub fn take<T: Outcome>(&mut self, ticket: BatchTicket<T>) -> Result<T, Error> {
        let result = self.results.get_mut(ticket.index).and_then(Option::take);
        let result = result.expect("a ticket is of the batch that gave it");
        result?.outcome()
    }

    /// The first error, if an operation whose result is not taken has one.
    #[must_use]
    pub fn first_error(&self) -> Option<&Error> {
        let results = self.results.iter().flatten();
        results.filter_map(|result| result.as_ref().err()).next()
    }
}
