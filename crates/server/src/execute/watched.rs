//! Requests that somebody watches: what is told of them, as memcached tells it.
//!
//! memcached tells of each lookup, and a request may look an item up more than once: a store command
//! does so to find the old item. Here the item is looked up once more, before the request is executed.

use coua_protocol::{BinaryCommand, Op, StoreMode};
use coua_store::{Access, Expiry, Key, Miss, Refused, Stored};

use super::{Executor, Request, key_of, stored_key};
use crate::outcome::Outcome;
use crate::session::Session;
use crate::watch::lines::{self, Found, StoreLine, StoreStatus};
use crate::watch::{LogStreams, Watchers};

/// What a store command wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchedStore {
    /// How the value is to be stored.
    pub(super) mode: StoreMode,
    /// When the item is to die.
    pub(super) expiry: Expiry,
    /// Bytes of the value as sent.
    pub(super) value_len: u32,
    /// The old item is deleted where the value is refused.
    pub(super) unlinks_when_refused: bool,
}

/// What else is told of an operation than that it looks an item up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Also {
    Nothing,
    /// It deletes the item, by this name.
    Deletes(&'static str),
    /// It may replace the item by an empty one, and by this name delete what was there.
    Empties(Option<&'static str>),
    /// It creates the item where there is none. memcached tells of it before `ma` gives it its expiry.
    Creates {
        has_expiry: bool,
    },
}

impl Executor<'_, '_> {
    /// Whether somebody watches what requests do.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        self.watchers().see(LogStreams::OF_REQUESTS)
    }

    /// The item as it is before a request; `None` where nobody watches.
    #[inline]
    pub(super) fn look(&self, key: &Key<'_>) -> Option<Found> {
        self.is_watched().then(|| self.look_up(key))
    }

    #[cold]
    fn look_up(&self, key: &Key<'_>) -> Found {
        let unseen = Access {
            bump: false,
            cas: false,
        };
        match self.burst.get(key, unseen) {
            Ok(item) => Ok(item.value_len()),
            // How long it is nobody knows without a read.
            Err(Miss::OnFlash(_)) => Ok(0),
            Err(miss) => Err(miss),
        }
    }

    /// Executes an operation, and tells of it those who watch. Store commands tell themselves.
    #[cold]
    pub(super) fn execute_watched(&mut self, request: Request<'_>, op: &Op) -> Outcome {
        let Some((key, base64, also)) = watched(op) else {
            return self.execute_op(request, op);
        };
        let mut room = None;
        let bytes = stored_key(key, base64, request.input, &mut room);
        let key = self.key(bytes, request.hash);
        let descriptor = request.session.connection.descriptor;
        let before = self.look_up(&key);
        let deleted_before = self.answers.counters.delete_hits.value();
        let outcome = self.execute_op(request, op);
        if matches!(outcome, Outcome::Wait | Outcome::WaitForFlash) {
            return outcome;
        }
        if let Err(miss) = before {
            // The lookup has removed a dead item, so that the request did not find it any more.
            self.answers.count_miss(miss);
        }
        let tell_get = |found| {
            self.watchers().tell(LogStreams::FETCHERS, |line| {
                lines::item_get(line, bytes, found, descriptor);
            });
        };
        tell_get(before);
        let has_deleted = self.answers.counters.delete_hits.value() != deleted_before;
        match (also, before) {
            (Also::Deletes(command), Ok(value_len)) if has_deleted => {
                self.tell_deleted(bytes, command, value_len);
            }
            (Also::Empties(deletes), Ok(_)) if self.look_up(&key) == Ok(0) => {
                tell_get(before);
                self.tell_created(&key, StoreMode::Set, true, descriptor);
                if let Some(command) = deletes
                    && has_deleted
                {
                    self.tell_deleted(bytes, command, 0);
                }
            }
            (Also::Creates { has_expiry }, Err(_)) if self.look_up(&key).is_ok() => {
                tell_get(Err(Miss::Absent));
                self.tell_created(&key, StoreMode::Add, has_expiry, descriptor);
            }
            _ => {}
        }
        outcome
    }

    /// Tells what came of a store command; `before` is the old item.
    #[cold]
    pub(super) fn tell_store(
        &self,
        session: &Session,
        key: &Key<'_>,
        before: Found,
        stored: Stored,
        wanted: &WatchedStore,
    ) {
        let descriptor = session.connection.descriptor;
        let tell_get = || {
            self.watchers().tell(LogStreams::FETCHERS, |line| {
                lines::item_get(line, key.bytes, before, descriptor);
            });
        };
        let status = match stored {
            Stored::Stored { .. } => StoreStatus::Stored,
            // One that needs what is on flash waits, and is told of later.
            Stored::NotStored | Stored::OnFlash(_) => StoreStatus::NotStored,
            Stored::Exists => StoreStatus::Exists,
            Stored::NotFound => StoreStatus::NotFound,
            Stored::Refused(Refused::TooLarge) => StoreStatus::TooLarge,
            Stored::Refused(_) => StoreStatus::NoMemory,
        };
        let is_refused = matches!(stored, Stored::Refused(_));
        if !is_refused {
            tell_get();
        }
        let line = StoreLine {
            key: key.bytes,
            status,
            mode: wanted.mode,
            ttl: self.seconds_left(wanted.expiry),
            value_len: wanted.value_len as usize,
        };
        match status {
            StoreStatus::Stored => self.tell_stored(key, line, descriptor),
            _ => self.watchers().tell(LogStreams::MUTATIONS, |text| {
                lines::item_store(text, &line, descriptor);
            }),
        }
        if is_refused && wanted.unlinks_when_refused {
            tell_get();
        }
    }

    /// Tells of an item that a request of another kind has stored.
    fn tell_created(&self, key: &Key<'_>, mode: StoreMode, has_expiry: bool, descriptor: i32) {
        let mut line = StoreLine {
            key: key.bytes,
            status: StoreStatus::Stored,
            mode,
            ttl: 0,
            value_len: 0,
        };
        self.look_at(key, &mut line);
        if !has_expiry {
            line.ttl = 0;
        }
        self.watchers().tell(LogStreams::MUTATIONS, |text| {
            lines::item_store(text, &line, descriptor);
        });
    }

    /// Tells of an item that was stored, with what it has become: `append` keeps an expiry, and makes
    /// a value longer.
    fn tell_stored(&self, key: &Key<'_>, mut line: StoreLine<'_>, descriptor: i32) {
        self.look_at(key, &mut line);
        self.watchers().tell(LogStreams::MUTATIONS, |text| {
            lines::item_store(text, &line, descriptor);
        });
    }

    /// Puts into the line what the item has become.
    fn look_at(&self, key: &Key<'_>, line: &mut StoreLine<'_>) {
        let unseen = Access {
            bump: false,
            cas: false,
        };
        if let Ok(item) = self.burst.get(key, unseen) {
            line.ttl = self.seconds_left(item.expiry());
            line.value_len = item.value_len();
        }
    }

    fn tell_deleted(&self, key: &[u8], command: &str, value_len: usize) {
        self.watchers().tell(LogStreams::DELETIONS, |line| {
            lines::deleted(line, key, command, value_len);
        });
    }

    /// Seconds until `expiry`, 0 for never; as in memcached, those that have passed count down from 2^32.
    fn seconds_left(&self, expiry: Expiry) -> u32 {
        match expiry.second() {
            None => 0,
            Some(second) => second.0.wrapping_sub(self.answers.now.unix.0),
        }
    }

    fn watchers(&self) -> &Watchers {
        &self.answers.shared.watchers
    }
}

/// The key of an operation that looks an item up, and what else is told of it. Store commands, and what
/// names a tag, are not among them.
fn watched(op: &Op) -> Option<(coua_protocol::Span, bool, Also)> {
    let also = match op {
        Op::Store(_) | Op::StoreStream(_) | Op::StoreRefused(_) => return None,
        Op::MetaGet(meta) | Op::MetaDelete(meta) if meta.names_tag() => return None,
        Op::Delete { .. } => Also::Deletes("delete"),
        Op::MetaDelete(meta) if meta.set.has(b'x') => {
            Also::Empties((!meta.set.has(b'I')).then_some("md"))
        }
        Op::MetaDelete(meta) if meta.set.has(b'I') => Also::Nothing,
        Op::MetaDelete(_) => Also::Deletes("md"),
        Op::MetaArithmetic(request) if request.meta.vivify().is_some() => {
            Also::Creates { has_expiry: false }
        }
        Op::Binary(binary) => match binary.command {
            BinaryCommand::Arithmetic {
                vivify: Some(_), ..
            } => Also::Creates { has_expiry: true },
            _ => Also::Nothing,
        },
        _ => Also::Nothing,
    };
    key_of(op).map(|(key, base64, _)| (key, base64, also))
}
