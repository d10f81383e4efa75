//! A worker's connections.

use std::sync::Arc;

use coua_cpu::prefetch_lines;
use coua_protocol::{Awaited, Echo, ErrorLine, KEY_LEN_MAX, Parser, StoreMode, StoreReply};
use coua_store::{Expiry, UnixSeconds, Upload};
use coua_transport::{Stream, StreamFailure, huge_pages};

use crate::buffers::{Block, Pool};
use crate::closing::CloseCause;
use crate::connections::{Activity, ConnectionInfo};
use crate::dump::Dump;
use crate::fetch_list::FetchList;
use crate::message::Message;
use crate::permissions::{Permissions, User};
use crate::reply_queue::ReplyQueue;
use crate::watch::Watch;

/// Bytes of a value that are still to come from which on they are received where they will lie.
const DIRECT_LEN_MIN: usize = 8 << 10;

/// One connection of a worker. The order of the fields matters: an ordinary request needs no field
/// after `dump`, where the second cache line ends.
#[repr(C)]
pub struct Session {
    /// The socket. It closes with the session.
    pub stream: Stream,
    /// What other threads may know of the connection.
    pub connection: Arc<ConnectionInfo>,
    /// The state of its parser.
    pub parser: Parser,
    /// When it last executed a request, as published in `connection`; 0 before the first.
    noted: UnixSeconds,
    /// Bytes that were received but not executed. They precede those that the kernel holds.
    pub leftover: Option<Leftover>,
    /// Its user may not read and write all items: `user` says which.
    pub is_restricted: bool,
    /// Somebody has failed to log in, and the next request waits for a while.
    pub is_held: bool,
    /// The answer to the current `get` has ended early: its remaining keys are not looked up.
    pub skips_keys: bool,
    /// `fetches` has something.
    pub has_fetches: bool,
    /// The kernel may hold input.
    pub readable: bool,
    /// The peer has ended its stream.
    pub ended: bool,
    /// The kernel has reported that no more input comes.
    pub has_no_more_input: bool,
    /// The list of its worker that it is in.
    pub listed: Listed,
    /// It closes as soon as its replies have been sent.
    pub closes_when_sent: bool,
    /// Its next request waits for memory, since `waits_since_ms`.
    waits: bool,
    /// Replies that the socket has not taken. Nothing is executed while there are any.
    pub queue: Option<Box<ReplyQueue>>,
    /// The message that it serves and ends with; `None` in connections.
    pub message: Option<Box<Message>>,
    /// A value that arrives in pieces.
    pub upload: Option<Box<StreamingSet>>,
    /// A long reply that is being produced in parts. Nothing is executed while there is one.
    pub dump: Option<Box<Dump>>,
    /// Who has logged in, where that is somebody who may not read and write all items.
    pub user: Option<Arc<User>>,
    /// What the client is permitted to do.
    pub may: Permissions,
    /// Set when the value that arrives in pieces has been refused: the rest of it is dropped, and
    /// this is the answer after it.
    pub refused_value: Option<(ErrorLine, StoreReply)>,
    /// Why it closes, if something other than the client has decided it.
    pub close_cause: Option<CloseCause>,
    /// What the server found it doing when it began to stop.
    pub drained: Drained,
    /// Its reads of flash, and what they have brought.
    pub fetches: FetchList,
    /// When its next request began to wait for memory (milliseconds since the server's start).
    waits_since_ms: u64,
    /// When it last stalled in the middle of something (milliseconds since the server's start).
    pub stalled_since_ms: u64,
}

/// The list from which a worker goes on with a session. A session is in one list at most: in two,
/// its later input could be executed before its earlier input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listed {
    /// In none: an event of its socket lists it.
    #[default]
    Nowhere,
    /// Among the ready sessions.
    Ready,
    /// Among the ready sessions, only because its next request waits for memory.
    ForMemory,
    /// In none: the end of its reads of flash lists it.
    ForFlash,
    /// Among the pieces of the input buffer, where its input lies, active or parked.
    Input,
    /// As `Input`, active, and its next request waits for reads of flash.
    InputForFlash,
}

