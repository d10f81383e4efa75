//! What may be asked of a server.

use std::borrow::Cow;

use crate::expiry::Expiry;
use crate::wire::error::Effect;
use crate::wire::meta::Meta;

/// One request, in either dialect.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Empty for what concerns a whole server.
    pub(crate) key: Cow<'a, [u8]>,
    pub(crate) verb: Verb<'a>,
}

/// What is done.
#[derive(Clone, Debug)]
pub(crate) enum Verb<'a> {
    /// With `expiry`, the item's expiry is changed too.
    Get {
        cas: bool,
        expiry: Option<Expiry>,
    },
    Store(Store<'a>),
    Delete,
    Touch(Expiry),
    Arithmetic(Arithmetic),
    Meta(Meta<'a>),
    FlushAll {
        delay_seconds: u32,
    },
    Stats(Cow<'a, [u8]>),
    Version,
    /// Meta's `mn`: does nothing, and is answered.
    Noop,
    /// `config get cluster`.
    Cluster,
}

#[derive(Clone, Debug)]
pub(crate) struct Store<'a> {
    pub(crate) mode: StoreMode,
    pub(crate) value: Cow<'a, [u8]>,
    pub(crate) client_flags: u32,
    pub(crate) expiry: Expiry,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Arithmetic {
    pub(crate) decrement: bool,
    pub(crate) delta: u64,
    /// What a missing item becomes, and when that expires.
    pub(crate) initial: Option<(u64, Expiry)>,
}

impl Verb<'_> {
    pub(crate) fn into_owned(self) -> Verb<'static> {
        match self {
            Verb::Get { cas, expiry } => Verb::Get { cas, expiry },
            Verb::Store(store) => Verb::Store(Store {
                value: Cow::Owned(store.value.into_owned()),
                mode: store.mode,
                client_flags: store.client_flags,
                expiry: store.expiry,
            }),
            Verb::Delete => Verb::Delete,
            Verb::Touch(expiry) => Verb::Touch(expiry),
            Verb::Arithmetic(arithmetic) => Verb::Arithmetic(arithmetic),
            Verb::Meta(meta) => Verb::Meta(meta.into_owned()),
            Verb::FlushAll { delay_seconds } => Verb::FlushAll { delay_seconds },
            Verb::Stats(what) => Verb::Stats(Cow::Owned(what.into_owned())),
            Verb::Version => Verb::Version,
            Verb::Noop => Verb::Noop,
            Verb::Cluster => Verb::Cluster,
        }
    }
}

/// When a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// Always.
    Set,
    /// If there is no such item.
    Add,
    /// If there is one.
    Replace,
    /// Behind the value of an item that is there; client flags and expiry of the item stay.
    Append,
    /// In front of it.
    Prepend,
    /// If the item is still the one with this CAS.
    Cas(u64),
}

impl<'a> Request<'a> {
    /// The value and client flags of an item.
    #[must_use]
    pub fn get(key: &'a [u8]) -> Self {
        let (cas, expiry) = (false, None);
        Self::of(key, Verb::Get { cas, expiry })
    }

    /// As [`Request::get`], with the item's CAS.
    #[must_use]
    pub fn gets(key: &'a [u8]) -> Self {
        let (cas, expiry) = (true, None);
        Self::of(key, Verb::Get { cas, expiry })
    }

    /// As [`Request::gets`], and changes when the item expires.
    #[must_use]
    pub fn get_and_touch(key: &'a [u8], expiry: Expiry) -> Self {
        let (cas, expiry) = (true, Some(expiry));
        Self::of(key, Verb::Get { cas, expiry })
    }

    /// Stores a value.
    #[must_use]
    pub fn store(
        mode: StoreMode,
        key: &'a [u8],
        value: &'a [u8],
        client_flags: u32,
        expiry: Expiry,
    ) -> Self {
        let value = Cow::Borrowed(value);
        let store = Store {
            mode,
            value,
            client_flags,
            expiry,
        };
        Self::of(key, Verb::Store(store))
    }

    /// Deletes an item.
    #[must_use]
    pub fn delete(key: &'a [u8]) -> Self {
        Self::of(key, Verb::Delete)
    }

    /// Changes when an item expires.
    #[must_use]
    pub fn touch(key: &'a [u8], expiry: Expiry) -> Self {
        Self::of(key, Verb::Touch(expiry))
    }

    /// Adds to a decimal number; it wraps at 64 bits. With `initial`, a missing item becomes that number.
    #[must_use]
    pub fn increment(key: &'a [u8], delta: u64, initial: Option<(u64, Expiry)>) -> Self {
        let decrement = false;
        Self::of(
            key,
            Verb::Arithmetic(Arithmetic {
                decrement,
                delta,
                initial,
            }),
        )
    }

    /// Subtracts from a decimal number; it stops at 0. See [`Request::increment`].
    #[must_use]
    pub fn decrement(key: &'a [u8], delta: u64, initial: Option<(u64, Expiry)>) -> Self {
        let decrement = true;
        Self::of(
            key,
            Verb::Arithmetic(Arithmetic {
                decrement,
                delta,
                initial,
            }),
        )
    }

    /// Any meta command with any flags.
    #[must_use]
    pub fn meta(key: &'a [u8], meta: Meta<'a>) -> Self {
        Self::of(key, Verb::Meta(meta))
    }

    /// Makes all items of a server expire, now or in so many seconds.
    #[must_use]
    pub fn flush_all(delay_seconds: u32) -> Self {
        Self::of(b"", Verb::FlushAll { delay_seconds })
    }

    /// Statistics; `what` is empty for the general ones.
    #[must_use]
    pub fn stats(what: &'a [u8]) -> Self {
        Self::of(b"", Verb::Stats(Cow::Borrowed(what)))
    }

    /// The server's version.
    #[must_use]
    pub fn version() -> Self {
        Self::of(b"", Verb::Version)
    }

    /// Does nothing and is answered: meta's `mn`.
    #[must_use]
    pub fn noop() -> Self {
        Self::of(b"", Verb::Noop)
    }

    /// Which servers the fleet has, as AWS's memcached and coua know it: `config get cluster`. The answer is an item
    /// whose value is the list, or a miss.
    #[must_use]
    pub fn cluster() -> Self {
        Self::of(b"", Verb::Cluster)
    }

    fn of(key: &'a [u8], verb: Verb<'a>) -> Self {
        let key = Cow::Borrowed(key);
        Request { key, verb }
    }

    /// The key, empty for what concerns a whole server.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The same, holding its bytes.
    #[must_use]
    pub fn into_owned(self) -> Request<'static> {
        Request {
            key: Cow::Owned(self.key.into_owned()),
            verb: self.verb.into_owned(),
        }
    }

    /// Whether it changes nothing that another request would see, so that it may be asked again.
    #[must_use]
    pub fn reads_only(&self) -> bool {
        match &self.verb {
            Verb::Get { expiry, .. } => expiry.is_none(),
            Verb::Stats(what) => what.is_empty(),
            Verb::Version | Verb::Noop | Verb::Cluster => true,
            Verb::Meta(meta) => meta.reads_only(),
            _ => false,
        }
    }

    /// What may have become of it once it is sent, while there is no answer.
    pub(crate) fn effect(&self) -> Effect {
        match self.reads_only() {
            true => Effect::Reads,
            false => Effect::Unknown,
        }
    }

    /// Whether a value follows the line.
    pub(crate) fn has_body(&self) -> bool {
        match &self.verb {
            Verb::Store(_) => true,
            Verb::Meta(meta) => meta.value.is_some(),
            _ => false,
        }
    }
}
