//! Executes operations: what each does to the store and what it answers.
//!
//! The [`Executor`] lives for one burst. It executes the operations of a connection in order, and
//! writes their replies into the worker's [`Output`]. Its [`Outcome`] says whether the next
//! operation may follow.

mod admin;
mod binary;
mod classic;
mod complaints;
mod flash;
mod large;
pub mod login;
mod meta;
mod permit;
mod tags;
mod upload;
mod values;
mod watched;

use coua_protocol::expiry::Exptime;
use coua_protocol::reply::{BinaryAnswer, Line};
use coua_protocol::{
    AdminCommand, BinaryCommand, BinaryRequestId, ErrorLine, KEY_LEN_MAX, Op, Span, Status,
    StoreMode, StoreReply, base64, expiry,
};
use coua_store::{Ahead, Burst, Expiry, Intent, Key, KeyHash, Miss, UnixSeconds};

use self::binary::ItemForm;
use crate::buffers::Pool;
use crate::clock::Now;
use crate::connections::Activity;
use crate::counters::Counters;
use crate::fetches::Fetches;
use crate::outcome::Outcome;
use crate::output::{Flushed, Output};
use crate::rdma::WorkerRdma;
use crate::session::{Session, SessionId, StreamingSet};
use crate::shared::Shared;
use crate::watch::LogStreams;

/// Executes operations within one burst.
pub struct Executor<'w, 'b> {
    /// The store.
    pub burst: Burst<'b>,
    /// What answers need.
    pub answers: Answers<'w>,
    /// What is read from flash.
    pub fetches: &'w mut Fetches,
    /// Boxes for values that arrive in pieces, for reuse.
    pub spare_streaming_sets: &'w mut Vec<Box<StreamingSet>>,
}

/// What answers need: all but the store, so that an item can be borrowed at the same time.
pub struct Answers<'w> {
    /// Where replies go.
    pub output: &'w mut Output,
    /// Memory for replies that the socket does not take.
    pub pool: &'w mut Pool,
    /// The worker's RDMA.
    pub rdma: Option<&'w mut WorkerRdma>,
    /// The worker's counters.
    pub counters: &'w Counters,
    /// What all workers share.
    pub shared: &'w Shared,
    /// The time of this turn.
    pub now: Now,
}

/// One operation of a session, ready to be executed.
pub struct Request<'r> {
    /// The connection.
    pub session: &'r mut Session,
    /// Its id.
    pub id: SessionId,
    /// The input that the operation's spans point into.
    pub input: &'r [u8],
    /// The hash of its key, if it has a key.
    pub hash: Option<KeyHash>,
    /// What the look-ahead has found.
    pub ahead: Ahead,
    /// It has waited for memory as long as it may.
    pub gives_up: bool,
    /// How often it has looked for its item again because that was on flash.
    pub flash_tries: u8,
}

/// Where the answer goes to a command that both the text and the binary protocol have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// A line of text.
    Line,
    /// Nowhere: `noreply`.
    Nobody,
    /// A binary answer; success is not answered if the request is quiet.
    Binary(BinaryRequestId),
}

impl To {
    fn line_unless(noreply: bool) -> To {
        if noreply { To::Nobody } else { To::Line }
    }
}

impl From<StoreReply> for To {
    fn from(reply: StoreReply) -> To {
        match reply {
            StoreReply::Classic | StoreReply::Meta | StoreReply::MetaQuiet => To::Line,
            StoreReply::None => To::Nobody,
            StoreReply::Binary(asked) => To::Binary(asked),
        }
    }
}