/// What a server that stops waits for before it ends a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drained {
    /// Nothing, or what comes with the next look at the socket.
    #[default]
    No,
    /// The rest of a request that had begun to arrive when the server began to stop.
    HadBegun,
}

/// Input that is kept for a later turn.
pub struct Leftover {
    /// Where the bytes are.
    pub block: Block,
    /// The number of bytes.
    pub len: u32,
}

/// A value that arrives in pieces, and what is needed to answer it.
pub struct StreamingSet {
    /// The item being written; `None` once it has been finished or given up.
    pub upload: Option<Upload>,
    /// The key as stored.
    pub key: [u8; KEY_LEN_MAX],
    /// Bytes of the key.
    pub key_len: usize,
    /// The key came in base64.
    pub key_base64: bool,
    /// Bytes of the whole value as sent.
    pub value_len: u32,
    /// How it is stored.
    pub mode: StoreMode,
    /// When the item dies.
    pub expiry: Expiry,
    /// How it is answered.
    pub reply: StoreReply,
    /// The flags that the answer repeats.
    pub echo: Echo,
    /// Bytes of the current piece that have already been copied.
    pub piece_done: usize,
}

impl SessionSlot {
    /// Cache lines that an ordinary request needs.
    const HOT_LINES: usize = 2;

    /// Prefetches those lines.
    #[inline]
    fn prefetch(&self) {
        prefetch_lines(std::ptr::from_ref(self).cast(), Self::HOT_LINES);
    }
}

impl Session {
    /// A connection that has just been accepted.
    pub fn new(
        stream: Stream,
        connection: Arc<ConnectionInfo>,
        parser: Parser,
        may: Permissions,
    ) -> Session {
        Session {
            stream,
            parser,
            may,
            noted: UnixSeconds(0),
            connection,
            leftover: None,
            queue: None,
            dump: None,
            user: None,
            is_restricted: false,
            is_held: false,
            message: None,
            upload: None,
            refused_value: None,
            close_cause: None,
            drained: Drained::No,
            skips_keys: false,
            has_fetches: false,
            fetches: FetchList::default(),
            readable: true,
            ended: false,
            has_no_more_input: false,
            listed: Listed::Nowhere,
            closes_when_sent: false,
            waits: false,
            waits_since_ms: 0,
            stalled_since_ms: 0,
        }
    }

    /// A user has logged in; `may` is what the server permits everybody.
    pub fn log_in(&mut self, user: Arc<User>, may: Permissions) {
        self.may = may.of(&user);
        self.is_restricted = !user.has_all_items();
        self.user = self.is_restricted.then_some(user);
    }

    /// Whether its requests may take the fast path.
    #[inline]
    pub fn takes_fast_path(&self) -> bool {
        !(self.skips_keys | self.is_restricted | self.has_fetches)
    }

    /// Whether there is nothing to do for the connection until more input comes: it serves no
    /// message, no answer is under way, and all that had come was received.
    #[inline]
    pub fn awaits_input(&self) -> bool {
        self.message.is_none() && self.dump.is_none() && !self.readable && !self.has_no_more_input
    }

    /// The bit of the sender of its datagram ([`Datagram::sender_bit`]); zero for a connection.
    pub fn sender_bit(&self) -> u64 {
        let message = self.message.as_deref();
        message.map_or(0, Message::sender_bit)
    }

    /// Whether it serves a request over RDMA.
    pub fn serves_rdma(&self) -> bool {
        matches!(self.message.as_deref(), Some(Message::Rdma(_)))
    }

    /// Notes that a request was executed at `now`. It is published at most once a second: with many
    /// connections the published state is in none of the caches.
    #[inline]
    pub fn note_request(&mut self, now: UnixSeconds) {
        if self.noted != now {
            self.noted = now;
            self.connection.note_request(now);
        }
    }

    /// The server begins to stop: notes whether a request has begun to arrive, and marks the moment
    /// for [`Session::has_executed_since_mark`].
    pub fn begin_drain(&mut self) {
        let awaits_request = self.parser.awaits() == Awaited::Request;
        if self.leftover.is_some() || !awaits_request || self.refused_value.is_some() {
            self.drained = Drained::HadBegun;
        }
        self.noted = UnixSeconds(0);
    }

