//! Values that arrive in pieces.
//!
//! Memory for the item is taken as bytes arrive. When an upload is refused, the rest of the value
//! is received and dropped, so that the connection stays in step. The refusal is answered after
//! that: a client that reads while it writes may take an earlier answer for the end of its request.

use coua_protocol::{Echo, ErrorLine, Flags, KEY_LEN_MAX, Span, Store, StoreReply};
use coua_store::{Delete, Refused, Stored};

use super::classic::{StoreAnswer, refusal_line, unlinks_when_refused};
use super::flash::Back;
use super::watched::WatchedStore;
use super::{Answers, Executor, Request, stored_key};
use crate::connections::Activity;
use crate::outcome::Outcome;
use crate::session::{Session, StreamingSet};

impl Executor<'_, '_> {
    pub(super) fn begin_upload(&mut self, request: Request<'_>, store: &Store) -> Outcome {
        let Request {
            session,
            input,
            hash,
            gives_up,
            ..
        } = request;
        let mut room = None;
        let bytes = stored_key(store.key, store.key_base64, input, &mut room);
        let key = self.key(bytes, hash);
        let put = self.answers.put(store, input);
        let upload = match self
            .burst
            .begin_upload(&key, &put, store.value_len as usize)
        {
            Ok(upload) => upload,
            Err(Refused::Wait) if !gives_up => return Outcome::Wait,
            Err(refused) => {
                let before = self.look(&key);
                if unlinks_when_refused(store) {
                    self.burst.delete(&key, &Delete::default());
                }
                if let Some(before) = before {
                    let wanted = WatchedStore {
                        mode: store.mode,
                        expiry: put.expiry,
                        value_len: store.value_len,
                        unlinks_when_refused: unlinks_when_refused(store),
                    };
                    let stored = Stored::Refused(refused);
                    self.tell_store(session, &key, before, stored, &wanted);
                }
                self.answers.count_refusal(refused);
                session.connection.set_activity(Activity::Swallowing);
                session.refused_value = Some((refusal_line(refused), store.reply));
                return Outcome::Done;
            }
        };
        let mut stored_key = [0; KEY_LEN_MAX];
        stored_key[..bytes.len()].copy_from_slice(bytes);
        let streaming = StreamingSet {
            upload: Some(upload),
            key: stored_key,
            key_len: bytes.len(),
            key_base64: store.key_base64,
            value_len: store.value_len,
            mode: store.mode,
            expiry: put.expiry,
            reply: store.reply,
            echo: Echo::of(store.tokens.of(input)),
            piece_done: 0,
        };
        session.connection.set_activity(Activity::ReceivingValue);
        session.upload = Some(match self.spare_streaming_sets.pop() {
            Some(mut spare) => {
                *spare = streaming;
                spare
            }
            None => Box::new(streaming),
        });
        Outcome::Done
    }

    pub(super) fn continue_upload(&mut self, request: &mut Request<'_>, bytes: Span) -> Outcome {
        let (session, input) = (&mut *request.session, request.input);
        let gives_up = request.gives_up;
        let Some(streaming) = session.upload.as_deref_mut() else {
            return Outcome::Done;
        };
        let Some(upload) = streaming.upload.as_mut() else {
            return Outcome::Done;
        };
        let mut rest = &bytes.of(input)[streaming.piece_done..];
        while !rest.is_empty() {
            match self.burst.upload_space(upload) {
                Ok(space) => {
                    let count = space.len().min(rest.len());
                    space[..count].copy_from_slice(&rest[..count]);
                    upload.advance(count);
                    streaming.piece_done += count;
                    rest = &rest[count..];
                }
                Err(Refused::Wait) if !gives_up => return Outcome::Wait,
                Err(refused) => {
                    let reply = streaming.reply;
                    self.end_streaming(session);
                    self.answers.count_refusal(refused);
                    session.connection.set_activity(Activity::Swallowing);
                    session.refused_value = Some((ErrorLine::OutOfMemoryReading, reply));
                    return Outcome::Done;
                }
            }
        }
        streaming.piece_done = 0;
        Outcome::Done
    }