/// The key of an operation, and whether the operation reads or writes.
pub fn key_of(op: &Op) -> Option<(Span, bool, Intent)> {
    Some(match op {
        Op::Get { key, .. } | Op::GetAndTouch { key, .. } | Op::Touch { key, .. } => {
            (*key, false, Intent::Read)
        }
        Op::Store(store) | Op::StoreStream(store) => (store.key, store.key_base64, Intent::Write),
        Op::StoreRefused(refused) => (refused.key, refused.key_base64, Intent::Write),
        Op::Delete { key, .. } => (*key, false, Intent::Write),
        Op::Arithmetic(arithmetic) => (arithmetic.key, false, Intent::Write),
        Op::MetaGet(meta) => (meta.key, meta.key_base64(), Intent::Read),
        Op::MetaDelete(meta) => (meta.key, meta.key_base64(), Intent::Write),
        Op::MetaArithmetic(request) => (request.meta.key, request.meta.key_base64(), Intent::Write),
        Op::MetaDebug { key, base64 } => (*key, *base64, Intent::Read),
        Op::Binary(request) => match request.command {
            BinaryCommand::Get { key, .. } => (key, false, Intent::Read),
            BinaryCommand::Delete { key, .. } | BinaryCommand::Arithmetic { key, .. } => {
                (key, false, Intent::Write)
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// Whether an operation with a key needs its item where that is on flash. Plain sets and plain deletes do not.
pub fn needs_record(op: &Op) -> bool {
    match op {
        Op::Store(store) => store.mode != StoreMode::Set,
        Op::StoreStream(_) | Op::StoreRefused(_) | Op::Delete { .. } => false,
        Op::MetaGet(meta) => !meta.names_tag(),
        Op::MetaDelete(meta) => {
            !meta.names_tag() && (meta.cas().is_some() || meta.set.has(b'I') || meta.set.has(b'x'))
        }
        Op::Binary(request) => match request.command {
            BinaryCommand::Delete { cas, .. } => cas != 0,
            _ => true,
        },
        _ => true,
    }
}

/// Room for a decoded key; filled only if a key came in base64.
pub type KeyRoom = Option<[u8; KEY_LEN_MAX]>;

/// The key as the store knows it: decoded into `room` if it came in base64.
#[inline]
pub fn stored_key<'k>(key: Span, base64: bool, input: &'k [u8], room: &'k mut KeyRoom) -> &'k [u8] {
    let sent = key.of(input);
    if !base64 {
        return sent;
    }
    let room = room.insert([0; KEY_LEN_MAX]);
    // The parser admits only keys that can be decoded.
    let len = base64::decode(sent, room).unwrap_or(0);
    &room[..len]
}

impl Executor<'_, '_> {
    /// Executes one operation.
    pub fn execute(&mut self, request: Request<'_>, op: &Op) -> Outcome {
        if self.answers.shared.verbosity() < 2 {
            return self.execute_silently(request, op);
        }
        let number = request.session.connection.descriptor;
        let start = self.answers.output.next_start();
        let outcome = self.execute_silently(request, op);
        complaints::show_reply(number, self.answers.output.written_from(start));
        outcome
    }

    fn execute_silently(&mut self, request: Request<'_>, op: &Op) -> Outcome {
        if request.session.skips_keys {
            let is_end = match op {
                Op::Get { last, .. } | Op::GetAndTouch { last, .. } => *last,
                _ => true,
            };
            request.session.skips_keys = !is_end;
            // Other operations that end a list of keys are answered as usual.
            if matches!(op, Op::Get { .. } | Op::GetAndTouch { .. } | Op::GetEnd) {
                return Outcome::Done;
            }
        }
        if let Some(outcome) = self.make_room(request.session) {
            return outcome;
        }
        match self.answers.shared.watchers.see(LogStreams::OF_REQUESTS) {
            true => self.execute_watched(request, op),
            false => self.execute_op(request, op),
        }
    }

    fn execute_op(&mut self, mut request: Request<'_>, op: &Op) -> Outcome {
        match op {
            Op::Get { key, cas, last } => self.get(request, *key, *cas, *last),
            Op::Store(store) => self.store(request, store),
            Op::MetaGet(meta) => self.meta_get(request, meta),
            Op::GetAndTouch {
                key,
                exptime,
                cas,
                last,
            } => {
                let (cas, last) = (*cas, *last);
                self.get_and_touch(request, *key, *exptime, ItemForm::Classic { cas, last })
            }
            Op::GetEnd => self.answers.get_end(),
            Op::StoreStream(store) => self.begin_upload(request, store),
            Op::StoreBody { bytes } => self.continue_upload(&mut request, *bytes),
            Op::StoreEnd { bytes, terminated } => self.end_upload(request, *bytes, *terminated),
            Op::StoreRefused(refused) => self.refuse_store(request, refused),
            Op::Delete { key, noreply } => {
                self.delete(request, *key, None, To::line_unless(*noreply))
            }
            Op::Arithmetic(arithmetic) => self.classic_arithmetic(request, arithmetic),
            Op::Binary(binary) => self.binary(request, binary),
            Op::Login(login) => self.login(request, login),
            Op::Touch {
                key,
                exptime,
                noreply,
            } => self.touch(request, *key, *exptime, *noreply),
            Op::MetaDelete(meta) => self.meta_delete(request, meta),
            Op::MetaArithmetic(arithmetic) => self.meta_arithmetic(request, arithmetic),
            Op::MetaDebug { key, base64 } => self.meta_debug(request, *key, *base64),
            Op::MetaNoop => self.answers.meta_noop(),
            Op::FlushAll { delay, noreply } => {
                self.flush_all(request, *delay, To::line_unless(*noreply))
            }
            Op::Version => self.answers.version(),
            Op::Verbosity { level, noreply } => {
                let may = request.session.may;
                self.answers.verbosity(may, *level, *noreply)
            }
            Op::Quit => {
                request.session.quit();
                Outcome::CloseWhenSent
            }
            Op::Stats { args } => self.answers.stats(request, *args, &self.burst),
            Op::Shutdown { mode, noreply } => self.answers.shutdown(request, *mode, *noreply),
            // Where there is no list of servers, there is no such command.
            Op::Admin {
                command: AdminCommand::Config,
                noreply,
                ..
            } if self.answers.shared.settings.cluster.is_none() => {
                let (error, noreply) = (ErrorLine::Unknown, *noreply);
                self.execute_op(request, &Op::Error { error, noreply })
            }
            Op::Admin {
                command,
                args,
                noreply,
            } => {
                let (command, args, noreply) = (*command, *args, *noreply);
                self.answers
                    .administer(request, command, args, noreply, &self.burst)
            }
            Op::Error { error, noreply } => {
                if *error == ErrorLine::BadDataChunk {
                    // The set has asked for memory already, so it is counted.
                    self.answers.counters.cmd_set.add(1);
                }
                let connection = &request.session.connection;
                // The rest of a refused value may still have been arriving.
                connection.set_activity(Activity::Reading);
                complaints::bad_request(connection, *error, self.answers.now);
                self.answers.error(*error, To::line_unless(*noreply))
            }
        }
    }

    /// Executes one key of a `get`: [`Op::Get`].
    #[inline]
    pub fn execute_get(
        &mut self,
        request: Request<'_>,
        key: Span,
        cas: bool,
        last: bool,
    ) -> Outcome {
        if request.session.skips_keys {
            request.session.skips_keys = !last;
            return Outcome::Done;
        }
        if let Some(outcome) = self.make_room(request.session) {
            return outcome;
        }
        if self.answers.shared.watchers.see(LogStreams::OF_REQUESTS) {
            return self.execute(request, &Op::Get { key, cas, last });
        }
        if self.answers.shared.verbosity() < 2 {
            return self.get(request, key, cas, last);
        }
        // What the log needs of the connection is on a cache line of its own.
        let number = request.session.connection.descriptor;
        let start = self.answers.output.next_start();
        let outcome = self.get(request, key, cas, last);
        complaints::show_reply(number, self.answers.output.written_from(start));
        outcome
    }

    /// Makes room for a reply. Without room, nothing may be executed.
    #[inline]
    fn make_room(&mut self, session: &mut Session) -> Option<Outcome> {
        if self.answers.output.has_room() {
            return None;
        }
        let flushed = self.answers.output.flush(session, self.answers.pool);
        match flushed {
            Flushed::All => None,
            // The operation is executed later, when the client has read.
            Flushed::Blocked => Some(Outcome::Wait),
            _ => Some(flushed.into()),
        }
    }

    /// The store's form of a key, with its hash if that is known.
    #[inline]
    fn key<'k>(&self, bytes: &'k [u8], hash: Option<KeyHash>) -> Key<'k> {
        match hash {
            Some(hash) => Key { bytes, hash },
            None => self.burst.key(bytes),
        }
    }
}

/// How long an item lives, negative for ever.
#[derive(Clone, Copy)]
struct Ttl {
    seconds: i64,
    ms: i64,
}

impl Answers<'_> {
    /// What an expiry on the wire means at this time.
    #[inline]
    fn expiry(&self, exptime: i32) -> Expiry {
        if exptime == 0 {
            return Expiry::NEVER;
        }
        let started = self.shared.clock.started();
        Expiry::at(UnixSeconds(expiry::expiry(
            exptime,
            self.now.unix.0,
            started.0,
        )))
    }

    /// As [`Answers::expiry`], for what may be in milliseconds.
    fn fine_expiry(&self, exptime: Exptime) -> Expiry {
        match exptime.seconds() {
            Some(exptime) => self.expiry(exptime),
            None => {
                let started = self.shared.clock.started();
                Expiry::at_millis(exptime.expiry_ms(self.now.time.millis(), started.0))
            }
        }
    }

    /// The time until `expiry`; negative if the item never expires.
    fn ttl(&self, expiry: Expiry) -> Ttl {
        let Some(millis) = expiry.millis() else {
            return Ttl {
                seconds: -1,
                ms: -1,
            };
        };
        let ms = millis.cast_signed() - self.now.time.millis().cast_signed();
        Ttl {
            // Rounded up.
            seconds: -(-ms).div_euclid(1000),
            ms,
        }
    }

    /// Answers with a fixed line, or with its equivalent in the binary protocol.
    #[inline]
    fn line(&mut self, to: To, line: Line) -> Outcome {
        match to {
            To::Line => self.output.reply(|reply| reply.line(line)),
            To::Nobody => {}
            To::Binary(asked) => match line {
                Line::NotFound => return self.refuse(asked, Status::KeyNotFound),
                Line::Exists => return self.refuse(asked, Status::KeyExists),
                Line::NotStored => return self.refuse(asked, Status::NotStored),
                _ => return self.succeed(asked, 0),
            },
        }
        Outcome::Done
    }

    /// Answers that a binary request succeeded, with this CAS.
    fn succeed(&mut self, asked: BinaryRequestId, cas: u64) -> Outcome {
        if !asked.is_quiet() {
            let answer = BinaryAnswer {
                cas,
                ..BinaryAnswer::default()
            };
            self.output.reply(|reply| reply.binary(asked, &answer));
        }
        Outcome::Done
    }

    fn refuse(&mut self, asked: BinaryRequestId, status: Status) -> Outcome {
        self.output
            .reply(|reply| reply.binary_error(asked, status, status.text()));
        Outcome::Done
    }

    fn error(&mut self, error: ErrorLine, to: To) -> Outcome {
        match to {
            To::Line => self.output.reply(|reply| reply.error(error)),
            To::Nobody => {}
            To::Binary(asked) => {
                let (status, text) = error.into();
                self.output
                    .reply(|reply| reply.binary_error(asked, status, text));
            }
        }
        Outcome::Done
    }

    /// Counts why a lookup found nothing.
    #[inline]
    fn count_miss(&self, miss: Miss) {
        match miss {
            Miss::Absent | Miss::OnFlash(_) => {}
            Miss::Expired => self.counters.get_expired.add(1),
            Miss::Flushed => self.counters.get_flushed.add(1),
            Miss::Invalidated => self.counters.get_invalidated.add(1),
        }
    }
}