    /// Whether a request was executed since [`Session::begin_drain`], or a part of a value received.
    pub fn has_executed_since_mark(&self) -> bool {
        self.noted != UnixSeconds(0)
    }

    /// Publishes what the connection waits for, unless that is a request. All input so far has been
    /// parsed.
    pub fn show_awaited(&self) {
        let activity = match self.parser.awaits() {
            Awaited::Value if self.refused_value.is_none() => Activity::ReceivingValue,
            Awaited::Value | Awaited::RefusedValue => Activity::Swallowing,
            // The published state is on a cache line of its own, and has said `Request` since the
            // first request.
            Awaited::Request if self.noted != UnixSeconds(0) => return,
            Awaited::Request => Activity::Reading,
        };
        self.connection.set_activity(activity);
    }

    /// Takes the leftover input; the value that it is the beginning of may be whole now.
    pub fn take_leftover(&mut self) -> Option<Leftover> {
        let leftover = self.leftover.take()?;
        if self.parser.awaits() == Awaited::Value && self.upload.is_none() {
            self.connection.set_activity(Activity::Reading);
        }
        Some(leftover)
    }

    /// Notes that its next request waits for memory from `now_ms` on, unless it already waits
    /// (milliseconds since the server's start).
    pub fn wait_for_memory(&mut self, now_ms: u64) {
        if !self.waits {
            (self.waits, self.waits_since_ms) = (true, now_ms);
        }
    }

    /// Notes that it no longer waits for memory.
    #[inline]
    pub fn wait_no_more(&mut self) {
        self.waits = false;
    }

    /// Since when its next request has waited for memory, if it does (milliseconds since the
    /// server's start).
    #[inline]
    pub fn waits_since_ms(&self) -> Option<u64> {
        self.waits.then_some(self.waits_since_ms)
    }

    /// The client has asked to close the connection.
    pub fn quit(&mut self) {
        self.close_cause = Some(CloseCause::Quit);
    }

    /// Why it closes: the cause that was decided, or else what the transport reports.
    pub fn why_closed(&self) -> CloseCause {
        let of_failure = |failure| match failure {
            None => CloseCause::Client,
            Some(StreamFailure::Peer) => CloseCause::Reset,
            Some(StreamFailure::Memory) => CloseCause::Memory,
        };
        let cause = self.close_cause;
        cause.unwrap_or_else(|| of_failure(self.stream.failure()))
    }

    /// Whether replies wait for the client to read, or its client has to wait, so that nothing may be
    /// executed.
    pub fn is_blocked(&self) -> bool {
        self.queue.is_some() || self.dump.is_some() || self.is_held || self.stream.has_unsent()
    }

    /// Whether it sends lines to somebody who watches. Nothing is executed for it any more.
    pub fn watches(&self) -> bool {
        self.watch().is_some()
    }

    /// The place among those who watch, if it has one.
    pub fn watch(&self) -> Option<&Watch> {
        self.dump.as_deref().and_then(Dump::as_watch)
    }

    /// Whether more of a long answer can be sent at once: only a turn's share of it was over. Of who
    /// watches, the worker is woken for the next line otherwise.
    pub fn goes_on_dumping(&self) -> bool {
        self.dump.is_some() && self.queue.is_none() && self.watch().is_none_or(Watch::has_lines)
    }

    /// What it does while nothing may be executed for it.
    pub fn blocked_activity(&self) -> Activity {
        match self.watches() {
            true => Activity::Watching,
            false => Activity::Writing,
        }
    }

    /// Whether a part of the value that arrives in pieces is still missing.
    pub fn is_receiving(&self) -> bool {
        let streaming = self.upload.as_deref();
        streaming
            .and_then(|streaming| streaming.upload.as_ref())
            .is_some_and(|upload| upload.remaining() > 0)
    }

    /// Whether so much of a value is still to come that it pays to receive it straight into the
    /// store. A value that waits for memory takes the general path, which can also give up.
    pub fn takes_value_directly(&self) -> bool {
        let upload = self
            .upload
            .as_ref()
            .and_then(|streaming| streaming.upload.as_ref());
        self.readable
            && !self.waits
            && upload.is_some_and(|upload| upload.remaining() >= DIRECT_LEN_MIN)
    }

