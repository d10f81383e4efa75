//! What clients ask, and what they must be answered: every byte is known beforehand.

use std::sync::Arc;

use anyhow::anyhow;

use super::requests::{Kind, Requests};
use crate::echo::canned_hit;
use crate::workload::{KeyFormat, Values};

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// A cache in which every key is.
    Cache,
    /// A cache that evicts: a get may miss.
    FullCache,
    /// One that answers a get or set of any key with the same bytes.
    Same,
    /// One that sends back what it gets.
    Mirror,
}

/// Keys that there may be: a bit of their number is used otherwise.
pub(crate) const KEYS_MAX: u32 = Ask::IS_SET;

/// One request that is under way: its kind in the highest bit, the key's number in the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Ask(u32);

impl Ask {
    const IS_SET: u32 = 1 << 31;

    #[inline]
    fn new(kind: Kind, key: u32) -> Ask {
        match kind {
            Kind::Get => Ask(key),
            Kind::Set => Ask(key | Ask::IS_SET),
        }
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        match self.0 & Ask::IS_SET {
            0 => Kind::Get,
            _ => Kind::Set,
        }
    }

    #[inline]
    fn key(self) -> u32 {
        self.0 & !Ask::IS_SET
    }
}

/// How far a reply has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Progress {
    /// Bytes of it that were right.
    pub(super) len: u16,
    /// It began as that of a key that is not there.
    pub(super) is_miss: bool,
}

/// What some bytes were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A part of a reply.
    Part(Progress),
    /// So many bytes that end a reply, and whether that was a miss.
    Reply(usize, bool),
}

/// A source of requests that knows their replies.
#[derive(Debug)]
pub(super) struct Dialogue {
    requests: Requests,
    keys: KeyFormat,
    values: Arc<Values>,
    answers: Answers,
    /// The reply to a get, key and value open or made up.
    hit: Vec<u8>,
    key_at: usize,
    value_at: usize,
    /// Room for the reply of a mirror.
    mirrored: Vec<u8>,
}

/// The reply to a get of a key that is not there.
const MISS: &[u8] = b"END\r\n";

/// The reply to a set.
const STORED: &[u8] = b"STORED\r\n";

/// What is said where other bytes came than must.
#[cold]
#[inline(never)]
fn mistaken(ask: Ask, expected: &[u8], came: &[u8]) -> anyhow::Error {
    let [expected, came] =
        [expected, came].map(|bytes| String::from_utf8_lossy(&bytes[..bytes.len().min(60)]));
    anyhow!("{ask:?} is answered with {came:?} for {expected:?}")
}

impl Dialogue {
    /// Requests for one key each.
    pub(super) fn new(
        requests: Requests,
        keys: KeyFormat,
        values: Arc<Values>,
        answers: Answers,
    ) -> Dialogue {
        let hit = canned_hit(keys.size(), values.size(), 1);
        let value_at = hit.len() - values.size() - 2 - MISS.len();
        Dialogue {
            requests,
            keys,
            values,
            answers,
            hit,
            key_at: b"VALUE ".len(),
            value_at,
            mirrored: Vec::new(),
        }
    }

    /// Bytes of the longest request.
    pub(super) fn request_len_max(&self) -> usize {
        self.requests.len_max()
    }

    /// Bytes of the longest reply.
    pub(super) fn reply_len_max(&self) -> usize {
        self.hit.len().max(STORED.len()).max(self.request_len_max())
    }

    /// The next request.
    #[inline]
    pub(super) fn draw(&mut self) -> Option<Ask> {
        self.requests.draw().map(|(kind, key)| Ask::new(kind, key))
    }

    /// Appends a request's bytes.
    #[inline]
    pub(super) fn append(&self, ask: Ask, out: &mut Vec<u8>) {
        self.requests.append(ask.kind(), ask.key(), out);
    }

    /// Whether bytes are the reply to a request, all of it and nothing else, and whether that was a
    /// miss. None where they are not.
    #[inline]
    pub(super) fn is_reply(&mut self, ask: Ask, bytes: &[u8]) -> Option<bool> {
        let is_miss = self.may_miss(ask) && bytes.first() == MISS.first();
        (self.expected(ask, is_miss) == bytes).then_some(is_miss)
    }

    #[inline]
    fn may_miss(&self, ask: Ask) -> bool {
        self.answers == Answers::FullCache && ask.kind() == Kind::Get
    }

    /// Compares bytes with the reply to a request, of which some has come before.
    ///
    /// # Errors
    /// Where they are not what must come.
    #[inline]
    pub(super) fn compare(
        &mut self,
        ask: Ask,
        progress: Progress,
        bytes: &[u8],
    ) -> anyhow::Result<Step> {
        let done = usize::from(progress.len);
        let is_miss =
            progress.is_miss || self.may_miss(ask) && done == 0 && bytes.first() == MISS.first();
        let expected = self.expected(ask, is_miss);
        let rest = &expected[done..];
        let len = rest.len().min(bytes.len());
        if rest[..len] != bytes[..len] {
            return Err(mistaken(ask, rest, bytes));
        }
        if len == rest.len() {
            return Ok(Step::Reply(len, is_miss));
        }
        let len = u16::try_from(done + len).expect("a reply fits a few segments");
        Ok(Step::Part(Progress { len, is_miss }))
    }

    #[inline]
    fn expected(&mut self, ask: Ask, is_miss: bool) -> &[u8] {
        if self.answers == Answers::Mirror {
            self.mirrored.clear();
            let request = &mut self.mirrored;
            self.requests.append(ask.kind(), ask.key(), request);
            return request;
        }
        if is_miss {
            return MISS;
        }
        match (ask.kind(), self.answers) {
            (Kind::Set, _) => STORED,
            (Kind::Get, Answers::Same) => &self.hit,
            (Kind::Get, _) => {
                let (key_len, value) = (self.keys.size(), self.values.of(ask.key()));
                let hit = &mut self.hit;
                // The made-up key differs from others in its digits only.
                self.keys
                    .rewrite(ask.key(), &mut hit[self.key_at..][..key_len]);
                hit[self.value_at..][..value.len()].copy_from_slice(value);
                hit
            }
        }
    }
}
