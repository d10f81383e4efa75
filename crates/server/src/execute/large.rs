//! Values on flash in pieces: sent piece by piece while the next are read, or brought back to memory.
//!
//! A request whose value is being sent is executed again and again, as one that waits for flash, until the last piece has
//! left. It looks nothing up meanwhile: the value's length was promised. If a piece cannot be read then, the connection
//! closes. A client that does not read keeps no records: they are let go of, and read again when it does.

use coua_protocol::Meta;
use coua_store::{FetchStart, FlashPieces, FlashPlace, Item, Key, PIECES_AT_ONCE};

use super::binary::ItemForm;
use super::flash::Back;
use super::{Answers, Executor, Request};
use crate::fetch_list::LargeValue;
use crate::fetches::Found;
use crate::outcome::Outcome;
use crate::output::{Flushed, Question};
use crate::prefixes::PrefixEvent;
use crate::session::{Session, SessionId};
use crate::stats;

/// Bytes that are sent for one request in a turn, so that other connections have their share.
const TURN_LEN: usize = 256 << 10;

impl Executor<'_, '_> {
    /// Begins to answer a key of a `get` whose head is the session's record `at`. `None` if a part of the value is gone:
    /// the request is to look it up again.
    pub(super) fn begin_get(
        &mut self,
        request: &mut Request<'_>,
        key: &Key<'_>,
        place: FlashPlace,
        at: u32,
        form: ItemForm,
    ) -> Option<Outcome> {
        self.begin_sending(request, key, place, at, |answers, item| {
            answers.counters.cmd_get.add(1);
            answers.counters.get_hits.add(1);
            answers.count_record(item);
            answers.count_prefix(item.key(), PrefixEvent::Hit);
            answers.value_head(item, form)
        })
    }

    /// As [`Executor::begin_get`], for an `mg` that asks for the value and does nothing but read.
    pub(super) fn begin_meta_get(
        &mut self,
        request: &mut Request<'_>,
        meta: &Meta,
        key: &Key<'_>,
        place: FlashPlace,
        at: u32,
    ) -> Option<Outcome> {
        let input = request.input;
        self.begin_sending(request, key, place, at, |answers, item| {
            answers.meta_record_head(meta, input, item)
        })
    }

    /// Begins to send a value: `write_head` writes what stands before it.
    fn begin_sending(
        &mut self,
        request: &mut Request<'_>,
        key: &Key<'_>,
        place: FlashPlace,
        at: u32,
        write_head: impl FnOnce(&mut Answers<'_>, &Item<'_>) -> Question,
    ) -> Option<Outcome> {
        let found = self
            .burst
            .flash_pieces(key, place, self.fetches.record(at)?);
        let sending = found.map(|(item, pieces)| LargeValue::Sending {
            tail: write_head(&mut self.answers, &item).tail(),
            pieces,
            next: 0,
        });
        self.fetches.note_used(at);
        let session = &mut *request.session;
        session.fetches.large = Some(Box::new(sending?));
        session.has_fetches = true;
        Some(self.send_large(request.id, session))
    }

    /// Sends what has been read of a value, and begins to read what follows.
    pub fn send_large(&mut self, id: SessionId, session: &mut Session) -> Outcome {
        let Some(mut large) = session.fetches.large.take() else {
            return Outcome::Done;
        };
        let LargeValue::Sending { pieces, next, tail } = &mut *large else {
            return Outcome::Done;
        };
        let mut len = 0;
        while *next < pieces.count() {
            if !self.read_pieces(id, session, pieces, *next) {
                return Outcome::Close;
            }
            let at = match self.fetches.find(&session.fetches, pieces.place(*next)) {
                Found::Ended(at) if len < TURN_LEN => at,
                found => {
                    let waits = found != Found::Nothing || session.fetches.is_waiting();
                    session.fetches.large = Some(large);
                    if waits {
                        return Outcome::WaitForFlash;
                    }
                    // What was read for later requests may be what others wait for.
                    self.fetches.release(&mut session.fetches, false);
                    return Outcome::Wait;
                }
            };
            let fetched = self.fetches.record(at);
            let found = fetched.and_then(|it| Some((it, pieces.data(*next, it)?.split_last()?)));
            let Some((fetched, (last, data))) = found else {
                // What has left is not taken back.
                return Outcome::Close;
            };
            let (output, pool) = (&mut *self.answers.output, &mut *self.answers.pool);
            let written = stats::write(data, output, session, pool);
            // A reply is not complete before it is known that nothing of it was lost.
            if fetched.is_lost() {
                output.truncate(0);
                return Outcome::CloseForLoss;
            }
            let last = std::slice::from_ref(last);
            let written = match written {
                Flushed::All => stats::write(last, output, session, pool),
                Flushed::Blocked => {
                    let queue = session.queue.get_or_insert_default();
                    let queued = queue.push(pool, last);
                    queued.map_or_else(Flushed::from, |()| Flushed::Blocked)
                }
                gone => gone,
            };
            len += data.len() + last.len();
            *next += 1;
            self.fetches.note_used(at);
            let flushed = match written {
                Flushed::All => output.flush(session, pool),
                other => other,
            };
            match flushed {
                Flushed::All if !session.is_blocked() => {}
                Flushed::All | Flushed::Blocked => {
                    session.fetches.large = Some(large);
                    return Outcome::WaitForFlash;
                }
                lost => return lost.into(),
            }
        }
        let tail = *tail;
        self.answers.output.reply(|reply| reply.bytes(tail));
        Outcome::Done
    }

