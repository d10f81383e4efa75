//! Replies on their way from sessions to the network.

use coua_protocol::ErrorLine;
use coua_rdma::{Fabric, REPLY_COPY_MAX, Span};
use coua_store::Pinned;

use super::{Keep, WorkerRdma};
use crate::message::Message;

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its reply is whole.
    Answered,
    /// What it was made of is no whole request.
    Incomplete,
    /// There was no memory for its reply, or that became too long.
    Refused,
}

impl WorkerRdma {
    /// Answers a request with what was gathered for it, and `written` behind that. Gives its part of the worker's `room`
    /// for replies back.
    pub fn answer(
        &mut self,
        mut message: Box<Message>,
        written: &[u8],
        room: &mut usize,
        ending: Ending,
    ) {
        let Message::Rdma(rdma) = &mut *message else {
            return;
        };
        let request = rdma.request;
        let value = rdma.value.take();
        let gathered = rdma.gathered.bytes();
        match (ending, value) {
            (Ending::Answered, None) => self.send(request, &[gathered, written]),
            (Ending::Answered, Some((at, pinned))) => {
                let (head, tail) = gathered.split_at(at.min(gathered.len()));
                self.send_value(request, head, pinned, [tail, written]);
            }
            (Ending::Incomplete, _) => {
                let line = ErrorLine::Unknown.as_bytes();
                self.send(request, &[gathered, written, line]);
            }
            (Ending::Refused, _) => self.send(request, &[ErrorLine::OutOfMemoryReply.as_bytes()]),
        }
        rdma.gathered.clear(room);
        self.spare.push(message);
        self.is_untold = true;
    }

    /// Sends copies of `pieces`.
    fn send(&mut self, request: coua_rdma::RequestId, pieces: &[&[u8]]) {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let (server, driver) = (&mut self.server, &mut self.driver);
        if let [piece] = pieces
            && len <= REPLY_COPY_MAX
        {
            return server.reply(driver, request, piece);
        }
        if len <= REPLY_COPY_MAX {
            let mut short = [0; REPLY_COPY_MAX];
            let mut at = 0;
            for piece in pieces {
                short[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
            return server.reply(driver, request, &short[..at]);
        }
        let Some(staged) = self.staging.take(len) else {
            return server.reply(driver, request, ErrorLine::OutOfMemoryReply.as_bytes());
        };
        let span = staged.span();
        let mut at = 0;
        for piece in pieces {
            driver.copy_in(span.part(at, piece.len()), piece);
            at += piece.len();
        }
        server.reply_from(driver, request, (&[], &[]), &[span], Keep::Staged(staged));
    }

    /// Sends a value from where it lies, with `head` before it and `tail` behind it; or copies, where that cannot be.
    fn send_value(
        &mut self,
        request: coua_rdma::RequestId,
        head: &[u8],
        pinned: Pinned,
        tail: [&[u8]; 2],
    ) {
        if pinned.is_doubtful() {
            return self.send(request, &[ErrorLine::OutOfMemoryReply.as_bytes()]);
        }
        let tail_len = tail[0].len() + tail[1].len();
        let places = self.places(&pinned);
        let Some(places) = places.filter(|_| head.len() + tail_len <= REPLY_COPY_MAX) else {
            let mut pieces = vec![head];
            pieces.extend(pinned.chunks());
            pieces.extend(tail);
            return self.send(request, &pieces);
        };
        let mut end = [0; REPLY_COPY_MAX];
        end[..tail[0].len()].copy_from_slice(tail[0]);
        end[tail[0].len()..tail_len].copy_from_slice(tail[1]);
        let around = (head, &end[..tail_len]);
        self.server.reply_from(
            &mut self.driver,
            request,
            around,
            &places,
            Keep::Pinned(pinned),
        );
    }

    /// Where a value's pieces lie in the store's memory; `None` where the network does not read that, or one is too
    /// short.
    fn places(&self, pinned: &Pinned) -> Option<Vec<Span>> {
        let (region, base) = self.arena?;
        let places: Vec<Span> = pinned
            .chunks()
            .map(|chunk| Span {
                region,
                offset: chunk.as_ptr().addr() - base,
                len: chunk.len(),
            })
            .collect();
        let least = self.server.limits().part_len_max();
        let (_, all_but_last) = places.split_last()?;
        all_but_last
            .iter()
            .all(|piece| piece.len >= least)
            .then_some(places)
    }
}