    pub(super) fn end_upload(
        &mut self,
        mut request: Request<'_>,
        bytes: Span,
        terminated: bool,
    ) -> Outcome {
        // Bytes that are there already are so because the end of the value had to wait.
        if bytes.len > 0 && request.session.is_receiving() {
            let received = self.continue_upload(&mut request, bytes);
            if received != Outcome::Done {
                return received;
            }
        }
        let session = &mut *request.session;
        if let Some((error, reply)) = session.refused_value.take() {
            session.connection.set_activity(Activity::Reading);
            return self.answers.error(error, reply.into());
        }
        let Some(streaming) = session.upload.as_deref_mut() else {
            return Outcome::Done;
        };
        if streaming.upload.is_none() {
            return Outcome::Done;
        }
        if !terminated {
            self.answers.counters.cmd_set.add(1);
            let to = streaming.reply.into();
            self.end_streaming(session);
            return self.answers.error(ErrorLine::BadDataChunk, to);
        }
        let before = match self.is_watched() {
            true => self.look(&self.burst.key(&streaming.key[..streaming.key_len])),
            false => None,
        };
        let stored = match self.finish_upload(&mut request) {
            Ok(stored) => stored,
            Err(outcome) => return outcome,
        };
        let session = &mut *request.session;
        let Some(streaming) = session.upload.take() else {
            return Outcome::Done;
        };
        session.connection.set_activity(Activity::Reading);
        if let Some(before) = before {
            let wanted = WatchedStore {
                mode: streaming.mode,
                expiry: streaming.expiry,
                value_len: streaming.value_len,
                unlinks_when_refused: false,
            };
            let key = self.burst.key(&streaming.key[..streaming.key_len]);
            self.tell_store(session, &key, before, stored, &wanted);
        }
        let is_meta = matches!(streaming.reply, StoreReply::Meta | StoreReply::MetaQuiet);
        let answer = StoreAnswer {
            key: &streaming.key[..streaming.key_len],
            key_base64: streaming.key_base64,
            value_len: streaming.value_len,
            mode: streaming.mode,
            reply: streaming.reply,
            flags: if is_meta {
                streaming.echo.flags()
            } else {
                Flags::new(&[])
            },
        };
        let outcome = self.answers.answer_store(stored, answer);
        self.spare_streaming_sets.push(streaming);
        outcome
    }

    /// Stores the value that has arrived, whose old item may be on flash. `Err`: the request is to be executed again
    /// later.
    fn finish_upload(&mut self, request: &mut Request<'_>) -> Result<Stored, Outcome> {
        loop {
            let streaming = request.session.upload.as_deref_mut();
            let Some((streaming, upload)) = streaming.and_then(|it| {
                let upload = it.upload.take()?;
                Some((it, upload))
            }) else {
                return Ok(Stored::Refused(Refused::OutOfMemory));
            };
            let upload = match self.burst.finish_upload(upload) {
                Ok(stored) => return Ok(stored),
                Err(upload) => upload,
            };
            let Some(place) = upload.on_flash() else {
                if request.gives_up {
                    return Ok(Stored::Refused(Refused::OutOfMemory));
                }
                streaming.upload = Some(upload);
                return Err(Outcome::Wait);
            };
            let (key, len) = (streaming.key, streaming.key_len);
            streaming.upload = Some(upload);
            let key = self.key(&key[..len], None);
            match self.bring_back(request, &key, place) {
                Back::Again => {}
                Back::Later(outcome) => return Err(outcome),
                Back::Refused => return Ok(Stored::Refused(Refused::OutOfMemory)),
            }
        }
    }

    fn end_streaming(&mut self, session: &mut Session) {
        if let Some(mut streaming) = session.upload.take() {
            streaming.upload = None;
            self.spare_streaming_sets.push(streaming);
        }
        session.connection.set_activity(Activity::Reading);
    }
}

impl Answers<'_> {
    fn count_refusal(&self, refused: Refused) {
        match refused {
            Refused::TooLarge => self.counters.store_too_large.add(1),
            Refused::Wait | Refused::OutOfMemory => self.counters.store_no_memory.add(1),
        }
    }
}