    /// Whether the connection holds memory from the pool.
    pub fn holds_buffers(&self) -> bool {
        self.leftover.is_some() || self.queue.is_some()
    }

    /// Gives the connection's memory back to the pool.
    pub fn release(&mut self, pool: &mut Pool) {
        if let Some(leftover) = self.leftover.take() {
            pool.give_back(leftover.block);
        }
        if let Some(mut queue) = self.queue.take() {
            queue.clear(pool);
        }
        self.upload = None;
        self.dump = None;
    }
}

/// Identifies a session of one worker; an id is not reused for another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId {
    /// Its place in the table.
    pub slot: u32,
    /// How many sessions had this place before, modulo 2^31.
    pub generation: u32,
}

/// The number of sessions that the table has room for at first, at most.
const CAPACITY_MAX: usize = 1 << 18;

/// A worker's sessions.
pub struct Sessions {
    places: Vec<SessionSlot>,
    free: Vec<u32>,
}

#[repr(C, align(64))]
struct SessionSlot {
    generation: u32,
    session: Option<Session>,
}

impl Sessions {
    /// Has room for `capacity` sessions, or for fewer if that is too many. Memory is taken as it is
    /// used, in huge pages if there are any: a table that grows later would keep small pages.
    pub fn new(capacity: usize) -> Sessions {
        let sessions = Sessions {
            places: Vec::with_capacity(capacity.min(CAPACITY_MAX)),
            free: Vec::new(),
        };
        sessions.ask_for_huge_pages();
        sessions
    }

    fn ask_for_huge_pages(&self) {
        let len = self.places.capacity() * size_of::<SessionSlot>();
        let first = self.places.as_ptr().cast();
        huge_pages::ask_for(std::ptr::slice_from_raw_parts(first, len));
    }

    /// Gives a session a place and an id.
    ///
    /// # Panics
    /// If there have been 2^32 sessions.
    pub fn insert(&mut self, session: Session) -> SessionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            let before = self.places.capacity();
            self.places.push(SessionSlot {
                generation: 0,
                session: None,
            });
            if self.places.capacity() != before {
                self.ask_for_huge_pages();
            }
            u32::try_from(self.places.len() - 1).expect("fewer sessions than 2^32")
        });
        let place = &mut self.places[slot as usize];
        place.session = Some(session);
        SessionId {
            slot,
            generation: place.generation,
        }
    }

    /// The session with that id, unless it is gone.
    #[inline]
    pub fn get(&mut self, id: SessionId) -> Option<&mut Session> {
        let place = self.places.get_mut(id.slot as usize)?;
        if place.generation == id.generation {
            place.session.as_mut()
        } else {
            None
        }
    }

    /// Places, taken or not.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Prefetches what an ordinary request needs of a session, if it exists.
    #[inline]
    pub fn prefetch(&self, id: SessionId) {
        if let Some(place) = self.places.get(id.slot as usize) {
            place.prefetch();
        }
    }

    /// Removes a session.
    pub fn remove(&mut self, id: SessionId) -> Option<Session> {
        self.get(id)?;
        let place = &mut self.places[id.slot as usize];
        place.generation = place.generation.wrapping_add(1) & (u32::MAX >> 1);
        self.free.push(id.slot);
        place.session.take()
    }

    /// All sessions and their ids.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.places.iter().enumerate().filter_map(|(slot, place)| {
            let session = place.session.as_ref()?;
            let slot = u32::try_from(slot).ok()?;
            Some((
                SessionId {
                    slot,
                    generation: place.generation,
                },
                session,
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn a_request_needs_the_first_two_lines() {
        // A simulated stream is larger, so the layout does not hold then.
        if size_of::<Stream>() > 16 {
            return;
        }
        let at = |offset: usize| offset_of!(SessionSlot, session) + offset;
        assert_eq!(offset_of!(SessionSlot, generation), 0);
        assert_eq!(
            at(offset_of!(Session, dump) + 8),
            64 * SessionSlot::HOT_LINES
        );
        assert_eq!(
            (align_of::<SessionSlot>(), size_of::<SessionSlot>()),
            (64, 192)
        );
    }
}