    /// Brings a value back whose head is the session's record `at`.
    pub(super) fn recall(
        &mut self,
        request: &mut Request<'_>,
        key: &Key<'_>,
        place: FlashPlace,
        at: u32,
    ) -> Back {
        let (id, gives_up) = (request.id, request.gives_up);
        let session = &mut *request.session;
        let Some(head) = self.fetches.record(at) else {
            return Back::Again;
        };
        let begun = match session.fetches.large.take().map(|large| *large) {
            Some(LargeValue::Recalling(recall)) if recall.place() == place => Ok(recall),
            _ => self.burst.begin_recall(key, place, head),
        };
        let Ok(mut recall) = begun else {
            self.fetches.note_used(at);
            return Back::Again;
        };
        session.has_fetches = true;
        let short = match gives_up {
            true => Back::Refused,
            false => Back::Later(Outcome::Wait),
        };
        while let Some(nth) = recall.missing().next() {
            if !self.read_pieces(id, session, recall.pieces(), nth) {
                self.fetches.note_used(at);
                self.burst.drop_flash(place);
                return Back::Again;
            }
            let piece = recall.pieces().place(nth);
            let later = match self.fetches.find(&session.fetches, piece) {
                Found::Ended(piece_at) => {
                    let piece = self.fetches.record(piece_at);
                    let taken = piece.map(|piece| self.burst.recall(&mut recall, piece));
                    match taken {
                        Some(Ok(true)) => {
                            self.fetches.note_used(piece_at);
                            continue;
                        }
                        Some(Err(_)) => short,
                        // A part of the value is lost, so all of it is.
                        Some(Ok(false)) | None => {
                            self.fetches.note_used(piece_at);
                            self.fetches.note_used(at);
                            self.burst.drop_flash(place);
                            return Back::Again;
                        }
                    }
                }
                Found::Nothing if !session.fetches.is_waiting() => {
                    self.fetches.release_but(&mut session.fetches, at);
                    short
                }
                _ => Back::Later(Outcome::WaitForFlash),
            };
            if !matches!(later, Back::Refused) {
                session.fetches.large = Some(Box::new(LargeValue::Recalling(recall)));
            }
            return later;
        }
        let Some(head) = self.fetches.record(at) else {
            return Back::Again;
        };
        match self.burst.finish_recall(key, head, recall) {
            Ok(_) => {
                self.fetches.note_used(at);
                Back::Again
            }
            Err(_) if gives_up => Back::Refused,
            Err(recall) => {
                session.fetches.large = Some(Box::new(LargeValue::Recalling(recall)));
                Back::Later(Outcome::Wait)
            }
        }
    }

    /// Begins to read the next few pieces of a value, from `next` on. False if that one is gone.
    fn read_pieces(
        &mut self,
        id: SessionId,
        session: &mut Session,
        pieces: &FlashPieces,
        next: usize,
    ) -> bool {
        let ahead = next..pieces.count().min(next + 2 * PIECES_AT_ONCE);
        let mut begun = 0;
        for nth in ahead {
            let place = pieces.place(nth);
            if begun == PIECES_AT_ONCE || usize::from(session.fetches.under_way) >= PIECES_AT_ONCE {
                break;
            }
            if self.fetches.find(&session.fetches, place) == Found::Nothing {
                match self.begin_fetch(id, session, place) {
                    FetchStart::UnderWay => begun += 1,
                    FetchStart::Gone if nth == next => return false,
                    // It is found out when it is its turn.
                    FetchStart::Gone | FetchStart::Busy => break,
                }
            }
        }
        true
    }
}
